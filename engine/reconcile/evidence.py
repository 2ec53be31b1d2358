"""Evidence of why a balance differs from the movements of an account: blocks that are read again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from chainfolio.blocks import Span
from chainfolio.capabilities import Capability, find_capability
from chainfolio.datasets import Dataset
from chainfolio.errors import SourceError
from chainfolio.indexer.scopes import can_be_read, indexed_for
from chainfolio.portfolio.causes import Evidence
from chainfolio.portfolio.ledger import by_account, drop_native_duplicates
from chainfolio.portfolio.reconciliation import MOVED, BalanceKey, running_totals
from chainfolio.tables import ACCOUNT_TRANSACTIONS, ACCOUNT_TRANSFERS, BLOCKS, TABLES

if TYPE_CHECKING:
    import polars as pl

    from chainfolio.chain_results import ChainInfo
    from chainfolio.chains import Chain
    from chainfolio.storage.tail import Tail

HISTORIES: Final = (ACCOUNT_TRANSFERS.name, ACCOUNT_TRANSACTIONS.name)
MAX_BLOCKS: Final = 64  # that are read again; other blocks have only the evidence of the index
Moves = Mapping[tuple[str, BalanceKey], int]  # by dataset, account and asset


def datasets_of(chain: Chain, *, native: bool) -> list[Dataset]:
    """Return the datasets of movements of the native coin, or of tokens.

    All of them if the chain cannot read single accounts. Without logs, tokens have the datasets of the coin.
    """
    datasets = [each for each in chain.datasets.values() if each.history in HISTORIES]
    of_tokens = {"logs"} & {each.by_account for each in datasets} or {"places"}
    kinds = of_tokens if not native else {"places", "logs"} if chain.info.also_at else {"places"}
    kinds |= set() if can_be_read(chain) else {""}
    return [each for each in datasets if each.by_account in kinds]


@dataclass(slots=True)
class _RereadBlock:
    """One block, read again; None for values that could not be read.

    Attributes:
        missing: Movements of the chain minus those of the index.
        left_out: Names of the events that the index lacks, by asset.
        is_complete: True if the events are all events of the block.
        untraced: True if datasets that need traces could not be read.
        miner: The account that gets the fees.
        transactions: The number of transactions.
    """

    missing: Moves | None = None
    left_out: Mapping[BalanceKey, Sequence[str]] = field(default_factory=dict)
    is_complete: bool = False
    untraced: bool = False
    miner: str | None = None
    transactions: int | None = None


@dataclass(slots=True)
class EvidenceReader:
    """Reads evidence about accounts of one chain.

    Attributes:
        transfers: Indexed transfers of the accounts.
        fees: Indexed transactions that the accounts paid for.
        check_budget: Is called before each block is read.
    """

    chain: Chain
    tail: Tail
    accounts: Sequence[str]
    transfers: pl.DataFrame
    fees: pl.DataFrame
    check_budget: Callable[[], None]
    _blocks: dict[int, _RereadBlock] = field(default_factory=dict)
    _reader_notes: dict[BalanceKey, dict[int, str]] = field(default_factory=dict)

    async def read(self, points: Sequence[tuple[BalanceKey, int]]) -> None:
        """Read again the blocks of unexplained balances, at most `MAX_BLOCKS`, for what the index lacks.

        Those of coins come first: worthless tokens with unexplained balances are easy to make. A block that the chain
        cannot read has no values.

        Raises:
            OverBudget: No request is left, according to `check_budget`.
        """
        natives_by_height: dict[int, set[bool]] = {}
        for key, height in points:
            natives_by_height.setdefault(height, set()).add(key.asset.is_native)
        for height in sorted(natives_by_height, key=lambda height: (True not in natives_by_height[height], height))[
            :MAX_BLOCKS
        ]:
            self.check_budget()
            events = await self._read_events(height) if False in natives_by_height[height] else None
            if True in natives_by_height[height] or events is None:
                reread = await self._reread(height, native=True in natives_by_height[height])
                self._blocks[height] = reread if events is None else self._with_events(reread, events)
            else:
                self._blocks[height] = events

    def of(self, key: BalanceKey, height: int) -> Evidence:
        """Return the evidence about an asset of an account at a height.

        `is_read` is False if it was not read again.
        """
        block = self._blocks.get(height, _RereadBlock())
        datasets = datasets_of(self.chain, native=key.asset.is_native)
        missing = block.missing or {}
        missing_by_dataset = {each.name: missing.get((each.name, key), 0) for each in datasets}
        return Evidence(
            unindexed=self._unindexed(datasets, key.account, height),
            missing=missing_by_dataset,
            is_read=block.missing is not None,
            untraced=block.untraced,
            is_rewarded=block.miner == key.account,
            transactions=block.transactions,
            reader_note=self._reader_note(key, height),
            left_out=tuple(block.left_out.get(key, ())),
            is_complete=block.is_complete,
        )

    def _unindexed(self, datasets: Collection[Dataset], account: str, height: int) -> tuple[str, ...]:
        """Return the names of the datasets that are not indexed for an account at a height."""
        return tuple(
            each.name for each in datasets if height not in indexed_for(self.tail, self.chain.key, each.name, account)
        )

    def _reader_note(self, key: BalanceKey, height: int) -> str:
        """Return why the account's history could not explain a block; empty without a stored reason."""
        notes = self._reader_notes.get(key)
        if notes is None:
            rows = self.tail.unexplained_changes(self.chain.key, key.account)
            notes = {at: reason for at, asset, _, reason in rows if asset == str(key.asset)}
            self._reader_notes[key] = notes
        return notes.get(height, "")

    async def _reread(self, height: int, *, native: bool) -> _RereadBlock:
        """Read a block again with all datasets, else without those that need traces.

        Without any values if the chain fails.
        """
        datasets = datasets_of(self.chain, native=False) + (datasets_of(self.chain, native=True) if native else [])
        names = dict.fromkeys(each.name for each in datasets)
        block_datasets = [each.name for each in self.chain.datasets.values() if each.table is BLOCKS] if native else []
        default_names = [name for name in names if self.chain.datasets[name].is_default]
        for requested in dict.fromkeys([(*names, *block_datasets), (*default_names, *block_datasets)]):
            try:
                collected = await self.chain.collect(Span(height, height), requested)
            except SourceError:
                continue
            block = await asyncio.to_thread(self._of_tables, height, collected.tables)
            block.untraced = any(name not in requested for name in names)
            block.is_complete = Capability.RECEIPTS not in self.chain.capabilities
            return block
        return _RereadBlock(untraced=native)

    async def _read_events(self, height: int) -> _RereadBlock | None:
        """Read all events of a block from its receipts; None if the chain has none, or fails.

        Receipts are complete even if a node leaves out events elsewhere.
        """
        reader = find_capability(self.chain, Capability.RECEIPTS)
        if reader is None:
            return None
        try:
            collected = await reader.collect_receipts(height, self._events)
        except SourceError:
            return None
        block = await asyncio.to_thread(self._of_tables, height, collected.tables)
        assert block.missing is not None
        block.missing = {key: raw for key, raw in block.missing.items() if key[0] in self._events}
        block.is_complete = True
        return block

    @property
    def _events(self) -> list[str]:
        """The names of the datasets of token movements."""
        return [each.name for each in datasets_of(self.chain, native=False)]

    def _with_events(self, block: _RereadBlock, events: _RereadBlock) -> _RereadBlock:
        """Return a block with its events replaced by those of its receipts."""
        other_missing = {key: raw for key, raw in (block.missing or {}).items() if key[0] not in self._events}
        missing = None if block.missing is None else {**other_missing, **(events.missing or {})}
        return replace(block, missing=missing, left_out=events.left_out, is_complete=True)

    def _of_tables(self, height: int, tables: Mapping[str, Any]) -> _RereadBlock:
        """Return the movements and events in a block's rows that the index lacks, its miner and its size."""
        import polars as pl

        transfers, fees = own_rows(tables, self.accounts, self.chain.info)
        blocks = _rows(tables, "blocks").select("miner", "tx_count").collect()
        miner, count = blocks.row(0) if blocks.height else (None, None)
        is_here = pl.col("height") == height
        chain_moves = self._moves(transfers, fees)
        index_moves = self._moves(self.transfers.filter(is_here), self.fees.filter(is_here))
        missing = {
            key: chain_moves.get(key, 0) - index_moves.get(key, 0) for key in chain_moves.keys() | index_moves.keys()
        }
        has_logs = Capability.RECEIPTS in self.chain.capabilities
        left_out = self._missing_events(transfers, self.transfers.filter(is_here)) if has_logs else {}
        return _RereadBlock(missing, left_out, untraced=False, miner=miner, transactions=count)

    def _missing_events(self, chain_rows: pl.DataFrame, index_rows: pl.DataFrame) -> dict[BalanceKey, list[str]]:
        """Return the names of events that the index lacks or has with another amount, by asset."""
        events: dict[BalanceKey, list[str]] = {}
        missing_rows = chain_rows.join(index_rows, on=[*MOVED, "raw"], how="anti", nulls_equal=True)
        for row in missing_rows.filter(missing_rows["log_index"] >= 0).sort(MOVED).iter_slices(1):
            (key,) = running_totals(row, self.fees.clear(), self.chain.info)
            events.setdefault(key, []).append(f"log {row['log_index'][0]} of transaction {row['tx_hash'][0]}")
        return events

    def _moves(self, transfers: pl.DataFrame, fees: pl.DataFrame) -> Moves:
        """Return the net movements in one block by the chain's dataset that has them, account and asset.

        A transfer belongs to the datasets that name its standard, or if none does, to all that name no standard.

        Args:
            transfers: The transfers of the accounts in the block.
            fees: The transactions in the block that the accounts paid for.
        """
        import polars as pl

        moves: dict[tuple[str, BalanceKey], int] = {}
        datasets = [each for each in self.chain.datasets.values() if each.history in HISTORIES]
        named_standards = {standard for each in datasets for standard in each.standards}
        for each in datasets:
            is_own_standard = (
                pl.col("standard").is_in(each.standards)
                if each.standards
                else ~pl.col("standard").is_in(named_standards)
            )
            is_fee = each.history == ACCOUNT_TRANSACTIONS.name
            rows = transfers.clear() if is_fee else transfers.filter(is_own_standard)
            for key, totals in running_totals(rows, fees if is_fee else fees.clear(), self.chain.info).items():
                moves[each.name, key] = totals.sums[-1]
        return moves


def own_rows(tables: Mapping[str, Any], accounts: Sequence[str], info: ChainInfo) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the transfers of accounts, without native duplicates, and the transactions that they sent.

    Args:
        tables: Rows of a chain, by table name; missing ones are empty.
    """
    import polars as pl

    is_own = pl.col("account").is_in(accounts)
    transfers = by_account(ACCOUNT_TRANSFERS, _rows(tables, "transfers")).filter(is_own).collect()
    fees = by_account(ACCOUNT_TRANSACTIONS, _rows(tables, "transactions"))
    return drop_native_duplicates(transfers, info), fees.filter(
        is_own & (pl.col("sender") == pl.col("account"))
    ).collect()


def _rows(tables: Mapping[str, Any], name: str) -> pl.LazyFrame:
    """Return the rows of a table by name; a missing one is empty."""
    import polars as pl

    table = tables.get(name)
    rows = pl.from_arrow(TABLES[name].schema().empty_table() if table is None else table)
    assert isinstance(rows, pl.DataFrame)
    return rows.lazy()
