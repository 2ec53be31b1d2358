"""One EVM chain as the indexer sees it: where it stands, what lies in a span, what some reads say at a block."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from adapters.evm import facts as chain_facts
from adapters.evm.approvals import Approvals
from adapters.evm.datasets import events as event_logs
from adapters.evm.datasets import logs
from adapters.evm.datasets.every import DATASETS, TAKEN, datasets_of
from adapters.evm.endpoint import EvmEndpoint
from adapters.evm.facts import Facts
from adapters.evm.integrity import Query
from adapters.evm.logs import Logs
from adapters.evm.node import Header, Node, raw_blocks
from adapters.evm.settings import EvmSettings
from adapters.evm.spans import Chunk, LogReader
from chainfolio.assets import Asset
from chainfolio.blocks import Block, Span
from chainfolio.chains import Capability, Collected, EndpointHealth, Forecast, Heads, KnownTransaction
from chainfolio.contracts import Holding, Token, TransactionDetails
from chainfolio.errors import BadRequest, BadSettings, SourceError
from chainfolio.kinds import EndpointMemory
from chainfolio.plans import Plan
from chainfolio.proofs import Findings
from chainfolio.seams import Seams
from transport import remembered
from transport.endpoint import Endpoint
from transport.http import HttpTransport, Transport

# State, bodies and look-ups are loaded when they are asked for: a back-fill of logs starts without them.
if TYPE_CHECKING:
    from adapters.evm.accounts.history import AccountHistory
    from adapters.evm.datasets.internal import Moved, Place
    from adapters.evm.datasets.transactions import Done
    from adapters.evm.explorer import Explorer
    from adapters.evm.positions.reader import Accounts
    from adapters.evm.reads import Read
    from chainfolio.budgets import Budget
    from chainfolio.protocols import InstalledProtocols
    from chainfolio.reads import ReadResult

TRIED = 8  # neighbouring blocks among which one with transactions is looked for
BODY_BATCH = 20


class EvmChain(Approvals):
    """An EVM chain behind its nodes. `datasets` says which datasets there are and which table each fills. `traces` is
    whether its nodes, or its explorer, tell what happens inside transactions: None as long as nobody has tried."""

    capabilities = frozenset(Capability)

    def __init__(self, facts: Facts, node: Node, settings: EvmSettings, explorer: Explorer | None = None) -> None:
        self.facts, self.node, self.settings, self.explorer = facts, node, settings, explorer
        self.key, self.kind, self.caip2, self.info = facts.key, facts.kind, facts.caip2, facts.info
        self.datasets = datasets_of(facts)
        self.traces = True if explorer else None
        self.recent: list[Header] = []  # of the last span that was read: what concerns accounts is asked for next
        self.reader = LogReader(node, integrity=settings.integrity, sample=settings.sample)

    @cached_property
    def _accounts(self) -> AccountHistory:
        from adapters.evm.accounts.history import AccountHistory

        return AccountHistory(self)

    @property
    def usual(self) -> tuple[str, ...]:
        """The datasets that are indexed where nobody says otherwise: what needs traces only where there are some."""
        return tuple(each.name for each in self.datasets.values() if each.is_usual or (each.of_traces and self.traces))

    async def probe(self, first: int) -> None:
        """Find out whether blocks from a height on can be traced: some of the oldest, of the middle and of the newest
        that have transactions are."""
        from adapters.evm import traces

        if self.explorer is not None:
            return
        head = (await self.heads()).latest.height
        starts = {max(first, head + 1 - TRIED), (first + head) // 2, first}
        self.traces = False
        with contextlib.suppress(SourceError):  # a node that does not trace says so in many ways
            for start in sorted(starts, reverse=True):
                headers = await self.node.headers(range(start, min(start + TRIED, head + 1)))
                found = traces.places(self.key, headers)[:1]
                await traces.moved(self.node, found)
                self.traces = self.traces or bool(found)
            return
        self.traces = False

    @property
    def requests(self) -> int:
        """HTTP requests so far."""
        return self.node.requests

    async def close(self) -> None:
        """Let go of connections."""
        await self.node.close()
        if self.explorer:
            await self.explorer.close()

    async def heads(self) -> Heads:
        """The newest block and the newest final height; the endpoints are checked on the way."""
        return await self.node.connect()

    def is_final(self, height: int) -> bool:
        """Whether what lies at a height cannot change any more, by what was seen so far."""
        return self.node.is_final(height)

    async def agreed_hash(self, block: Block) -> str:
        """The hash that all endpoints have at the height of a block that was final; ours where most of them still have
        it. Unavailable while they do not agree."""
        return await self.node.agreed_hash(block)

    async def block(self, height: int) -> Block:
        """The block at a height."""
        return await self.node.block(height)

    async def blocks(self, heights: Sequence[int]) -> list[Block]:
        """The blocks at some heights, in order, in as few requests as the node allows."""
        return [header.block() for header in await self.node.headers(heights)]

    async def answer(self, reads: Sequence[Read], block: Block) -> list[Any]:
        """The answers to some reads, all at that block's hash."""
        from adapters.evm import scan

        return await scan.answer(self.node, reads, block)

    async def answer_each(self, asked: Sequence[tuple[Block, Sequence[Read]]]) -> list[list[Any] | SourceError]:
        """The answers to some reads at each of several blocks, all in the requests that one block would take; an error
        in the place of a block whose state is gone. As `scan.answer_each`."""
        from adapters.evm import scan

        return await scan.answer_each(self.node, asked) if asked else []

    def account_reader(self, installed: InstalledProtocols, listed: Collection[Asset] = ()) -> Accounts:
        """What reads accounts, with these protocols; `listed` are tokens whose transfers nobody has to doubt.

        BadSettings where a rule asks for an event that is indexed as something else already.
        """
        from adapters.evm.positions.matching import Protocols
        from adapters.evm.positions.reader import Accounts

        plain = frozenset([self.facts.wrapped.address] if self.facts.wrapped else [])
        found = Protocols(
            installed.rows, plain, installed.issues, installed.unread, plain | {asset.reference for asset in listed}
        )
        for event in found.events:
            contract, _, topic = event.partition("/")
            if topic in TAKEN:
                remedy = "a rule over tokens finds what the datasets `transfers` and `approvals` keep"
                raise BadSettings(contract, f"no rule can ask for the event {topic}: it is kept already", remedy=remedy)
        return Accounts(found, self.facts)

    async def look_up(self, known: Sequence[KnownTransaction]) -> list[TransactionDetails]:
        """Transactions that the index knows, in order, with what their receipts say: as `lookup.look_up`."""
        from adapters.evm.lookup import look_up

        return [details(done) for done in await look_up(self.node, known)] if known else []

    async def prove(self, block: Block, account: str, balances: Mapping[Asset, int | None]) -> Findings:
        """What proofs under the hash of a block say of balances that were read of an account: as `prover.prove`."""
        from adapters.evm.prover import prove

        return await prove(self.node, block, account, balances)

    async def address_of(self, name: str) -> str:
        """The account that an ENS name stands for: as `ens.Names`."""
        from adapters.evm.ens import Names

        return await Names(self.node, (await self.heads()).latest).address(name)

    async def name_of(self, address: str) -> str | None:
        """The ENS name that an account gives itself: as `ens.Names`."""
        from adapters.evm.ens import Names

        return await Names(self.node, (await self.heads()).latest).name(address)

    def wallet_reads(self, holding: Holding) -> Sequence[tuple[str, ReadResult]]:
        """What was read of a loose holding: its balance, and a token's decimals."""
        from adapters.evm.tokens import wallet_reads

        return wallet_reads(holding)

    def balances(self, pairs: Sequence[tuple[str, Asset]]) -> Plan[Read, Any, Sequence[Any]]:
        """How much accounts have of assets, as the chain and the contracts say it."""
        from adapters.evm.tokens import balances

        return (yield from balances(pairs)) if pairs else ()

    def describe(self, assets: Sequence[Asset]) -> Plan[Read, Any, Mapping[Asset, Token]]:
        """What the contracts of some tokens say of themselves, in one round."""
        from adapters.evm.tokens import describe

        tokens = yield from describe(self.facts, [asset.reference for asset in assets])
        return {asset: tokens[asset.reference] for asset in assets}

    def health(self) -> list[EndpointHealth]:
        """How well each endpoint does."""
        best = self.node.best_height
        return [endpoint.shown_health(best) for endpoint in self.node.endpoints]

    async def examine(self) -> list[dict[str, Any]]:
        """Each endpoint for `doctor`: as `doctor.examine`."""
        from adapters.evm.doctor import examine

        return await examine(self)

    async def collect(
        self,
        span: Span,
        datasets: Sequence[str],
        contracts: Sequence[str] = (),
        before: Block | None = None,
        events: Sequence[str] = (),
    ) -> Collected:
        """Everything the datasets want of a span, checked and as tables. `before` is the block that it must follow.

        `events` are the filters of the dataset of this name, which stay raw in `logs`.
        """
        wanted = [DATASETS[name] for name in datasets]
        topics = tuple(topic for each in wanted for topic in each.topics)
        queries = [Query(topics, tuple(contracts))] if topics else []
        if events:
            queries.append(event_logs.query(events))
        if queries:
            headers = len(queries) > 1 or any(each.of_headers or each.of_bodies or each.of_traces for each in wanted)
            chunk = await self.reader.read(span, queries[0], before, headers=headers, also=queries[1:])
        else:
            chunk = await self.reader.read_headers(span, before)
        if events:
            chunk.logs = event_logs.wanted(chunk.logs, events)
        from adapters.evm.datasets.common import add

        tables = await asyncio.to_thread(self.decode, chunk.logs, datasets)
        if any(each.of_bodies for each in wanted):
            done = await self._bodies(chunk)
            add(tables, [(each, each.of_bodies(done, self.key)) for each in wanted if each.of_bodies])
        if any(each.of_traces for each in wanted):
            inside = await self._inside(chunk)
            add(tables, [(each, each.of_traces(inside, self.key)) for each in wanted if each.of_traces])
        # After the bodies, which prove how many transactions there are.
        add(tables, [(each, each.of_headers(chunk.headers, self.key)) for each in wanted if each.of_headers])
        linked = [header.block() for header in chunk.headers]
        self.recent = chunk.headers
        return Collected(
            span, tables, linked[-1] if linked else None, linked, len(chunk.logs), chunk.restored, bool(linked)
        )

    async def collect_receipts(self, height: int, datasets: Sequence[str]) -> Collected:
        """The rows of datasets of logs in one block, by the receipts of the block: as `ReadsReceipts`."""
        from adapters.evm.accounts.receipt_logs import check_bloom
        from adapters.evm.proven import are_receipts_proven, logs_by_receipts, written

        async def at(endpoint: Endpoint) -> list[Logs]:
            headers = await self.node.headers_at(endpoint, [height])
            by_root = are_receipts_proven(self.facts, self.settings.integrity)
            (found,) = await logs_by_receipts(self.facts, endpoint, headers, by_root=by_root)
            if self.settings.integrity != "off":
                check_bloom(endpoint.name, found, headers[0].logsBloom)
            return [found]

        (found,) = await self.node.agreed(
            at,
            key=lambda logs: tuple(written(logs)),
            asked=lambda _: f"the receipts of block {height}",
            final=lambda _: self.node.is_final(height),
            kind="receipts",
        )
        tables = await asyncio.to_thread(self.decode, found, datasets)
        return Collected(Span(height, height), tables, None, events=len(found))

    async def collect_accounts(
        self,
        span: Span,
        accounts: Sequence[str],
        datasets: Sequence[str],
        before: Block | None = None,
        budget: Budget | None = None,
    ) -> Collected:
        """The rows of some datasets that concern some accounts: as `accounts.history`."""
        return await self._accounts.collect(span, accounts, datasets, before, budget)

    async def forecast_accounts(
        self, span: Span, accounts: Sequence[str], datasets: Sequence[str], budget: Budget | None = None
    ) -> Forecast:
        """What `collect_accounts` would cost: as `accounts.forecast`."""
        return await self._accounts.forecast(span, accounts, datasets, budget)

    def decode(self, found: Logs, datasets: Sequence[str]) -> dict[str, pa.Table]:
        """Logs as rows: each in the table whose row says all of it, or raw in `logs`."""
        import numpy as np

        tables: dict[str, pa.Table] = {}
        done = np.zeros(len(found), np.bool_)
        wrapped = self.facts.wrapped.address if self.facts.wrapped else None
        for name in datasets:
            dataset = DATASETS[name]
            if dataset.decode:
                tables[dataset.table.name], mine = dataset.decode(found, self.key, wrapped)
                done |= mine
        if not done.all():
            tables["logs"] = logs.rows_of_logs(found.take(np.flatnonzero(~done)), self.key)
        return tables

    def decoded_again(self, stored: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
        """Stored rows of token transfers, approvals and raw logs by the decoder of today."""
        from adapters.evm.datasets.restore import once

        return self.decode(once(self.restore(stored)), [each.name for each in DATASETS.values() if each.restores])

    def restore(self, stored: Mapping[str, pa.Table]) -> Logs:
        """The logs that stored rows stand for, so that they can be decoded again without a node."""
        from adapters.evm.datasets.restore import sorted_logs

        parts = [
            each.logs_of(stored[each.table.name])
            for each in DATASETS.values()
            if each.logs_of and each.table.name in stored and len(stored[each.table.name])
        ]
        if "logs" in stored and len(stored["logs"]):
            parts.append(logs.logs_of(stored["logs"]))
        return sorted_logs(parts)

    async def _bodies(self, chunk: Chunk) -> list[Done]:
        """The transactions of a span with their receipts."""
        every: list[Done] = []
        for start in range(0, len(chunk.headers), BODY_BATCH):
            part = chunk.headers[start : start + BODY_BATCH]
            every += await self._done([header for header in part if header.transactions])
        return every

    async def _inside(self, chunk: Chunk) -> Mapping[Place, Sequence[Moved]]:
        """What moved inside the transactions of a span."""
        from adapters.evm import traces

        places = traces.places(self.key, chunk.headers)
        return await (self.explorer.moved(places) if self.explorer else traces.moved(self.node, places))

    async def _done(self, headers: Sequence[Header]) -> list[Done]:
        if not headers:
            return []
        from adapters.evm.datasets import transactions
        from adapters.evm.receipts import block_receipts

        heights = [header.height for header in headers]

        async def at(endpoint: Endpoint) -> list[list[Done]]:
            full, receipts = await asyncio.gather(
                raw_blocks(endpoint, heights, "eth_getBlockByNumber", True),
                block_receipts(endpoint, headers),
            )
            return [
                self._body(endpoint.name, header, block, given)
                for header, block, given in zip(headers, full, receipts, strict=True)
            ]

        found = await self.node.agreed(
            at,
            key=lambda block: tuple(transactions.done_key(item) for item in block),
            asked=lambda question: f"the transactions of block {heights[question]}",
            final=lambda question: self.node.is_final(heights[question]),
            kind="bodies",
        )
        return [item for block in found for item in block]

    def _body(self, source: str, header: Header, block: bytes, receipts: bytes) -> list[Done]:
        from adapters.evm.datasets import transactions

        done = transactions.done(source, block, receipts, header)
        if self.settings.integrity == "roots":
            from adapters.evm.proven import prove_bodies

            prove_bodies(self.facts, source, header, block, receipts)  # the roots say more than the list does
        else:
            transactions.check_listed(source, done, header)
        return done


def details(done: Done) -> TransactionDetails:
    """What a transaction and its receipt say, as every kind of chain says it."""
    sent, created = done.sent, None if done.sent.to else done.receipt.contractAddress
    return TransactionDetails(
        sent.sender.lower(), sent.to.lower() if sent.to else None, created.lower() if created else None,
        int(sent.value, 16), done.fee, done.status == 0, bytes.fromhex(sent.input[2:10]),
    )  # fmt: skip


def build(
    key: str,
    settings: EvmSettings,
    seams: Seams,
    *,
    configs: Path,
    transport: Transport | None = None,
    memory: EndpointMemory = remembered.NO_MEMORY,
) -> EvmChain:
    """Build one chain from its settings and its file of facts."""
    facts = chain_facts.of(key, settings.facts, configs)
    if settings.chain_id and settings.chain_id != facts.chain_id:
        raise BadRequest(
            f"chains.{key}.chain_id", f"{settings.chain_id} in the settings, {facts.chain_id} in the chain's facts"
        )
    endpoints = remembered.endpoints(EvmEndpoint, key, settings, seams, memory=memory, transport=transport)
    node = Node(
        facts, endpoints, seams,
        quorum=settings.quorum, hedge=settings.hedge, hashed=settings.integrity == "roots",
    )  # fmt: skip
    return EvmChain(facts, node, settings, _explorer(settings, seams) if settings.explorer else None)


def _explorer(settings: EvmSettings, seams: Seams) -> Explorer:
    from adapters.evm.explorer import Explorer, Fetching

    fetching = Fetching(HttpTransport(seams.answers))
    return Explorer(settings.explorer, fetching, seams, timeout_s=settings.timeout_s, max_rps=settings.max_rps)
