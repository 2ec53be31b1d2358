"""Differences between balances and movements: each planted one is found at its block, no other one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import accumulate
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainfolio import tables
from chainfolio.amounts import MAX_RAW
from chainfolio.assets import Asset
from chainfolio.chain_results import ChainInfo
from chainfolio.contracts import Token
from chainfolio.portfolio import causes
from chainfolio.portfolio.causes import Evidence, cause_of
from chainfolio.portfolio.ledger import by_account, drop_native_duplicates
from chainfolio.portfolio.reconciliation import (
    MAX_CHANGES,
    SPLIT_PARTS,
    Answer,
    BalanceKey,
    Change,
    Comparison,
    NoContract,
    Point,
    RunningTotals,
    running_totals,
    search,
    spread_heights,
)
from tests.portfolio.test_ledger import ACCOUNTS, TOKENS, TRANSFERS, frame

LAST = 5_000
ALICE = ACCOUNTS[1]
INFO = ChainInfo("Local", 1, Token(Asset("eip155:1", "slip44", "60"), "ETH", "Ether", 18), "erc20", 12_000)
TOKEN = BalanceKey(ALICE, INFO.token_asset(TOKENS[0]))
COIN = BalanceKey(ALICE, INFO.native.asset)
STEPS = st.dictionaries(st.integers(1, LAST), st.integers(-(2**255), 2**255).filter(bool), max_size=12)
Balance = Callable[[int], Answer]


def course(moves: Mapping[int, int]) -> RunningTotals:
    return RunningTotals(tuple(sorted(moves)), tuple(accumulate(moves[height] for height in sorted(moves))))


def compare(
    totals: Mapping[BalanceKey, RunningTotals],
    balances: Mapping[BalanceKey, Balance],
    count: int = 16,
    *,
    is_start: bool = True,
    on_requests: Callable[[list[Point]], None] = lambda requests: None,
) -> tuple[dict[BalanceKey, Comparison], int]:
    """Return the results of a search and the number of its rounds."""
    running, rounds = search(totals, spread_heights(0, LAST, count), is_from_genesis=is_start), 0
    answers: dict[tuple[BalanceKey, int], Answer] | None = None
    while True:
        try:
            requests = next(running) if answers is None else running.send(answers)
        except StopIteration as stop:
            return stop.value, rounds
        assert len(set(requests)) == len(requests)
        rounds += 1
        on_requests(list(requests))
        answers = {(key, height): balances[key](height) for key, height in requests}


def balance_of(moves: Mapping[int, int], planted: Mapping[int, int], opening: int = 0) -> Balance:
    every, extra = course(moves), course(planted)
    return lambda height: opening + every.at(height) + extra.at(height)


@given(
    moves=STEPS,
    planted=STEPS.map(lambda steps: {height: abs(raw) for height, raw in steps.items()}),
    opening=st.integers(0, 9),
)
def test_every_planted_difference_is_found_at_its_block_and_none_is_invented(
    moves: dict[int, int], planted: dict[int, int], opening: int
) -> None:
    results, rounds = compare({TOKEN: course(moves)}, {TOKEN: balance_of(moves, planted, opening)})
    (result,) = results.values()
    assert {each.height: each.amount for each in result.changes} == planted
    assert all(each.is_found for each in result.changes)
    assert (result.opening, result.has_more, result.unread) == (opening, False, ())
    assert result.balance == opening + sum(moves.values()) + sum(planted.values())
    assert rounds <= 6, "rounds grow with the logarithm of the chain"


@given(moves=STEPS, planted=STEPS)
def test_differences_that_cancel_each_other_are_told_as_blocks_that_differ(
    moves: dict[int, int], planted: dict[int, int]
) -> None:
    """Differences that cancel out between two checkpoints stay hidden; every reported one is real."""
    (result,) = compare({TOKEN: course(moves)}, {TOKEN: balance_of(moves, planted)})[0].values()
    assert {each.height: each.amount for each in result.changes}.items() <= planted.items()
    assert bool(result.changes) >= bool(sum(planted.values()))


def test_of_many_differences_the_first_are_told_and_that_there_are_more() -> None:
    planted = dict.fromkeys(range(100, LAST, 7), 3)
    (result,) = compare({TOKEN: RunningTotals()}, {TOKEN: balance_of({}, planted)})[0].values()
    assert [each.height for each in result.changes] == sorted(planted)[:MAX_CHANGES]
    assert result.has_more


def test_only_what_differs_is_asked_for_again() -> None:
    equal_totals = {BalanceKey(ALICE, INFO.token_asset(f"0x{n:040x}")): RunningTotals() for n in range(50)}
    totals = {**equal_totals, TOKEN: RunningTotals()}
    balances: dict[BalanceKey, Balance] = {key: balance_of({}, {}) for key in equal_totals} | {
        TOKEN: balance_of({}, {77: 5})
    }
    requests: list[list[Point]] = []
    results, rounds = compare(totals, balances, 4, on_requests=requests.append)
    assert {key for key, result in results.items() if result.changes} == {TOKEN}
    assert len(requests[0]) == len(totals) * 5
    spam = {BalanceKey(ALICE, INFO.token_asset(f"0x{n:040x}")): course({3_000: 1}) for n in range(50)}
    compare(spam, {key: balance_of({3_000: 1}, {}) for key in spam}, 100, on_requests=requests.append)
    assert len(requests.pop()) <= 6 * len(spam), "what was sent once is not asked for at every checkpoint"
    assert {key for round_points in requests[1:] for key, _ in round_points} == {TOKEN}
    assert max(map(len, requests[1:])) < SPLIT_PARTS
    assert rounds == len(requests) > 2


def test_a_token_is_nothing_before_its_contract_is_there_and_unreadable_where_it_is_gone() -> None:
    moves = {1_000: 7}

    def before(height: int) -> Answer:
        return NoContract() if height < 900 else course(moves).at(height)

    def after_removal(height: int) -> Answer:
        return NoContract() if height > 4_000 else before(height)

    (result,) = compare({TOKEN: course(moves)}, {TOKEN: before})[0].values()
    assert (result.balance, result.changes, result.unread) == (7, (), ())
    (result,) = compare({TOKEN: course(moves)}, {TOKEN: after_removal})[0].values()
    assert (result.balance, result.changes) == (None, ())
    assert min(result.unread) > 4_000


def test_without_the_state_of_old_blocks_a_difference_has_no_block_and_is_not_given_one() -> None:
    def pruned(height: int) -> Answer:
        return None if height < LAST - 100 else 12

    (result,) = compare({COIN: course({50: 10})}, {COIN: pruned})[0].values()
    (change,) = result.changes
    assert (change.amount, change.is_found, change.after, change.height) == (2, False, 0, LAST)
    assert (change.balance_before, change.balance_after) == (0, 12)
    assert result.opening is None
    (result,) = compare({COIN: course({50: 10})}, {COIN: pruned}, is_start=False)[0].values()
    assert result.changes == ()


@given(rows=TRANSFERS, fees=st.lists(st.tuples(st.integers(1, 3), st.integers(0, MAX_RAW)), max_size=3))
def test_courses_are_the_sums_of_all_movements_exact_for_all_of_uint256(
    rows: list[dict[str, Any]], fees: list[tuple[int, int]]
) -> None:
    history = by_account(tables.ACCOUNT_TRANSFERS, frame(tables.TRANSFERS, rows).lazy()).collect()
    fee_rows = pl.DataFrame(
        {
            "account": [ALICE] * len(fees),
            "height": [height for height, _ in fees],
            "fee": [raw.to_bytes(32, "big") for _, raw in fees],
        },
        schema={"account": pl.String, "height": pl.Int64, "fee": pl.Binary},
    )
    courses = running_totals(drop_native_duplicates(history, INFO), fee_rows, INFO)
    expected: dict[tuple[BalanceKey, int], int] = {}
    for row in rows:
        number = row.get("token_id")
        asset = INFO.asset(row["standard"], row["token"], number)
        for side, sign in (("recipient", 1), ("sender", -1)):
            key_and_height = BalanceKey(row[side], asset), row["height"]
            expected[key_and_height] = expected.get(key_and_height, 0) + sign * row["raw"]
    for height, raw in fees:
        expected[COIN, height] = expected.get((COIN, height), 0) - raw
    assert {
        (key, height): course_of_key.change_at(height)
        for key, course_of_key in courses.items()
        for height in course_of_key.heights
    } == expected


def test_coins_that_a_chain_tells_of_a_second_time_as_a_token_count_once() -> None:
    info = replace(INFO, also_at=INFO.token_asset(TOKENS[0]))
    coin = {"height": 1, "tx_index": 0, "standard": "native", "token": None, "sender": ACCOUNTS[2], "recipient": ALICE}
    rows = [
        {**coin, "raw": 5},
        {**coin, "raw": 5, "standard": "erc20", "token": TOKENS[0]},
        {**coin, "raw": 3, "standard": "erc20", "token": TOKENS[0]},
        {**coin, "raw": 2, "standard": "erc20", "token": TOKENS[1]},
    ]
    history = by_account(tables.ACCOUNT_TRANSFERS, frame(tables.TRANSFERS, rows).lazy()).collect()
    no_fees = pl.DataFrame(schema={"account": pl.String, "height": pl.Int64, "fee": pl.Binary})
    courses = running_totals(drop_native_duplicates(history, info), no_fees, info)
    alice_sums = {key.asset: totals.sums for key, totals in courses.items() if key.account == ALICE}
    assert alice_sums == {COIN.asset: (8,), INFO.token_asset(TOKENS[1]): (2,)}


def change(height: int, amount: int, before: int = 100) -> Change:
    return Change(height - 1, height, amount, before, before + amount)


WHOLE = Evidence(is_read=True, is_complete=True)


def test_what_changes_again_and_again_without_events_is_rebasing_and_what_changes_once_is_not() -> None:
    single, repeated = [change(10, 5)], [change(10, 5), change(20, 6), change(30, -1)]
    totals = course({30: 50})
    assert cause_of(TOKEN, totals, single[0], single, WHOLE)[0] == causes.WITHOUT_EVENTS
    assert {cause_of(TOKEN, totals, each, repeated, WHOLE)[0] for each in repeated} == {causes.REBASING}
    filled = [change(10, 100, 0), change(20, -100, 100), change(30, 7, 0)]
    assert {cause_of(TOKEN, RunningTotals(), each, filled, WHOLE)[0] for each in filled} == {causes.WITHOUT_EVENTS}


def test_what_a_token_keeps_of_a_transfer_is_a_fee_and_what_moves_nothing_is_an_event_without_effect() -> None:
    totals = course({10: 100})
    for amount, cause in ((-1, causes.FEE_ON_TRANSFER), (-100, causes.EVENTS_WITHOUT_EFFECT), (3, causes.UNKNOWN)):
        assert cause_of(TOKEN, totals, change(10, amount), [change(10, amount)], WHOLE)[0] == cause


@pytest.mark.parametrize("amount", [-1, -100, 5])
def test_no_token_is_blamed_if_the_events_of_the_block_may_not_be_all(amount: int) -> None:
    for totals in (course({10: 100}), course({30: 50})):
        cause, reason = cause_of(TOKEN, totals, change(10, amount), [change(10, amount)], Evidence(is_read=True))
        assert cause == causes.UNKNOWN
        assert "receipts, which have all, could not be read" in reason


def test_a_left_out_event_is_named_also_if_it_explains_a_part_of_the_difference() -> None:
    events = ("log 3 of transaction 0xab", "log 4 of transaction 0xab")
    evidence = replace(WHOLE, missing={"transfers": 100}, left_out=events)
    for amount, reason_end in ((100, ""), (98, "; -2 of the difference is something else")):
        cause = cause_of(TOKEN, RunningTotals(), change(10, amount), [change(10, amount)], evidence)
        reason_start = "the node left out log 3 of transaction 0xab and 1 more when the block was indexed"
        assert cause == (causes.MISSING_ROW, f"{reason_start}: read again, the block has it{reason_end}")


def test_coins_are_named_by_what_the_block_shows_and_unknown_where_nothing_shows_it() -> None:
    def coin_cause(amount: int, **evidence: Any) -> str:
        return cause_of(COIN, RunningTotals(), change(10, amount), [], Evidence(**evidence))[0]

    assert coin_cause(5, is_read=True, missing={"internal": 5}) == causes.MISSING_TRACE
    assert coin_cause(5, is_read=True, missing={"native": 5}) == causes.MISSING_ROW
    assert coin_cause(5, is_read=True, missing={"native": 5}, unindexed=("native",)) == causes.NOT_INDEXED
    assert coin_cause(5, unindexed=("transactions",)) == causes.NOT_INDEXED
    assert coin_cause(5, is_read=True, is_rewarded=True, transactions=3) == causes.BLOCK_REWARD
    assert coin_cause(5, is_read=True, missing={"withdrawals": 5}, transactions=3) == causes.WITHDRAWAL
    assert coin_cause(5, is_read=True, missing={"mints": 5}, transactions=3) == causes.MINT
    assert coin_cause(5, is_read=True, missing={"withdrawals": 4}, transactions=3) == causes.UNKNOWN
    assert coin_cause(-5, is_read=True, is_rewarded=True, transactions=3) == causes.UNKNOWN
    assert coin_cause(5, is_read=True, transactions=0) == causes.WITHDRAWAL
    assert coin_cause(-5, is_read=True, transactions=0) == causes.UNKNOWN
    assert coin_cause(5, is_read=True, transactions=2, untraced=True) == causes.MISSING_TRACE
    assert coin_cause(5, is_read=True, transactions=2) == causes.UNKNOWN
    assert coin_cause(5, is_read=True, transactions=2, missing={"native": 4}) == causes.UNKNOWN
    distant_change = Change(0, 10, 5, 0, 5)
    assert (
        cause_of(COIN, RunningTotals(), distant_change, [distant_change], Evidence(transactions=0))[0] == causes.UNKNOWN
    )


def test_coins_have_the_reason_of_their_cause() -> None:
    def reason(amount: int = 5, **evidence: Any) -> tuple[str, str]:
        return cause_of(COIN, RunningTotals(), change(10, amount), [], Evidence(**evidence))

    missing_reason = "the chain has the movement (dataset {}), and the index does not"
    both = {"withdrawals": 2, "internal": 3, "native": 0}
    assert reason(missing=both) == (causes.MISSING_TRACE, missing_reason.format("`internal`, `withdrawals`"))
    assert reason(missing={"native": 4, "mints": 1}) == (causes.MINT, missing_reason.format("`mints`, `native`"))
    assert reason(missing={"native": 5}, unindexed=("native", "fees")) == (
        causes.NOT_INDEXED,
        "not indexed at this block: `native`, `fees`",
    )
    assert reason(missing={"native": 3, "fees": 2}, unindexed=("transfers",)) == (
        causes.MISSING_ROW,
        "the chain has rows of `fees`, `native` that the index lacks, though it read the block",
    )
    assert reason(unindexed=("internal", "native")) == (causes.NOT_INDEXED, "not indexed at this block: `native`")
    assert reason(is_rewarded=True) == (causes.BLOCK_REWARD, "the block names the account as the one who gets its fees")
    assert reason(transactions=0) == (
        causes.WITHDRAWAL,
        "the block has no transactions: the protocol itself paid, as it does for validators",
    )
    hidden = "a call inside a transaction moved coins, as it seems, and what calls move is not known of this block"
    assert reason(unindexed=("internal",)) == reason(untraced=True) == (causes.MISSING_TRACE, hidden)
    assert reason(untraced=True, reader_note="a burn") == (causes.MISSING_TRACE, f"{hidden}: a burn")
    assert reason(is_read=True, unindexed=("native",)) == (
        causes.UNKNOWN,
        "nothing that is known of the block explains it",
    )
    assert reason(reader_note="a burn") == (causes.UNKNOWN, "a burn")
    assert reason(0, missing={"native": 0})[0] == reason(0, is_rewarded=True)[0] == causes.UNKNOWN
    assert reason(0, missing={"native": 5, "internal": -5})[0] == causes.MISSING_TRACE


def test_tokens_have_the_reason_of_their_cause() -> None:
    def reason(amount: int, totals: RunningTotals, key: BalanceKey = TOKEN, **evidence: Any) -> tuple[str, str]:
        only = change(10, amount)
        return cause_of(key, totals, only, [only], replace(WHOLE, **evidence))

    course_of_one = course({10: 100})
    assert reason(5, course_of_one, missing={"transfers": 3}) == (
        causes.MISSING_ROW,
        "the chain has rows of `transfers` that the index lacks, though it read the block; "
        "2 of the difference is something else",
    )
    one_event = reason(5, course_of_one, missing={"transfers": 5}, left_out=("log 3",))
    assert one_event[1] == "the node left out log 3 when the block was indexed: read again, the block has it"
    many_events = reason(5, course_of_one, missing={"transfers": 5}, left_out=("log 3", *["log 4"] * 1_000))
    assert " log 3 and 1,000 more when" in many_events[1]
    assert reason(5, course_of_one, unindexed=("transfers",), is_read=False) == (
        causes.NOT_INDEXED,
        "not indexed at this block: `transfers`",
    )
    assert reason(5, RunningTotals()) == (
        causes.WITHOUT_EVENTS,
        "the balance changed, and no event of the token says so",
    )
    assert reason(-100, course_of_one) == (
        causes.EVENTS_WITHOUT_EFFECT,
        "its events say that it moved, and the balance did not change",
    )
    assert reason(-1, course_of_one) == (
        causes.FEE_ON_TRANSFER,
        "less came than was sent, or more left: the token keeps a part of what is transferred",
    )
    strange = causes.UNKNOWN, "the balance changed by something else than what its events of this block say"
    collectible = BalanceKey(ALICE, INFO.asset("erc721", TOKENS[0], 7))
    assert reason(1, course_of_one) == reason(-1, course_of_one, collectible) == strange
    distant_change = Change(0, 10, 5, 0, 5)
    assert cause_of(TOKEN, course_of_one, replace(distant_change, after=0), [distant_change], WHOLE) == (
        causes.UNKNOWN,
        "the balances between these blocks could not be read, so that the block is not known",
    )
    changes = [change(10, 5), change(20, 6)]
    assert cause_of(TOKEN, course({30: 50}), changes[1], changes, WHOLE) == (
        causes.REBASING,
        "its balances change again and again without an event: accounts hold shares of it",
    )
