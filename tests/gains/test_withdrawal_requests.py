"""A share that rebases (stETH) is wrapped and redeemed by requests that pay later."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from chainfolio.portfolio.pnl.record_rows import Treatment
from chainfolio.portfolio.pnl.records import entries_of
from chainfolio.portfolio.pnl.transaction_records import TransactionRecord
from chainfolio.portfolio.transactions import Nft, TransactionAssetDocument
from tests.portfolio.test_pnl_records import ME, NOBODY, asset, brief, record

E = 10**18
QUEUE = "queue"


def row(symbol: str, raw: int, counterparty: str, usd: int = 2_000) -> TransactionAssetDocument:
    return asset(symbol, str(raw), str(raw * usd), counterparty)


def request(number: int, counterparty: str = NOBODY) -> TransactionAssetDocument:
    return asset(QUEUE, "1", other=counterparty, nft=Nft(token_id=str(number)))


def life(*more: TransactionRecord) -> list[TransactionRecord]:
    """100 ether staked, 40 of it wrapped, and requests of 10, of 20 and of 5 that were wrapped."""
    records = [
        record("DEPOSIT", [row("steth", 100 * E, NOBODY)], [row("coin", 100 * E, "steth")]),
        record("DEPOSIT", [row("wsteth", 40 * E, NOBODY)], [row("steth", 40 * E, "wsteth")]),
        record("INTERACTION", [request(1), request(2)], [row("steth", 10 * E, QUEUE), row("steth", 20 * E, QUEUE)]),
        record("INTERACTION", [request(3)], [row("wsteth", 5 * E, QUEUE)]),
        *more,
    ]
    return [
        msgspec.structs.replace(each, hash=f"0x{order}", time_us=(1_600_000_000 + order) * 1_000_000)
        for order, each in enumerate(records)
    ]


def claim(number: int, raw: int) -> TransactionRecord:
    return record("SWAP", [row("coin", raw, QUEUE, 3_000)], [request(number)])


def kinds(records: Sequence[TransactionRecord], first: int) -> set[tuple[str, str, int, int | None]]:
    entries = entries_of(records, [ME], Treatment(burn_addresses={NOBODY})).entries
    return brief([each for each in entries if each.order >= first])


def test_a_request_sells_nothing() -> None:
    records = life()
    assert kinds(records, 2) == {("withdraw", "steth", 5 * E, None)}  # out of the wrapped ones
    assert kinds(records, 0) >= {("deposit", "coin", 100 * E, 100 * E * 2_000)}


@pytest.mark.parametrize(
    ("number", "payout", "went_in", "income"),
    [(1, 9_999_999_999_999_999_999, 10 * E, 0), (3, 5_145 * E // 1_000, 5 * E, 145 * E // 1_000)],
)
def test_a_request_pays_what_went_in_and_the_rest_is_income(
    number: int, payout: int, went_in: int, income: int
) -> None:
    entries = kinds(life(claim(number, payout)), 4)
    returned = [each for each in entries if each[0] == "withdraw"]
    assert [each[:3] for each in returned] == [("withdraw", "coin", went_in)]
    expected = {("income", "coin", income, income * 3_000)} if income else {("sell", "coin", went_in - payout, 0)}
    assert entries - set(returned) == expected


def test_all_that_a_share_grew_is_income_at_the_end() -> None:
    last = record("INTERACTION", [request(4)], [row("steth", 33 * E, QUEUE)])
    unwrapped = record("WITHDRAW", [row("steth", 3_675 * E // 100, "wsteth")], [row("wsteth", 35 * E, NOBODY)])
    last_request = record("INTERACTION", [request(5)], [row("steth", 3_675 * E // 100, QUEUE)])
    payouts = [(1, 10 * E), (2, 20 * E), (3, 5_145 * E // 1_000), (4, 33 * E), (5, 3_675 * E // 100)]
    records = life(last, unwrapped, last_request, *(claim(number, raw) for number, raw in payouts))
    entries = entries_of(records, [ME], Treatment(burn_addresses={NOBODY})).entries
    totals = dict.fromkeys(("deposit", "withdraw", "income", "buy", "sell"), 0)
    for each in entries:
        if each.asset == "chain:coin":
            totals[each.kind] += each.quantity
    assert totals["deposit"] == totals["withdraw"] == 100 * E
    assert totals["income"] + totals["buy"] - totals["sell"] == sum(raw for _, raw in payouts) - 100 * E


def test_a_collectible_for_which_something_else_took_the_share_is_bought() -> None:
    records = life(record("INTERACTION", [request(9)], [row("steth", 10 * E, "seller")]))
    assert {kind for kind, *_ in kinds(records, 4)} == {"sell", "withdraw", "buy"}
