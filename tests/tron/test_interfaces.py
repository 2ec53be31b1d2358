"""Wallets on a Tron node through the command line and the API, together with other kinds of chain."""

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
from tests.api.asking import open_client
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
class WalletChain:
    """A chain with a wallet that paid, staked, wrapped and approved; `then` is a height between these."""

    node: TronNode
    alice: Person
    bob: Person
    wrapped: str
    number: str
    then: int


@pytest.fixture(scope="module")
def wallet_chain(web: TronWeb) -> Iterator[WalletChain]:
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
        yield WalletChain(node, alice, bob, wrapped, number, then)


def lines(wallet_chain: WalletChain, folder: Path) -> str:
    """The settings of that chain."""
    (folder / "prices.toml").write_text(f'[fixed]\n"tron:{wallet_chain.node.chain_id}/slip44:195" = "{PRICE}"\n')
    path = facts(wallet_chain.node, folder, wrapped=wallet_chain.wrapped)
    return (
        f'data = "data"\nprices_file = "{folder}/prices.toml"\n'
        f'[chains.tron]\nadapter = "tron"\nrpc = ["{wallet_chain.node.url}"]\nfacts = "{path}"\ntrongrid = true\n'
    )


@pytest.fixture
def run(
    wallet_chain: WalletChain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    """Runs a command that prints one document, in a folder whose settings name the node."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "chainfolio.toml").write_text(lines(wallet_chain, tmp_path))

    return partial(run_json, capsys)


def portfolio_amounts(portfolio: dict[str, Any]) -> dict[str, Decimal]:
    """Return the amounts of a portfolio: loose ones by contract, those in positions by name."""
    balances: dict[str, Decimal] = {}
    for protocol in portfolio["assetByProtocols"].values():
        for chain in protocol["chains"].values():
            for group in chain["protocolPositions"].values():
                balances |= {each["contract"]: Decimal(each["balance"]) for each in group["assets"]}
                for each in group["protocolPositions"]:
                    amounts = [*each["supplyAssets"], *each["rewardAssets"]]
                    balances[each["name"]] = sum((Decimal(asset["balance"]) for asset in amounts), Decimal(0))
    return balances


def node_amounts(wallet_chain: WalletChain, height: int) -> dict[str, Decimal]:
    """Return Alice's loose assets by the state of the node."""
    account, machine = wallet_chain.node.states[height].accounts[wallet_chain.alice.hex], wallet_chain.node.machine.node
    balance_call = ("0x" + wallet_chain.wrapped[2:], "balanceOf(address)(uint256)", "0x" + wallet_chain.alice.hex[2:])
    return {
        NATIVE: Decimal(account.balance).scaleb(-6),
        wallet_chain.number: Decimal(account.assets[wallet_chain.number]).scaleb(-6),
        base58check(wallet_chain.wrapped): Decimal(machine.call(*balance_call, block=height)).scaleb(-18),
    }


def test_a_wallet_now_and_then_by_the_command_line(wallet_chain: WalletChain, run: Run) -> None:
    run("index", "tron")
    head = wallet_chain.node.head.height
    now = run("portfolio", wallet_chain.alice.address)[0]
    staked = {"Staked for energy": Decimal(25), "Unfreezing": Decimal(15)}
    assert portfolio_amounts(now) == node_amounts(wallet_chain, head) | staked
    assert (now["completeness"], now["chains"]["tron"]["blockNumber"]) == ("complete", str(head))
    networth = (node_amounts(wallet_chain, head)[NATIVE] + 40) * PRICE
    assert (Decimal(now["networth"]), now["unpricedAssets"]) == (networth, 2)
    for height in (wallet_chain.then, wallet_chain.then + 1, wallet_chain.then + 2):
        past = run("portfolio", wallet_chain.alice.address, "--chain", "tron", "--block", str(height))[0]
        assert portfolio_amounts(past) == node_amounts(wallet_chain, height), "by what moved since"
        assert past["blockNumber"] == str(height)


@pytest.mark.slow("takes seconds, and faster tests take its branches")
def test_what_an_account_did_is_read_alone_where_a_list_of_it_is_served(wallet_chain: WalletChain, run: Run) -> None:
    settings = Path("chainfolio.toml")
    settings.write_text(settings.read_text() + 'index = "accounts"\n')
    run("watch", wallet_chain.alice.address)
    page = run("transactions", wallet_chain.alice.address)
    txids = [
        transaction.txid
        for block in wallet_chain.node.blocks[1:]
        for transaction in block.transactions
        if wallet_chain.alice.hex in (transaction.owner, transaction.value.get("to_address"))
    ]
    assert {each["hash"] for each in page["transactions"]} >= set(txids)


def test_energy_and_bandwidth_are_indexed_where_they_are_named(wallet_chain: WalletChain, run: Run) -> None:
    settings = Path("chainfolio.toml")
    settings.write_text(settings.read_text() + 'datasets = ["blocks", "transactions", "resources"]\n')
    run("index", "tron")
    receipts = [info["receipt"] for block in wallet_chain.node.blocks for info in block.infos]
    sums = "count(*) AS rows, sum(bandwidth) AS bytes, sum(bandwidth_fee) AS burnt"
    rows = run("sql", f"SELECT {sums} FROM resources WHERE height > 0")
    expected = [sum(each.get(name, 0) for each in receipts) for name in ("net_usage", "net_fee")]
    assert [int(each) for each in rows[0].values()] == [len(receipts), *expected]


def test_every_spelling_of_an_address_is_the_same_account(wallet_chain: WalletChain, run: Run) -> None:
    run("index", "tron")
    spellings = (wallet_chain.alice.address, wallet_chain.alice.hex, wallet_chain.alice.hex.upper())
    portfolios = [run("portfolio", each)[0] for each in spellings]
    assert {each["address"] for each in portfolios} == {wallet_chain.alice.address}
    assert all(portfolio_amounts(each) == portfolio_amounts(portfolios[0]) for each in portfolios)


@pytest.mark.parametrize("wrong", ["lower", "letter", "short", "checksum"])
def test_a_spelling_that_is_none_is_refused(wallet_chain: WalletChain, run: Run, wrong: str) -> None:
    address = wallet_chain.alice.address
    spelling = {
        "lower": address.lower(),
        "letter": address[:5] + "0" + address[6:],
        "short": address[:-1],
        "checksum": address[:-1] + ("a" if address[-1] != "a" else "b"),
    }[wrong]
    with pytest.raises(AssertionError, match="address"):
        run("portfolio", spelling)


async def test_every_route_answers_about_tron_beside_other_kinds(
    wallet_chain: WalletChain, run: Run, tmp_path: Path
) -> None:
    """One request with addresses of all four kinds; chains of two of them are real nodes here."""
    with LocalNode() as ethereum:
        sender, recipient = ethereum.accounts[:2]
        ethereum.send(Tx(sender, recipient, value=5 * 10**18, gas=21_000))
        ethereum.mine(3)
        (tmp_path / "local.toml").write_text(
            'key = "local"\nkind = "evm"\nchain_id = 31337\nname = "Local"\nfinality = 1\n'
            'native = {symbol = "ETH", name = "Ether", decimals = 18, slip44 = 60}\n'
        )
        section = f'[chains.local]\nrpc = ["{ethereum.url}"]\nfacts = "{tmp_path}/local.toml"\n'
        config = tmp_path / "chainfolio.toml"
        config.write_text(config.read_text() + section)
        for key in ("tron", "local"):
            await asyncio.to_thread(run, "index", key)
        await check_routes(wallet_chain, load(config, {}), recipient.lower())


async def check_routes(wallet_chain: WalletChain, settings: Settings, ethereum: str) -> None:
    """Check every route for addresses of every kind."""
    async with open_client(settings) as ask:
        alice, head = wallet_chain.alice.address, wallet_chain.node.head.height
        mixed = f"addresses={wallet_chain.alice.hex},{ethereum},{SOLANA},{STARKNET}"
        for route in ("portfolio", "wallet"):
            portfolios = {each["address"]: each for each in await ask(f"{route}?{mixed}")}
            assert portfolios.keys() == {alice, ethereum, SOLANA, STARKNET}
            assert node_amounts(wallet_chain, head).items() <= portfolio_amounts(portfolios[alice]).items()
            assert portfolio_amounts(portfolios[ethereum])[NATIVE] == 10_005
            assert portfolios[alice]["chains"].keys() == {"tron"}
        for spelling in (alice, wallet_chain.alice.hex):
            nav = await ask(f"nav?addresses={spelling}")
            assert Decimal(str(nav["nav"])) == (node_amounts(wallet_chain, head)[NATIVE] + 40) * PRICE
        both = await ask(f"nav?addresses={wallet_chain.alice.hex},{ethereum}")
        assert both["nav"] == nav["nav"]
        page = await ask(f"transactions?addresses={alice},{ethereum}&limit=100&offset=0")
        assert {each["user"]["address"] for each in page["transactions"]} == {alice, ethereum}
        assert {"tron", "local"} <= {each["chain"]["key"] for each in page["transactions"]}
        [status] = await ask(f"status?addresses={alice}")
        assert (status["address"], status["syncInProgress"]) == (alice, False)
        unread = await ask(f"historical?addresses={alice}&date=2024-01-01", 403)
        assert "no historical subscription" in unread["message"]
        assert {"tron", "local"} <= {each["key"] for each in await ask("chains")}
        allowed = await ask(f"approvals/tron?addresses={wallet_chain.alice.hex}&include=allowance")
        [item] = allowed["items"]
        assert (item["from"], item["to"], item["contract"]) == (
            alice,
            wallet_chain.bob.address,
            base58check(wallet_chain.wrapped),
        )
        assert (item["amount"], item["allowance"]["amount"]) == ("700", "700")
        error = await ask(f"portfolio?addresses={alice[:-1]}", 400)
        assert "address" in json.dumps(error)
