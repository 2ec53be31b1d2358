"""An index of one chain in a temporary folder, and its contents."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

import pyarrow as pa

from chainfolio.blocks import Block, Span
from chainfolio.chain_blocks import newest_block_in
from chainfolio.chains import Chain
from chainfolio.contracts import Snapshot
from chainfolio.engine.snapshots.snapshotter import Snapshotter
from chainfolio.engine.snapshots.token_book import TokenBook
from chainfolio.environment import Environment
from chainfolio.indexer import arrow_ipc, materialise
from chainfolio.indexer.collect import Collector, Limits
from chainfolio.indexer.follow import Follower
from chainfolio.indexer.progress import Progress
from chainfolio.indexer.scopes import Scope
from chainfolio.indexer.work import missing, missing_for_accounts
from chainfolio.storage.lake import Lake
from chainfolio.storage.tail import Tail
from chainfolio.storage.watches import WatchedAccount
from chainfolio.tables import TABLES
from tests.chains.subject import Row, Subject

if TYPE_CHECKING:
    from chainfolio.adapters.evm.chain import EvmChain
    from chainfolio.budgets import Budget

ChainT = TypeVar("ChainT", bound=Chain)
EVERYTHING = ("blocks", "transactions", "native", "transfers", "approvals")
FETCHED = ("blocks", "transactions", "transfers", "approvals", "logs")


@dataclass
class IndexOf(Generic[ChainT]):
    """Lake, tail and adapter of one chain."""

    chain: ChainT
    lake: Lake
    tail: Tail
    datasets: tuple[str, ...] = EVERYTHING
    events: tuple[str, ...] = ()
    environment: Environment = field(default_factory=Environment)

    @property
    def key(self) -> str:
        """The chain's key."""
        return self.chain.key

    async def fill(
        self, first: int, last: int, datasets: Sequence[str] = (), contracts: Sequence[str] = ()
    ) -> Progress:
        """Back-fill what is missing of a span."""
        work = missing(self.tail, self.key, Span(first, last), datasets or self.datasets, contracts, self.events)
        progress = Progress(self.environment.clock, sum(len(item.spans) for item in work))
        await Collector(self.chain, self.lake, self.tail, self.environment, progress).run(work)
        return progress

    async def fill_accounts(
        self, accounts: Sequence[str], first: int, last: int, budget: Budget | None = None, *, again: bool = False
    ) -> Progress:
        """Back-fill what is missing of the histories of accounts."""
        scope = Scope(tuple(WatchedAccount(each, first, last) for each in accounts))
        work = missing_for_accounts(self.tail, self.chain, scope, last, include_unread=again)
        progress = Progress(self.environment.clock, sum(len(item.spans) for item in work))
        limits = Limits(budget=budget)
        await Collector(self.chain, self.lake, self.tail, self.environment, progress, limits=limits).run(work)
        return progress

    async def fill_final(self) -> int:
        """Back-fill everything that is final; up to where."""
        finalized = (await self.chain.heads()).finalized
        await self.fill(0, finalized)
        return finalized

    def follower(self, accounts: Sequence[str] = ()) -> Follower:
        """A new follower, as after a restart; also of the histories of some accounts."""
        scope = Scope(tuple(WatchedAccount(each, 0) for each in accounts))
        return Follower(self.chain, self.lake, self.tail, self.environment, self.datasets, self.events, scope)

    async def block(self, height: int) -> Block:
        """The newest block at a height or below it."""
        block = await newest_block_in(self.chain, Span(0, height))
        assert block is not None, "every subject has a first block"
        return block

    async def materialise(self) -> dict[str, int]:
        """Materialise all derived tables."""
        return await asyncio.to_thread(materialise.materialise, self.lake, self.tail, self.key)

    async def snapshot(
        self, accounts: Sequence[str], block: Block | None = None, extra: Sequence[str] = ()
    ) -> Snapshot:
        """A snapshot without any price."""
        book = TokenBook(self.chain.key, self.lake, {})
        return await Snapshotter(self.chain, self.lake, self.tail, book, ()).take(
            accounts, block, [self.chain.info.token_asset(token) for token in extra], past=block is not None
        )

    def stored(self, table: str) -> pa.Table:
        """The rows of the lake, in the table's order."""
        rows = self.lake.window(TABLES[table], self.key, Span(0, 2**62))
        return rows.sort_by([(name, "ascending") for name in TABLES[table].order])

    def rows(self, table: str) -> list[Row]:
        """The rows of lake and tail together, in an order of their own."""
        fresh = arrow_ipc.load((stream for _, stream in self.tail.rows(self.key, table, 0, 2**40)), TABLES[table])
        stored_rows: list[Row] = pa.concat_tables([self.stored(table), fresh]).to_pylist()
        return in_order(stored_rows)

    def read_all(self) -> dict[str, list[Row]]:
        """The rows of every table that is fetched."""
        return {table: self.rows(table) for table in self.tables}

    @property
    def tables(self) -> tuple[str, ...]:
        """Tables that every kind may fill, and those of this kind that it indexes."""
        kind_tables = (self.chain.datasets[name].table.name for name in self.datasets)
        return tuple(dict.fromkeys((*FETCHED, *kind_tables)))


AnyIndex: TypeAlias = IndexOf[Chain]
Index: TypeAlias = "IndexOf[EvmChain]"  # what tests of one part are written for


def in_order(rows: Sequence[Row]) -> list[Row]:
    """Rows in an order that depends on nothing but them."""
    return sorted(rows, key=lambda row: repr(sorted(row.items())))


@asynccontextmanager
async def index(
    subject: Subject[ChainT],
    folder: Path,
    *,
    datasets: Sequence[str] = (),
    contracts: Sequence[str] = (),
    span: int = 25,
) -> AsyncIterator[IndexOf[ChainT]]:
    """Open an index in a folder, with what an earlier one stored there. `datasets`: those of the subject."""
    datasets = tuple(datasets or subject.datasets)
    events = tuple(subject.events) if "events" in datasets else ()
    chain, tail = subject.chain(contracts=contracts, span=span), Tail(folder / "tail.db")
    try:
        yield IndexOf(chain, Lake(str(folder / "lake")), tail, datasets, events)
    finally:
        tail.close()
        await chain.close()


def filled_whole(subject: Subject[ChainT], folder: Path) -> Path:
    """A folder with an index that has rows in all tables."""

    async def fill() -> None:
        async with index(subject, folder, datasets=(*EVERYTHING, "events")) as indexed:
            await indexed.fill(0, 24)
            await indexed.materialise()

    asyncio.run(fill())
    return folder
