"""A customer's client, written from the description of the service, asks a running demo for everything.

The demo's chain is called `local`. Approvals and blocks can be asked of named chains only, so those tests ask a second
server that serves the same chain as `ethereum`.
"""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
import subprocess
from contextlib import redirect_stdout
from datetime import date, timedelta
from decimal import Context, Decimal
from pathlib import Path
from shutil import which
from typing import Any

import msgspec
import pytest
from msgspec import UNSET

from chainfolio.cli.main import main
from tests.e2e import shapes
from tests.e2e.client import Client, costs, free, send
from tests.e2e.running import ALICE, BOB, DAVE, FRANK, SOLANA, STARKNET, THE_DAY, TRON, Account, Demo, Running

pytestmark = [pytest.mark.node, pytest.mark.xdist_group("demo")]

EXACTLY = Context(prec=200)  # more digits than any sum here has
UNLIMITED = str(2**256 - 1)
AAVE_POOL = "0x87870bca3f3fd6335c3f4ce8392d69350b4fa4e2"
SUBSCRIPTION = 1_200
APPROVED_CHAINS = (
    "arbitrum",
    "avalanche",
    "base",
    "binance",
    "ethereum",
    "fantom",
    "gnosis",
    "linea",
    "optimism",
    "polygon",
)
CURRENCIES = ("EUR", "CAD", "AED", "CHF", "SGD", "ETH", "SOL", "cbBTC", "EURC", "BNB")
FIAT = CURRENCIES[:5]
AT_BLOCK = f"/portfolio/at-block?addresses={DAVE}&chainKey=ethereum&blockNumber=40"


@pytest.fixture(scope="module")
def customer(demo: Demo) -> Account:
    return demo.account("customer", plan="PRO", funds=10_000, grants=("portfolio", "at-block"))


@pytest.fixture(scope="module")
def me(demo: Demo, customer: Account) -> Client:
    return demo.client(customer.key)


@pytest.fixture(scope="module")
def ethereum_client(ethereum: Running) -> Client:
    """Return a client at the server that calls the chain `ethereum`."""
    return ethereum.client(ethereum.account("customer", grants=("portfolio", "at-block")).key)


def total(*numbers: str) -> Decimal:
    result = Decimal(0)
    for number in numbers:
        result = EXACTLY.add(result, Decimal(number))
    return result


@pytest.mark.skipif(which("curl") is None, reason="there is no curl here")
def test_the_line_that_the_demo_prints_works(demo: Demo) -> None:
    process = subprocess.run(shlex.split(demo.curl), capture_output=True, check=True, timeout=60)
    assert [portfolio["address"] for portfolio in json.loads(process.stdout)] == [ALICE]


# --- portfolio ---


def test_a_portfolio_adds_up_exactly_and_costs_one_credit_for_all_addresses(me: Client) -> None:
    with costs(me, 1):
        portfolios = me.portfolio(f"{FRANK},{DAVE}")
    assert [portfolio.address for portfolio in portfolios] == [FRANK, DAVE]
    for portfolio in portfolios:
        assert Decimal(portfolio.networth) > 0
        assert total(*(chain.value for chain in portfolio.chains.values())) == Decimal(portfolio.networth)
        assert total(*(each.value for each in portfolio.asset_by_protocols.values())) == Decimal(portfolio.networth)
        assert total(*(each.value_percentile for each in portfolio.chains.values())) == 100
        wallet = portfolio.asset_by_protocols["wallet"].chains["local"].protocol_positions["WALLET"]
        assert total(*(asset.value for asset in wallet.assets)) == Decimal(wallet.total_value)
        assert wallet.protocol_positions == []
        for asset in wallet.assets:
            assert re.fullmatch("0x[0-9a-f]{40}", asset.contract)
            assert EXACTLY.multiply(Decimal(asset.balance), Decimal(asset.price)) == Decimal(asset.value)
        assert portfolio.chains["local"].chain_id == 31337
        assert portfolio.block_number is UNSET
        assert len(portfolio.last_updated) == 13, "milliseconds"
        native = next(asset for asset in wallet.assets if asset.symbol == "eth")
        assert (native.contract, native.decimal, native.chain_contract) == (
            "0x" + "0" * 40,
            "18",
            "local:0x" + "0" * 40,
        )


def test_addresses_may_be_joined_repeated_and_written_in_any_case(me: Client) -> None:
    loud = "0x" + DAVE[2:].upper()
    answer = me.ask("GET", "/portfolio", f"addresses={FRANK},{loud}&addresses={DAVE}")
    assert [each.address for each in answer.read(list[shapes.Portfolio])] == [FRANK, DAVE]


def test_all_four_kinds_of_address_are_taken(me: Client) -> None:
    kinds = [SOLANA, STARKNET, TRON, DAVE]
    portfolios = me.portfolio(",".join(kinds))
    assert [portfolio.address for portfolio in portfolios] == kinds
    assert [portfolio.completeness for portfolio in portfolios[:3]] == ["partial"] * 3, "the demo has no such chains"
    for address in kinds[:3]:
        free(me, f"/portfolio?addresses={address}", 501, shapes.Refusal)


def test_pictures_and_links_and_sources_come_when_asked_for(me: Client) -> None:
    (bare,) = me.portfolio(DAVE)
    (full,) = me.portfolio(DAVE, includeImages=True, includeExplorerUrls=True, includeSources=True, waitForSync=True)
    assert {asset.img_small for asset in bare.assets()} == {UNSET}
    assert {asset.sources for asset in bare.assets()} == {UNSET}
    assert bare.chains["local"].img_small is UNSET
    for pictured in (*full.assets(), *full.chains.values(), *full.asset_by_protocols.values()):
        assert isinstance(pictured.img_small, str)
        assert isinstance(pictured.img_large, str)
    for asset in full.assets():
        assert isinstance(asset.sources, shapes.Sources)
        assert asset.sources.price_source == asset.price_source


def test_a_wallet_with_something_that_nobody_prices_can_be_read(me: Client) -> None:
    (portfolio,) = me.portfolio(ALICE)
    assert "moon" in {asset.symbol for asset in portfolio.assets() if asset.price == "N/A"}


def test_spam_is_shown_with_its_reasons_and_is_in_no_sum(me: Client) -> None:
    (portfolio,) = msgspec.json.decode(send(me, f"/portfolio?addresses={ALICE}").body)
    (wider,) = msgspec.json.decode(send(me, f"/portfolio?addresses={ALICE}&includeSpam=true").body)
    assets = portfolio["assetByProtocols"]["wallet"]["chains"]["local"]["protocolPositions"]["WALLET"]["assets"]
    spam = [asset for asset in assets if "spam" in asset]
    assert {asset["symbol"] for asset in spam} == {"usdc-gift.com", "usd\u0441", "moon"}
    assert len(spam) == portfolio["spamAssets"] == wider["spamAssets"] == 3
    assert assets[-3:] == spam, "what is spam comes last"
    for asset in spam:
        assert asset["spam"]["score"] >= 60
        assert {"MASS_TRANSFER", "UNSOLICITED", "NO_PRICE"} <= set(asset["spam"]["reasons"])
    assert portfolio["networth"] == wider["networth"], "nobody prices it here"
    (dave,) = msgspec.json.decode(send(me, f"/portfolio?addresses={DAVE}").body)
    assert dave["spamAssets"] == 0


def test_a_loan_is_a_lending_position_of_its_protocol(me: Client) -> None:
    (portfolio,) = msgspec.json.decode(send(me, f"/portfolio?addresses={BOB}").body)
    kinds = {
        kind
        for key, protocol in portfolio["assetByProtocols"].items()
        if key != "wallet"
        for chain in protocol["chains"].values()
        for kind in chain["protocolPositions"]
    }
    assert "LENDING" in kinds


def test_daves_wallet_has_paid_for_gas(demo: Demo) -> None:
    assert int(demo.rpc("eth_getTransactionCount", DAVE, "latest"), 16) > 0


def test_fees_are_what_a_wallet_has_paid(demo: Demo, me: Client) -> None:
    (portfolio,) = me.portfolio(DAVE)
    hashes = [each.hash for each in me.transactions(DAVE, 250, 0) if each.sender == DAVE]
    receipts = [demo.rpc("eth_getTransactionReceipt", each) for each in hashes]
    fees = sum(int(each["gasUsed"], 16) * int(each["effectiveGasPrice"], 16) for each in receipts)
    assert int(portfolio.fees) == fees > 0
    assert Decimal(portfolio.fees_fiat) > 0


def test_a_wallet_is_read_live_and_holds_only_loose_tokens(me: Client) -> None:
    with costs(me, 1):
        (wallet,) = me.wallet(DAVE)
    assert set(wallet.asset_by_protocols) == {"wallet"}
    assert wallet.networth == wallet.asset_by_protocols["wallet"].value


# --- nav ---


def test_nav_is_the_sum_of_the_net_worths(me: Client) -> None:
    with costs(me, 1):
        nav = me.nav(f"{DAVE},{FRANK}")
    assert nav.currency == "USD"
    assert json.loads(bytes(nav.conversion_price)) == 1
    values_usd = total(*(portfolio.networth for portfolio in me.portfolio(f"{DAVE},{FRANK}")))
    assert Decimal(bytes(nav.nav).decode()) == values_usd


@pytest.mark.parametrize("currency", CURRENCIES)
def test_nav_in_every_currency_of_the_list(me: Client, currency: str) -> None:
    nav = me.nav(DAVE, currency=currency)
    rate = Decimal(bytes(nav.conversion_price).decode())
    usd = Decimal(bytes(me.nav(DAVE).nav).decode())
    assert nav.currency == currency
    value_usd = usd * rate if currency in FIAT else usd / rate
    assert Decimal(bytes(nav.nav).decode()) == pytest.approx(value_usd)


def test_a_currency_without_a_rate_is_refused_and_named(ethereum_client: Client) -> None:
    refusal = free(ethereum_client, f"/nav?addresses={DAVE}&currency=CHF", 501, shapes.Refusal)
    assert "CHF" in refusal.message


def test_a_currency_is_case_sensitive(me: Client) -> None:
    free(me, f"/nav?addresses={DAVE}&currency=usd", 400, shapes.Invalid)


# --- the past ---


def test_a_day_is_answered_to_a_subscriber_only(demo: Demo, customer: Account, me: Client) -> None:
    refusal = free(me, f"/historical?addresses={FRANK}&date={THE_DAY}", 403, shapes.Refusal)
    assert FRANK in refusal.message
    demo.command("subscription", "add", FRANK, "--account", customer.id)
    with costs(me, 1):
        (portfolio,) = me.historical(FRANK, THE_DAY)
    assert portfolio.address == FRANK
    assert Decimal(portfolio.networth) > 0
    assert portfolio.asset_by_protocols["wallet"].chains["local"].protocol_positions["WALLET"].assets
    for route in ("historical", "token-overview"):
        refusal = free(me, f"/{route}?addresses={FRANK}&date=2023-11-01", 404, shapes.Refusal)
        assert "had begun" in refusal.message
        assert FRANK in refusal.message
    refusal = free(me, f"/historical?addresses={FRANK},{DAVE}&date={THE_DAY}", 403, shapes.Refusal)
    assert DAVE in refusal.message


def test_the_day_the_fees_and_the_cash_are_known_now_and_of_a_past_day(
    demo: Demo, customer: Account, me: Client
) -> None:
    """The demo indexes all that moves, and its dollars are pegged."""
    demo.command("subscription", "add", BOB, "--account", customer.id)
    past = str(date.fromisoformat(THE_DAY) + timedelta(days=5))
    for (portfolio,) in (me.portfolio(BOB), me.wallet(BOB), me.historical(BOB, past)):
        for figure in (
            portfolio.daily_income,
            portfolio.daily_expense,
            portfolio.fees,
            portfolio.fees_fiat,
            portfolio.cash_balance,
        ):
            assert Decimal(figure) > 0
        loose = portfolio.asset_by_protocols["wallet"].chains["local"].protocol_positions["WALLET"].assets
        pegged = [each.value for each in loose if each.symbol in ("usdc", "dai")]
        assert total(*pegged) == Decimal(portfolio.cash_balance)


def test_a_subscription_costs_what_it_says_and_is_had_once(demo: Demo) -> None:
    client = demo.client(demo.account("subscriber", funds=2 * SUBSCRIPTION - 1, grants=("portfolio",)).key)
    with costs(client, SUBSCRIPTION):
        client.subscribe(DAVE, "savings")
    body = {"addresses": [{"address": DAVE}]}
    with costs(client, 0):
        assert send(client, "/subscribe-snapshot", "POST", body).status == 402, "what is not paid is said first"
        unpaid = send(client, "/subscribe-snapshot", "POST", {"addresses": [{"address": FRANK}]})
    assert unpaid.status == 402
    assert unpaid.read(shapes.Unpaid).credits_required == SUBSCRIPTION
    assert unpaid.read(shapes.Unpaid).credits_available == SUBSCRIPTION - 1
    demo.command("account", "credit", demo_account(demo, "subscriber"), "1")
    with costs(client, 0):
        second = send(client, "/subscribe-snapshot", "POST", body)
    assert second.status == 409
    assert second.read(shapes.Refusal).message
    assert client.historical(DAVE, THE_DAY)[0].address == DAVE


def demo_account(demo: Demo, name: str) -> str:
    (account_id,) = [each["accountId"] for each in demo.command("account", "list") if each["name"] == name]
    return str(account_id)


def test_tokens_on_a_day_over_all_protocols(demo: Demo, customer: Account, me: Client) -> None:
    demo.command("subscription", "add", DAVE, "--account", customer.id)
    with costs(me, 1):
        tokens = me.token_overview(DAVE, THE_DAY)
    (portfolio,) = me.historical(DAVE, THE_DAY)
    assert total(*(token.value for token in tokens)) == Decimal(portfolio.networth)
    assert {token.symbol for token in tokens} == {asset.symbol.upper() for asset in portfolio.assets()}
    for token in tokens:
        assert total(*(part.value for part in token.protocols_detailed)) == Decimal(token.value)


@pytest.mark.parametrize("route", ["historical", "token-overview"])
@pytest.mark.parametrize("date", ["2023-11-1", "15.11.2023", "2023-02-30", "2999-01-01", ""])
def test_a_date_that_is_none_is_refused(me: Client, route: str, date: str) -> None:
    free(me, f"/{route}?addresses={DAVE}&date={date}", 400, shapes.Invalid)


def test_one_wallet_at_one_block(ethereum_client: Client) -> None:
    with costs(ethereum_client, 1):
        (then,) = ethereum_client.at_block(DAVE, "ethereum", 40)
    (later,) = ethereum_client.at_block(DAVE, "ethereum", 50)
    assert then.block_number == "40"
    assert set(then.chains) == {"ethereum"}
    assert then.price_adapters == []
    assert Decimal(then.networth) > 0
    assert then.networth != later.networth


@pytest.mark.parametrize(
    "query",
    [
        f"addresses={DAVE}&chainKey=ethereum&blockNumber=0",
        f"addresses={DAVE}&chainKey=ethereum&blockNumber=1.5",
        f"addresses={DAVE}&chainKey=ethereum",
        f"addresses={DAVE}&chainKey=linea&blockNumber=1",
        f"addresses={DAVE},{FRANK}&chainKey=ethereum&blockNumber=1",
        f"addresses={SOLANA}&chainKey=ethereum&blockNumber=1",
        f"addresses={DAVE}&chainKey=ethereum&blockNumber=999999",
        f"addresses={DAVE}&chainKey=ethereum&blockNumber=40&date=2023-11-15",
    ],
)
def test_a_block_that_cannot_be_is_refused(ethereum_client: Client, query: str) -> None:
    free(ethereum_client, f"/portfolio/at-block?{query}", 400, shapes.Invalid)


def test_blocks_of_chains_that_the_demo_does_not_have_are_refused_by_name(me: Client) -> None:
    refusal = free(me, AT_BLOCK, 501, shapes.Refusal)
    assert "ethereum" in refusal.message
    free(me, f"/portfolio/at-block?addresses={DAVE}&chainKey=polygon&blockNumber=1", 400, shapes.Invalid)


# --- approvals ---


def test_approvals_are_walked_page_by_page_the_newest_first(ethereum_client: Client) -> None:
    assets = {
        asset.contract: asset for asset in ethereum_client.portfolio(DAVE)[0].assets()
    }  # from now on these are tracked
    with costs(ethereum_client, 1):
        full_page = ethereum_client.approvals("ethereum", DAVE, limit=100)
    assert full_page.cursor in (None, UNSET)
    assert full_page.page_size == len(full_page.items) > 2
    walked: list[shapes.Approval] = []
    cursor: dict[str, str] = {}
    with costs(ethereum_client, -(-len(full_page.items) // 2)):
        while True:
            page = ethereum_client.approvals("ethereum", DAVE, limit=2, **cursor)
            assert page.page_size == len(page.items) <= 2
            walked += page.items
            if not isinstance(page.cursor, str):
                break
            cursor = {"cursor": page.cursor}
    assert [summary(each) for each in walked] == [summary(each) for each in full_page.items]
    heights = [int(each.block) for each in walked]
    assert heights == sorted(heights, reverse=True)
    assert {each.granted_by for each in walked} == {DAVE}
    assert UNLIMITED in {each.amount for each in walked}
    for each in walked:
        assert isinstance(each.asset, shapes.ApprovedAsset)
        assert each.asset.balance == assets[each.contract].balance


@pytest.mark.parametrize("wallet", [ALICE, BOB, FRANK])
def test_a_token_of_an_approval_is_shown_whole_or_not_at_all(ethereum_client: Client, wallet: str) -> None:
    assert ethereum_client.approvals("ethereum", wallet, limit=100).items


def summary(approval: shapes.Approval) -> tuple[str, str, str, str]:
    return approval.hash, approval.contract, approval.to, approval.amount


def test_a_cursor_is_good_for_its_own_question_only(ethereum: Running, ethereum_client: Client) -> None:
    page = ethereum_client.approvals("ethereum", DAVE, limit=1)
    other_client = ethereum.client(ethereum.account("other", grants=("portfolio",)).key)
    for client, addresses, cursor in (
        (ethereum_client, FRANK, page.cursor),
        (ethereum_client, DAVE, "made-up"),
        (ethereum_client, DAVE, f"{page.cursor}A"),
        (other_client, DAVE, page.cursor),
    ):
        refusal = free(client, f"/approvals/ethereum?addresses={addresses}&cursor={cursor}", 400, dict[str, str])
        assert set(refusal) == {"message"}


@pytest.mark.parametrize(
    "path",
    [
        f"/approvals/solana?addresses={DAVE}",
        "/approvals/ethereum",
        "/approvals/ethereum?addresses=0x12",
        f"/approvals/ethereum?addresses={DAVE}&limit=0",
        f"/approvals/ethereum?addresses={DAVE}&limit=101",
        f"/approvals/ethereum?addresses={DAVE}&page=2",
    ],
)
def test_every_bad_request_for_approvals_is_one_message(me: Client, path: str) -> None:
    assert set(free(me, path, 400, dict[str, str])) == {"message"}


@pytest.mark.parametrize("chain", APPROVED_CHAINS)
def test_approvals_of_chains_that_the_demo_does_not_have_are_refused_by_name(me: Client, chain: str) -> None:
    refusal = free(me, f"/approvals/{chain}?addresses={DAVE}", 501, shapes.Refusal)
    assert chain in refusal.message


def test_approvals_with_the_allowance_that_is_left(demo: Demo, ethereum_client: Client) -> None:
    page = ethereum_client.approvals("ethereum", ALICE, include="allowance", limit=100)
    allowances = [(item, item.allowance) for item in page.items if isinstance(item.allowance, shapes.Allowance)]
    assert len(allowances) >= 3
    assert len({(item.contract, item.to) for item, _ in allowances}) == len(allowances), (
        "only the last approval of each spender"
    )
    for item, allowance in allowances:
        at = {"blockHash": allowance.block_hash}
        padded_addresses = [f"{int(address, 16):064x}" for address in (ALICE, item.to)]
        reads = {"to": item.contract, "data": "0xdd62ed3e" + "".join(padded_addresses)}
        assert int(allowance.amount) == int(demo.rpc("eth_call", reads, at), 16)
        balance = demo.rpc("eth_call", {"to": item.contract, "data": "0x70a08231" + padded_addresses[0]}, at)
        assert int(allowance.balance) == int(balance, 16)
        if isinstance(item.asset, shapes.ApprovedAsset):
            assert allowance.value_at_risk != "N/A"
    assert page.unpriced_allowances == sum(allowance.value_at_risk == "N/A" for _, allowance in allowances)


def test_who_may_move_collectibles_is_read_from_their_contracts(demo: Demo, ethereum_client: Client) -> None:
    operators = ethereum_client.approvals("ethereum", DAVE, include="operators").operators
    assert isinstance(operators, list)
    assert operators
    for each in operators:
        if each.token_id is UNSET:
            arguments = "".join(f"{int(address, 16):064x}" for address in (DAVE, each.to))
            reads = {"to": each.contract, "data": "0xe985e9c5" + arguments}
            assert int(demo.rpc("eth_call", reads, {"blockHash": each.block_hash}), 16) == 1


def test_nothing_is_allowed_inside_permit2_where_it_was_never_used(ethereum_client: Client) -> None:
    assert ethereum_client.approvals("ethereum", DAVE, include="permit2").permit2 == []


def test_the_command_lists_what_may_be_taken_by_value_at_risk(ethereum: Running, ethereum_client: Client) -> None:
    document = ethereum.command("approvals", ALICE, "--chain", "ethereum")
    risks = [each["valueAtRisk"] for each in document["approvals"]]
    priced = [Decimal(risk) for risk in risks if risk is not None]
    assert priced == sorted(priced, reverse=True)
    assert risks[len(priced) :] == [None] * document["unpriced"]
    assert 0 < Decimal(document["valueAtRisk"]) <= total(*(risk for risk in risks if risk is not None))
    with redirect_stdout(io.StringIO()) as stdout:
        assert main(["approvals", ALICE, "--chain", "ethereum", "--config", str(ethereum.config)]) == 0
    assert "USD at risk" in stdout.getvalue()


def test_commands_print_the_same_figures_as_csv(demo: Demo, ethereum: Running) -> None:
    def sheet(of: Running, *words: str) -> list[dict[str, str]]:
        with redirect_stdout(io.StringIO()) as stdout:
            assert main([*words, "--csv", "--config", str(of.config)]) == 0
        return list(csv.DictReader(io.StringIO(stdout.getvalue())))

    (document,) = demo.command("portfolio", ALICE)
    holdings = [row for row in sheet(demo, "portfolio", ALICE) if row["value"] != "N/A" and not row["spam"]]
    signed = [f"-{row['value']}" if row["side"] == "owed" else row["value"] for row in holdings]
    assert total(*signed) == Decimal(document["networth"])
    newest = "transactions", DAVE, "--limit", "9"
    csv_rows, newest_transactions = sheet(demo, *newest), demo.command(*newest)
    assert list(dict.fromkeys(row["hash"] for row in csv_rows)) == [
        each["hash"] for each in newest_transactions["transactions"]
    ]
    fees = [each["fees"] for each in newest_transactions["transactions"] if each["from"] == DAVE]
    assert total(*(row["fee"] for row in csv_rows if row["fee"])) == total(*fees) > 0
    allowed = ethereum.command("approvals", ALICE)
    risks = [each["valueAtRisk"] or "" for each in allowed["approvals"]] + [""] * len(allowed["operators"])
    assert [row["valueAtRisk"] for row in sheet(ethereum, "approvals", ALICE)] == risks
    datasets = sheet(demo, "status")
    assert {row["dataset"]: row["chain"] for row in datasets}["transfers"] == "local"


# --- transactions ---


def test_the_command_lists_what_a_wallet_did_as_the_api_does(demo: Demo, me: Client) -> None:
    document = demo.command("transactions", DAVE, "--limit", "5")
    assert [each["hash"] for each in document["transactions"]] == [each.hash for each in me.transactions(DAVE, 5, 0)]
    assert demo.command("transactions", DAVE, "--chain", "local", "--limit", "5") == document
    with redirect_stdout(io.StringIO()) as stdout:
        assert main(["transactions", DAVE, "--limit", "5", "--config", str(demo.config)]) == 0
    (newest, *_) = document["transactions"]
    assert f"{DAVE}: 5 transactions" in stdout.getvalue()
    assert newest["type"] in stdout.getvalue()
    for asset in (*newest["assetsIn"], *newest["assetsOut"]):
        assert f"{asset['balance']} {asset['symbol']}" in stdout.getvalue()


def test_transactions_are_walked_by_offset_in_either_order(me: Client) -> None:
    newest = me.transactions(DAVE, 250, 0)
    assert newest
    assert me.transactions(DAVE, 1, 1) == newest[1:2]
    times = [int(each.timestamp) for each in me.transactions(DAVE, 250, 0, sort="ASC")]
    assert times == sorted(times)


@pytest.mark.parametrize(
    "query",
    [
        "",
        "&limit=10",
        "&limit=0&offset=0",
        "&limit=251&offset=0",
        "&limit=10&offset=-1",
        "&limit=10&offset=0&sort=UP",
        "&limit=10&offset=0&type=SWAP",
        "&limit=10&offset=0&chain=local",
    ],
)
def test_a_page_of_transactions_that_cannot_be_is_refused(me: Client, query: str) -> None:
    free(me, f"/transactions?addresses={DAVE}{query}", 400, shapes.Invalid)


def test_an_address_is_read_anew(me: Client) -> None:
    with costs(me, 1):
        assert me.sync(DAVE) in {"Address is syncing", "Address already syncing"}
    with costs(me, 0):
        (status,) = me.status(DAVE)
    assert status.address == DAVE


# --- virtual users ---


def test_virtual_users_are_listed_shown_and_summed(demo: Demo, customer: Account, me: Client, tmp_path: Path) -> None:
    holdings = tmp_path / "holdings.json"
    holdings.write_text(json.dumps([{"chain": "local", "contract": "native", "amount": "1.5"}]))
    group = tmp_path / "group.json"
    group.write_text(json.dumps({"addresses": [DAVE, FRANK]}))
    make = ("virtual-user", "add", "--account", customer.id)
    cold = demo.command(*make, "--type", "BALANCE", "--label", "Cold", "--file", str(holdings))["address"]
    both = demo.command(*make, "--type", "GROUP", "--label", "Both", "--file", str(group))["address"]
    with costs(me, 1):
        users = {(user.address, user.type, user.label) for user in me.virtual_users()}
    assert users == {(cold, "BALANCE", "Cold"), (both, "GROUP", "Both")}
    with costs(me, 2):
        each = me.virtual_portfolio(f"{cold},{both}")
    assert [portfolio.address for portfolio in each] == [cold, both]
    (coin,) = each[0].assets()
    assert (coin.symbol, coin.balance) == ("eth", "1.5")
    assert Decimal(each[1].networth) == total(*(portfolio.networth for portfolio in me.portfolio(f"{DAVE},{FRANK}")))
    with costs(me, 2):
        (merged,) = me.virtual_portfolio(f"{cold},{both}", aggregated=True, includeImages=True)
    assert merged.address == f"{cold},{both}"
    assert Decimal(merged.networth) == total(*(portfolio.networth for portfolio in each))
    with costs(me, 0):
        foreign = send(me, "/virtual-users/portfolio?addresses=virtual:00000000-0000-4000-8000-000000000000")
    assert foreign.status == 403
    addresses = ",".join(f"virtual:00000000-0000-4000-8000-{number:012}" for number in range(11))
    free(me, f"/virtual-users/portfolio?addresses={addresses}", 400, shapes.Invalid)


def test_cash_of_a_virtual_user_is_an_asset_like_any_other(demo: Demo, tmp_path: Path) -> None:
    account = demo.account("saver", plan="PRO", grants=("portfolio",))
    holdings = tmp_path / "cash.json"
    holdings.write_text(json.dumps([{"symbol": "EUR", "amount": "10", "priceUsd": "1.08"}]))
    user = demo.command(
        "virtual-user", "add", "--account", account.id, "--type", "CEX", "--label", "Cash", "--file", str(holdings)
    )
    (portfolio,) = demo.client(account.key).virtual_portfolio(user["address"])
    assert portfolio.networth == "10.8"


# --- chains and protocols ---


def test_what_is_about_the_service_is_free(demo: Demo, me: Client) -> None:
    with costs(me, 0):
        assert send(me, "/chains").status == 200
        assert me.protocols("local").pagination == shapes.Pagination(page=1, limit=20, has_more=False)
        assert me.status(DAVE)[0].address == DAVE
    free(me, "/chains/nowhere/protocols", 404, shapes.Refusal)
    free(me, "/chains/local/protocols?limit=101", 400, shapes.Invalid)


def test_chains_are_shown_with_colour_and_pictures(me: Client) -> None:
    (chain,) = me.chains()
    assert (chain.key, chain.chain_id, chain.is_portfolio_supported) == ("local", 31337, True)


def test_protocols_are_paged_and_found_by_contract(ethereum_client: Client) -> None:
    pages: list[str] = []
    number = 1
    while True:
        page = ethereum_client.protocols("ethereum", page=number, limit=2)
        pages += [each.key for each in page.data]
        if not page.pagination.has_more:
            break
        number += 1
    assert pages[:100] == [each.key for each in ethereum_client.protocols("ethereum", limit=100).data]
    assert "aave3" in pages
    with costs(ethereum_client, 5):
        document = ethereum_client.get(dict[str, Any], "/contract-protocol", contract=AAVE_POOL, chain="ethereum")
    assert document["protocol"]["key"] == "aave3"
    with costs(ethereum_client, 5):
        everywhere = ethereum_client.get(dict[str, Any], "/contract-protocol", contract=AAVE_POOL)
    assert ("aave3", "ethereum") in {(each["key"], each["chainKey"]) for each in everywhere["protocols"]}
    free(ethereum_client, f"/contract-protocol?contract={DAVE}", 404, shapes.Refusal)
