"""The meter: never more than the rate, never a credit lost, doubled or below zero; on both databases."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chainfolio.environment import SystemClock
from chainfolio.errors import BadRequest
from chainfolio.storage.state import State, ledger
from chainfolio.storage.state.accounts import Account
from chainfolio.storage.state.database import Time, Transaction
from chainfolio.storage.state.meter_transaction import WINDOW_US, Admission, AdmissionRequest, Reservation
from chainfolio.storage.state.sweep import EPOCH_US, SLICE, expire, sweep_slice
from tests.storage.stores import KINDS, NO_POSTGRES, Stores, own_server
from tests.storage.test_state import PEPPER, Hands

ROOT = Path(__file__).parents[2]


BEGAN_US = EPOCH_US + 1_000_000


def of_store(clock: Hands) -> Time:
    """The store's own time, moved by a clock's hands."""
    return lambda: EPOCH_US + clock.us


@pytest.fixture
def clock() -> Hands:
    return Hands()


@pytest.fixture
async def state(state_url: str, clock: Hands) -> AsyncIterator[State]:
    opened = State.open(state_url, PEPPER, clock, random.Random(1), hold_s=60, time=of_store(clock))
    yield opened
    assert opened.database.read(ledger.check) == []
    await opened.meter.close()
    opened.close()


@pytest.fixture
def account(state: State) -> Account:
    return state.create_account("ann", credits=10)[0]


def call(account: Account, *, limit: int = 0, cost: int = 0, key: str = "k", bucket: str = "all") -> AdmissionRequest:
    return AdmissionRequest(account.id, key, bucket, limit, cost)


async def reserve(state: State, account: Account, cost: int = 1) -> Reservation:
    admitted = await state.meter.admit(call(account, cost=cost))
    assert admitted.reservation is not None
    return admitted.reservation


def balance(state: State, account: Account) -> ledger.Balance:
    return state.database.write(lambda tx: ledger.balances(tx, [account.id])[account.id])


# --- rates -----------------------------------------------------------------------------------------------------------


async def test_exactly_the_limit_is_let_in_in_any_minute(state: State, account: Account, clock: Hands) -> None:
    let_in: list[int] = []
    for step in range(400):
        clock.us = 1_000_000 + step * 700_000
        if (await state.meter.admit(call(account, limit=50))).is_allowed:
            let_in.append(clock.us)
    for at in let_in:
        assert sum(at - WINDOW_US < allowed_us <= at for allowed_us in let_in) <= 50
    # 50 of the first 50, then one for each that leaves: a client that keeps to the rate is never refused.
    assert len(let_in) == 50 * 5


async def test_the_refused_are_told_when_and_are_not_counted(state: State, account: Account, clock: Hands) -> None:
    first = await state.meter.admit(call(account, limit=2))
    assert (first.is_allowed, first.remaining, first.reset_us) == (True, 1, BEGAN_US + WINDOW_US)
    clock.us += 5
    second = await state.meter.admit(call(account, limit=2))
    assert (second.is_allowed, second.remaining, second.reset_us) == (True, 0, BEGAN_US + WINDOW_US)
    for _ in range(9):
        admission = await state.meter.admit(call(account, limit=2, cost=1))
        assert (admission.is_allowed, admission.remaining, admission.reset_us) == (False, 0, BEGAN_US + WINDOW_US)
        assert admission.reservation is None
    clock.us = 1_000_000 + WINDOW_US
    assert (await state.meter.admit(call(account, limit=2))).is_allowed
    assert not (await state.meter.admit(call(account, limit=2))).is_allowed
    assert state.balance(account.id) == 10


async def test_buckets_and_keys_do_not_share(state: State, account: Account) -> None:
    for key, bucket in (("k", "all"), ("k", "at-block"), ("l", "all")):
        assert (await state.meter.admit(call(account, limit=1, key=key, bucket=bucket))).is_allowed
        assert not (await state.meter.admit(call(account, limit=1, key=key, bucket=bucket))).is_allowed


async def test_a_store_whose_clock_is_set_back_makes_no_room_and_locks_nobody_out(
    state: State, account: Account, clock: Hands
) -> None:
    clock.us = 5_000_000_000
    for _ in range(3):
        assert (await state.meter.admit(call(account, limit=3))).is_allowed
    clock.us -= 3600_000_000
    admission = await state.meter.admit(call(account, limit=3))
    assert not admission.is_allowed
    assert admission.reset_us - admission.now_us == WINDOW_US
    clock.us += WINDOW_US
    assert [(await state.meter.admit(call(account, limit=3))).is_allowed for _ in range(4)] == [True] * 3 + [False]


async def test_a_step_of_an_hour_and_back_refuses_nobody_who_keeps_to_the_rate(
    state: State, account: Account, clock: Hands
) -> None:
    start_us = clock.us
    refusals = 0
    for second in range(1, 400):
        clock.us = start_us + second * 1_000_000 + (3600_000_000 if second == 100 else 0)
        refusals += not (await state.meter.admit(call(account, limit=120))).is_allowed
    assert refusals == 0


MINUTE_S = WINDOW_US // 1_000_000


@pytest.mark.parametrize("off_s", [-3600, -30, 30, 601])
async def test_the_clocks_of_processes_are_asked_for_no_rate_and_no_expiry(state_url: str, off_s: int) -> None:
    """Two processes, one of them with a wrong clock, flooded for some minutes of the store's time."""
    right, wrong = Hands(), Hands()
    states = [
        State.open(state_url, PEPPER, clock, random.Random(seed), hold_s=60, time=of_store(right))
        for seed, clock in enumerate((right, wrong))
    ]
    start_us = right.us = wrong.us = 10_000_000_000
    owner, let_in = states[0].create_account("ann", credits=5)[0], list[int]()
    for second in range(1, 241):
        right.us = start_us + second * 1_000_000
        wrong.us = right.us + off_s * 1_000_000
        for state in states:
            let_in += [second for _ in range(3) if (await state.meter.admit(call(owner, limit=50))).is_allowed]
    assert {sum(at - MINUTE_S < second <= at for second in let_in) for at in range(MINUTE_S, 241)} == {50}
    reservations = [await reserve(state, owner) for state in states]
    for state in states:
        state.database.write(state.meter._sweep_slice)
    assert await states[0].read(ledger.check) == []
    assert states[0].balance(owner.id) == 3, "what runs has not expired by anybody's clock"
    for state, each in zip(states, reservations, strict=True):
        await state.meter.settle_reservation(each, "post")
    assert states[0].database.read(ledger.totals)["post"] == (2, 2)
    for state in states:
        await state.meter.close()
        state.close()


def test_the_time_of_a_store_is_one_for_all_and_goes_on(state_url: str) -> None:
    first = State.open(state_url, PEPPER, Hands(), random.Random(1))
    second = State.open(state_url, PEPPER, Hands(), random.Random(2))

    def now_us(tx: Transaction) -> int:
        return tx.now_us()

    times = [state.database.write(now_us) for _ in range(20) for state in (first, second)]
    assert times == sorted(times)
    assert times[-1] - times[0] < 60_000_000
    for state in (first, second):
        state.close()


# --- credits ---------------------------------------------------------------------------------------------------------


async def test_what_is_held_is_not_available_until_it_is_given_back(state: State, account: Account) -> None:
    reservation = await reserve(state, account, 4)
    assert state.balance(account.id) == 6
    await state.meter.settle_reservation(reservation, "void")
    assert state.balance(account.id) == 10
    reservation = await reserve(state, account, 4)
    await state.meter.settle_reservation(reservation, "post")
    assert state.balance(account.id) == 6
    rows = state.database.read(lambda tx: ledger.history(tx, account.id))
    assert [(row.kind, row.amount, row.debit, row.credit) for row in reversed(rows)] == [
        ("grant", 10, "operator", "available"),
        ("reserve", 4, "available", "held"),
        ("void", 4, "held", "available"),
        ("reserve", 4, "available", "held"),
        ("post", 4, "held", "earned"),
    ]


async def test_a_call_is_settled_once_whatever_comes_after(state: State, account: Account) -> None:
    reservation = await reserve(state, account, 3)
    await asyncio.gather(
        *(state.meter.settle_reservation(reservation, kind) for kind in ("post", "void", "post", "void"))
    )
    assert state.balance(account.id) == 7
    assert state.database.read(ledger.totals)["post"] == (3, 1)
    assert state.database.read(ledger.totals)["void"] == (0, 0)


async def test_a_reservation_that_the_store_lost_moves_no_credits_when_it_is_settled(
    state: State, account: Account
) -> None:
    reservation = await reserve(state, account, 3)
    unknown = replace(reservation, call_id=reservation.call_id - 1)
    for kind in ("post", "void"):
        await state.meter.settle_reservation(unknown, kind)
    assert balance(state, account) == ledger.Balance(7, 3, 0)
    assert state.database.read(ledger.check) == []
    await state.meter.settle_reservation(reservation, "post")
    assert balance(state, account) == ledger.Balance(7, 0, 3)


async def test_a_crash_of_postgresql_between_a_reservation_and_its_end_leaves_the_ledger_sound() -> None:
    """The commit of a reservation does not wait for the disk: PostgreSQL may forget it as it crashes."""
    with own_server() as server:
        if server is None:
            pytest.skip(NO_POSTGRES)
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET wal_writer_delay = '10s'")
            connection.execute("SELECT pg_reload_conf()")
        state = State.open(server.url, PEPPER, SystemClock(), random.Random(1), hold_s=60)
        account = state.create_account("ann", credits=10)[0]
        forgotten = await reserve(state, account, 3)
        server.stop()
        server.start()
        assert state.database.read(ledger.totals)["reserve"] == (0, 0), "it was lost"
        reservation = await reserve(state, account, 5)
        await state.meter.settle_reservation(forgotten, "post")
        assert state.database.read(ledger.check) == []
        await state.meter.settle_reservation(reservation, "post")
        assert balance(state, account) == ledger.Balance(5, 0, 5)
        assert state.database.read(ledger.check) == []
        await state.meter.close()
        state.close()


async def test_nobody_spends_what_is_not_there(state: State, account: Account) -> None:
    admissions = await asyncio.gather(*(state.meter.admit(call(account, cost=3)) for _ in range(8)))
    assert sum(each.reservation is not None for each in admissions) == 3
    assert {each.available for each in admissions if each.reservation is None} == {1}
    assert state.balance(account.id) == 1


async def died(state_url: str, account: Account, clock: Hands, cost: int, calls: int = 1) -> list[Reservation]:
    """Return the open reservations of another process that ended."""
    process_state = State.open(state_url, PEPPER, clock, random.Random(7), hold_s=60, time=of_store(clock))
    reservations = [await reserve(process_state, account, cost) for _ in range(calls)]
    await process_state.meter.close()
    process_state.close()
    return reservations


async def test_what_nobody_settles_expires_in_the_customers_favour(
    state: State, state_url: str, account: Account, clock: Hands
) -> None:
    (reservation,) = await died(state_url, account, clock, 3)
    clock.us += 60_000_000 - 1
    assert state.database.write(lambda tx: expire(tx, clock.now_us(), state.meter.hold_us)) == (0, False)
    clock.us += 1
    assert state.database.write(lambda tx: expire(tx, clock.now_us(), state.meter.hold_us)) == (1, False)
    assert state.balance(account.id) == 10
    await state.meter.settle_reservation(reservation, "post")
    assert state.balance(account.id) == 10


async def test_a_call_that_runs_for_longer_than_reservations_last_is_paid(
    state: State, account: Account, clock: Hands
) -> None:
    reservation = await reserve(state, account, 4)
    for _ in range(10):
        clock.us += 25_000_000
        state.meter._renew()
        assert state.balance(account.id) == 6
        await state.meter.settle_reservation(await reserve(state, account), "void")  # whatever waited is done with it
        state.database.write(lambda tx: sweep_slice(tx, clock.now_us(), state.meter.hold_us))
    await state.meter.settle_reservation(reservation, "post")
    assert state.balance(account.id) == 6
    assert state.database.read(ledger.totals)["post"] == (4, 1)
    assert state.database.read(ledger.totals)["expire"] == (0, 0)


async def test_a_call_that_ends_while_it_is_renewed_is_paid_once(state: State, account: Account, clock: Hands) -> None:
    reservation = await reserve(state, account, 4)
    clock.us += 25_000_000
    state.meter._renew()
    await state.meter.settle_reservation(reservation, "post")
    assert state.balance(account.id) == 6
    assert state.database.read(ledger.totals)["post"] == (4, 1)


async def test_a_sweep_looks_at_every_row_once_and_at_few_at_a_time(
    state: State, state_url: str, account: Account, clock: Hands
) -> None:
    dead = await died(state_url, account, clock, 1, calls=3)
    for _ in range(40):
        await state.meter.settle_reservation(await reserve(state, account), "void")
    clock.us += 60_001_000  # calls of one moment differ by some millionths
    alive = await reserve(state, account)
    expired_count, is_unfinished, slices = 0, True, 0
    while is_unfinished:
        expired, is_unfinished = state.database.write(
            lambda tx: expire(tx, clock.now_us(), state.meter.hold_us, max_rows=10)
        )
        expired_count, slices = expired_count + expired, slices + 1
    assert expired_count == len(dead)
    assert 8 <= slices <= 11, "84 rows, ten at a time"
    assert state.database.write(lambda tx: expire(tx, clock.now_us(), state.meter.hold_us)) == (0, False)
    assert state.balance(account.id) == 9
    await state.meter.settle_reservation(alive, "post")
    assert SLICE < 10_000


async def test_one_who_leaves_before_the_answer_has_reserved_nothing(state: State, account: Account) -> None:
    admission = asyncio.create_task(state.meter.admit(call(account, cost=5)))
    await asyncio.sleep(0)
    admission.cancel()
    with pytest.raises(asyncio.CancelledError):
        await admission
    await state.meter.close()
    assert state.balance(account.id) == 10


async def test_one_who_leaves_in_the_moment_of_the_answer_has_reserved_nothing(state: State, account: Account) -> None:
    admission = asyncio.create_task(state.meter.admit(call(account, cost=5)))
    await asyncio.sleep(0)
    (_, answer), *_ = state.meter._pending
    assert answer is not None
    for _ in iter(answer.done, True):  # at every turn of the loop, so that it is seen before the one who asked goes on
        await asyncio.sleep(0)
    admission.cancel()
    with pytest.raises(asyncio.CancelledError):
        await admission
    await state.meter.close()
    assert not state.meter._open, "it would be renewed for ever"
    assert state.balance(account.id) == 10


def test_credits_are_given_and_taken_by_the_operator(state: State, account: Account) -> None:
    def change(amount: int) -> int:
        return state.database.write(lambda tx: ledger.credit(tx, account.id, amount, 5, "memo"))

    max_credits = ledger.MAX_CREDITS
    assert (change(5), change(-15), change(max_credits), change(-max_credits)) == (15, 0, max_credits, 0)
    bounds = f"1 to {max_credits:,}, or that much below zero"
    for amount, reason in (
        (-1, "the account has 0 that"),
        (0, bounds),
        (max_credits + 1, bounds),
        (-max_credits - 1, bounds),
    ):
        with pytest.raises(BadRequest, match=reason):
            change(amount)
    assert change(1) == 1
    with pytest.raises(BadRequest, match=f"an account holds at most {max_credits:,}"):
        change(max_credits)
    assert [(row.kind, row.amount) for row in state.database.read(lambda tx: ledger.history(tx, account.id, 2))] == [
        ("grant", 1),
        ("adjust", max_credits),
    ]
    with pytest.raises(BadRequest, match="there is no account"):
        state.database.write(lambda tx: ledger.credit(tx, "acc_nobody", 1, 5, ""))
    assert state.balance(account.id) == 1
    assert state.balance("acc_nobody") == 0


@given(data=st.data())
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_order_of_events_adds_up(data: st.DataObject, stores: Stores) -> None:
    """Compare the ledger with a model of a dictionary through any sequence of calls and ends of calls."""
    clock = Hands()
    state = State.open(
        stores.url(data.draw(st.sampled_from(KINDS))), PEPPER, clock, random.Random(1), hold_s=1, time=of_store(clock)
    )
    owner = state.create_account("ann", credits=20)[0]
    free, open_calls, posted = 20, {}, 0

    async def steps() -> None:
        nonlocal free, posted
        for _ in range(data.draw(st.integers(1, 12))):
            match data.draw(st.sampled_from(["reserve", "post", "void", "wait"])):
                case "reserve":
                    cost = data.draw(st.integers(1, 9))
                    admission: Admission = await state.meter.admit(call(owner, cost=cost))
                    assert (admission.reservation is not None) == (cost <= free)
                    if admission.reservation is not None:
                        open_calls[admission.reservation] = cost
                        free -= cost
                case "wait":
                    clock.us += 2_000_000
                    state.meter._open.clear()  # as if those who hold them were gone
                    state.database.write(lambda tx: expire(tx, clock.now_us(), state.meter.hold_us))
                    free += sum(open_calls.values())
                    open_calls.clear()
                case kind if open_calls:
                    reservation = data.draw(st.sampled_from(sorted(open_calls, key=lambda each: each.call_id)))
                    cost = open_calls.pop(reservation)
                    await state.meter.settle_reservation(reservation, kind)
                    free, posted = (free + cost, posted) if kind == "void" else (free, posted + cost)
            assert state.balance(owner.id) == free
        await state.meter.close()

    try:
        asyncio.run(steps())
        assert state.database.read(ledger.check) == []
        assert state.database.read(ledger.totals)["post"][0] == posted
    finally:
        state.close()


# --- several processes -----------------------------------------------------------------------------------------------

FLOOD = """
import asyncio, json, random, sys
from chainfolio.environment import SystemClock
from chainfolio.storage.state import State
from chainfolio.storage.state.meter import AdmissionRequest

async def main(url, account, seed):
    state = State.open(url, bytes(range(32)), SystemClock(), random.Random(seed))
    async def client(number):
        found = []
        for each in range(40):
            admitted = await state.meter.admit(AdmissionRequest(account, "k", "all", 100, 1))
            found.append(admitted.is_allowed)
            if admitted.reservation is not None:
                await state.meter.settle_reservation(admitted.reservation, "post" if each % 2 else "void")
        return sum(found)
    print(json.dumps(sum(await asyncio.gather(*map(client, range(4))))))
    await state.meter.close()
    state.close()

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""


@pytest.mark.slow("takes seconds, and faster tests take its branches")
@pytest.mark.parametrize("kind", KINDS)
def test_processes_share_one_rate_and_one_purse(kind: str, stores: Stores) -> None:
    url = stores.url(kind)
    state = State.open(url, PEPPER, Hands(), random.Random(1))
    owner = state.create_account("ann", credits=1000)[0]
    flood = [
        subprocess.Popen([sys.executable, "-c", FLOOD, url, owner.id, str(seed)], cwd=ROOT, stdout=subprocess.PIPE)
        for seed in range(3)
    ]
    let_in = [json.loads(each.communicate()[0]) for each in flood]
    assert sum(let_in) == 100
    totals = state.database.read(ledger.totals)
    assert totals["reserve"] == (100, 100)
    assert totals["post"][0] + totals["void"][0] == 100
    assert state.balance(owner.id) == 1000 - totals["post"][0]
    assert state.database.read(ledger.check) == []
    state.close()


def test_a_bill_is_counted_as_reserved_and_posted_and_one_that_is_too_high_names_what_is_there(
    state: State, account: Account, clock: Hands
) -> None:
    bill = ledger.Bill(account.id, 4, clock.now_us(), "call")
    state.database.write(lambda tx: ledger.pay(tx, bill, 1))
    state.meter.billed(bill)
    assert state.meter.credit_totals == {"reserve": 4, "post": 4}
    with pytest.raises(ledger.InsufficientCredits, match=r"^6 credits are there$") as caught:
        state.database.write(lambda tx: ledger.pay(tx, replace(bill, amount=7), 2))
    assert caught.value.available == 6
    assert state.database.write(lambda tx: ledger.balances(tx, [account.id]))[account.id].available == 6


@pytest.mark.parametrize(
    ("balance", "reasons"),
    [
        ((11, 0, 0), ["available is 11, its rows add up to 10"]),
        ((10, 1, 0), ["held is 1, its rows add up to 0"]),
        ((9, 0, 1), ["available is 9, its rows add up to 10", "earned is 1, its rows add up to 0"]),
    ],
    ids=["available", "held", "earned"],
)
def test_a_check_of_the_ledger_finds_a_balance_that_its_rows_contradict(
    state_url: str, balance: tuple[int, int, int], reasons: list[str]
) -> None:
    state = State.open(state_url, PEPPER, Hands(), random.Random(1))
    id = state.create_account("ann", credits=10)[0].id
    state.database.write(lambda tx: ledger.store_balances(tx, {id: ledger.Balance(*balance)}))
    assert state.database.read(ledger.check) == [f"{id}: {each}" for each in reasons]
    state.close()


def test_a_check_of_the_ledger_finds_credits_that_no_open_call_holds(state_url: str) -> None:
    state = State.open(state_url, PEPPER, Hands(), random.Random(1))
    id = state.create_account("ann", credits=10)[0].id

    def reserve(tx: Transaction) -> None:
        for number, kind in enumerate(("reserve", "reserve", "post")):
            tx.run_many(ledger.ADD, [ledger.entry(id, 1, kind, 3 + number, min(number, 1) + 1, "")])
        ledger.store_balances(tx, {id: ledger.Balance(3, 2, 5)})

    state.database.write(reserve)
    assert state.database.read(ledger.check) == [
        f"{id}: 2 held, but 3 reserved by open calls",
        "7 were reserved, 8 posted, voided, expired or still held",
    ]
    state.close()
