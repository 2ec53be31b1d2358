"""JustLend and SunSwap by the decoders of the EVM: what a Tron wallet has there is what the contracts say."""

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


def snapshot(*accounts: str) -> Snapshot:
    """What accounts have now, by the settings of this folder."""

    async def take() -> Snapshot:
        system = System(load(Path("chainfolio.toml")))
        try:
            return await snapshotter_of(system, system.chain("tron")).take(accounts, live=True)
        finally:
            await system.close()

    return asyncio.run(take())


def raws(found: Snapshot, protocol: str, account: Signer) -> tuple[dict[str, int], dict[str, int]]:
    """What is supplied and borrowed in a protocol, by the contract that is shown."""
    own = [each for each in found.positions if (each.account, each.protocol) == (base58check(account.hex), protocol)]
    supplied = {each.token.asset.shown_contract: each.raw for one in own for each in one.supplied}
    return supplied, {each.token.asset.shown_contract: each.raw for one in own for each in one.borrowed}


def check(deployed: Deployed, found: Snapshot) -> None:
    """Everything is what the contracts say at the very block of the snapshot."""
    height, poor, rich = found.block.height, evm_address(deployed.poor.hex), evm_address(deployed.rich.hex)
    assert found.block.hash == deployed.node.blocks[height].id
    dollar, wrapped = base58check(deployed.dollar), base58check(deployed.wrapped)
    own, owed = "balanceOfUnderlying(address)(uint256)", "borrowBalanceCurrent(address)(uint256)"
    coins = deployed.said(deployed.coins, own, poor, height=height)
    debt = deployed.said(deployed.dollars, owed, poor, height=height)
    assert debt > 10**9 + 1, "interest of every block counts"
    assert raws(found, "justlend", deployed.poor) == ({ZERO: coins}, {dollar: debt})
    lent = deployed.said(deployed.dollars, own, rich, height=height)
    assert raws(found, "justlend", deployed.rich) == ({dollar: lent}, {})
    shares, supply = (
        deployed.said(deployed.pair, function, *given, height=height)
        for function, given in (("balanceOf(address)(uint256)", [rich]), ("totalSupply()(uint256)", []))
    )
    held = {
        token: deployed.said(at, "balanceOf(address)(uint256)", evm_address(deployed.pair), height=height)
        for token, at in ((dollar, deployed.dollar), (wrapped, deployed.wrapped))
    }
    assert raws(found, "sunswap2", deployed.rich)[0] == {token: raw * shares // supply for token, raw in held.items()}
    (place,) = (each for each in found.positions if each.protocol == "sunswap3")
    liquidity = deployed.said(deployed.manager, POSITION, 1, height=height)[7]
    left = deployed.said(deployed.manager, DECREASE, (1, liquidity, 0, 0, FOREVER), height=height, who=rich)
    assert sorted(each.raw for each in place.supplied) == sorted(left)
    natives = {each.account: each.raw for each in found.holdings if each.token.asset.is_native}
    state = deployed.node.states[height].accounts
    assert natives == {base58check(each.hex): state[each.hex].balance for each in (deployed.rich, deployed.poor)}


def both(deployed: Deployed) -> list[str]:
    """The two wallets."""
    return [base58check(each.hex) for each in (deployed.rich, deployed.poor)]


def test_what_is_lent_owed_and_put_into_pools_is_what_the_contracts_say(
    deployed: Deployed, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(("index", "tron")) == 0
    found = snapshot(*both(deployed))
    check(deployed, found)
    assert {each.pool for each in found.positions if each.protocol == "justlend"} == {base58check(deployed.comptroller)}
    asked = [(call.read.label[1], call.read.label[3]) for each in found.positions for call in each.calls]
    names = [(each.account, each.pool, each.vault, each.name) for each in found.positions]
    written = repr([asked, found.issues, names])
    assert base58check(deployed.dollars) in written
    assert not re.search("0x[0-9a-f]{40}", written)
    capsys.readouterr()
    assert main(("portfolio", base58check(deployed.poor.hex), "--json")) == 0
    (shown,) = json.loads(capsys.readouterr().out)
    (lending,) = shown["assetByProtocols"]["justlend"]["chains"]["tron"]["protocolPositions"].values()
    (place,) = lending["protocolPositions"]
    assert [each["contract"] for each in place["borrowAssets"]] == [base58check(deployed.dollar)]
    assert shown["completeness"] == "complete"


def goes_on(deployed: Deployed, monkeypatch: pytest.MonkeyPatch, times: int) -> list[int]:
    """The chain makes a block behind so many answers to calls; the heights of all answers."""
    seen: list[int] = []
    posted = calls.send_calls

    async def moving(*given: Any) -> Any:
        answer = await posted(*given)
        seen.append(answer[1].height)
        if len(seen) <= times:
            deployed.node.advance()
        return answer

    monkeypatch.setattr(state, "send_calls", moving)
    return seen


def test_positions_that_take_several_rounds_are_of_one_block_while_the_chain_goes_on(
    deployed: Deployed, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(("index", "tron")) == 0
    seen = goes_on(deployed, monkeypatch, 4)
    found = snapshot(*both(deployed))
    assert len({*seen}) > 3, "rounds were of several blocks"
    check(deployed, found)


def test_a_chain_that_never_stands_still_is_no_answer(
    deployed: Deployed, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(("index", "tron")) == 0
    goes_on(deployed, monkeypatch, 10**6)
    with pytest.raises(Unavailable, match="goes on faster than it answers"):
        snapshot(*both(deployed))


def test_a_wallet_without_positions_is_read_in_one_round(
    deployed: Deployed, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(("index", "tron")) == 0
    seen = goes_on(deployed, monkeypatch, 0)
    found = snapshot(base58check("41" + "77" * 20))
    assert (found.positions, found.issues, len(seen)) == ((), (), 1)
