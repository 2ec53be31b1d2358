"""Several chains as one list: merged by time, and cut where one of them has a hole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import polars as pl
import pytest

from chainfolio.assets import Asset
from chainfolio.blocks import Span
from chainfolio.chain_results import ChainInfo
from chainfolio.contracts import Token
from chainfolio.engine.results import ListPosition, TransactionFilter
from chainfolio.engine.transactions.activities import Activities
from chainfolio.engine.transactions.index_gaps import IndexGap
from chainfolio.engine.transactions.pages import Statement
from chainfolio.engine.transactions.subjects import Subject
from chainfolio.errors import NotFound, NotIndexed
from chainfolio.indexer.registry import Registry
from chainfolio.portfolio.activity import Activity, Functions

ME = "0x" + "11" * 20
NOTHING = pl.DataFrame()
INFO = ChainInfo("Told", 1, Token(Asset("eip155:1", "slip44", "60"), "ETH", "Ether", 18), "erc20", 1)


def keys(chain: str, *times: int) -> tuple[Activity, ...]:
    return tuple(Activity(chain, ME, height, time, 0, f"0x{chain}{time}") for height, time in enumerate(times))


class ScriptedStatement(Statement):
    """A statement over chains with given keys and gaps, whose records are the keys."""

    def with_histories(self, *histories: tuple[Activity, ...], holes: Sequence[IndexGap] = ()) -> ScriptedStatement:
        for keys in histories:
            self._histories[keys[0].chain] = Activities(keys[0].chain, INFO, keys, {}, NOTHING, NOTHING, NOTHING)
        self._gaps.extend(holes)
        return self

    async def _read(self, subject: Subject) -> None:
        raise AssertionError("there is nothing to read")

    async def _add_tokens(self, chain: str, keys: Sequence[Activity]) -> None:
        """Do nothing: no tokens move, and the records are the keys."""

    async def _records(self, keys: Sequence[Activity], may_fit: Callable[[Activity], bool] = bool) -> Any:
        return [(key, key.tx_hash) for key in keys]

    async def _priced(self, records: Sequence[Any]) -> list[Any]:
        return [document for _, document in records]

    async def page_hashes(self) -> list[Any]:
        return list((await self.page([]))[0])

    async def end_position(self) -> ListPosition | None:
        return (await self.page([]))[1]


def statement_of(limit: int, offset: int = 0, *, max_rows: int = 100, **filters: Any) -> ScriptedStatement:
    return ScriptedStatement(
        Registry(()), Functions(), max_rows, TransactionFilter(limit=limit, offset=offset, **filters)
    )


A, B = keys("a", 10, 20, 30, 40, 50), keys("b", 15, 20, 35, 55)


async def test_chains_are_merged_by_time() -> None:
    all_hashes = await statement_of(100).with_histories(A, B).page_hashes()
    assert all_hashes == ["0xb55", "0xa50", "0xa40", "0xb35", "0xa30", "0xb20", "0xa20", "0xb15", "0xa10"]
    assert await statement_of(100, newest_first=False).with_histories(A, B).page_hashes() == all_hashes[::-1]
    assert await statement_of(3, 2).with_histories(A, B).page_hashes() == all_hashes[2:5]
    assert await statement_of(9, since_us=20, until_us=40).with_histories(A, B).page_hashes() == all_hashes[2:7]


async def test_a_page_ends_where_any_chain_has_a_hole() -> None:
    low, lower = IndexGap("a", "transfers", Span(0, 7), 1, 30), IndexGap("b", "native", Span(0, 3), 0, 12)
    assert await statement_of(4).with_histories(A, B, holes=[low, lower]).page_hashes() == [
        "0xb55",
        "0xa50",
        "0xa40",
        "0xb35",
    ]
    # What has the time of the last block of the hole may come after what is missing.
    for limit, offset in ((5, 0), (1, 4)):
        with pytest.raises(NotIndexed) as error:
            await statement_of(limit, offset).with_histories(A, B, holes=[low, lower]).page_hashes()
        assert (error.value.chain, error.value.dataset, error.value.last) == ("a", "transfers", 7)


async def test_the_oldest_first_ends_below_a_hole() -> None:
    high, higher = IndexGap("a", "transfers", Span(3, 3), 35, 36), IndexGap("b", "transfers", Span(9, 9), 60, 61)
    question: dict[str, Any] = {"newest_first": False}
    page_hashes = await statement_of(5, **question).with_histories(A, B, holes=[higher, high]).page_hashes()
    assert page_hashes == ["0xa10", "0xb15", "0xa20", "0xb20", "0xa30"]
    with pytest.raises(NotIndexed) as error:
        await statement_of(6, **question).with_histories(A, B, holes=[higher, high]).page_hashes()
    assert (error.value.chain, error.value.first) == ("a", 3)


async def test_the_ceiling_counts_all_chains_together() -> None:
    assert len(await statement_of(1, max_rows=9).with_histories(A, B).page_hashes()) == 1
    with pytest.raises(NotFound, match="more than 8"):
        await statement_of(1, max_rows=8).with_histories(A, B).page_hashes()


async def test_who_goes_on_meets_everything_once_whatever_came_before_it() -> None:
    read_all = await statement_of(100).with_histories(A, B).page_hashes()
    position = await statement_of(3).with_histories(A, B).end_position()
    assert position is not None
    assert (position.count, position.place) == (3, A[3].sort_key)
    extended = keys("a", 10, 20, 30, 40, 50, 60, 70)
    assert await statement_of(3, 3, after=position).with_histories(extended, B).page_hashes() == read_all[3:6]
    assert await statement_of(3, 6, after=position).with_histories(extended, B).page_hashes() == read_all[6:9]
    last = statement_of(6, 3, after=position).with_histories(extended, B)
    assert await last.page_hashes() == read_all[3:]
    assert await statement_of(7, 3, after=position).with_histories(extended, B).end_position() is None


@pytest.mark.parametrize("newest_first", [True, False])
async def test_who_goes_on_after_a_reorganisation_counts_from_where_the_last_one_stands_now(newest_first: bool) -> None:
    position = await statement_of(3, newest_first=newest_first).with_histories(A, B).end_position()
    assert position is not None
    right = await statement_of(100, 3, newest_first=newest_first).with_histories(A, B).page_hashes()
    (anchor,) = [key for key in (*A, *B) if key.sort_key == position.place]
    replaced_key = replace(anchor, height=anchor.height - 1, time_us=anchor.time_us - 1)
    without_anchor = tuple(key for key in A if key != anchor), tuple(key for key in B if key != anchor)
    resumed = statement_of(100, 3, newest_first=newest_first, after=position)
    replaced_chain = tuple(
        sorted((*without_anchor["ab".index(anchor.chain)], replaced_key), key=lambda key: key.time_us)
    )
    assert (
        await resumed.with_histories(replaced_chain, without_anchor[1 - "ab".index(anchor.chain)]).page_hashes()
        == right
    )
    # Where the last one is gone, the list goes on behind where it stood.
    assert (
        await statement_of(100, 3, newest_first=newest_first, after=position)
        .with_histories(*without_anchor)
        .page_hashes()
        == right
    )
