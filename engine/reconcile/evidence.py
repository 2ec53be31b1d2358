"""What shows why a balance and the movements of an account part in a block: its rows on the chain, read again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from chainfolio.blocks import Span
from chainfolio.chains import ReceiptReader
from chainfolio.datasets import Dataset
from chainfolio.errors import SourceError
from chainfolio.indexer.scopes import can_be_read, indexed_for
from chainfolio.portfolio.causes import Evidence
from chainfolio.portfolio.ledger import by_account, drop_native_duplicates
from chainfolio.portfolio.reconciliation import MOVED, BalanceKey, running_totals
from chainfolio.tables import ACCOUNT_TRANSACTIONS, ACCOUNT_TRANSFERS, BLOCKS, TABLES

if TYPE_CHECKING:
    import polars as pl

    from chainfolio.chains import Chain, ChainInfo
    from chainfolio.storage.tail import Tail

HISTORIES: Final = (ACCOUNT_TRANSFERS.name, ACCOUNT_TRANSACTIONS.name)
MAX_BLOCKS: Final = 64  # that are read again; what the index alone does not show of others is unknown
Moves = Mapping[tuple[str, BalanceKey], int]  # by dataset, account and asset


def datasets_of(chain: Chain, *, native: bool) -> list[Dataset]:
    """The datasets that tell what moves of the native coin, or of tokens; all of them where no account can be read
    alone. Where nothing is read from logs, tokens are told by what tells coins."""
    every = [each for each in chain.datasets.values() if each.history in HISTORIES]
    of_tokens = {"logs"} & {each.by_account for each in every} or {"places"}
    kinds = of_tokens if not native else {"places", "logs"} if chain.info.also_at else {"places"}
    kinds |= set() if can_be_read(chain) else {""}
    return [each for each in every if each.by_account in kinds]


@dataclass(slots=True)
class _Again:
    """One block, read again. `miner` gets its fees; what could not be read is None. `left_out`: the events, by name,
    that the index lacks of each asset. `is_complete`: the events are all that the block has."""

    lacking: Moves | None = None
    left_out: Mapping[BalanceKey, Sequence[str]] = field(default_factory=dict)
    is_complete: bool = False
    untraced: bool = False
    miner: str | None = None
    transactions: int | None = None


@dataclass(slots=True)
class Evident:
    """Evidence about some accounts of one chain. `transfers` and `fees` are what the index has of them."""

    chain: Chain
    tail: Tail
    accounts: Sequence[str]
    transfers: pl.DataFrame
    fees: pl.DataFrame
    check: Callable[[], None]
    _read: dict[int, _Again] = field(default_factory=dict)
    _said: dict[BalanceKey, dict[int, str]] = field(default_factory=dict)

    async def gather(self, wanted: Sequence[tuple[BalanceKey, int]]) -> None:
        """Read again the blocks in which some balances are not explained: first those of coins, for anybody can make
        tokens that nothing explains."""
        heights: dict[int, set[bool]] = {}
        for key, height in wanted:
            heights.setdefault(height, set()).add(key.asset.is_native)
        for height in sorted(heights, key=lambda height: (True not in heights[height], height))[:MAX_BLOCKS]:
            self.check()
            events = await self._by_receipts(height) if False in heights[height] else None
            if True in heights[height] or events is None:
                again = await self._again(height, native=True in heights[height])
                self._read[height] = again if events is None else self._joined(again, events)
            else:
                self._read[height] = events

    def of(self, key: BalanceKey, height: int) -> Evidence:
        """What is known of an asset of an account at a height."""
        again = self._read.get(height, _Again())
        wanted = datasets_of(self.chain, native=key.asset.is_native)
        found = again.lacking or {}
        lacking = {each.name: found.get((each.name, key), 0) for each in wanted}
        return Evidence(
            unindexed=self._unindexed(wanted, key.account, height),
            missing=lacking,
            is_read=again.lacking is not None,
            untraced=again.untraced,
            is_rewarded=again.miner == key.account,
            transactions=again.transactions,
            reader_note=self._told(key, height),
            left_out=tuple(again.left_out.get(key, ())),
            is_complete=again.is_complete,
        )

    def _unindexed(self, wanted: Collection[Dataset], account: str, height: int) -> tuple[str, ...]:
        """Of some datasets those that are not indexed of an account at a height."""
        return tuple(
            each.name for each in wanted if height not in indexed_for(self.tail, self.chain.key, each.name, account)
        )

    def _told(self, key: BalanceKey, height: int) -> str:
        """What the reader of an account's history could not explain of a block."""
        told = self._said.get(key)
        if told is None:
            rows = self.tail.unexplained_changes(self.chain.key, key.account)
            told = {at: reason for at, asset, _, reason in rows if asset == str(key.asset)}
            self._said[key] = told
        return told.get(height, "")

    async def _again(self, height: int, *, native: bool) -> _Again:
        """A block's rows as the chain gives them now, without what only traces show where it gives none."""
        wanted = datasets_of(self.chain, native=False) + (datasets_of(self.chain, native=True) if native else [])
        names = dict.fromkeys(each.name for each in wanted)
        blocks = [each.name for each in self.chain.datasets.values() if each.table is BLOCKS] if native else []
        usual = [name for name in names if self.chain.datasets[name].is_default]
        for some in dict.fromkeys([(*names, *blocks), (*usual, *blocks)]):
            try:
                found = await self.chain.collect(Span(height, height), some)
            except SourceError:
                continue
            again = await asyncio.to_thread(self._of_tables, height, found.tables)
            again.untraced = any(name not in some for name in names)
            again.is_complete = not isinstance(self.chain, ReceiptReader)
            return again
        return _Again(untraced=native)

    async def _by_receipts(self, height: int) -> _Again | None:
        """The events of a block by its receipts: all of them, whatever a node leaves out elsewhere. None if the chain
        has no receipts, or no endpoint gives them."""
        if not isinstance(self.chain, ReceiptReader):
            return None
        try:
            found = await self.chain.collect_receipts(height, self._events)
        except SourceError:
            return None
        again = await asyncio.to_thread(self._of_tables, height, found.tables)
        assert again.lacking is not None
        again.lacking = {place: raw for place, raw in again.lacking.items() if place[0] in self._events}
        again.is_complete = True
        return again

    @property
    def _events(self) -> list[str]:
        """The datasets that tell what moves of tokens."""
        return [each.name for each in datasets_of(self.chain, native=False)]

    def _joined(self, again: _Again, events: _Again) -> _Again:
        """A block that was read again, with its events by its receipts."""
        others = {place: raw for place, raw in (again.lacking or {}).items() if place[0] not in self._events}
        lacking = None if again.lacking is None else {**others, **(events.lacking or {})}
        return replace(again, lacking=lacking, left_out=events.left_out, is_complete=True)

    def _of_tables(self, height: int, tables: Mapping[str, Any]) -> _Again:
        """What the rows of a block say that the index does not."""
        import polars as pl

        transfers, fees = own_rows(tables, self.accounts, self.chain.info)
        blocks = _rows(tables, "blocks").select("miner", "tx_count").collect()
        miner, count = blocks.row(0) if blocks.height else (None, None)
        here = pl.col("height") == height
        theirs = self._moves(transfers, fees)
        ours = self._moves(self.transfers.filter(here), self.fees.filter(here))
        lacking = {place: theirs.get(place, 0) - ours.get(place, 0) for place in theirs.keys() | ours.keys()}
        has_logs = isinstance(self.chain, ReceiptReader)
        left_out = self._left_out(transfers, self.transfers.filter(here)) if has_logs else {}
        return _Again(lacking, left_out, untraced=False, miner=miner, transactions=count)

    def _left_out(self, theirs: pl.DataFrame, ours: pl.DataFrame) -> dict[BalanceKey, list[str]]:
        """The events of a block that the index lacks or has with another amount, by name, of each asset."""
        named: dict[BalanceKey, list[str]] = {}
        lost = theirs.join(ours, on=[*MOVED, "raw"], how="anti", nulls_equal=True)
        for row in lost.filter(lost["log_index"] >= 0).sort(MOVED).iter_slices(1):
            (key,) = running_totals(row, self.fees.clear(), self.chain.info)
            named.setdefault(key, []).append(f"log {row['log_index'][0]} of transaction {row['tx_hash'][0]}")
        return named

    def _moves(self, transfers: pl.DataFrame, fees: pl.DataFrame) -> Moves:
        """What the rows of one block come to, by the dataset that they are of."""
        import polars as pl

        found: dict[tuple[str, BalanceKey], int] = {}
        every = [each for each in self.chain.datasets.values() if each.history in HISTORIES]
        named = {standard for each in every for standard in each.standards}
        for each in every:
            mine = pl.col("standard").is_in(each.standards) if each.standards else ~pl.col("standard").is_in(named)
            paid = each.history == ACCOUNT_TRANSACTIONS.name
            some = transfers.clear() if paid else transfers.filter(mine)
            for key, course in running_totals(some, fees if paid else fees.clear(), self.chain.info).items():
                found[each.name, key] = course.sums[-1]
        return found


def own_rows(tables: Mapping[str, Any], accounts: Sequence[str], info: ChainInfo) -> tuple[pl.DataFrame, pl.DataFrame]:
    """What moved of accounts, each movement `told_once`, and what they paid, by rows as a chain gives them."""
    import polars as pl

    own = pl.col("account").is_in(accounts)
    transfers = by_account(ACCOUNT_TRANSFERS, _rows(tables, "transfers")).filter(own).collect()
    paid = by_account(ACCOUNT_TRANSACTIONS, _rows(tables, "transactions"))
    return drop_native_duplicates(transfers, info), paid.filter(own & (pl.col("sender") == pl.col("account"))).collect()


def _rows(tables: Mapping[str, Any], name: str) -> pl.LazyFrame:
    import polars as pl

    table = tables.get(name)
    found = pl.from_arrow(TABLES[name].schema().empty_table() if table is None else table)
    assert isinstance(found, pl.DataFrame)
    return found.lazy()
