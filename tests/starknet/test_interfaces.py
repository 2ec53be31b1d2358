"""Wallets on a node through the command line and the API: every spelling of an address, with other kinds of chain."""

from __future__ import annotations

import asyncio
import http.server
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from chainfolio.cli.main import main
from chainfolio.localchain.evm import Tx
from chainfolio.localchain.node import LocalNode
from chainfolio.localchain.tron.forms import base58check
from chainfolio.localchain.tron.node import TronNode
from chainfolio.settings import Settings
from chainfolio.settings_file import load
from tests.api.asking import open_client
from tests.chains import starknet
from tests.chains.solana import SolanaSubject
from tests.chains.solana import solana as solana_chain
from tests.chains.starknet import StarknetSubject
from tests.commands import run_json
from tests.tron.chains import facts

Run = Callable[..., Any]
NATIVE = "0x0000000000000000000000000000000000000000"
PRICE = Decimal("0.5")
SOLANA, TRON = "7EcDhSYGxXyscszYEp35KHN8vvw3svAuLKTzXwCFLtV", "TJRabPrwbZy45sbavfcjinPJC18kjpRTv8"
BOB = "41" + "b0" * 20
MIDNIGHT_S, AFTER = 1_700_006_400, 40  # of 2023-11-15, before the block of this height


@contextmanager
def served(subject: StarknetSubject | SolanaSubject) -> Iterator[str]:
    """The URL of a node that answers as a subject does."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = subject.replies(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Log nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[StarknetSubject, str]]:
    """A chain that was traded on, behind HTTP, and its address. A new day begins with one of its blocks."""
    monkeypatch.setattr(starknet, "BEGAN_S", MIDNIGHT_S - AFTER)
    subject = StarknetSubject(80)
    with served(subject) as url:
        yield subject, url


@pytest.fixture
def run(
    node: tuple[StarknetSubject, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Run:
    """Runs a command that prints one document, in a folder whose settings name the node."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prices.toml").write_text(f'[fixed]\n"starknet:SN_MAIN/slip44:9004" = "{PRICE}"\n')
    (tmp_path / "chainfolio.toml").write_text(
        f'data = "data"\nprices_file = "{tmp_path}/prices.toml"\n'
        f'[chains.starknet]\nadapter = "starknet"\nrpc = ["{node[1]}"]\n'
    )

    return partial(run_json, capsys)


def coins(subject: StarknetSubject, height: int) -> Decimal:
    """STRK of the first wallet."""
    return Decimal(subject.native(subject.accounts[0], height)).scaleb(-18)


def token_balances(portfolio: dict[str, Any]) -> dict[str, Decimal]:
    """The loose amounts of a portfolio, by the contract that it shows."""
    chains = portfolio["assetByProtocols"]["wallet"]["chains"].values()
    groups = [group for chain in chains for group in chain["protocolPositions"].values()]
    return {each["contract"]: Decimal(each["balance"]) for group in groups for each in group["assets"]}


def test_a_wallet_in_every_spelling_now_and_then(node: tuple[StarknetSubject, str], run: Run) -> None:
    subject, _ = node
    run("index", "starknet")
    wallet = subject.accounts[0]
    spellings = (wallet, "0x" + wallet[2:].upper(), "0x" + "0" * 61 + wallet[-3:])
    portfolios = [run("portfolio", each)[0] for each in spellings]
    assert {each["address"] for each in portfolios} == {wallet}
    assert token_balances(portfolios[0])[NATIVE] == coins(subject, subject.height)
    tokens = {token: subject.balance(wallet, token, subject.height) or 0 for token in subject.tokens}
    assert {token: Decimal(raw).scaleb(-6) for token, raw in tokens.items()}.items() <= token_balances(
        portfolios[0]
    ).items()
    past = run("portfolio", wallet, "--chain", "starknet", "--block", "10")[0]
    assert token_balances(past)[NATIVE] == coins(subject, 10)


@pytest.mark.slow("fees without an event are explained so too", only=["way1"])
@pytest.mark.parametrize(
    "command", [("index", "starknet"), ("watch", StarknetSubject.accounts[0], "--chain", "starknet")]
)
def test_rows_explain_every_balance(node: tuple[StarknetSubject, str], run: Run, command: tuple[str, ...]) -> None:
    subject, _ = node
    run(*command)
    report = json.dumps(run("reconcile", subject.accounts[0], "--chain", "starknet"))
    assert '"equal"' in report
    assert '"missing_row"' not in report


@pytest.mark.slow("takes seconds, and faster tests take its branches")
def test_an_account_that_is_watched_has_what_a_whole_index_has_in_several_runs_and_says_what_may_be_missing(
    node: tuple[StarknetSubject, str], run: Run
) -> None:
    subject, _ = node
    wallet = subject.accounts[0]
    subject.trade(60, 1)
    run("index", "starknet")
    whole_index = run("transactions", wallet)
    settings = Path("chainfolio.toml")
    settings.write_text(settings.read_text().replace('data = "data"', 'data = "other"') + 'index = "accounts"\n')
    runs = 0
    while runs < 9 and main(("watch", wallet, "--max-requests", "45", "--json")) != 0:
        runs += 1
    assert 0 < runs < 9
    alone = run("transactions", wallet)
    assert alone["transactions"] == whole_index["transactions"]
    [chain] = run("watch", wallet)
    [account] = chain["accounts"]
    assert all(not each["missing"] for each in account["datasets"])
    assert account["datasets"][0]["ways"] == ["search"]
    assert "name accounts in their data alone" in account["unexplained"][0]["reason"]
    assert "name accounts in their data alone" in json.dumps(run("portfolio", wallet))


@pytest.mark.slow("takes seconds, and faster tests take its branches")
@pytest.mark.node
async def test_every_route_answers_about_addresses_of_all_kinds_together(
    node: tuple[StarknetSubject, str], run: Run, tmp_path: Path
) -> None:
    """Chains of four kinds, and one request for all."""
    with solana_chain(12) as solana, LocalNode() as ethereum, TronNode(lag=2) as tron, served(solana) as url:
        someone, recipient = ethereum.accounts[:2]
        ethereum.send(Tx(someone, recipient, value=5 * 10**18, gas=21_000))
        ethereum.mine(3)
        tron.endow(BOB, 7 * 10**6)
        tron.advance(5)
        (tmp_path / "local.toml").write_text(
            'key = "local"\nkind = "evm"\nchain_id = 31337\nname = "Local"\nfinality = 1\n'
            'native = {symbol = "ETH", name = "Ether", decimals = 18, slip44 = 60}\n'
        )
        config = tmp_path / "chainfolio.toml"
        config.write_text(
            config.read_text() + f'[chains.local]\nrpc = ["{ethereum.url}"]\nfacts = "{tmp_path}/local.toml"\n'
            f'[chains.tron]\nadapter = "tron"\nrpc = ["{tron.url}"]\nfacts = "{facts(tron, tmp_path)}"\n'
            f'[chains.solana]\nadapter = "solana"\nrpc = ["{url}"]\ncommitment = "confirmed"\n'
        )
        for key in ("starknet", "local", "tron", "solana"):
            await asyncio.to_thread(run, "index", key)
        lamports = Decimal(solana.native(solana.accounts[0], solana.height))
        amounts = {
            node[0].accounts[0]: coins(node[0], node[0].height),
            recipient.lower(): Decimal(10_005),
            base58check(BOB): Decimal(7),
            solana.accounts[0]: lamports.scaleb(-9),
        }
        await asked_about_all(load(config, {}), amounts)


async def asked_about_all(settings: Settings, coins: dict[str, Decimal]) -> None:
    """Every route, for four wallets that have so much of the native coins of their chains."""
    async with open_client(settings) as ask:
        mixed = "addresses=" + ",".join(coins)
        for route in ("portfolio", "wallet"):
            portfolios = {each["address"]: each for each in await ask(f"{route}?{mixed}")}
            assert {each: token_balances(portfolio)[NATIVE] for each, portfolio in portfolios.items()} == coins
            assert [[*each["chains"]] for each in portfolios.values()] == [
                ["starknet"],
                ["local"],
                ["tron"],
                ["solana"],
            ]
        starknet_worth = next(iter(coins.values())) * PRICE
        assert str((await ask(f"nav?{mixed}"))["nav"]) == f"{starknet_worth:.15f}", "the other coins have no price here"
        page = await ask(f"transactions?{mixed}&limit=100&offset=0")
        assert {each["user"]["address"] for each in page["transactions"]} >= {*coins} - {base58check(BOB)}
        assert {each["address"]: each["syncInProgress"] for each in await ask(f"status?{mixed}")} == dict.fromkeys(
            coins, False
        )
        assert {each["key"] for each in await ask("chains")} >= {"starknet", "local", "tron", "solana"}


@pytest.mark.slow("takes seconds, and faster tests take its branches")
async def test_every_route_answers_about_starknet_beside_other_kinds(
    node: tuple[StarknetSubject, str], run: Run, tmp_path: Path
) -> None:
    subject, _ = node
    with LocalNode() as ethereum:
        someone, recipient = ethereum.accounts[:2]
        ethereum.send(Tx(someone, recipient, value=5 * 10**18, gas=21_000))
        ethereum.mine(3)
        (tmp_path / "local.toml").write_text(
            'key = "local"\nkind = "evm"\nchain_id = 31337\nname = "Local"\nfinality = 1\n'
            'native = {symbol = "ETH", name = "Ether", decimals = 18, slip44 = 60}\n'
        )
        config = tmp_path / "chainfolio.toml"
        local_toml = f'[chains.local]\nrpc = ["{ethereum.url}"]\nfacts = "{tmp_path}/local.toml"\n'
        config.write_text(config.read_text() + local_toml)
        for key in ("starknet", "local"):
            await asyncio.to_thread(run, "index", key)
        await asked_about(subject, load(config, {}), recipient.lower())


async def asked_about(subject: StarknetSubject, settings: Settings, ethereum: str) -> None:
    """Every route, for addresses of every kind."""
    async with open_client(settings) as ask:
        wallet, head = subject.accounts[0], subject.height
        mixed = f"addresses={wallet},{ethereum},{SOLANA},{TRON}"
        for route in ("portfolio", "wallet"):
            by_address = {each["address"]: each for each in await ask(f"{route}?{mixed}")}
            assert by_address.keys() == {wallet, ethereum, SOLANA, TRON}
            assert token_balances(by_address[wallet])[NATIVE] == coins(subject, head)
            assert token_balances(by_address[ethereum])[NATIVE] == 10_005
            assert by_address[wallet]["chains"].keys() == {"starknet"}
        nav = await ask(f"nav?addresses={wallet},{ethereum}")
        assert str(nav["nav"]) == f"{coins(subject, head) * PRICE:.15f}"  # a JSON number has that many digits
        partial = await ask(f"nav?{mixed}")
        assert (partial["nav"], partial["completeness"]) == (nav["nav"], "partial")
        assert {issue["subject"] for issue in partial["issues"]} == {SOLANA, TRON}, "what no chain here has is named"
        assert SOLANA in (await ask(f"nav?addresses={SOLANA}", 501))["message"]
        page = await ask(f"transactions?addresses={wallet},{ethereum}&limit=100&offset=0")
        assert {each["chain"]["key"] for each in page["transactions"]} == {"starknet", "local"}
        assert "Transfer" in {each.get("functionName") for each in page["transactions"]}
        by_address = {each["address"]: each["syncInProgress"] for each in await ask(f"status?{mixed}")}
        assert by_address.keys() == {wallet, ethereum, SOLANA, TRON}
        assert not by_address[wallet]
        assert "no historical subscription" in (await ask(f"historical?{mixed}&date=2023-11-15", 403))["message"]
        body = {"addresses": [{"address": each} for each in (wallet, ethereum)]}
        await ask("subscribe-snapshot", body=body)
        past = await ask(f"historical?addresses={wallet},{ethereum}&date=2023-11-15")
        assert [each["address"] for each in past] == [wallet, ethereum]
        assert token_balances(past[0])[NATIVE] == coins(subject, AFTER - 1) != coins(subject, head)
        assert {"starknet", "local"} <= {each["key"] for each in await ask("chains")}
        assert "address" in json.dumps(await ask(f"portfolio?addresses=0x{'f' * 64}", 400))
        await approved(subject, ask, ethereum)


async def approved(subject: StarknetSubject, ask: Callable[..., Any], ethereum: str) -> None:
    """Approvals of one wallet, with what is left of them, and addresses of other kinds refused."""
    wallet = subject.accounts[0]
    page = await ask(f"approvals/starknet?addresses={wallet}&limit=100&include=allowance,operators")
    allowances = {
        (each["contract"], each["to"]): each["allowance"]["amount"] for each in page["items"] if "allowance" in each
    }
    assert allowances
    for (token, spender), raw in allowances.items():
        assert int(raw) == subject.allowance(wallet, token, spender, subject.height)
    assert {each["from"] for each in page["operators"]} == {wallet}
    for chain, stranger in (("starknet", ethereum), ("local", wallet), ("starknet", TRON)):
        assert "is no address of" in json.dumps(await ask(f"approvals/{chain}?addresses={stranger}", 400))
