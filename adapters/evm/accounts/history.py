"""Read what concerns some accounts in a span: the rows of all datasets that can be read by account."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from chainfolio.adapters.evm.accounts.active_blocks import ActiveBlocks
from chainfolio.adapters.evm.accounts.bodies import BodyReader, receipt_logs
from chainfolio.adapters.evm.accounts.forecast import forecast
from chainfolio.adapters.evm.accounts.header_cache import HeaderCache
from chainfolio.adapters.evm.accounts.log_answers import LogAnswers
from chainfolio.adapters.evm.accounts.logs import ANY_EVENT, AccountLogs
from chainfolio.adapters.evm.accounts.receipt_logs import NO_RECEIPTS, ReceiptLogs, merge_logs
from chainfolio.adapters.evm.accounts.transactions import AccountTransactions, TransactionReader
from chainfolio.adapters.evm.datasets.dataset import EvmDataset, add_rows
from chainfolio.adapters.evm.datasets.decoding import decode
from chainfolio.adapters.evm.datasets.registry import DATASET_TOPICS, DATASETS, datasets_of
from chainfolio.adapters.evm.logs import Logs
from chainfolio.adapters.evm.node import Header
from chainfolio.adapters.evm.spans import Chunk, LeftOut, LogReader
from chainfolio.blocks import Block, Span
from chainfolio.budgets import Budget
from chainfolio.chain_results import Forecast, SpanTables, UnexplainedChange
from chainfolio.errors import HistoryUnavailable, SourceError, UnsupportedMethod
from chainfolio.tables import LOGS
from chainfolio.transport import metering

if TYPE_CHECKING:
    from chainfolio.adapters.evm.explorer import Explorer

MAX_LINKED_BLOCKS = 1_000  # read at once, if they are not final


@dataclass(frozen=True, slots=True, eq=False)
class RecoveredLogs:
    """Logs found in receipts after an answer without them, and logs that such answers are known to lack."""

    logs: Logs
    left_out: Sequence[LeftOut] = ()


NO_RECOVERED_LOGS = RecoveredLogs(Logs.blank(0))


@dataclass(slots=True)
class _Window:
    """The result of reading one window. `transactions` is None if no dataset needs them."""

    chunk: Chunk
    transactions: AccountTransactions | None
    recovered: RecoveredLogs = NO_RECOVERED_LOGS
    is_linked: bool = False


class AccountHistory:
    """Reads the history of accounts for one chain."""

    def __init__(self, reader: LogReader, explorer: Explorer | None) -> None:
        """Build the readers of transactions and logs, which share headers."""
        self.reader, self.node, self.facts = reader, reader.node, reader.node.facts
        headers = HeaderCache()
        self.answers = LogAnswers()
        self.transactions = TransactionReader(BodyReader(reader.node, reader.integrity), explorer, headers)
        self.logs = AccountLogs(
            reader.node, sorted(DATASET_TOPICS), integrity=reader.integrity, sample=reader.sample, headers=headers
        )

    async def collect(
        self, span: Span, accounts: Sequence[str], datasets: Sequence[str], before: Block | None, budget: Budget | None
    ) -> SpanTables:
        """Read rows as described at `AccountHistoryReader.collect_accounts`.

        Raises:
            OverBudget: The budget ends before anything was read.
            Reorged: The blocks do not follow each other, or `before`.
            SourceError: No endpoint answers.
        """
        accounts = sorted({each.lower() for each in accounts})
        with metering.charge_to(budget):
            window = await self._read_linked(span, accounts, datasets, before)
            window = window or await self._read_final(span, accounts, datasets)
        requested = [DATASETS[name] for name in datasets]
        tables = await asyncio.to_thread(self._rows, window, accounts, requested)
        blocks = [header.block() for header in window.chunk.headers]
        recovered = self._log_datasets() if len(window.recovered.logs) else []
        unexplained = window.transactions.unexplained if window.transactions else ()
        return SpanTables(
            window.chunk.span,
            tables,
            blocks[-1] if blocks else None,
            blocks if window.is_linked else [],
            len(window.chunk.logs),
            is_linked=window.is_linked,
            read_methods=self._methods(window, requested),
            unexplained=(*unexplained, *self._left_out(window, accounts)),
            extra_datasets=tuple(name for name in recovered if name not in datasets),
        )

    async def forecast(
        self, span: Span, accounts: Sequence[str], datasets: Sequence[str], budget: Budget | None
    ) -> Forecast:
        """Estimate the cost of `collect`, as described at `AccountForecaster.forecast_accounts`.

        Raises:
            OverBudget: The budget ends before the estimate is complete.
            SourceError: No endpoint answers.
        """
        with metering.charge_to(budget):
            return await forecast(
                self.logs, self.transactions, span, sorted({each.lower() for each in accounts}), datasets
            )

    async def _read_linked(
        self, span: Span, accounts: Sequence[str], datasets: Sequence[str], before: Block | None
    ) -> _Window | None:
        """Read the next blocks with all headers; None if the first one is final and `before` is None.

        At most MAX_LINKED_BLOCKS blocks are read, or fewer if transactions are read in smaller windows.
        """
        if before is None and self.node.is_final(span.first):
            return None
        span = Span(span.first, min(span.last, span.first + MAX_LINKED_BLOCKS - 1))
        recent = self._take_recent(span, before)
        if _needs(datasets, "logs"):
            chunk = await self.logs.read_linked(span, accounts, before, recent)
            self.answers.add(chunk, accounts)
        elif recent:
            chunk = Chunk(span, Logs.blank(0), recent)
        else:
            chunk = await self.reader.read_headers(span, before)
        self.reader.recent = chunk.headers
        transactions, recovered = None, NO_RECOVERED_LOGS
        if _needs(datasets, "places"):
            hashes = {header.height: header.hash for header in chunk.headers}
            hashes |= {before.height: before.hash} if before else {}
            transactions = await self._read_transactions(span, accounts, datasets, hashes, chunk.headers)
            if transactions.blocks.span != span:
                return await self._read_linked(transactions.blocks.span, accounts, datasets, before)
            recovered = await self._recover_logs(
                span,
                accounts,
                transactions,
                lambda receipts, part: self.logs.read_linked(part, accounts, before, chunk.headers, receipts),
            )
        return _Window(chunk, transactions, recovered, is_linked=True)

    async def _read_final(self, span: Span, accounts: Sequence[str], datasets: Sequence[str]) -> _Window:
        """Read the next window of final blocks, with the header of its last block.

        It ends where logs or transactions end that are read at once. If no endpoint finds transactions, they are
        unavailable and only logs are read.
        """
        span = Span(span.first, max(span.first, min(span.last, self.node.finalized)))
        transactions = chunk = None
        recovered = NO_RECOVERED_LOGS
        if _needs(datasets, "places"):
            try:
                transactions = await self._read_transactions(span, accounts, datasets, {}, ())
            except (HistoryUnavailable, UnsupportedMethod) as refusal:
                transactions = self._unavailable(span, accounts, refusal)
            span = transactions.blocks.span
        if _needs(datasets, "logs"):
            receipts = receipt_logs(transactions.bodies.values()) if transactions else NO_RECEIPTS
            chunk = await self.logs.read(span, accounts, receipts)
            self.transactions.actor_heights.add(chunk.logs, accounts)
            if transactions is not None and chunk.span != span:
                return await self._read_final(chunk.span, accounts, datasets)
            self.answers.add(chunk, accounts)
        elif transactions is not None:
            recovered = await self._recover_logs(
                span, accounts, transactions, lambda receipts, part: self.logs.read(part, accounts, receipts)
            )
        if chunk is None:
            chunk = Chunk(span, Logs.blank(0), await self.node.headers([span.last]))
        return _Window(chunk, transactions, recovered)

    async def _recover_logs(
        self,
        span: Span,
        accounts: Sequence[str],
        transactions: AccountTransactions,
        read: Callable[[ReceiptLogs, Span], Awaitable[Chunk]],
    ) -> RecoveredLogs:
        """Read a span's logs again if earlier answers lack logs that its receipts have.

        Endpoints that left them out, although they gave the receipts, are marked as incomplete. Logs of blocks without
        an earlier answer are returned, too: they may be stored already.
        """
        receipts = receipt_logs(transactions.bodies.values())
        missing = self.answers.missing(receipts.naming(accounts, self.logs.events), accounts)
        if len(missing.logs) == 0:
            return RecoveredLogs(missing.unanswered, self.answers.left_out(span, accounts))
        for source in missing.sources:
            self.logs.accuse(source, missing.logs)
        parts, first = [missing.unanswered], span.first
        while first <= span.last:
            chunk = await read(receipts, Span(first, span.last))
            self.answers.add(chunk, accounts)
            parts.append(chunk.logs)
            first = chunk.span.last + 1
        return RecoveredLogs(merge_logs(self.facts.key, parts), self.answers.left_out(span, accounts))

    def _left_out(self, window: _Window, accounts: Sequence[str]) -> Iterator[UnexplainedChange]:
        """Yield changes of unknown amount, one per account, for each log that answers are known to lack."""
        newest = [window.chunk.left_out] if window.chunk.left_out else []
        for each in dict.fromkeys([*window.recovered.left_out, *newest]):
            asset = self.facts.info.token_asset(each.contract)
            yield from (UnexplainedChange(account, each.height, asset, 0, each.reason) for account in accounts)

    def _take_recent(self, span: Span, before: Block | None) -> list[Header]:
        """Return the newest headers if they are those of the span and follow `before`; else an empty list.

        They are returned and removed, so that a failed read does not use them again.
        """
        recent, self.reader.recent = self.reader.recent, []
        is_span = [header.height for header in recent] == list(range(span.first, span.last + 1))
        return recent if is_span and before is not None and recent[0].parentHash == before.hash else []

    def _unavailable(self, span: Span, accounts: Sequence[str], refusal: SourceError) -> AccountTransactions:
        """Return no transactions, with an unexplained change per account that names the reason."""
        coin, reason = self.facts.info.native.asset, f"{refusal.message}; {refusal.remedy or 'use an archive node'}"
        unexplained = tuple(UnexplainedChange(account, span.last, coin, 0, reason) for account in accounts)
        return AccountTransactions(ActiveBlocks(span, "", ()), {}, None, unexplained)

    async def _read_transactions(
        self,
        span: Span,
        accounts: Sequence[str],
        datasets: Sequence[str],
        hashes: Mapping[int, str],
        headers: Sequence[Header],
    ) -> AccountTransactions:
        """Read the accounts' transactions of a span, with internal transfers if a dataset needs traces.

        Without headers, withdrawals need them, too: they are what nothing else explains.
        """
        requested = [DATASETS[name] for name in datasets]
        with_transfers = any(each.of_traces for each in requested) or (
            not headers and any(each.of_headers and each.by_account == "places" for each in requested)
        )
        return await self.transactions.read(span, accounts, hashes, headers, with_transfers=with_transfers)

    def _methods(self, window: _Window, requested: Sequence[EvmDataset]) -> dict[str, str]:
        """Return by which method each dataset was read; without those that no endpoint gives."""
        methods = {}
        for each in requested:
            if each.by_account == "logs":
                if each.topics or self._any_event():  # events are requested by name if an endpoint needs it
                    methods[each.name] = "logs"
            elif each.of_headers and window.is_linked:
                methods[each.name] = "headers"
            elif window.transactions and window.transactions.blocks.method and window.transactions.covers(each):
                methods[each.name] = window.transactions.blocks.method
        return methods

    def _log_datasets(self) -> list[str]:
        """Return the names of datasets that are made from the logs of accounts."""
        return [each.name for each in datasets_of(self.facts).values() if each.by_account == "logs"]

    def _any_event(self) -> bool:
        """Return True if all endpoints accept filters without events."""
        return all(endpoint.capabilities.get(ANY_EVENT, 1) for endpoint in self.node.endpoints)

    def _rows(self, window: _Window, accounts: Sequence[str], requested: Sequence[EvmDataset]) -> dict[str, pa.Table]:
        """Return the rows that a full index has of these blocks, filtered by account."""
        log_datasets = [each for each in requested if each.by_account == "logs"]
        if len(window.recovered.logs):
            log_datasets = [DATASETS[name] for name in self._log_datasets()]
        logs = merge_logs(self.facts.key, [window.recovered.logs, window.chunk.logs])
        tables = self._log_rows(logs, accounts, log_datasets)
        additions = []
        for each in requested:
            rows = self._dataset_rows(window, each)
            if rows is not None:
                additions.append((each, each.rows_of_accounts(rows, accounts) if each.by_account else rows))
        add_rows(tables, additions)
        return tables

    def _dataset_rows(self, window: _Window, dataset: EvmDataset) -> pa.Table | None:
        """Return the rows of a dataset that is not made from logs; None if they were not read."""
        chain, transactions = self.facts.key, window.transactions
        if transactions and dataset.of_bodies:
            executed = [each for body in transactions.bodies.values() for each in body.transactions]
            return dataset.of_bodies(executed, chain)
        if transactions and dataset.of_traces and transactions.transfers is not None:
            blocks = {transactions.bodies[height].traced_block: each for height, each in transactions.transfers.items()}
            return dataset.of_traces(blocks, chain)
        if dataset.of_headers and window.is_linked:
            return dataset.of_headers(window.chunk.headers, chain)
        if dataset.of_headers and transactions:
            return dataset.of_headers([body.header or body.full for body in transactions.bodies.values()], chain)
        return None

    def _log_rows(self, logs: Logs, accounts: Sequence[str], requested: Sequence[EvmDataset]) -> dict[str, pa.Table]:
        """Return the rows of logs by table, of the requested datasets and of `events`.

        Logs that no decoder can read stay raw, if they are of an event of a requested dataset, or if `events` is.
        """
        tables = decode(self.facts, logs, [each.name for each in DATASETS.values() if each.decode])
        if LOGS.name in tables and all(each.table is not LOGS for each in requested):
            topics = pa.array([topic for each in requested for topic in each.topics], pa.string())
            tables[LOGS.name] = tables[LOGS.name].filter(pc.is_in(tables[LOGS.name]["topic0"], value_set=topics))
        return {
            each.table.name: each.rows_of_accounts(tables[each.table.name], accounts)
            for each in (*requested, DATASETS["events"])
            if each.table.name in tables
        }


def _needs(datasets: Sequence[str], source: str) -> bool:
    return any(DATASETS[name].by_account == source for name in datasets)
