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
from chainfolio.engine.results import TransactionFilter
from chainfolio.engine.transactions.activities import Activities
from chainfolio.engine.transactions.index_gaps import IndexGap
from chainfolio.engine.transactions.page_positions import ListPosition
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


class Told(Statement):
    """A statement over chains whose keys and holes are told, and whose records are the keys."""

    def tell(self, *held: tuple[Activity, ...], holes: Sequence[IndexGap] = ()) -> Told:
        for some in held:
            self._histories[some[0].chain] = Activities(some[0].chain, INFO, some, {}, NOTHING, NOTHING, NOTHING)
        self._gaps.extend(holes)
        return self

    async def _read(self, subject: Subject) -> None:
        raise AssertionError("there is nothing to read")

    async def _add_tokens(self, chain: str, keys: Sequence[Activity]) -> None:
        """Nothing moved: the records are the keys."""

    async def _records(self, keys: Sequence[Activity], may_fit: Callable[[Activity], bool] = bool) -> Any:
        return [(key, key.tx_hash) for key in keys]

    async def _priced(self, found: Sequence[Any]) -> list[Any]:
        return [document for _, document in found]

    async def shown(self) -> list[Any]:
        return list((await self.page([]))[0])

    async def reached(self) -> ListPosition | None:
        return (await self.page([]))[1]


def told(limit: int, offset: int = 0, *, most: int = 100, **filters: Any) -> Told:
    return Told(Registry(()), Functions(), most, TransactionFilter(limit=limit, offset=offset, **filters))


A, B = keys("a", 10, 20, 30, 40, 50), keys("b", 15, 20, 35, 55)


async def test_chains_are_merged_by_time() -> None:
    found = await told(100).tell(A, B).shown()
    assert found == ["0xb55", "0xa50", "0xa40", "0xb35", "0xa30", "0xb20", "0xa20", "0xb15", "0xa10"]
    assert await told(100, newest_first=False).tell(A, B).shown() == found[::-1]
    assert await told(3, 2).tell(A, B).shown() == found[2:5]
    assert await told(9, since_us=20, until_us=40).tell(A, B).shown() == found[2:7]


async def test_a_page_ends_where_any_chain_has_a_hole() -> None:
    low, lower = IndexGap("a", "transfers", Span(0, 7), 1, 30), IndexGap("b", "native", Span(0, 3), 0, 12)
    assert await told(4).tell(A, B, holes=[low, lower]).shown() == ["0xb55", "0xa50", "0xa40", "0xb35"]
    # What has the time of the last block of the hole may come after what is missing.
    for limit, offset in ((5, 0), (1, 4)):
        with pytest.raises(NotIndexed) as error:
            await told(limit, offset).tell(A, B, holes=[low, lower]).shown()
        assert (error.value.chain, error.value.dataset, error.value.last) == ("a", "transfers", 7)


async def test_the_oldest_first_ends_below_a_hole() -> None:
    high, higher = IndexGap("a", "transfers", Span(3, 3), 35, 36), IndexGap("b", "transfers", Span(9, 9), 60, 61)
    question: dict[str, Any] = {"newest_first": False}
    found = await told(5, **question).tell(A, B, holes=[higher, high]).shown()
    assert found == ["0xa10", "0xb15", "0xa20", "0xb20", "0xa30"]
    with pytest.raises(NotIndexed) as error:
        await told(6, **question).tell(A, B, holes=[higher, high]).shown()
    assert (error.value.chain, error.value.first) == ("a", 3)


async def test_the_ceiling_counts_all_chains_together() -> None:
    assert len(await told(1, most=9).tell(A, B).shown()) == 1
    with pytest.raises(NotFound, match="more than 8"):
        await told(1, most=8).tell(A, B).shown()


async def test_who_goes_on_meets_everything_once_whatever_came_before_it() -> None:
    read_all = await told(100).tell(A, B).shown()
    begun = await told(3).tell(A, B).reached()
    assert begun is not None
    assert (begun.count, begun.place) == (3, A[3].sort_key)
    grown = keys("a", 10, 20, 30, 40, 50, 60, 70)
    assert await told(3, 3, after=begun).tell(grown, B).shown() == read_all[3:6]
    assert await told(3, 6, after=begun).tell(grown, B).shown() == read_all[6:9]
    last = told(6, 3, after=begun).tell(grown, B)
    assert await last.shown() == read_all[3:]
    assert await told(7, 3, after=begun).tell(grown, B).reached() is None


@pytest.mark.parametrize("newest_first", [True, False])
async def test_who_goes_on_after_a_reorganisation_counts_from_where_the_last_one_stands_now(newest_first: bool) -> None:
    begun = await told(3, newest_first=newest_first).tell(A, B).reached()
    assert begun is not None
    right = await told(100, 3, newest_first=newest_first).tell(A, B).shown()
    (anchor,) = [key for key in (*A, *B) if key.sort_key == begun.place]
    moved = replace(anchor, height=anchor.height - 1, time_us=anchor.time_us - 1)
    others = tuple(key for key in A if key != anchor), tuple(key for key in B if key != anchor)
    again = told(100, 3, newest_first=newest_first, after=begun)
    own = tuple(sorted((*others["ab".index(anchor.chain)], moved), key=lambda key: key.time_us))
    assert await again.tell(own, others[1 - "ab".index(anchor.chain)]).shown() == right
    # Where the last one is gone, the list goes on behind where it stood.
    assert await told(100, 3, newest_first=newest_first, after=begun).tell(*others).shown() == right
