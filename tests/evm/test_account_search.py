"""The search for blocks that changed accounts: complete, without duplicates, in logarithmic rounds."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from chainfolio.adapters.evm.accounts.search import Change, Probe, find_changes
from chainfolio.blocks import Span

LAST = 5_000
ALICE, BOB = ("0x" + pair * 20 for pair in ("aa", "bb"))
heights = st.frozensets(st.integers(1, LAST), max_size=60)


class ChangeHistory:
    """A history of changes of accounts by height that counts probes and rounds."""

    def __init__(self, **changed: frozenset[int]) -> None:
        self.changed, self.rounds, self.probes = changed, 0, 0

    async def read(self, probes: Sequence[Probe]) -> list[int]:
        self.rounds += 1
        self.probes += len(probes)
        assert len(set(probes)) == len(probes), "nothing is asked twice in one round"
        return [sum(each <= height for each in self.changed[account]) for account, height in probes]


@given(
    alice=heights,
    bob=heights,
    at_once=st.integers(1, 400),
    limit=st.integers(1, 50),
    first=st.integers(0, LAST),
    likely=heights,
)
async def test_every_change_is_found_once_in_windows_that_follow_each_other(
    alice: frozenset[int], bob: frozenset[int], at_once: int, limit: int, first: int, likely: frozenset[int]
) -> None:
    past, changes, begin = ChangeHistory(alice=alice, bob=bob), list[Change[int]](), first
    while begin <= LAST:
        window, batch = await find_changes(
            past.read,
            ["alice", "bob"],
            Span(begin, LAST),
            batch_size=lambda: at_once,
            max_changes=lambda: limit,
            likely_heights=lambda account, before, after: sorted(likely),
        )
        assert window.first == begin
        assert all(each.height in window for each in batch)
        assert len(batch) <= 2 * limit + 2, "a window is bounded"
        changes += batch
        begin = window.last + 1
    expected = {(name, height) for name, every in past.changed.items() for height in every if height >= first}
    assert {(each.account, each.height) for each in changes} == expected
    assert len(changes) == len(expected)
    assert all(each.after == each.before + 1 for each in changes)


@given(at=st.integers(1, LAST))
async def test_one_change_takes_rounds_by_the_logarithm_and_none_takes_one(at: int) -> None:
    past = ChangeHistory(alice=frozenset([at]))
    await find_changes(past.read, ["alice"], Span(0, LAST), batch_size=lambda: 500, max_changes=lambda: 10)
    assert past.rounds <= 3
    quiet = ChangeHistory(alice=frozenset())
    assert await find_changes(quiet.read, ["alice"], Span(0, LAST), batch_size=lambda: 500, max_changes=lambda: 10) == (
        Span(0, LAST),
        [],
    )
    assert (quiet.rounds, quiet.probes) == (1, 2)


@given(changed=st.frozensets(st.integers(1, LAST), min_size=1, max_size=60))
async def test_changes_near_known_heights_take_two_probes(changed: frozenset[int]) -> None:
    past = ChangeHistory(alice=changed)
    _, changes = await find_changes(
        past.read,
        ["alice"],
        Span(0, LAST),
        batch_size=lambda: 5,
        max_changes=lambda: 100,
        likely_heights=lambda *_: sorted(changed),
    )
    assert [each.height for each in changes] == sorted(changed)
    assert past.probes <= 2 + 2 * len(changed)
    assert past.rounds <= 2
