"""The meter: never more than the rate, never a credit lost, doubled or below zero; on both databases."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chainfolio.errors import BadRequest
from storage.state import State, ledger
from storage.state.accounts import Account
from storage.state.meter import WINDOW_US, Admit, Admitted, Held, expire
from tests.storage.stores import KINDS, Stores
from tests.storage.test_state import PEPPER, Hands

ROOT = Path(__file__).parents[2]


@pytest.fixture
def clock() -> Hands:
    return Hands()


@pytest.fixture
async def state(state_url: str, clock: Hands) -> AsyncIterator[State]:
    opened = State.open(state_url, PEPPER, clock, random.Random(1), hold_s=60)
    yield opened
    assert opened.database.look(ledger.check) == []
    await opened.meter.close()
    opened.close()


@pytest.fixture
def account(state: State) -> Account:
    return state.create_account("ann", credits=10)[0]


def call(account: Account, *, limit: int = 0, cost: int = 0, key: str = "k", bucket: str = "all") -> Admit:
    return Admit(account.id, key, bucket, limit, cost)


async def reserve(state: State, account: Account, cost: int = 1) -> Held:
    admitted = await state.meter.admit(call(account, cost=cost))
    assert admitted.held is not None
    return admitted.held


# --- rates -----------------------------------------------------------------------------------------------------------


async def test_exactly_the_limit_is_let_in_in_any_minute(state: State, account: Account, clock: Hands) -> None:
    let_in: list[int] = []
    for step in range(400):
        clock.us = 1_000_000 + step * 700_000
        if (await state.meter.admit(call(account, limit=50))).let_in:
            let_in.append(clock.us)
    for at in let_in:
        assert sum(at - WINDOW_US < other <= at for other in let_in) <= 50
    # 50 of the first 50, then one for each that leaves: a client that keeps to the rate is never refused.
    assert len(let_in) == 50 * 5


async def test_the_refused_are_told_when_and_are_not_counted(state: State, account: Account, clock: Hands) -> None:
    first = await state.meter.admit(call(account, limit=2))
    assert (first.let_in, first.remaining, first.reset_us) == (True, 1, 1_000_000 + WINDOW_US)
    clock.us += 5
    second = await state.meter.admit(call(account, limit=2))
    assert (second.let_in, second.remaining, second.reset_us) == (True, 0, 1_000_000 + WINDOW_US)
    for _ in range(9):
        refused = await state.meter.admit(call(account, limit=2, cost=1))
        assert (refused.let_in, refused.remaining, refused.reset_us) == (False, 0, 1_000_000 + WINDOW_US)
        assert refused.held is None
    clock.us = 1_000_000 + WINDOW_US
    assert (await state.meter.admit(call(account, limit=2))).let_in
    assert not (await state.meter.admit(call(account, limit=2))).let_in
    assert state.balance(account.id) == 10


async def test_buckets_and_keys_do_not_share(state: State, account: Account) -> None:
    for key, bucket in (("k", "all"), ("k", "at-block"), ("l", "all")):
        assert (await state.meter.admit(call(account, limit=1, key=key, bucket=bucket))).let_in
        assert not (await state.meter.admit(call(account, limit=1, key=key, bucket=bucket))).let_in


async def test_a_clock_that_goes_back_makes_no_room(state: State, account: Account, clock: Hands) -> None:
    clock.us = 500_000_000
    for _ in range(3):
        await state.meter.admit(call(account, limit=3))
    clock.us = 1_000_000
    refused = await state.meter.admit(call(account, limit=3))
    assert not refused.let_in
    assert refused.reset_us - refused.now_us == WINDOW_US


STEP_S = 30
MINUTE_S = WINDOW_US // 1_000_000


@pytest.mark.parametrize("jump_s", [-STEP_S, STEP_S])
async def test_a_clock_that_jumps_in_one_process_shortens_one_minute_at_most(state_url: str, jump_s: int) -> None:
    """Two processes, flooded for ten minutes; the clock of one is off from the third to the fifth."""
    hands = Hands(), Hands()
    states = [State.open(state_url, PEPPER, clock, random.Random(seed)) for seed, clock in enumerate(hands)]
    owner, let_in, stamps = states[0].create_account("ann")[0], list[int](), list[int]()
    for second in range(1, 601):
        off_s = jump_s if 180 <= second < 300 else 0
        hands[0].us, hands[1].us = second * 1_000_000, (second + off_s) * 1_000_000
        for state in states:
            for _ in range(3):
                found = await state.meter.admit(call(owner, limit=50))
                if found.let_in:
                    let_in.append(second)
                    stamps.append(found.now_us)
    assert stamps == sorted(stamps)
    assert max(sum(at - WINDOW_US < other <= at for other in stamps) for at in stamps) == 50
    minutes = {at: sum(at - MINUTE_S < other <= at for other in let_in) for at in let_in}
    beyond = [at for at, count in minutes.items() if count > 50]
    assert all(180 <= at < 180 + MINUTE_S and minutes[at] <= 100 for at in beyond)
    assert bool(beyond) == (jump_s > 0), "a step back makes no room at all"
    assert sum(let_in_at > 600 - 2 * MINUTE_S for let_in_at in let_in) >= 50, "nobody is locked out for good"
    for state in states:
        await state.meter.close()
        state.close()


# --- credits ---------------------------------------------------------------------------------------------------------


async def test_what_is_held_is_not_available_until_it_is_given_back(state: State, account: Account) -> None:
    held = await reserve(state, account, 4)
    assert state.balance(account.id) == 6
    await state.meter.settle(held, "void")
    assert state.balance(account.id) == 10
    held = await reserve(state, account, 4)
    await state.meter.settle(held, "post")
    assert state.balance(account.id) == 6
    found = state.database.look(lambda tx: ledger.history(tx, account.id))
    assert [(row.kind, row.amount, row.debit, row.credit) for row in reversed(found)] == [
        ("grant", 10, "operator", "available"),
        ("reserve", 4, "available", "held"),
        ("void", 4, "held", "available"),
        ("reserve", 4, "available", "held"),
        ("post", 4, "held", "earned"),
    ]


async def test_a_call_is_settled_once_whatever_comes_after(state: State, account: Account) -> None:
    held = await reserve(state, account, 3)
    await asyncio.gather(*(state.meter.settle(held, kind) for kind in ("post", "void", "post", "void")))
    assert state.balance(account.id) == 7
    assert state.database.look(ledger.totals)["post"] == (3, 1)
    assert state.database.look(ledger.totals)["void"] == (0, 0)


async def test_nobody_spends_what_is_not_there(state: State, account: Account) -> None:
    found = await asyncio.gather(*(state.meter.admit(call(account, cost=3)) for _ in range(8)))
    assert sum(each.held is not None for each in found) == 3
    assert {each.available for each in found if each.held is None} == {1}
    assert state.balance(account.id) == 1


async def test_what_nobody_settles_expires_in_the_customers_favour(
    state: State, account: Account, clock: Hands
) -> None:
    held = await reserve(state, account, 3)
    clock.us += 60_000_000 - 1
    assert await state.database.hot(lambda tx: expire(tx, clock.now_us(), state.meter.hold_us)) == 0
    clock.us += 1
    assert await state.database.hot(lambda tx: expire(tx, clock.now_us(), state.meter.hold_us)) == 1
    assert state.balance(account.id) == 10
    await state.meter.settle(held, "post")
    assert state.balance(account.id) == 10


async def test_one_who_leaves_before_the_answer_has_reserved_nothing(state: State, account: Account) -> None:
    asked = asyncio.create_task(state.meter.admit(call(account, cost=5)))
    await asyncio.sleep(0)
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    await state.meter.close()
    assert state.balance(account.id) == 10


def test_credits_are_given_and_taken_by_the_operator(state: State, account: Account) -> None:
    def change(amount: int) -> int:
        return state.database.change(lambda tx: ledger.credit(tx, account.id, amount, 5, "memo"))

    assert (change(5), change(-15)) == (15, 0)
    for amount in (-1, 0, 2**53):
        with pytest.raises(BadRequest):
            change(amount)
    with pytest.raises(BadRequest, match="there is no account"):
        state.database.change(lambda tx: ledger.credit(tx, "acc_nobody", 1, 5, ""))


@given(data=st.data())
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_order_of_events_adds_up(data: st.DataObject, stores: Stores) -> None:
    """A ledger that is nothing but a dictionary, beside ours, through any sequence of calls and ends of calls."""
    clock = Hands()
    state = State.open(stores.url(data.draw(st.sampled_from(KINDS))), PEPPER, clock, random.Random(1), hold_s=1)
    owner = state.create_account("ann", credits=20)[0]
    free, open_calls, earned = 20, {}, 0

    async def steps() -> None:
        nonlocal free, earned
        for _ in range(data.draw(st.integers(1, 12))):
            match data.draw(st.sampled_from(["reserve", "post", "void", "wait"])):
                case "reserve":
                    cost = data.draw(st.integers(1, 9))
                    found: Admitted = await state.meter.admit(call(owner, cost=cost))
                    assert (found.held is not None) == (cost <= free)
                    if found.held is not None:
                        open_calls[found.held] = cost
                        free -= cost
                case "wait":
                    clock.us += 2_000_000
                    await state.database.hot(lambda tx: expire(tx, clock.now_us(), state.meter.hold_us))
                    free += sum(open_calls.values())
                    open_calls.clear()
                case kind if open_calls:
                    held = data.draw(st.sampled_from(sorted(open_calls, key=lambda each: each.call_id)))
                    cost = open_calls.pop(held)
                    await state.meter.settle(held, kind)
                    free, earned = (free + cost, earned) if kind == "void" else (free, earned + cost)
            assert state.balance(owner.id) == free
        await state.meter.close()

    try:
        asyncio.run(steps())
        assert state.database.look(ledger.check) == []
        assert state.database.look(ledger.totals)["post"][0] == earned
    finally:
        state.close()


# --- several processes -----------------------------------------------------------------------------------------------

FLOOD = """
import asyncio, json, random, sys
from chainfolio.seams import SystemClock
from storage.state import State
from storage.state.meter import Admit

async def main(url, account, seed):
    state = State.open(url, bytes(range(32)), SystemClock(), random.Random(seed))
    async def client(number):
        found = []
        for each in range(40):
            admitted = await state.meter.admit(Admit(account, "k", "all", 100, 1))
            found.append(admitted.let_in)
            if admitted.held is not None:
                await state.meter.settle(admitted.held, "post" if each % 2 else "void")
        return sum(found)
    print(json.dumps(sum(await asyncio.gather(*map(client, range(4))))))
    await state.meter.close()
    state.close()

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""


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
    moved = state.database.look(ledger.totals)
    assert moved["reserve"] == (100, 100)
    assert moved["post"][0] + moved["void"][0] == 100
    assert state.balance(owner.id) == 1000 - moved["post"][0]
    assert state.database.look(ledger.check) == []
    state.close()
