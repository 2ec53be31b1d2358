"""A store that is copied into another database has the same rows, also if the copy is interrupted."""

from __future__ import annotations

import random
from collections.abc import Iterable
from contextlib import closing

import pytest

from chainfolio.blocks import Block, Span
from chainfolio.environment import SystemClock
from chainfolio.errors import StoreError
from chainfolio.storage.state import State
from chainfolio.storage.state.credentials import PEPPER_BYTES
from chainfolio.storage.tail import Tail, TailBlock
from chainfolio.storage.transfer import SQLITE, Row, Side, Table, open_side, state_tables, tail_tables, transfer
from chainfolio.storage.watches import WatchedAccount
from tests.storage.stores import Stores

WAYS = [("sqlite", "postgresql"), ("postgresql", "sqlite"), ("sqlite", "sqlite"), ("postgresql", "postgresql")]
PEPPER = b"p" * PEPPER_BYTES


def filled(location: str) -> None:
    """A tail with something in many tables: all bytes, the highest number, both cases, an absent value."""
    with closing(Tail(location)) as tail:
        blocks = [Block(at, f"0x{at}", f"0x{at - 1}", 2**62 + at) for at in range(5, 9)]
        tail.put("a", [TailBlock(each, {"logs": bytes(range(256)), "blocks": b""}) for each in blocks], datasets=["x"])
        tail.close_batch(tail.open_batch("a", Span(0, 4), ["logs"]), Block(4, "0x4", "0x3", 4))
        tail.open_batch("a", Span(9, 2**63 - 1), ["logs"])
        tail.watch("a", [WatchedAccount("Bb", 1), WatchedAccount("bB", 1, 9), WatchedAccount("\u00e9\t\\N\n", 2)])
        tail.store_prices("a", Block(1, "", "", 1), {"x": b"1", "y": b"2"})
        tail.drop_prices("a", [1])


def contents(location: str) -> dict[str, list[Row]]:
    with closing(open_side("tail", location if "://" in location else f"{SQLITE}{location}")) as side, side.reading():
        return {table.name: list(side.rows(table)) for table in tail_tables()}


def url(location: str) -> str:
    return location if "://" in location else f"{SQLITE}{location}"


@pytest.mark.parametrize(("source", "target"), WAYS)
def test_a_tail_is_the_same_after_it_was_copied_and_is_gone_on_with(stores: Stores, source: str, target: str) -> None:
    old, new = stores.tail(source), stores.tail(target)
    filled(old)
    Tail(new).close()
    with closing(open_side("tail", url(old))) as source_side, closing(open_side("tail", url(new))) as target_side:
        runs = [list(transfer("tail", source_side, target_side, tail_tables())) for _ in range(2)]
    assert [any(each.copied for each in times) for times in runs] == [True, False], "the second time, all is there"
    assert contents(new) == contents(old)
    assert len(contents(new)["rows"]) == 8
    with closing(Tail(new)) as tail:
        assert tail.newest_batch("a") == 2
        tail.store_prices("a", Block(1, "", "", 1), {"z": b"3"})
        assert [number for number, *_ in tail.pending_prices("a", 9)] == [2, 3]


@pytest.mark.parametrize(("source", "target"), WAYS[:2])
def test_accounts_keys_and_credits_are_the_same_after_they_were_copied(
    stores: Stores, source: str, target: str
) -> None:
    old, new = stores.url(source), stores.url(target)
    with closing(State.open(old, PEPPER, SystemClock(), random.Random(1))) as state:
        account, key = state.create_account("ann", "PRO", 42, ["portfolio"])
        state.create_key(account.id, "second")
    with closing(open_side("state", old)) as source_side, closing(open_side("state", new)) as target_side:
        row_counts = {each.table: each.rows for each in transfer("state", source_side, target_side, state_tables())}
    assert (row_counts["accounts"], row_counts["keys"], row_counts["ledger"]) == (1, 2, 1)
    with closing(State.open(new, PEPPER, SystemClock(), random.Random(2))) as state:
        assert state.accounts() == [account]
        assert state.balance(account.id) == 42
        principal = state.authenticate(key)
        assert principal is not None
        assert principal.account_id == account.id
        state.create_account("bob", credits=7)  # the ledger's numbers go on
        assert len(state.accounts()) == 2


class Broken:
    """A target that fails in the middle of one table."""

    def __init__(self, side: Side, table: str) -> None:
        self._side, self._table = side, table
        self.reading, self.writing, self.rows, self.close = side.reading, side.writing, side.rows, side.close

    def replace(self, table: Table, rows: Iterable[Row]) -> None:
        """Write half of the rows of the table, and fail."""
        rows = list(rows)
        if table.name == self._table:
            self._side.replace(table, rows[: len(rows) // 2])
            raise KeyboardInterrupt
        self._side.replace(table, rows)


@pytest.mark.parametrize("target", ["sqlite", "postgresql"])
def test_a_copy_that_was_interrupted_is_finished_by_the_next_one(stores: Stores, target: str) -> None:
    old, new = stores.tail("sqlite"), stores.tail(target)
    filled(old)
    Tail(new).close()
    with closing(open_side("tail", url(old))) as source_side, closing(open_side("tail", url(new))) as target_side:
        with pytest.raises(KeyboardInterrupt):
            list(transfer("tail", source_side, Broken(target_side, "cover"), tail_tables()))
        assert contents(new)["cover"] == []
        assert contents(new)["rows"] == contents(old)["rows"]
        copied = [each.table for each in transfer("tail", source_side, target_side, tail_tables()) if each.copied]
    assert "rows" not in copied
    assert "cover" in copied
    assert contents(new) == contents(old)


@pytest.mark.parametrize("target", ["sqlite", "postgresql"])
def test_a_target_with_other_rows_is_refused_and_left_as_it_is(stores: Stores, target: str) -> None:
    old, new = stores.tail("sqlite"), stores.tail(target)
    filled(old)
    with closing(Tail(new)) as tail:
        tail.learn("http://node", "max_span", 500)
        tail.watch("b", [WatchedAccount("0xa", 1)])
    before = contents(new)["watches"]
    with (
        closing(open_side("tail", url(old))) as source_side,
        closing(open_side("tail", url(new))) as target_side,
        pytest.raises(StoreError, match="learnt of the target has 1 other rows") as caught,
    ):
        list(transfer("tail", source_side, target_side, tail_tables()))
    assert "name an empty database" in caught.value.remedy
    assert contents(new)["watches"] == before


def test_a_source_that_changes_meanwhile_is_noticed(stores: Stores) -> None:
    old, new = stores.tail("sqlite"), stores.tail("sqlite")
    filled(old)
    Tail(new).close()
    with closing(open_side("tail", url(old))) as source_side, closing(open_side("tail", url(new))) as target_side:
        steps = transfer("tail", source_side, target_side, tail_tables())
        next(steps)
        with closing(Tail(old)) as tail:
            tail.watch("a", [WatchedAccount("new", 1)])
        with pytest.raises(StoreError, match="watches was changed while it was copied"):
            list(steps)
