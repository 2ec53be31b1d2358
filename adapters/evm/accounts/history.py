"""What concerns some accounts in a span: the rows of the datasets that can be read by account."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from adapters.evm.accounts.logs import ANY_EVENT, PIECES, AccountLogs
from adapters.evm.datasets.every import DATASETS, TAKEN
from adapters.evm.logs import Logs
from adapters.evm.spans import Chunk
from chainfolio.blocks import Block, Span
from chainfolio.budgets import Budget, Estimate
from chainfolio.chains import Collected
from chainfolio.tables import LOGS

if TYPE_CHECKING:
    from adapters.evm.chain import EvmChain

LINKED_AT_ONCE = 1_000  # blocks that may still go


class AccountHistory:
    """Reads accounts for one chain."""

    def __init__(self, chain: EvmChain) -> None:
        self.chain = chain
        self.logs = AccountLogs(chain.node, sorted(TAKEN), integrity=chain.settings.integrity)

    async def collect(
        self, span: Span, accounts: Sequence[str], datasets: Sequence[str], before: Block | None, budget: Budget | None
    ) -> Collected:
        """As `ReadsAccounts.collect_accounts`."""
        accounts = sorted(dict.fromkeys(each.lower() for each in accounts))
        of_logs = [name for name in datasets if DATASETS[name].by_account == "logs"]
        linked = before is not None or not self.chain.is_final(span.first)
        if linked:
            chunk = await self.logs.read_linked(_first(span, LINKED_AT_ONCE), accounts, before)
        else:
            chunk = await self.logs.read(_first(span, self._final(span)), accounts)
        return await self._collected(chunk, accounts, of_logs, linked=linked)

    def _final(self, span: Span) -> int:
        """How many blocks of a span are final."""
        return max(1, min(span.last, self.chain.node.finalized) - span.first + 1)

    async def _collected(
        self, chunk: Chunk, accounts: Sequence[str], datasets: Sequence[str], *, linked: bool
    ) -> Collected:
        tables = await asyncio.to_thread(self._rows, chunk.logs, accounts, datasets)
        blocks = [header.block() for header in chunk.headers]
        way = "logs" if self._asks_any() else "logs of known events"
        return Collected(
            chunk.span, tables, blocks[-1] if blocks else None, blocks if linked else [], len(chunk.logs),
            is_linked=linked, ways=dict.fromkeys(datasets, way),
        )  # fmt: skip

    def _asks_any(self) -> bool:
        """Whether questions leave the event open."""
        return all(endpoint.capabilities.get(ANY_EVENT, 1) for endpoint in self.chain.node.endpoints)

    def _rows(self, logs: Logs, accounts: Sequence[str], datasets: Sequence[str]) -> dict[str, pa.Table]:
        """The rows that a whole index has of these logs, and those alone that concern the accounts."""
        import pyarrow.compute as pc

        decoders = [each.name for each in DATASETS.values() if each.decode]
        tables = self.chain.decode(logs, decoders)
        wanted = {DATASETS[name].table.name for name in datasets}
        if LOGS.name in tables and "events" not in datasets:  # what a decoder could not read stays raw beside its rows
            topics = pa.array([topic for name in datasets for topic in DATASETS[name].topics], pa.string())
            raw = tables[LOGS.name]
            tables[LOGS.name] = raw.filter(pc.is_in(raw["topic0"], value_set=topics))
        return {
            name: _concerning(name, rows, accounts)
            for name, rows in tables.items()
            if name in wanted or name == LOGS.name
        }

    def estimate(self, span: Span, accounts: Sequence[str], datasets: Sequence[str]) -> Estimate:
        """As `ReadsAccounts.account_estimate`."""
        widest = max(each.capabilities.get("max_span", len(span)) for each in self.chain.node.endpoints)
        pieces = -(-len(span) // widest)
        return Estimate(2 * -(-pieces // PIECES), 3 * pieces)


def _concerning(table: str, rows: pa.Table, accounts: Sequence[str]) -> pa.Table:
    dataset = next(each for each in DATASETS.values() if each.table.name == table and each.by_account == "logs")
    return dataset.concerning(rows, accounts)


def _first(span: Span, count: int) -> Span:
    return Span(span.first, min(span.last, span.first + count - 1))
