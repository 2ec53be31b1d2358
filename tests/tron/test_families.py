"""Positions of a Tron wallet at JustLend and SunSwap, by the EVM's decoders, equal the contracts'."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chainfolio.adapters.tron import calls, state
from chainfolio.cli.main import main
from chainfolio.contracts import Snapshot
from chainfolio.engine.wiring import snapshotter_of
from chainfolio.errors import Unavailable
from chainfolio.indexer.wiring import System
from chainfolio.localchain.tron.forms import base58check, evm_address
from chainfolio.localchain.tron.node import TronNode
from chainfolio.settings_file import load
from tests.chains.tron import Signer
from tests.tron.chains import facts
from tests.tron.deployed import FOREVER, ZERO, Deployed

pytestmark = pytest.mark.node
POSITION = (
    "positions(uint256)(uint96,address,address,address,uint24,int24,int24,uint128,uint256,uint256,uint128,uint128)"
)
DECREASE = "decreaseLiquidity((uint256,uint128,uint256,uint256,uint256))(uint256,uint256)"


@pytest.fixture(scope="module")
def deployed() -> Iterator[Deployed]:
    with TronNode(lag=2, grid=True) as node:
        yield Deployed(node, Signer(21), Signer(22))


@pytest.fixture
def here(deployed: Deployed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose settings name the node, and files of the protocols."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "protocols").mkdir()
    for name, content in deployed.files.items():
        (tmp_path / "protocols" / f"{name}.toml").write_text(content)
    path = facts(deployed.node, tmp_path, wrapped=deployed.wrapped)
    (tmp_path / "chainfolio.toml").write_text(
        f'data = "data"\nprotocols = "protocols"\n[chains.tron]\nadapter = "tron"\nrpc = ["{deployed.node.url}"]\n'
        f'facts = "{path}"\ntrongrid = true\n'
    )
    return tmp_path


def take_snapshot(*accounts: str) -> Snapshot:
    """Return a live snapshot of accounts, by the settings of this folder."""

    async def take() -> Snapshot:
        system = System(load(Path("chainfolio.toml")))
        try:
            return await snapshotter_of(system, system.chain("tron")).take(accounts, live=True)
        finally:
            await system.close()

    return asyncio.run(take())


def raws(snapshot: Snapshot, protocol: str, account: Signer) -> tuple[dict[str, int], dict[str, int]]:
    """Return the supplied and borrowed raw amounts in a protocol, by contract."""
    positions = [
        each for each in snapshot.positions if (each.account, each.protocol) == (base58check(account.hex), protocol)
    ]
    supplied = {each.token.asset.shown_contract: each.raw for position in positions for each in position.supplied}
    return supplied, {each.token.asset.shown_contract: each.raw for position in positions for each in position.borrowed}


def check(deployed: Deployed, snapshot: Snapshot) -> None:
    """Check that all amounts are those of the contracts at the block of the snapshot."""
    height, poor, rich = snapshot.block.height, evm_address(deployed.poor.hex), evm_address(deployed.rich.hex)
    assert snapshot.block.hash == deployed.node.blocks[height].id
    dollar, wrapped = base58check(deployed.dollar), base58check(deployed.wrapped)
    supply_of, debt_of = "balanceOfUnderlying(address)(uint256)", "borrowBalanceCurrent(address)(uint256)"
    coins = deployed.read(deployed.coins, supply_of, poor, height=height)
    debt = deployed.read(deployed.dollars, debt_of, poor, height=height)
    assert debt > 10**9 + 1, "interest of every block counts"
    assert raws(snapshot, "justlend", deployed.poor) == ({ZERO: coins}, {dollar: debt})
    lent = deployed.read(deployed.dollars, supply_of, rich, height=height)
    assert raws(snapshot, "justlend", deployed.rich) == ({dollar: lent}, {})
    shares, supply = (
        deployed.read(deployed.pair, function, *arguments, height=height)
        for function, arguments in (("balanceOf(address)(uint256)", [rich]), ("totalSupply()(uint256)", []))
    )
    reserves = {
        token: deployed.read(at, "balanceOf(address)(uint256)", evm_address(deployed.pair), height=height)
        for token, at in ((dollar, deployed.dollar), (wrapped, deployed.wrapped))
    }
    assert raws(snapshot, "sunswap2", deployed.rich)[0] == {
        token: raw * shares // supply for token, raw in reserves.items()
    }
    (position,) = (each for each in snapshot.positions if each.protocol == "sunswap3")
    liquidity = deployed.read(deployed.manager, POSITION, 1, height=height)[7]
    withdrawable = deployed.read(deployed.manager, DECREASE, (1, liquidity, 0, 0, FOREVER), height=height, sender=rich)
    assert sorted(each.raw for each in position.supplied) == sorted(withdrawable)
    natives = {each.account: each.raw for each in snapshot.holdings if each.token.asset.is_native}
    state = deployed.node.states[height].accounts
    assert natives == {base58check(each.hex): state[each.hex].balance for each in (deployed.rich, deployed.poor)}


def both(deployed: Deployed) -> list[str]:
    """The two wallets."""
    return [base58check(each.hex) for each in (deployed.rich, deployed.poor)]


def test_what_is_lent_owed_and_put_into_pools_is_what_the_contracts_say(
    deployed: Deployed, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(("index", "tron")) == 0
    snapshot = take_snapshot(*both(deployed))
    check(deployed, snapshot)
    assert {each.pool for each in snapshot.positions if each.protocol == "justlend"} == {
        base58check(deployed.comptroller)
    }
    call_labels = [(call.read.label[1], call.read.label[3]) for each in snapshot.positions for call in each.calls]
    names = [(each.account, each.pool, each.vault, each.name) for each in snapshot.positions]
    text = repr([call_labels, snapshot.issues, names])
    assert base58check(deployed.dollars) in text
    assert not re.search("0x[0-9a-f]{40}", text)
    capsys.readouterr()
    assert main(("portfolio", base58check(deployed.poor.hex), "--json")) == 0
    (portfolio,) = json.loads(capsys.readouterr().out)
    (lending,) = portfolio["assetByProtocols"]["justlend"]["chains"]["tron"]["protocolPositions"].values()
    (position,) = lending["protocolPositions"]
    assert [each["contract"] for each in position["borrowAssets"]] == [base58check(deployed.dollar)]
    assert portfolio["completeness"] == "complete"


def advance_chain(deployed: Deployed, monkeypatch: pytest.MonkeyPatch, times: int) -> list[int]:
    """Mine a block after each of the first `times` answers to calls; return the heights of all answers."""
    heights: list[int] = []
    posted = calls.send_calls

    async def moving(*arguments: Any) -> Any:
        answer = await posted(*arguments)
        heights.append(answer[1].height)
        if len(heights) <= times:
            deployed.node.advance()
        return answer

    monkeypatch.setattr(state, "send_calls", moving)
    return heights


def test_positions_that_take_several_rounds_are_of_one_block_while_the_chain_goes_on(
    deployed: Deployed, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(("index", "tron")) == 0
    heights = advance_chain(deployed, monkeypatch, 4)
    snapshot = take_snapshot(*both(deployed))
    assert len({*heights}) > 3, "rounds were of several blocks"
    check(deployed, snapshot)


def test_a_chain_that_never_stands_still_is_no_answer(
    deployed: Deployed, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(("index", "tron")) == 0
    advance_chain(deployed, monkeypatch, 10**6)
    with pytest.raises(Unavailable, match="goes on faster than it answers"):
        take_snapshot(*both(deployed))


def test_a_wallet_without_positions_is_read_in_one_round(
    deployed: Deployed, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(("index", "tron")) == 0
    heights = advance_chain(deployed, monkeypatch, 0)
    snapshot = take_snapshot(base58check("41" + "77" * 20))
    assert (snapshot.positions, snapshot.issues, len(heights)) == ((), (), 1)
