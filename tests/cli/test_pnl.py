"""`chainfolio pnl` on a chain where wallets traded: every unit accounted for, in all forms of output."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from chainfolio.amounts import EXACT
from localchain.deploy import Deployment, deploy
from localchain.node import LocalNode
from localchain.trade import trade
from portfolio.pnl.gains import SHORT
from portfolio.pnl.methods import METHODS
from tests.cli.conftest import ALICE, Run, configure

pytestmark = pytest.mark.node
TOKENS = {"USDC": 6, "DAI": 18, "WBTC": 8}


@pytest.fixture(scope="module")
def traded() -> Iterator[tuple[LocalNode, Deployment]]:
    with LocalNode() as node:
        deployment = deploy(node)
        trade(node, deployment, 60)
        yield node, deployment


@pytest.fixture
def wallets(run: Run, traded: tuple[LocalNode, Deployment], here: Path) -> dict[str, str]:
    """An index of the chain, with prices that the operator fixed; wallets by name."""
    node, deployment = traded
    usd = {"USDC": "1", "DAI": "1", "WBTC": "60000", "WETH": "2000"}
    lines = [
        f'"eip155:31337/erc20:{deployment.contracts[symbol].lower()}" = "{price}"' for symbol, price in usd.items()
    ]
    configure(here, node.url, chain="local", more="\n".join(["[prices]", '"eip155:31337/slip44:60" = "2000"', *lines]))
    assert run("index", "local").code == 0
    return {name: address.lower() for name, address in deployment.accounts.items()}


def by_symbol(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {held["symbol"]: held for held in document["holdings"]}


@pytest.mark.parametrize("method", METHODS)
def test_what_lots_hold_is_what_the_chain_says_whatever_the_method(
    run: Run, traded: tuple[LocalNode, Deployment], wallets: dict[str, str], method: str
) -> None:
    node, deployment = traded
    document = run("pnl", wallets["frank"], "--method", method, "--json").json
    held = by_symbol(document)
    assert document["gains"]
    for symbol, decimals in TOKENS.items():
        raw = node.call(deployment.contracts[symbol], "balanceOf(address)(uint256)", wallets["frank"])
        ours = held.get(symbol.lower(), {"amount": "0", "short": "0"})
        assert Decimal(ours["amount"]) - Decimal(ours["short"]) == Decimal(raw).scaleb(-decimals)
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
    ran = run("pnl", wallets["frank"])
    assert ran.code == 0
    assert SHORT in ran.out


def test_the_rows_are_the_same_in_every_form(run: Run, wallets: dict[str, str], here: Path) -> None:
    document = run("pnl", wallets["bob"], "--method", "average", "--json", "--parquet", "gains.parquet").json
    sheet = list(csv.DictReader(io.StringIO(run("pnl", wallets["bob"], "--method", "average", "--csv").out)))
    assert sheet == document["gains"]
    assert pl.read_parquet(here / "gains.parquet").to_dicts() == document["gains"]


def test_what_goes_between_wallets_of_one_owner_is_no_disposal(run: Run, wallets: dict[str, str]) -> None:
    everybody = sorted(wallets.values())
    alone = [gain for each in everybody for gain in run("pnl", each, "--json").json["gains"] if gain["kind"] == "sent"]
    together = run("pnl", *everybody, "--json").json
    sent = {gain["transaction"] for gain in together["gains"] if gain["kind"] == "sent"}
    assert sent < {gain["transaction"] for gain in alone}
    wallet_by_wallet = run("pnl", *everybody, "--per-wallet", "--json").json
    assert {held["wallet"] for held in wallet_by_wallet["holdings"]} <= set(everybody)

    def whole(document: dict[str, Any], key: str) -> Decimal:
        return sum((Decimal(held[key]) for held in document["holdings"] if held["symbol"] == "usdc"), Decimal(0))

    assert whole(together, "amount") - whole(together, "short") == whole(wallet_by_wallet, "amount") - whole(
        wallet_by_wallet, "short"
    )


def test_the_same_question_has_the_same_answer_to_the_byte(run: Run, wallets: dict[str, str]) -> None:
    once, twice = (run("pnl", wallets["alice"], "--json").out for _ in range(2))
    assert once == twice


@pytest.mark.parametrize(
    ("more", "field"), [(("--method", "uk", "--per-wallet"), "per-wallet"), (("--zone", "Europe/Atlantis"), "zone")]
)
def test_what_cannot_be_computed_is_refused(run: Run, more: tuple[str, ...], field: str) -> None:
    ran = run("pnl", ALICE, *more, "--json")
    assert (ran.code, ran.error["kind"], ran.error["field"]) == (2, "BadRequest", field)


def test_what_is_not_indexed_is_said_and_not_taken_for_nothing(run: Run, traded: tuple[LocalNode, Deployment]) -> None:
    node, deployment = traded
    ran = run("pnl", deployment.accounts["alice"], "--rpc", node.url, "--json")
    assert (ran.code, ran.error["kind"]) == (4, "NotIndexed")
