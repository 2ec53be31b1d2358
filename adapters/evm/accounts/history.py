"""What concerns some accounts in a span: the rows of the datasets that can be read by account."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from adapters.evm.accounts.answered import Answered
from adapters.evm.accounts.bodies import receipt_logs
from adapters.evm.accounts.forecast import forecast
from adapters.evm.accounts.logs import ANY_EVENT, AccountLogs
from adapters.evm.accounts.places import AccountPlaces, Found
from adapters.evm.accounts.receipt_logs import NO_RECEIPTS, ReceiptLogs, once
from adapters.evm.accounts.remembered import Remembered
from adapters.evm.accounts.touched import Touched
from adapters.evm.datasets.common import add
from adapters.evm.datasets.dataset import EvmDataset
from adapters.evm.datasets.every import DATASETS, TAKEN
from adapters.evm.logs import Logs
from adapters.evm.node import Header
from adapters.evm.spans import Chunk, LeftOut
from chainfolio.blocks import Block, Span
from chainfolio.budgets import Budget
from chainfolio.chains import Collected, Forecast, Unexplained
from chainfolio.errors import HistoryUnavailable, SourceError, Unsupported
from chainfolio.tables import LOGS
from transport import metering

if TYPE_CHECKING:
    from adapters.evm.chain import EvmChain

LINKED_AT_ONCE = 1_000  # blocks that may still go


class AccountHistory:
    """Reads accounts for one chain."""

    def __init__(self, chain: EvmChain) -> None:
        self.chain = chain
        kept, self.answered = Remembered(), Answered()
        self.places = AccountPlaces(chain, kept)
        self.logs = AccountLogs(
            chain.node, sorted(TAKEN), integrity=chain.settings.integrity, sample=chain.settings.sample, kept=kept
        )

    async def collect(
        self, span: Span, accounts: Sequence[str], datasets: Sequence[str], before: Block | None, budget: Budget | None
    ) -> Collected:
        """As `ReadsAccounts.collect_accounts`."""
        accounts = sorted({each.lower() for each in accounts})
        with metering.on(budget):
            found = await self._linked(span, accounts, datasets, before)
            found = found or await self._final(span, accounts, datasets)
        wanted = [DATASETS[name] for name in datasets]
        tables = await asyncio.to_thread(self._rows, found, accounts, wanted)
        blocks = [header.block() for header in found.chunk.headers]
        late = self._names_of_logs() if len(found.late.logs) else []
        return Collected(
            found.chunk.span, tables, blocks[-1] if blocks else None, blocks if found.is_linked else [],
            len(found.chunk.logs), is_linked=found.is_linked, ways=self._ways(found, wanted),
            unexplained=(*(found.places.unexplained if found.places else ()), *self._left_out(found, accounts)),
            also=tuple(name for name in late if name not in datasets),
        )  # fmt: skip

    async def forecast(
        self, span: Span, accounts: Sequence[str], datasets: Sequence[str], budget: Budget | None
    ) -> Forecast:
        """As `ForecastsAccounts.forecast_accounts`."""
        with metering.on(budget):
            return await forecast(self, span, sorted({each.lower() for each in accounts}), datasets)

    async def _linked(
        self, span: Span, accounts: Sequence[str], datasets: Sequence[str], before: Block | None
    ) -> _Found | None:
        """Blocks that may still go, or that have to follow another one: with all headers. None where neither is so."""
        if before is None and self.chain.is_final(span.first):
            return None
        span = _first(span, LINKED_AT_ONCE)
        recent = self._recent(span, before)
        if _of(datasets, "logs"):
            chunk = await self.logs.read_linked(span, accounts, before, recent)
            self.answered.keep(chunk, accounts)
        elif recent:
            chunk = Chunk(span, Logs.blank(0), recent)
        else:
            chunk = await self.chain.reader.read_headers(span, before)
        self.chain.recent = chunk.headers
        places, late = None, NO_LOGS
        if _of(datasets, "places"):
            hashes = {header.height: header.hash for header in chunk.headers}
            hashes |= {before.height: before.hash} if before else {}
            places = await self._places(span, accounts, datasets, hashes, chunk.headers)
            if places.touched.span != span:
                return await self._linked(places.touched.span, accounts, datasets, before)
            late = await self._late(
                span,
                accounts,
                places,
                lambda receipts, part: self.logs.read_linked(part, accounts, before, chunk.headers, receipts),
            )
        return _Found(chunk, places, late, is_linked=True)

    async def _late(
        self,
        span: Span,
        accounts: Sequence[str],
        places: Found,
        read: Callable[[ReceiptLogs, Span], Awaitable[Chunk]],
    ) -> Late:
        """The logs that the receipts of a span hold, and the answers about it that were given before did not have: the
        span is read again. Those of blocks of which no answer is remembered may be stored already."""
        receipts = receipt_logs(places.bodies.values())
        lacking = self.answered.lacking(receipts.about(accounts, self.logs.events), accounts)
        if len(lacking.logs) == 0:
            return Late(lacking.unasked, self.answered.left_out(span, accounts))
        for source in lacking.sources:
            self.logs.accuse(source, lacking.logs)
        parts, first = [lacking.unasked], span.first
        while first <= span.last:
            chunk = await read(receipts, Span(first, span.last))
            self.answered.keep(chunk, accounts)
            parts.append(chunk.logs)
            first = chunk.span.last + 1
        return Late(once(self.chain.key, parts), self.answered.left_out(span, accounts))

    def _left_out(self, found: _Found, accounts: Sequence[str]) -> Iterator[Unexplained]:
        """What the answers about logs may lack of each account: nobody knows how much."""
        for each in dict.fromkeys([*found.late.left_out, *([found.chunk.left_out] if found.chunk.left_out else [])]):
            asset = self.chain.info.token_asset(each.contract)
            yield from (Unexplained(account, each.height, asset, 0, each.reason) for account in accounts)

    def _recent(self, span: Span, before: Block | None) -> list[Header]:
        """The headers of a span where they are the last that were read, and still fit: whoever asks compares hashes.
        They are given once: a question that fails reads them again."""
        recent, self.chain.recent = self.chain.recent, []
        fits = [header.height for header in recent] == list(range(span.first, span.last + 1))
        return recent if fits and before is not None and recent[0].parentHash == before.hash else []

    async def _final(self, span: Span, accounts: Sequence[str], datasets: Sequence[str]) -> _Found:
        """Final blocks, as many as go at once; the header of the last one."""
        span = Span(span.first, max(span.first, min(span.last, self.chain.node.finalized)))
        places = chunk = None
        late = NO_LOGS
        if _of(datasets, "places"):
            try:
                places = await self._places(span, accounts, datasets, {}, ())
            except (HistoryUnavailable, Unsupported) as refusal:
                places = self._not_given(span, accounts, refusal)
            span = places.touched.span
        if _of(datasets, "logs"):
            receipts = receipt_logs(places.bodies.values()) if places else NO_RECEIPTS
            chunk = await self.logs.read(span, accounts, receipts)
            self.places.acts.keep(chunk.logs, accounts)
            if places is not None and chunk.span != span:
                return await self._final(chunk.span, accounts, datasets)
            self.answered.keep(chunk, accounts)
        elif places is not None:
            late = await self._late(
                span, accounts, places, lambda receipts, part: self.logs.read(part, accounts, receipts)
            )
        if chunk is None:
            chunk = Chunk(span, Logs.blank(0), await self.chain.node.headers([span.last]))
        return _Found(chunk, places, late)

    def _not_given(self, span: Span, accounts: Sequence[str], refusal: SourceError) -> Found:
        """Places that no endpoint can give: nothing of them is known, and that is told."""
        coin, reason = self.chain.info.native.asset, f"{refusal.message}; {refusal.remedy or 'use an archive node'}"
        told = tuple(Unexplained(account, span.last, coin, 0, reason) for account in accounts)
        return Found(Touched(span, "", ()), {}, None, told)

    async def _places(
        self,
        span: Span,
        accounts: Sequence[str],
        datasets: Sequence[str],
        hashes: Mapping[int, str],
        headers: Sequence[Header],
    ) -> Found:
        inside = any(DATASETS[name].of_traces for name in datasets)
        return await self.places.read(span, accounts, hashes, headers, inside=inside)

    def _ways(self, found: _Found, wanted: Sequence[EvmDataset]) -> dict[str, str]:
        """How each dataset was read; one that no endpoint gives is left out."""
        ways = {}
        for each in wanted:
            if each.by_account == "logs":
                if each.topics or self._asks_any():  # known events are asked for by name where they have to be
                    ways[each.name] = "logs"
            elif each.of_headers and found.is_linked:
                ways[each.name] = "headers"
            elif found.places and found.places.touched.way and found.places.has(each):
                ways[each.name] = found.places.touched.way
        return ways

    def _names_of_logs(self) -> list[str]:
        """The datasets that are read from the logs of accounts."""
        return [each.name for each in self.chain.datasets.values() if each.by_account == "logs"]

    def _asks_any(self) -> bool:
        """Whether questions leave the event open."""
        return all(endpoint.capabilities.get(ANY_EVENT, 1) for endpoint in self.chain.node.endpoints)

    def _rows(self, found: _Found, accounts: Sequence[str], wanted: Sequence[EvmDataset]) -> dict[str, pa.Table]:
        """The rows that a whole index has of these blocks, and those alone that concern the accounts."""
        of_logs = [each for each in wanted if each.by_account == "logs"]
        if len(found.late.logs):
            of_logs = [DATASETS[name] for name in self._names_of_logs()]
        logs = once(self.chain.key, [found.late.logs, found.chunk.logs])
        tables = self._of_logs(logs, accounts, of_logs)
        made = []
        for each in wanted:
            if found.places and each.of_bodies:
                done = [done for body in found.places.bodies.values() for done in body.own]
                made.append((each, each.concerning(each.of_bodies(done, self.chain.key), accounts)))
            elif found.places and each.of_traces and found.places.inside is not None:
                inside = {found.places.bodies[height].place: moves for height, moves in found.places.inside.items()}
                made.append((each, each.concerning(each.of_traces(inside, self.chain.key), accounts)))
            elif each.of_headers and found.is_linked:
                rows = each.of_headers(found.chunk.headers, self.chain.key)
                made.append((each, each.concerning(rows, accounts) if each.by_account else rows))
            elif each.of_headers and found.places:
                blocks = [body.header or body.full for body in found.places.bodies.values()]
                made.append((each, each.concerning(each.of_headers(blocks, self.chain.key), accounts)))
        add(tables, made)
        return tables

    def _of_logs(self, logs: Logs, accounts: Sequence[str], wanted: Sequence[EvmDataset]) -> dict[str, pa.Table]:
        """Rows of logs, each where a whole index has it; what a decoder could not read stays raw beside its rows."""
        import pyarrow.compute as pc

        tables = self.chain.decode(logs, [each.name for each in DATASETS.values() if each.decode])
        if LOGS.name in tables and all(each.table is not LOGS for each in wanted):
            topics = pa.array([topic for each in wanted for topic in each.topics], pa.string())
            tables[LOGS.name] = tables[LOGS.name].filter(pc.is_in(tables[LOGS.name]["topic0"], value_set=topics))
        found = {}
        for each in (*wanted, DATASETS["events"]):
            if each.table.name in tables:
                found[each.table.name] = each.concerning(tables[each.table.name], accounts)
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Late:
    """Logs that are found when an answer about them was given already, and what such answers were known to lack."""

    logs: Logs
    left_out: Sequence[LeftOut] = ()


NO_LOGS = Late(Logs.blank(0))


@dataclass(slots=True)
class _Found:
    """What was read of a window."""

    chunk: Chunk
    places: Found | None
    late: Late = NO_LOGS
    is_linked: bool = False


def _of(datasets: Sequence[str], kind: str) -> bool:
    return any(DATASETS[name].by_account == kind for name in datasets)


def _first(span: Span, count: int) -> Span:
    return Span(span.first, min(span.last, span.first + count - 1))
