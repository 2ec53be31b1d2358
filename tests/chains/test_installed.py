"""A kind of chain and price sources that come as third-party wheels are indexed, read, valued and served."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from chainfolio.amounts import amount
from tests.chains.invented.chainfolio_invented.chain import FINALITY
from tests.chains.invented.chainfolio_invented.ledger import ACCOUNTS, BLOCK_TIME_US, START_US, TOKENS, Ledger
from tests.chains.wheels import Operator, installed
from tests.e2e.client import Client
from tests.e2e.running import free_port, printed, process

HERE = Path(__file__).parent
KEY, HEIGHTS = "moon", 120
ALICE, BOB = ACCOUNTS[:2]
FIRST, SECOND, THIRD = TOKENS
COIN_USD, WEB_USD = "2.5", "0.031"


@pytest.fixture(scope="module")
def ledger() -> Ledger:
    """The chain that every process makes for itself: it follows from its key."""
    return Ledger(KEY, HEIGHTS)


class Stall(BaseHTTPRequestHandler):
    """A web server of prices."""

    def do_GET(self) -> None:
        body = json.dumps({SECOND: WEB_USD}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture(scope="module")
def stall() -> Iterator[str]:
    """Serve prices and yield the address."""
    server = HTTPServer(("127.0.0.1", 0), Stall)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/prices"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def operator(tmp_path_factory: pytest.TempPathFactory, stall: str) -> Operator:
    """Both packages installed, one source that reads the chain and one that reads a web server."""
    folder = tmp_path_factory.mktemp("operator")
    operator = Operator(folder / "chainfolio.toml", folder / "site")
    for name in ("invented", "invented_prices"):
        installed(HERE / name, operator.site, folder / name)
    (folder / "prices.toml").write_text(
        f'[treasury.{KEY}]\n{FIRST} = "{BOB}"\n[bazaar]\nurl = "{stall}"\ntokens = ["{SECOND}"]\n'
    )
    operator.config.write_text(
        f'data = "data"\nprices_file = "prices.toml"\n[chains.{KEY}]\nadapter = "invented"\nheights = {HEIGHTS}\n'
        f'[prices]\n"invented:{KEY}/slip44:7777" = "{COIN_USD}"\n'
    )
    return operator


@pytest.fixture(scope="module")
def indexed(operator: Operator) -> dict[str, Any]:
    """Return the report of the first `index`."""
    report: dict[str, Any] = operator.command("index", KEY)
    return report


def loose(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The loose assets of a portfolio, by contract."""
    chains = document["assetByProtocols"]["wallet"]["chains"]
    return {each["contract"]: each for each in chains[KEY]["protocolPositions"]["WALLET"]["assets"]}


def coins(ledger: Ledger, account: str, height: int) -> str:
    raw = ledger.balance(account, None, height)
    assert raw is not None
    return f"{amount(raw, 9).normalize():f}"


@pytest.mark.slow("other tests of this folder index the same kind")
def test_every_final_height_is_indexed_once_whether_or_not_it_has_a_block(
    operator: Operator, indexed: dict[str, Any], ledger: Ledger
) -> None:
    head = ledger.head.height
    final = head - FINALITY
    assert len(ledger.blocks_at(range(final + 1))) < final, "some heights have no block"
    payments = [payment for each in ledger.blocks_at(range(final + 1)) for payment in each.payments]
    blocks, transactions = len(ledger.blocks_at(range(final + 1))), len({payment.tx_hash for payment in payments})
    assert (indexed["blocks"], indexed["rows"]) == (final + 1, blocks + transactions + len(payments))
    assert indexed["derived"]["account_transfers"] == 2 * len(payments)
    second_run = operator.command("index", KEY)
    assert (second_run["blocks"], second_run["rows"]) == (0, 0)


@pytest.mark.usefixtures("indexed")
def test_status_and_doctor_show_what_the_chain_has_and_lacks(operator: Operator, ledger: Ledger) -> None:
    (chain,) = operator.command("status")["chains"]
    assert (chain["chain"], chain["kind"], chain["head"]) == (KEY, "invented", ledger.head.height)
    assert [each["dataset"] for each in chain["datasets"]] == ["blocks", "transactions", "native", "transfers"]
    report = operator.command("doctor")
    (endpoint,) = report["endpoints"]
    assert (endpoint["chain"], endpoint["endpoint"], endpoint["ok"]) == (KEY, "memory", True)
    (chain_report,) = report["chains"]
    lacks = ["approvals", "cross_check", "proofs", "restore"]
    assert sorted(chain_report["lacks"]) == sorted(chain["lacks"]) == lacks


@pytest.mark.slow("takes seconds, and faster tests take its branches")
@pytest.mark.usefixtures("indexed")
def test_coins_are_those_of_the_chain_and_valued_by_its_own_decimals(operator: Operator, ledger: Ledger) -> None:
    (document,) = operator.command("portfolio", ALICE)
    (coin,) = [each for each in loose(document).values() if each["symbol"] == "inv"]
    balance = coins(ledger, ALICE, ledger.head.height)
    assert (coin["balance"], coin["decimal"]) == (balance, "9")
    assert Decimal(coin["value"]) == Decimal(balance) * Decimal(COIN_USD)
    assert Decimal(str(operator.command("nav", ALICE)["nav"])) >= Decimal(coin["value"])


@pytest.mark.slow("takes seconds, and faster tests take its branches")
@pytest.mark.usefixtures("indexed")
def test_tokens_are_those_of_the_chain_and_two_have_prices_of_installed_sources(
    operator: Operator, ledger: Ledger
) -> None:
    (document,) = operator.command("portfolio", ALICE)
    tokens = loose(document)
    for token, (_, _, decimals) in TOKENS.items():
        raw = ledger.balance(ALICE, token, ledger.head.height)
        assert raw
        assert Decimal(tokens[token]["balance"]) == amount(raw, decimals)
    assert tokens[FIRST]["priceSource"] == "treasury"
    assert Decimal(tokens[FIRST]["price"]) == Decimal(coins(ledger, BOB, ledger.head.height))
    assert (tokens[SECOND]["priceSource"], tokens[SECOND]["price"]) == ("bazaar", WEB_USD)
    assert tokens[THIRD]["price"] == "N/A"


@pytest.mark.slow("the next test asks the API for the same transactions")
@pytest.mark.usefixtures("indexed")
def test_transactions_are_all_that_the_account_took_part_in(operator: Operator, ledger: Ledger) -> None:
    transactions = operator.command("transactions", ALICE, "--limit", "250")["transactions"]
    expected = {
        payment.tx_hash: each.block.height
        for each in ledger.minted.values()
        for payment in each.payments
        if ALICE in (payment.sender, payment.recipient)
    }
    assert {each["hash"]: each["blockNumber"] for each in transactions} == expected


@pytest.fixture(scope="module")
def client(operator: Operator, indexed: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A customer of the server over the same folder."""
    account = operator.command(
        "account", "create", "--name", "a", "--plan", "FREE", "--credits", "100000", "--grant", "portfolio"
    )
    port, log = free_port(), tmp_path_factory.mktemp("log") / "serve.log"
    arguments = ["serve", "--port", str(port), "--config", str(operator.config)]
    with process(arguments, log, operator.site) as running:
        printed(running, log, "listening")
        yield Client(f"http://127.0.0.1:{port}/v1", account["apiKey"])


def get_json(client: Client, path: str, **query: str) -> Any:
    answer = client.ask("GET", path, {"addresses": ALICE, **query})
    assert answer.status == 200, answer.body
    return answer.read(object)


def test_the_api_answers_portfolio_wallet_nav_and_transactions(client: Client, ledger: Ledger) -> None:
    balance = coins(ledger, ALICE, ledger.head.height)
    for path in ("/portfolio", "/wallet"):
        (document,) = get_json(client, path, **({"waitForSync": "true"} if path == "/portfolio" else {}))
        (coin,) = [each for each in loose(document).values() if each["symbol"] == "inv"]
        assert coin["balance"] == balance
    assert get_json(client, "/nav")["nav"] > 0
    transactions = get_json(client, "/transactions", limit="50", offset="0")["transactions"]
    assert all(ALICE in (each["from"], each["to"]) for each in transactions)
    assert transactions


def test_the_api_answers_what_was_held_as_a_past_day_began(client: Client, ledger: Ledger) -> None:
    subscribed = client.ask("POST", "/subscribe-snapshot", body={"addresses": [{"address": ALICE}]})
    assert subscribed.status < 300, subscribed.body
    (document,) = get_json(client, "/historical", date="2025-01-04")
    (coin,) = [each for each in loose(document).values() if each["symbol"] == "inv"]
    last = (3 * 86_400_000_000 - 1) // BLOCK_TIME_US
    assert START_US + last * BLOCK_TIME_US < START_US + 3 * 86_400_000_000
    assert coin["balance"] == coins(ledger, ALICE, last)
