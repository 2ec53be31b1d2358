"""The last block before a day equals that of a linear search, in few rounds, and on a real node."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from datetime import date, timedelta
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainfolio.block_search import blocks_before, last_before
from chainfolio.blocks import Block
from chainfolio.engine.history import day_blocks
from chainfolio.engine.history.day_blocks import DayBlocks, _months_after, day_count, days_from, midnight_us
from chainfolio.engine.requests.days import INTERVALS, days_between
from chainfolio.errors import NodeBehind
from chainfolio.localchain.node import LocalNode
from chainfolio.plans import run_offline
from tests.chains.evm import evm

DAY = date(2024, 2, 29)
MIDNIGHT_S = midnight_us(DAY) // 1_000_000


def block(height: int, time_us: int) -> Block:
    return Block(height, f"0x{height:x}", "", time_us)


@given(
    st.integers(1, 1_000), st.lists(st.integers(0, 50), min_size=1, max_size=300), st.integers(0, 10_000), st.booleans()
)
def test_it_is_the_block_that_a_linear_search_finds(
    birth_us: int, steps: list[int], instant_us: int, is_dated_1970: bool
) -> None:
    times = list(accumulate(steps, initial=birth_us))
    began_us = times[0]
    if is_dated_1970:
        times[0], began_us = 0, times[1]
    instant_us = min(instant_us, times[-1])
    older = [height for height, time_us in enumerate(times) if time_us < instant_us]
    last_block = run_offline(
        last_before(block(len(times) - 1, times[-1]), instant_us), lambda height: block(height, times[height])
    )
    assert (last_block and last_block.height) == (older[-1] if began_us < instant_us else None)


@given(st.lists(st.integers(1, 50), min_size=3, max_size=300), st.data(), st.integers(0, 10_000))
def test_blocks_that_nodes_have_dropped_are_never_asked_for(
    steps: list[int], data: st.DataObject, instant_us: int
) -> None:
    times = list(accumulate(steps, initial=1))
    first = data.draw(st.integers(1, len(times) - 2))
    blocks_by_height = {height: block(height, time_us) for height, time_us in enumerate(times) if height >= first}
    instant_us = min(instant_us, times[-1])
    last_block = run_offline(
        last_before(blocks_by_height[len(times) - 1], instant_us, first=first), blocks_by_height.__getitem__
    )
    older = [height for height in blocks_by_height if times[height] < instant_us]
    assert (last_block and last_block.height) == (older[-1] if older else None)


@given(st.lists(st.integers(1, 50), min_size=2, max_size=300), st.data(), st.integers(0, 10_000))
def test_heights_without_a_block_change_nothing_of_it(steps: list[int], data: st.DataObject, instant_us: int) -> None:
    times = list(accumulate(steps, initial=1))
    skipped = data.draw(st.sets(st.integers(0, len(times) - 2)))
    blocks_by_height = [block(height, time_us) for height, time_us in enumerate(times) if height not in skipped]
    instant_us = min(instant_us, times[-1])
    plan = last_before(blocks_by_height[-1], instant_us)
    rounds = 0
    try:
        heights = next(plan)
        while True:
            rounds += 1
            heights = plan.send([each for each in blocks_by_height if each.height in heights])
    except StopIteration as stop:
        last_block = stop.value
    assert last_block == next((each for each in reversed(blocks_by_height) if each.time_us < instant_us), None)
    assert rounds <= 12


@given(st.lists(st.integers(1, 50), min_size=2, max_size=300), st.data(), st.lists(st.integers(0, 10_000), max_size=20))
def test_several_moments_together_are_what_each_is_alone(
    steps: list[int], data: st.DataObject, moments_us: list[int]
) -> None:
    times = list(accumulate(steps, initial=1))
    skipped = data.draw(st.sets(st.integers(0, len(times) - 2)))
    blocks_by_height = [block(height, time_us) for height, time_us in enumerate(times) if height not in skipped]
    moments_us = [min(moment_us, times[-1]) for moment_us in moments_us]
    rounds = 0

    async def blocks(heights: Sequence[int]) -> list[Block]:
        nonlocal rounds
        rounds += 1
        return [each for each in blocks_by_height if each.height in heights]

    last_blocks = asyncio.run(blocks_before(blocks_by_height[-1], moments_us, blocks))
    assert last_blocks == {
        moment_us: next((each for each in reversed(blocks_by_height) if each.time_us < moment_us), None)
        for moment_us in moments_us
    }
    assert rounds <= 20


def test_a_year_on_a_chain_of_twenty_million_blocks_takes_ten_rounds_and_a_few_headers_a_day() -> None:
    def time_us(height: int) -> int:
        return (1_438_269_973 + 14 * height + (height * 7919) % 11) * 1_000_000

    rounds = header_count = 0

    async def blocks(heights: Sequence[int]) -> list[Block]:
        nonlocal rounds, header_count
        rounds, header_count = rounds + 1, header_count + len(heights)
        return [block(height, time_us(height)) for height in heights]

    days = days_from(date(2020, 2, 1), date(2021, 1, 31))
    head = block(20_000_000, time_us(20_000_000))
    last_blocks = asyncio.run(blocks_before(head, map(midnight_us, days), blocks))
    for day in days:
        last = last_blocks[midnight_us(day)]
        assert last is not None
        assert last.time_us < midnight_us(day) <= time_us(last.height + 1)
    assert rounds <= 10
    assert header_count <= 20 * len(days)


def test_a_chain_of_twenty_million_blocks_takes_a_handful_of_rounds() -> None:
    def time_s(height: int) -> int:  # slow at first, then faster, with a genesis of 1970
        if height == 0:
            return 0
        merge = 15_537_394
        slow_s = 1_438_269_973 + 14 * min(height, merge) + (height * 7919) % 11
        return slow_s + 12 * max(0, height - merge)

    head = block(20_000_000, time_s(20_000_000) * 1_000_000)
    for day in (date(2015, 8, 1), date(2018, 1, 1), date(2021, 6, 15), date(2023, 1, 1)):
        plan, rounds, header_count = last_before(head, midnight_us(day)), 1, 0
        heights = next(plan)
        try:
            while True:
                rounds, header_count = rounds + 1, header_count + len(heights)
                heights = plan.send([block(height, time_s(height) * 1_000_000) for height in heights])
        except StopIteration as stop:
            last_block = stop.value
        assert time_s(last_block.height) * 1_000_000 < midnight_us(day) <= time_s(last_block.height + 1) * 1_000_000
        assert rounds <= 8
        assert header_count <= 160


@pytest.mark.parametrize(
    ("first", "last", "interval", "days"),
    [
        ("2024-02-28", "2024-03-01", "day", "2024-02-28 2024-02-29 2024-03-01"),
        ("2023-02-28", "2023-03-01", "day", "2023-02-28 2023-03-01"),
        ("2024-02-20", "2024-03-05", "week", "2024-02-20 2024-02-27 2024-03-05"),
        ("2023-12-31", "2024-03-31", "month", "2023-12-31 2024-01-31 2024-02-29 2024-03-31"),
        ("2024-01-31", "2024-02-28", "month", "2024-01-31"),
        ("2024-02-29", "2024-02-29", "month", "2024-02-29"),
        ("2024-03-31", "2024-03-30", "day", ""),
    ],
)
def test_days_weeks_and_months_are_those_of_the_calendar(first: str, last: str, interval: str, days: str) -> None:
    calendar_days = days_from(date.fromisoformat(first), date.fromisoformat(last), interval)
    assert " ".join(map(str, calendar_days)) == days


@given(st.dates(date(1, 1, 1), date(40, 1, 1)), st.dates(date(1, 1, 1), date(40, 1, 1)), st.sampled_from(INTERVALS))
def test_days_are_counted_without_a_list_of_them(first: date, last: date, interval: str) -> None:
    assert day_count(first, last, interval) == len(days_from(first, last, interval))
    assert all(first <= day <= last for day in days_from(first, last, interval))
    if day_count(first, last, interval) and interval == "month":
        following = _months_after(first, day_count(first, last, interval))
        assert following > last


def test_the_default_first_day_is_not_before_the_calendar() -> None:
    assert days_between(None, "0001-01-02", "day", DAY) == [date(1, 1, 1), date(1, 1, 2)]


def test_a_day_begins_at_midnight_utc() -> None:
    assert midnight_us(date(1970, 1, 2)) == 86_400_000_000
    assert midnight_us(date(1, 1, 1)) < 0


@pytest.mark.node
@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Pacific/Apia", "UTC"])
def test_a_day_has_24_hours_whatever_clocks_do_where_the_server_stands(
    zone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        for day in (date(2024, 3, 10), date(2024, 3, 31), date(2024, 10, 27), date(2024, 11, 3), date(2011, 12, 30)):
            assert midnight_us(day + timedelta(days=1)) - midnight_us(day) == 86_400_000_000
            assert midnight_us(day) == (day - date(1970, 1, 1)).days * 86_400_000_000
    finally:
        monkeypatch.undo()
        time.tzset()


async def test_a_block_at_midnight_belongs_to_the_day_and_is_not_before_it() -> None:
    with evm(0, LocalNode(timestamp=MIDNIGHT_S - 86_400)) as subject:
        node = subject.node
        node.rpc("evm_setNextBlockTimestamp", MIDNIGHT_S - 1)
        last = node.mine()
        node.rpc("evm_setNextBlockTimestamp", MIDNIGHT_S)
        node.mine()
        node.mine(50)
        chain, history = subject.chain(finality=20), DayBlocks()
        last_block = await history.before(chain, DAY)
        assert last_block is not None
        assert (last_block.height, last_block.hash) == (last, node.block(last)["hash"])
        assert await history.before(chain, DAY - timedelta(days=1)) is None  # the chain began that second
        assert await history.before(chain, date(1900, 1, 1)) is None
        before = chain.requests
        assert await history.before(chain, DAY) == last_block
        assert chain.requests == before
        with pytest.raises(NodeBehind):
            await history.before(chain, DAY + timedelta(days=1))
        await chain.close()


@pytest.mark.node
async def test_what_is_not_final_is_looked_up_again(tmp_path: Path) -> None:
    with evm(0, LocalNode(timestamp=MIDNIGHT_S - 86_400)) as subject:
        node = subject.node
        node.rpc("evm_setNextBlockTimestamp", MIDNIGHT_S - 1)
        node.mine()
        node.rpc("evm_setNextBlockTimestamp", MIDNIGHT_S)
        node.mine()
        chain, history = subject.chain(finality=64), DayBlocks()
        first = await history.before(chain, DAY)
        subject.reorg(2)
        node.mine(1, 86_400)
        second = await history.before(chain, DAY)
        assert first is not None
        assert second is not None
        assert second.hash != first.hash
        assert second.hash == node.block(second.height)["hash"]
        await chain.close()


@pytest.mark.node
async def test_a_full_cache_hides_no_day(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(day_blocks, "MAX_DAYS", 4)
    with evm(0, LocalNode(timestamp=MIDNIGHT_S)) as subject:
        chain, history = subject.chain(), DayBlocks()
        days = [DAY - timedelta(days=count) for count in range(1, 7)]
        assert await history.final_before(chain, days[:3]) == dict.fromkeys(days[:3])
        assert await history.final_before(chain, days) == dict.fromkeys(days)
        await chain.close()
