"""Wallets on a node through the command line and the API: every spelling of an address, beside other kinds of chain."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from chainfolio.localchain.evm import Tx
from chainfolio.localchain.node import LocalNode
from chainfolio.localchain.tron.forms import base58check
from chainfolio.localchain.tron.node import TronNode
from chainfolio.localchain.tron.state import TRX
from chainfolio.localchain.tron.wallet import Person, TronWeb
from chainfolio.settings import Settings
from chainfolio.settings_file import load
from tests.api.asking import asking
from tests.commands import run_json
from tests.tron.chains import facts
from tests.tron.conftest import RICH
from tests.tron.test_node import token_made

pytestmark = pytest.mark.node
Run = Callable[..., Any]
NATIVE = "0x0000000000000000000000000000000000000000"
PRICE = Decimal("0.25")
SOLANA = "7EcDhSYGxXyscszYEp35KHN8vvw3svAuLKTzXwCFLtV"
STARKNET = "0x" + "04ab" * 16


@dataclass(frozen=True)
class Lived:
    """A chain with a wallet that paid, staked, wrapped and approved; `then` is a height in the middle of it."""

    node: TronNode
    alice: Person
    bob: Person
    wrapped: str
    number: str
    then: int


@pytest.fixture(scope="module")
def lived(web: TronWeb) -> Iterator[Lived]:
    with TronNode(lag=2, grid=True, maintenance=10) as node:
        alice, bob = (Person(node, web, number) for number in range(2))
        node.endow(alice.hex, RICH)
        node.endow(bob.hex, RICH)
        node.advance()
        wrapped, number = alice.deploy("WETH9"), token_made(node, bob)
        alice.call(wrapped, "deposit()", sun=5_000_000)
        bob.send("sendToken", alice.hex, 1_234_567, number, bob.hex)
        node.advance()
        then = node.advance(3).height
        alice.call(wrapped, "approve(address,uint256)", ("address", bob.hex), ("uint256", 700))
        bob.pay(alice.hex, 9 * TRX, memo="thanks")
        node.advance()
        alice.call(wrapped, "transfer(address,uint256)", ("address", bob.hex), ("uint256", 2_000_000))
        node.advance()
        alice.send("freezeBalanceV2", 40 * TRX, "ENERGY", alice.hex)
        node.advance()
        alice.send("unfreezeBalanceV2", 15 * TRX, "ENERGY", alice.hex)
        node.advance(5)
        yield Lived(node, alice, bob, wrapped, number, then)


def lines(lived: Lived, folder: Path) -> str:
    """The settings of that chain."""
    (folder / "prices.toml").write_text(f'[fixed]\n"tron:{lived.node.chain_id}/slip44:195" = "{PRICE}"\n')
    path = facts(lived.node, folder, wrapped=lived.wrapped)
    return (
        f'data = "data"\nprices_file = "{folder}/prices.toml"\n'
        f'[chains.tron]\nadapter = "tron"\nrpc = ["{lived.node.url}"]\nfacts = "{path}"\ntrongrid = true\n'
    )


@pytest.fixture
def run(lived: Lived, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command that prints one document, in a folder whose settings name the node."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "chainfolio.toml").write_text(lines(lived, tmp_path))

    return partial(run_json, capsys)


def shown(portfolio: dict[str, Any]) -> dict[str, Decimal]:
    """The amounts of a portfolio: loose ones by the contract that it shows, those in positions by their names."""
    found: dict[str, Decimal] = {}
    for protocol in portfolio["assetByProtocols"].values():
        for chain in protocol["chains"].values():
            for group in chain["protocolPositions"].values():
                found |= {each["contract"]: Decimal(each["balance"]) for each in group["assets"]}
                for each in group["protocolPositions"]:
                    amounts = [*each["supplyAssets"], *each["rewardAssets"]]
                    found[each["name"]] = sum((Decimal(one["balance"]) for one in amounts), Decimal(0))
    return found


def kept(lived: Lived, height: int) -> dict[str, Decimal]:
    """What the node itself keeps of alice's loose assets."""
    account, machine = lived.node.states[height].accounts[lived.alice.hex], lived.node.machine.node
    where = ("0x" + lived.wrapped[2:], "balanceOf(address)(uint256)", "0x" + lived.alice.hex[2:])
    return {
        NATIVE: Decimal(account.balance).scaleb(-6),
        lived.number: Decimal(account.assets[lived.number]).scaleb(-6),
        base58check(lived.wrapped): Decimal(machine.call(*where, block=height)).scaleb(-18),
    }


def test_a_wallet_now_and_then_by_the_command_line(lived: Lived, run: Run) -> None:
    run("index", "tron")
    head = lived.node.head.height
    now = run("portfolio", lived.alice.address)[0]
    staked = {"Staked for energy": Decimal(25), "Unfreezing": Decimal(15)}
    assert shown(now) == kept(lived, head) | staked
    assert (now["completeness"], now["chains"]["tron"]["blockNumber"]) == ("complete", str(head))
    worth = (kept(lived, head)[NATIVE] + 40) * PRICE
    assert (Decimal(now["networth"]), now["unpricedAssets"]) == (worth, 2)
    for height in (lived.then, lived.then + 1, lived.then + 2):
        past = run("portfolio", lived.alice.address, "--chain", "tron", "--block", str(height))[0]
        assert shown(past) == kept(lived, height), "by what moved since"
        assert past["blockNumber"] == str(height)


def test_what_an_account_did_is_read_alone_where_a_list_of_it_is_served(lived: Lived, run: Run) -> None:
    settings = Path("chainfolio.toml")
    settings.write_text(settings.read_text() + 'index = "accounts"\n')
    run("watch", lived.alice.address)
    page = run("transactions", lived.alice.address)
    mine = [
        transaction.txid
        for block in lived.node.blocks[1:]
        for transaction in block.transactions
        if lived.alice.hex in (transaction.owner, transaction.value.get("to_address"))
    ]
    assert {each["hash"] for each in page["transactions"]} >= set(mine)


def test_energy_and_bandwidth_are_indexed_where_they_are_named(lived: Lived, run: Run) -> None:
    settings = Path("chainfolio.toml")
    settings.write_text(settings.read_text() + 'datasets = ["blocks", "transactions", "resources"]\n')
    run("index", "tron")
    kept = [info["receipt"] for block in lived.node.blocks for info in block.infos]
    sums = "count(*) AS rows, sum(bandwidth) AS bytes, sum(bandwidth_fee) AS burnt"
    found = run("sql", f"SELECT {sums} FROM resources WHERE height > 0")
    told = [sum(each.get(name, 0) for each in kept) for name in ("net_usage", "net_fee")]
    assert [int(each) for each in found[0].values()] == [len(kept), *told]


def test_every_spelling_of_an_address_is_the_same_account(lived: Lived, run: Run) -> None:
    run("index", "tron")
    spellings = (lived.alice.address, lived.alice.hex, lived.alice.hex.upper())
    found = [run("portfolio", each)[0] for each in spellings]
    assert {each["address"] for each in found} == {lived.alice.address}
    assert all(shown(each) == shown(found[0]) for each in found)


@pytest.mark.parametrize("wrong", ["lower", "letter", "short", "checksum"])
def test_a_spelling_that_is_none_is_refused(lived: Lived, run: Run, wrong: str) -> None:
    address = lived.alice.address
    other = {
        "lower": address.lower(),
        "letter": address[:5] + "0" + address[6:],
        "short": address[:-1],
        "checksum": address[:-1] + ("a" if address[-1] != "a" else "b"),
    }[wrong]
    with pytest.raises(AssertionError, match="address"):
        run("portfolio", other)


async def test_every_route_answers_about_tron_beside_other_kinds(lived: Lived, run: Run, tmp_path: Path) -> None:
    """One request with addresses of all four kinds; chains of two of them are real nodes here."""
    with LocalNode() as ethereum:
        someone, other = ethereum.accounts[:2]
        ethereum.send(Tx(someone, other, value=5 * 10**18, gas=21_000))
        ethereum.mine(3)
        (tmp_path / "local.toml").write_text(
            'key = "local"\nkind = "evm"\nchain_id = 31337\nname = "Local"\nfinality = 1\n'
            'native = {symbol = "ETH", name = "Ether", decimals = 18, slip44 = 60}\n'
        )
        more = f'[chains.local]\nrpc = ["{ethereum.url}"]\nfacts = "{tmp_path}/local.toml"\n'
        config = tmp_path / "chainfolio.toml"
        config.write_text(config.read_text() + more)
        for key in ("tron", "local"):
            await asyncio.to_thread(run, "index", key)
        await asked_about(lived, load(config, {}), other.lower())


async def asked_about(lived: Lived, settings: Settings, ethereum: str) -> None:
    """Every route, for addresses of every kind."""
    async with asking(settings) as ask:
        alice, head = lived.alice.address, lived.node.head.height
        mixed = f"addresses={lived.alice.hex},{ethereum},{SOLANA},{STARKNET}"
        for route in ("portfolio", "wallet"):
            found = {each["address"]: each for each in await ask(f"{route}?{mixed}")}
            assert found.keys() == {alice, ethereum, SOLANA, STARKNET}
            assert kept(lived, head).items() <= shown(found[alice]).items()
            assert shown(found[ethereum])[NATIVE] == 10_005
            assert found[alice]["chains"].keys() == {"tron"}
        for spelling in (alice, lived.alice.hex):
            worth = await ask(f"nav?addresses={spelling}")
            assert Decimal(str(worth["nav"])) == (kept(lived, head)[NATIVE] + 40) * PRICE
        both = await ask(f"nav?addresses={lived.alice.hex},{ethereum}")
        assert both["nav"] == worth["nav"]
        page = await ask(f"transactions?addresses={alice},{ethereum}&limit=100&offset=0")
        assert {each["user"]["address"] for each in page["transactions"]} == {alice, ethereum}
        assert {"tron", "local"} <= {each["chain"]["key"] for each in page["transactions"]}
        [status] = await ask(f"status?addresses={alice}")
        assert (status["address"], status["syncInProgress"]) == (alice, False)
        unread = await ask(f"historical?addresses={alice}&date=2024-01-01", 403)
        assert "no historical subscription" in unread["message"]
        assert {"tron", "local"} <= {each["key"] for each in await ask("chains")}
        allowed = await ask(f"approvals/tron?addresses={lived.alice.hex}&include=allowance")
        [item] = allowed["items"]
        assert (item["from"], item["to"], item["contract"]) == (alice, lived.bob.address, base58check(lived.wrapped))
        assert (item["amount"], item["allowance"]["amount"]) == ("700", "700")
        refused = await ask(f"portfolio?addresses={alice[:-1]}", 400)
        assert "address" in json.dumps(refused)
