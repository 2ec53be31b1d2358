"""Gains equal recorded results: disposals with their lots, years, methods and balances."""

from __future__ import annotations

import json
from collections import defaultdict
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from chainfolio.portfolio.pnl.entries import ACQUIRED, MONEY_DIGITS, decimal
from chainfolio.portfolio.pnl.gains import Gain
from chainfolio.portfolio.pnl.methods import gains_of
from tests.portfolio.golden_pnl import (
    AUTHORITY,
    DECIMALS,
    FOLDER,
    PROGRAM,
    at_us,
    authority_entries,
    load,
    program_entries,
)

pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="the recorded results of gains are not there")

KINDS = {"income": "INTEREST", "fee": "MOVE"}
SIDES = {"income": "IN", "fee": "INTRA"}
ASSETS = [(name, method) for name in PROGRAM for method in ("fifo", "lifo", "hifo", "lofo")]


def double(number: int | Decimal | None) -> float:
    """The nearest double, as which the tax program wrote down what it had computed exactly."""
    assert number is not None
    return float(decimal(number) if isinstance(number, int) else number)


def amount(quantity: int) -> Decimal:
    return Decimal(quantity).scaleb(-DECIMALS)


def detail(gain: Gain) -> tuple[Any, ...]:
    kind = KINDS.get(gain.kind, gain.kind.upper())
    return (
        gain.time_us,
        f"{SIDES.get(gain.kind, 'OUT')} / {kind}",
        amount(gain.quantity),
        double(gain.proceeds),
        double(gain.cost),
        double(gain.gain),
        gain.acquired_us,
    )


def golden_detail(row: dict[str, str]) -> tuple[Any, ...]:
    return (
        at_us(row["event_ts"]),
        row["event"],
        Decimal(row["amount"]),
        double(Decimal(row["proceeds"])),
        double(Decimal(row.get("cost_basis", "0"))),
        double(Decimal(row["gain"])),
        at_us(row["lot_ts"]) if "lot_ts" in row else None,
    )


def test_every_recorded_file_and_every_method_in_it_is_compared() -> None:
    assert {path.name for path in FOLDER.iterdir() if path.is_file()} == {
        AUTHORITY.name,
        *(f"{name}.json.gz" for name in PROGRAM),
    }
    assert {(name, method) for name in PROGRAM for method in load(name)["golden"]} == set(ASSETS)
    assert len(json.loads(AUTHORITY.read_text())) == 2


@pytest.mark.parametrize(("name", "method"), ASSETS)
def test_every_disposal_has_the_recorded_lot_proceeds_cost_and_gain(name: str, method: str) -> None:
    recorded = load(name)
    for asset, golden in recorded["golden"][method].items():
        disposals = gains_of(program_entries(recorded["input"][asset]), method).gains
        assert sorted(detail(gain) for gain in disposals if gain.kind != "income") == sorted(
            golden_detail(row) for row in golden["detail"] if "lot_ts" in row
        )
        assert [detail(gain) for gain in disposals if gain.kind == "income"] == [
            golden_detail(row) for row in golden["detail"] if "lot_ts" not in row
        ]


@pytest.mark.parametrize(("name", "method"), ASSETS)
def test_every_year_adds_up_to_the_recorded_sums(name: str, method: str) -> None:
    recorded = load(name)
    for asset, golden in recorded["golden"][method].items():
        sums: defaultdict[tuple[int, str], list[int]] = defaultdict(lambda: [0, 0, 0, 0])
        for gain in gains_of(program_entries(recorded["input"][asset]), method).gains:
            year = datetime.fromtimestamp(gain.time_us // 1_000_000, UTC).year
            year_sums = sums[year, KINDS.get(gain.kind, gain.kind.upper())]
            for at, part in enumerate((gain.quantity, gain.proceeds, gain.cost, gain.gain)):
                assert part is not None
                year_sums[at] += part
        rounded = {key: (amount(crypto), *(double(part) for part in money)) for key, (crypto, *money) in sums.items()}
        assert rounded == {
            (row["year"], row["type"]): (
                Decimal(row["crypto"]),
                *(double(Decimal(row[name])) for name in ("proceeds", "cost_basis", "gain")),
            )
            for row in golden["yearly"]
        }


@pytest.mark.parametrize(("name", "method"), ASSETS)
def test_what_each_wallet_holds_in_the_end_is_as_recorded(name: str, method: str) -> None:
    recorded = load(name)
    for asset, golden in recorded["golden"][method].items():
        entries = list(program_entries(recorded["input"][asset]))
        (account,) = gains_of(entries, method).remaining
        final = {f"{row['exchange']}/{row['holder']}": Decimal(row["final"]) for row in golden["balances"]}
        assert amount(account.quantity) == sum(final.values())
        # The program lets a wallet go below zero for a time; here what it lacked is counted beside what is held.
        lots = gains_of(entries, method, per_wallet=True).remaining
        assert {each.wallet: amount(each.quantity - each.short) for each in lots} == final


@pytest.mark.parametrize("name", PROGRAM)
def test_the_average_cost_of_what_was_acquired_is_the_recorded_one(name: str) -> None:
    recorded = load(name)
    for asset, golden in recorded["golden"]["fifo"].items():
        acquired = [each for each in program_entries(recorded["input"][asset]) if each.kind in ACQUIRED]
        (lots,) = gains_of(acquired, "average").remaining
        assert lots.cost is not None
        assert float(Fraction(decimal(lots.cost)) / Fraction(amount(lots.quantity))) == float(golden["average_price"])


@pytest.mark.parametrize("number", [0, 1])
def test_the_examples_of_the_tax_authority_come_out_as_it_says(number: int) -> None:
    example = json.loads(AUTHORITY.read_text())[number]
    expected = example["expected"]
    pound = 10**MONEY_DIGITS
    gains = gains_of(authority_entries(example), "uk", unit=pound)
    by_day: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
    for gain in gains.gains:
        assert gain.cost is not None
        assert gain.gain is not None
        day_sums = by_day[f"{datetime.fromtimestamp(gain.time_us // 1_000_000, UTC):%Y-%m-%d}"]
        day_sums[0] += gain.gain
        day_sums[1] += gain.cost
    assert by_day == {
        row["date"]: [int(row["gain"]) * pound, int(row["allowable_cost"]) * pound] for row in expected["gains"]
    }
    (pool,) = gains.remaining
    assert (amount(pool.quantity), pool.cost) == (
        Decimal(expected["pool_after"]["quantity"]),
        int(expected["pool_after"]["cost"]) * pound,
    )
