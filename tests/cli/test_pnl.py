"""`chainfolio pnl` on a chain where wallets traded: every unit accounted for, in all forms of output."""

from __future__ import annotations

import csv
import io
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import csv as pa_csv
from pyarrow import parquet as pq

from chainfolio.amounts import EXACT, text, total
from chainfolio.contracts import GAIN_METHODS, TRADE_VALUES
from chainfolio.localchain.deploy import Deployment
from chainfolio.localchain.evm import Tx, tx
from chainfolio.localchain.node import LocalNode
from chainfolio.portfolio.pnl.gains import SHORT
from chainfolio.portfolio.pnl.report import COLUMNS
from tests.cli.conftest import ALICE, Run

pytestmark = pytest.mark.node
TOKENS = {"USDC": 6, "DAI": 18, "WBTC": 8}
TRADERS = ("alice", "bob", "frank")  # they hold, swap, lend and pay each other


def by_symbol(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {holding["symbol"]: holding for holding in document["holdings"]}


@pytest.mark.slow("the rules of other methods have tests without a chain", fast=["fifo", "uk"])
@pytest.mark.parametrize("method", GAIN_METHODS)
def test_what_lots_hold_is_what_the_chain_says_whatever_the_method(
    run: Run, traded: tuple[LocalNode, Deployment], wallets: dict[str, str], method: str
) -> None:
    node, deployment = traded
    document = run("pnl", wallets["frank"], "--method", method, "--json").json
    holdings = by_symbol(document)
    assert document["gains"]
    for symbol, decimals in TOKENS.items():
        raw = node.call(deployment.contracts[symbol], "balanceOf(address)(uint256)", wallets["frank"])
        holding = holdings.get(symbol.lower(), {"amount": "0", "short": "0"})
        assert Decimal(holding["amount"]) - Decimal(holding["short"]) == Decimal(raw).scaleb(-decimals)
    for gain in document["gains"]:
        assert (gain["gain"] == "N/A") == bool(gain["reason"])
        if gain["gain"] != "N/A":
            assert Decimal(gain["gain"]) == EXACT.subtract(Decimal(gain["proceeds"]), Decimal(gain["cost"]))


def test_what_was_there_from_the_beginning_has_no_known_cost_and_the_sums_say_so(
    run: Run, wallets: dict[str, str]
) -> None:
    document = run("pnl", wallets["frank"], "--json").json
    assert document["closedPnl"] == "N/A"  # the coins of the chain's first block were never acquired
    assert SHORT in document["unknown"]
    gains = [each["gain"] for each in document["gains"] if each["kind"] != "income"]
    assert Fraction(document["known"]["closedPnl"]) == sum(Fraction(gain) for gain in gains if gain != "N/A")
    ran = run("pnl", wallets["frank"])
    assert ran.code == 0
    assert SHORT in ran.out
    assert "\n  of what is known: open " in ran.out


def test_the_rows_are_the_same_in_every_form(run: Run, wallets: dict[str, str], here: Path) -> None:
    document = run("pnl", wallets["bob"], "--method", "average", "--json", "--parquet", "gains.parquet").json
    sheet = list(csv.DictReader(io.StringIO(run("pnl", wallets["bob"], "--method", "average", "--csv").out)))
    assert sheet == document["gains"]
    numbers, moments = ("amount", "proceeds", "cost", "gain"), ("time", "acquired")
    for row, gain in zip(pl.read_parquet(here / "gains.parquet").to_dicts(), document["gains"], strict=True):
        for name in numbers:
            exact = None if gain[name] == "N/A" else Decimal(gain[name])
            assert (None if row[name] is None else Decimal(row[name])) == exact
            assert row.pop(f"{name}Decimal") == (None if exact is None else round(exact, 18))
        for name in moments:
            assert row[name] == (datetime.fromisoformat(gain[name]) if gain[name] else None)
        assert {name: row[name] for name in row if name not in (*numbers, *moments)} == {
            name: gain[name] for name in gain if name not in (*numbers, *moments)
        }


def test_three_engines_open_the_sheet_of_disposals_with_exact_types_and_the_transaction_of_each_lot(
    run: Run, wallets: dict[str, str], here: Path
) -> None:
    columns = ("time", "acquired", "transaction", "acquiredIn", "gain", "gainDecimal")
    (here / "gains.csv").write_text(run("pnl", wallets["frank"], "--csv", "--parquet", "gains.parquet").out)
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        by_duckdb = connection.sql(f"SELECT {', '.join(columns)} FROM 'gains.parquet'").to_arrow_table()
        texts_of_duckdb = connection.sql("FROM read_csv('gains.csv', all_varchar = true)").fetchall()
    by_polars = pl.read_parquet(here / "gains.parquet", columns=list(columns))
    by_arrow = pq.read_table(here / "gains.parquet", columns=list(columns))
    assert by_arrow.schema.types[:2] == [pa.timestamp("us", tz="UTC")] * 2
    assert by_arrow.schema.types[-1] == by_duckdb.schema.types[-1] == pa.decimal128(38, 18)
    rows = by_arrow.to_pylist()
    assert len(rows) > 10
    assert by_duckdb.to_pylist() == by_polars.to_dicts() == rows
    chosen = [row for row in rows if row["acquired"]]
    assert chosen
    assert all(row["acquiredIn"].startswith("0x") and row["acquired"] <= row["time"] for row in chosen)
    texts = pl.read_csv(here / "gains.csv", infer_schema=False).rows()
    as_text = pa_csv.ConvertOptions(column_types=dict.fromkeys(COLUMNS, pa.string()))
    of_arrow = pa_csv.read_csv(here / "gains.csv", convert_options=as_text).to_pylist()
    plain = [tuple(each or None for each in row) for row in texts]
    assert plain == texts_of_duckdb == [tuple(each or None for each in row.values()) for row in of_arrow]
    assert [row[COLUMNS.index("gain")] for row in plain] == [row["gain"] or "N/A" for row in rows]


@pytest.mark.slow("takes seconds, and faster tests take its branches")
def test_what_goes_between_wallets_of_one_owner_is_no_disposal(run: Run, wallets: dict[str, str]) -> None:
    addresses = sorted(wallets[name] for name in TRADERS)
    alone = [gain for each in addresses for gain in run("pnl", each, "--json").json["gains"] if gain["kind"] == "sent"]
    combined = run("pnl", *addresses, "--json").json
    sent_hashes = {gain["transaction"] for gain in combined["gains"] if gain["kind"] == "sent"}
    assert sent_hashes < {gain["transaction"] for gain in alone}
    wallet_by_wallet = run("pnl", *addresses, "--per-wallet", "--json").json
    assert {row["wallet"] for row in wallet_by_wallet["holdings"]} <= set(addresses)

    def usdc_total(document: dict[str, Any], key: str) -> Decimal:
        return sum(
            (Decimal(holding[key]) for holding in document["holdings"] if holding["symbol"] == "usdc"), Decimal(0)
        )

    assert usdc_total(combined, "amount") - usdc_total(combined, "short") == usdc_total(
        wallet_by_wallet, "amount"
    ) - usdc_total(wallet_by_wallet, "short")


def test_the_same_question_has_the_same_answer_to_the_byte(run: Run, wallets: dict[str, str]) -> None:
    first, second = (run("pnl", wallets["alice"], "--json").out for _ in range(2))
    assert first == second


@pytest.mark.parametrize(
    ("options", "field"), [(("--method", "uk", "--per-wallet"), "per-wallet"), (("--zone", "Europe/Atlantis"), "zone")]
)
def test_what_cannot_be_computed_is_refused(run: Run, options: tuple[str, ...], field: str) -> None:
    ran = run("pnl", ALICE, *options, "--json")
    assert (ran.code, ran.error["kind"], ran.error["field"]) == (2, "BadRequest", field)


def test_what_is_not_indexed_is_said_and_not_taken_for_nothing(run: Run, traded: tuple[LocalNode, Deployment]) -> None:
    node, deployment = traded
    ran = run("pnl", deployment.accounts["alice"], "--rpc", node.url, "--json")
    assert (ran.code, ran.error["kind"]) == (4, "NotIndexed")


@pytest.mark.slow("takes seconds, and faster tests take its branches")
def test_a_portfolio_shows_what_the_lots_of_its_assets_cost_and_why_where_it_does_not(
    run: Run, wallets: dict[str, str]
) -> None:
    costs = 0
    for wallet in (wallets[name] for name in TRADERS):
        document, report = run("portfolio", wallet, "--json").json[0], run("pnl", wallet, "--json").json
        lots = {each["contract"]: each for each in report["holdings"]}
        subjects = {issue["subject"] for issue in document["issues"] if issue["adapter"] == "pnl"}
        for asset in document["assetByProtocols"]["wallet"]["chains"]["local"]["protocolPositions"]["WALLET"]["assets"]:
            if asset["value"] == "N/A" or asset["totalCostBasis"] == "N/A":
                assert asset["value"] == "N/A" or asset["chainContract"] in subjects
                continue
            costs += 1
            gain = EXACT.subtract(Decimal(asset["value"]), Decimal(asset["totalCostBasis"]))
            assert Decimal(asset["openPnl"]) == gain
            lot = lots[asset["contract"]]
            if Decimal(lot["amount"]) == Decimal(asset["balance"]):  # nothing of it was deposited
                assert lot["totalCostBasis"] == asset["totalCostBasis"]
        assert document["openPnl"] == document["totalCostBasis"] == "N/A"  # coins of the first block have no known cost
        assert document["closedPnl"] == report["closedPnl"]
    assert costs > 5


def test_a_wallet_whose_every_unit_was_bought_closes_to_the_last_digit(
    run: Run, traded: tuple[LocalNode, Deployment], wallets: dict[str, str], changed: LocalNode
) -> None:
    """The wallet received coins and tokens at old prices, sent some, and paid fees."""
    node, deployment = changed, traded[1]
    usdc, new = deployment.contracts["USDC"], "0x00000000000000000000000000000000000abcde"
    node.rpc("anvil_impersonateAccount", new)
    sender, signature = deployment.accounts["frank"], "transfer(address,uint256)"
    node.settle([Tx(sender, new, value=3 * 10**18), tx(sender, usdc, signature, new, 500 * 10**6)])
    node.settle([tx(new, usdc, signature, sender, 120 * 10**6)])
    assert run("index", "local").code == 0
    document, report = run("portfolio", new, "--json").json[0], run("pnl", new, "--json").json
    assert [issue for issue in document["issues"] if issue["adapter"] == "pnl"] == []
    assert "  gains: open " in run("portfolio", new).out
    page = run("transactions", new, "--json").json
    assert total([Decimal(each["closedPnl"]) for each in page["transactions"]]) == Decimal(report["closedPnl"])
    assert page["issues"] == []
    for field in ("openPnl", "closedPnl", "totalCostBasis"):
        assert document[field] == report[field] != "N/A"
    wallet = document["assetByProtocols"]["wallet"]
    assert wallet["totalCostBasis"] == document["totalCostBasis"] == document["chains"]["local"]["totalCostBasis"]
    assert Decimal(document["openPnl"]) == EXACT.subtract(Decimal(wallet["value"]), Decimal(wallet["totalCostBasis"]))


@pytest.mark.slow("takes seconds, and faster tests take its branches")
def test_transactions_say_what_each_cost_and_gained_and_together_they_are_the_report(
    run: Run, wallets: dict[str, str]
) -> None:
    known_count = 0
    for wallet in (wallets[name] for name in TRADERS):
        page, report = run("transactions", wallet, "--limit", "250", "--json").json, run("pnl", wallet, "--json").json
        by_transaction: dict[str, list[str]] = {}
        for gain in report["gains"]:
            if gain["kind"] != "income":
                by_transaction.setdefault(gain["transaction"], []).append(gain["gain"])
        reasons = [issue["reason"] for issue in page["issues"] if issue["adapter"] == "pnl"]
        for each in page["transactions"]:
            gains = by_transaction.pop(each["hash"], [])
            expected = "N/A" if "N/A" in gains else text(total([Decimal(gain) for gain in gains]))
            assert each["closedPnl"] == expected
            assert expected != "N/A" or reasons
            known_count += sum(row["closedPnl"] not in ("0", "N/A") for row in each["assetsOut"])
        assert by_transaction == {}, "every disposal is in a transaction of the list"
    assert known_count > 5


@pytest.mark.slow("the rules have tests without a chain", only=["", "given", "received"])
@pytest.mark.parametrize("rule", ["", *TRADE_VALUES])
def test_both_sides_of_every_swap_have_one_value(run: Run, wallets: dict[str, str], rule: str) -> None:
    swaps = 0
    option = ("--trade-value", rule) if rule else ()
    for wallet in (wallets[name] for name in TRADERS):
        gains = run("pnl", wallet, *option, "--json").json["gains"]
        for each in run("transactions", wallet, "--limit", "250", "--json").json["transactions"]:
            sold = [gain for gain in gains if gain["transaction"] == each["hash"] and gain["kind"] == "sell"]
            if each["type"] != "SWAP" or not sold or "N/A" in (gain["proceeds"] for gain in sold):
                continue
            proceeds = total([Decimal(gain["proceeds"]) for gain in sold])
            own_in, own_out = (
                total([Decimal(row["value"]) for row in each[side]]) for side in ("assetsIn", "assetsOut")
            )
            if rule == "given":
                assert proceeds == own_out
            elif rule == "received":
                assert proceeds == own_in
            else:
                assert proceeds in (own_in, own_out)
                bought = [Decimal(row["totalCostBasis"]) for row in each["assetsIn"]]
                assert total(bought) == EXACT.add(proceeds, Decimal(each["feesFiat"]))
            swaps += 1
    assert swaps > 3


def test_of_more_transactions_than_wanted_no_gain_is_computed(run: Run, wallets: dict[str, str], here: Path) -> None:
    settings = here / "chainfolio.toml"
    settings.write_text(settings.read_text() + "\n[pnl]\nmax_transactions = 2\n")
    document = run("portfolio", wallets["frank"], "--json").json[0]
    (issue,) = [issue for issue in document["issues"] if issue["adapter"] == "pnl"]
    assert "more than 2 transactions: chainfolio pnl" in issue["reason"]
    page = run("transactions", wallets["frank"], "--json").json
    assert {each["closedPnl"] for each in page["transactions"]} == {"N/A"}
    assert [issue["reason"] for issue in page["issues"] if issue["adapter"] == "pnl"] == [
        f"gains are not known: {issue['reason'].removeprefix('gains are not known: ')}"
    ]
    settings.write_text(settings.read_text().replace("max_transactions = 2", "max_transactions = 0"))
    silent = run("portfolio", wallets["frank"], "--json").json[0]
    assert [issue for issue in silent["issues"] if issue["adapter"] == "pnl"] == []


def test_a_tax_year_has_the_gains_of_its_days_by_the_rules_of_a_jurisdiction(
    run: Run, wallets: dict[str, str], here: Path
) -> None:
    report = run("pnl", wallets["bob"], "--json").json
    years = sorted({gain["time"][:4] for gain in report["gains"]})
    documents = [run("pnl", wallets["bob"], "--year", year, "--json").json for year in years]
    rows = [gain for document in documents for gain in document["gains"]]
    assert [{**gain, "term": None} for gain in rows] == [{**gain, "term": None} for gain in report["gains"]]
    output = run("pnl", wallets["bob"], "--year", years[0], "--jurisdiction", "us", "--parquet", "year.parquet")
    assert "short-term" in output.out
    assert "lots over all wallets" in output.out  # those by wallet begin with 2025
    assert pl.read_parquet(here / "year.parquet")["term"].is_in(["short-term", "income", "N/A"]).all()


def test_the_income_of_a_year_is_the_same_in_all_forms_of_output(run: Run, wallets: dict[str, str], here: Path) -> None:
    for name in TRADERS:
        years = {gain["time"][:4] for gain in run("pnl", wallets[name], "--json").json["gains"]}
        document = run("pnl", wallets[name], "--year", min(years), "--json").json
        if document["incomes"]:
            break
    arguments = ("pnl", wallets[name], "--year", min(years), "--income")
    rows = list(csv.DictReader(io.StringIO(run(*arguments, "--csv").out)))
    assert [row["value"] for row in rows] == [row["value"] for row in document["incomes"]] != []
    assert sum(map(Fraction, (row["value"] for row in rows))) == Fraction(document["income"])
    assert rows[0]["kind"] in run(*arguments, "--parquet", "income.parquet").out
    frame = pl.read_parquet(here / "income.parquet")
    assert frame["kind"].to_list() == [row["kind"] for row in rows]


def test_a_tax_year_in_another_currency_needs_its_rates(run: Run, wallets: dict[str, str], here: Path) -> None:
    (year,) = {gain["time"][:4] for gain in run("pnl", wallets["bob"], "--json").json["gains"]}
    in_usd = run("pnl", wallets["bob"], "--year", year, "--json").json
    settings = here / "chainfolio.toml"
    settings.write_text(settings.read_text() + '\n[rates]\nCHF = "0.5"\n')
    in_chf = run("pnl", wallets["bob"], "--year", year, "--currency", "chf", "--json").json
    assert in_chf["currency"] == "CHF"
    assert Fraction(in_chf["fees"]) == Fraction(in_usd["fees"]) / 2
    ran = run("pnl", wallets["bob"], "--year", year, "--currency", "XYZ")
    assert ran.code != 0
    assert "No rate of XYZ is known" in ran.err
    ran = run("pnl", wallets["bob"], "--year", year, "--jurisdiction", "de", "--method", "lifo")
    assert ran.code != 0
    assert "not allowed in Germany" in ran.err


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--year", "0"), "0 is no year of a blockchain"),
        (("--year", "99999"), "99999 is no year of a blockchain"),
        (("--jurisdiction", "us"), "add --year"),
        (("--currency", "EUR"), "add --year"),
        (("--income",), "add --year"),
    ],
)
def test_a_year_that_cannot_be_is_refused(
    run: Run, wallets: dict[str, str], options: tuple[str, ...], reason: str
) -> None:
    ran = run("pnl", wallets["bob"], *options)
    assert ran.code != 0
    assert reason in " ".join(ran.err.split())
