"""One EVM chain for the indexer: its heads, the tables of a span, and reads of state at a block."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from chainfolio.adapters.evm import facts as chain_facts
from chainfolio.adapters.evm import lookup, tokens, traces
from chainfolio.adapters.evm.approvals import Approvals
from chainfolio.adapters.evm.datasets import events as event_logs
from chainfolio.adapters.evm.datasets import transactions
from chainfolio.adapters.evm.datasets.dataset import add_rows
from chainfolio.adapters.evm.datasets.decoding import decode, restore
from chainfolio.adapters.evm.datasets.registry import DATASET_TOPICS, DATASETS, datasets_of
from chainfolio.adapters.evm.datasets.restore import without_duplicates
from chainfolio.adapters.evm.endpoint import EvmEndpoint
from chainfolio.adapters.evm.facts import Facts
from chainfolio.adapters.evm.integrity import Query
from chainfolio.adapters.evm.logs import Logs
from chainfolio.adapters.evm.node import Header, Node, raw_blocks
from chainfolio.adapters.evm.proven import are_receipts_proven, comparable_logs, logs_by_receipts, prove_bodies
from chainfolio.adapters.evm.receipts import block_receipts
from chainfolio.adapters.evm.settings import EvmSettings
from chainfolio.adapters.evm.spans import Chunk, LogReader
from chainfolio.assets import Asset
from chainfolio.behind_nodes import NodeBackedChain
from chainfolio.blocks import Block, Span
from chainfolio.capabilities import Capability
from chainfolio.chain_results import Forecast, IndexedTransaction, SpanTables
from chainfolio.contracts import Holding, Token, TransactionDetails
from chainfolio.environment import Environment
from chainfolio.errors import BadRequest, BadSettings, SourceError, needs_extra
from chainfolio.kinds import EndpointMemory
from chainfolio.position_changes import EventLog
from chainfolio.proofs import BlockProofs
from chainfolio.transport.endpoint import Endpoint
from chainfolio.transport.endpoint_factory import NO_MEMORY, make_endpoints
from chainfolio.transport.http import HttpTransport, Transport

# Accounts, state and decoders are imported on first use: indexing logs starts without them.
if TYPE_CHECKING:
    from chainfolio.adapters.evm.accounts.history import AccountHistory
    from chainfolio.adapters.evm.datasets.internal import CoinTransfer, TracedBlock
    from chainfolio.adapters.evm.datasets.transactions import ExecutedTransaction
    from chainfolio.adapters.evm.ens import Names
    from chainfolio.adapters.evm.explorer import Explorer
    from chainfolio.adapters.evm.positions.reader import EvmAccountReader
    from chainfolio.adapters.evm.reads import AbiValue
    from chainfolio.budgets import Budget
    from chainfolio.plans import Plan
    from chainfolio.positions import TokenUri
    from chainfolio.protocols import InstalledProtocols
    from chainfolio.reads import Read, ReadResult, Value

PROBE_BLOCKS = 8  # neighbouring blocks among which one with transactions is looked for
BODY_BATCH = 20


class EvmChain(NodeBackedChain[Node], Approvals):
    """An EVM chain behind its nodes.

    `datasets` are its datasets and the table that each fills. `traces`: True if its nodes or its explorer give internal
    transfers; None before `probe` or a first attempt.
    """

    capabilities = frozenset(Capability) - {
        Capability.HEAD_EVENTS,
        Capability.OLDEST_BLOCK,
        Capability.PAST_COINS,
        Capability.PAST_POSITIONS,
        Capability.PROGRAM_CALLS,
        Capability.VALIDATORS,
    }

    def __init__(self, facts: Facts, node: Node, settings: EvmSettings, explorer: Explorer | None = None) -> None:
        """Prepare a chain over its nodes; no request is sent."""
        self.facts, self.node, self.settings, self.explorer = facts, node, settings, explorer
        self.key, self.kind, self.caip2, self.info = facts.key, facts.kind, facts.caip2, facts.info
        self.datasets = datasets_of(facts)
        self.traces = True if explorer else None
        self.reader = LogReader(node, integrity=settings.integrity, sample=settings.sample)

    @cached_property
    def _accounts(self) -> AccountHistory:
        from chainfolio.adapters.evm.accounts.history import AccountHistory

        return AccountHistory(self.reader, self.explorer)

    @property
    def default_datasets(self) -> tuple[str, ...]:
        """The datasets that are indexed by default; those that need traces only if the chain has traces."""
        return tuple(
            item.name for item in self.datasets.values() if item.is_default or (item.of_traces and self.traces)
        )

    async def probe(self, first: int) -> None:
        """Find out if blocks from `first` on can be traced, and set `traces`.

        With an explorer nothing is done. Otherwise the first block with transactions is traced among the PROBE_BLOCKS
        newest, middle and oldest blocks each. `traces` is False if one cannot be traced, or if none has transactions.
        Only a failure to read the head is raised, as SourceError.
        """
        if self.explorer is not None:
            return
        head = (await self.heads()).latest.height
        starts = {max(first, head + 1 - PROBE_BLOCKS), (first + head) // 2, first}
        self.traces = False
        with contextlib.suppress(SourceError):  # nodes without traces refuse in many ways
            for start in sorted(starts, reverse=True):
                headers = await self.node.headers(range(start, min(start + PROBE_BLOCKS, head + 1)))
                blocks = traces.traceable_blocks(self.key, headers)[:1]
                await traces.internal_transfers(self.node, blocks)
                self.traces = self.traces or bool(blocks)
            return
        self.traces = False

    async def close(self) -> None:
        """Close all connections."""
        await super().close()
        if self.explorer:
            await self.explorer.close()

    async def agreed_hash(self, block: Block) -> str:
        """Return the hash at the height of a formerly final block, by all endpoints or a majority for `block`.

        A majority quarantines the other endpoints; as `Node.agreed_hash`.

        Raises:
            Unavailable: Too few endpoints answer, or they do not agree.
        """
        return await self.node.agreed_hash(block)

    async def answer(self, reads: Sequence[Read[Value]], block: Block) -> list[Value]:
        """Return the results of reads, in order, at the block's hash; Reverted or Unknown without a value."""
        from chainfolio.adapters.evm import reads as evm_reads
        from chainfolio.adapters.evm import scan

        return await scan.answer(self.node, evm_reads.own_reads(reads), block)

    async def answer_each(
        self, requests: Sequence[tuple[Block, Sequence[Read[Value]]]]
    ) -> list[list[Value] | SourceError]:
        """Return the results of some reads at each of several blocks, with an error for a block without state.

        All blocks share the requests that one block would take; as `scan.answer_each`.
        """
        from chainfolio.adapters.evm import reads as evm_reads
        from chainfolio.adapters.evm import scan

        queries = [(block, evm_reads.own_reads(reads)) for block, reads in requests]
        return await scan.answer_each(self.node, queries) if queries else []

    def account_reader(self, installed: InstalledProtocols, trusted: Collection[Asset] = ()) -> EvmAccountReader:
        """Return a reader of accounts with these protocols; `trusted` are tokens whose transfers are trusted.

        Raises:
            BadSettings: A rule asks for an event that is indexed in another dataset.
        """
        from chainfolio.adapters.evm.positions.matching import Protocols
        from chainfolio.adapters.evm.positions.reader import EvmAccountReader

        non_shares = frozenset([self.facts.wrapped.address] if self.facts.wrapped else [])
        protocols = Protocols(
            installed.rows,
            non_shares,
            installed.issues,
            installed.unread,
            non_shares | {asset.reference for asset in trusted},
        )
        for event in protocols.events:
            contract, _, topic = event.partition("/")
            if topic in DATASET_TOPICS:
                remedy = "a rule over tokens finds what the datasets `transfers` and `approvals` keep"
                raise BadSettings(contract, f"no rule can ask for the event {topic}: it is kept already", remedy=remedy)
        return EvmAccountReader(protocols, self.facts)

    async def look_up(self, transactions: Sequence[IndexedTransaction]) -> list[TransactionDetails]:
        """Return transactions that the index knows, in order, with their receipts; as `lookup.look_up`."""
        return (
            [lookup.details(transaction) for transaction in await lookup.look_up(self.node, transactions)]
            if transactions
            else []
        )

    async def event_logs(self, transactions: Sequence[tuple[str, int]]) -> list[tuple[EventLog, ...]]:
        """Return the logs of transactions (hash and height), in order; as `lookup.read_logs`."""
        return await lookup.read_logs(self.node, transactions) if transactions else []

    async def prove(self, block: Block, account: str, balances: Mapping[Asset, int | None]) -> BlockProofs:
        """Prove balances of an account under the hash of a block; as `prover.prove`."""
        from chainfolio.adapters.evm.prover import prove

        return await prove(self.node, block, account, balances)

    async def address_of(self, name: str) -> str:
        """Return the account of an ENS name; as `ens.Names.address`."""
        return await _load_ens_names()(self.node, (await self.heads()).latest).address(name)

    async def name_of(self, address: str) -> str | None:
        """Return the valid ENS name that an account claims, else None; as `ens.Names.name`."""
        return await _load_ens_names()(self.node, (await self.heads()).latest).name(address)

    def wallet_reads(self, holding: Holding) -> Sequence[tuple[str, ReadResult]]:
        """Return the reads behind a token in a wallet: its balance and its decimals."""
        return tokens.wallet_reads(holding)

    def balances(self, pairs: Sequence[tuple[str, Asset]]) -> Plan[Sequence[AbiValue]]:
        """Read the balances that accounts have of assets; as `tokens.balances`."""
        return (yield from tokens.balances(pairs)) if pairs else ()

    def describe(self, assets: Sequence[Asset]) -> Plan[Mapping[Asset, Token]]:
        """Read names and decimals of some tokens from their contracts, in one round."""
        by_contract = yield from tokens.describe(self.facts, [asset.reference for asset in assets])
        return {asset: by_contract[asset.reference] for asset in assets}

    def token_uris(self, collectibles: Sequence[Asset]) -> Plan[Sequence[TokenUri]]:
        """Read where the metadata of collectibles are; as `tokens.token_uris`."""
        return (yield from tokens.token_uris(collectibles))

    async def examine(self) -> list[dict[str, Any]]:
        """Return a row for each endpoint, for `doctor`; as `doctor.examine`."""
        from chainfolio.adapters.evm.doctor import examine

        return await examine(self.node)

    async def collect(
        self,
        span: Span,
        datasets: Sequence[str],
        contracts: Sequence[str] = (),
        before: Block | None = None,
        events: Sequence[str] = (),
    ) -> SpanTables:
        """Read and check a span, and return the tables of some datasets; store its headers in `recent`.

        Logs that no requested dataset decodes are raw in `logs`. The result is not linked, and has no blocks, if no
        headers were read (`LogReader.read`).

        Args:
            span: The blocks to read.
            datasets: Names of the datasets.
            contracts: Read only logs of these, of all contracts if empty. Transactions, traces and `events` are not
                limited by them.
            before: The block that the span must follow; None if it is unknown.
            events: Filters of the dataset `events`, whose logs stay raw in `logs`.

        Raises:
            Reorged: The span does not follow `before`, or blocks changed meanwhile.
            SourceError: No endpoint answers, or answers are wrong.
        """
        selected = [DATASETS[name] for name in datasets]
        topics = tuple(topic for dataset in selected for topic in dataset.topics)
        queries = [Query(topics, tuple(contracts))] if topics else []
        if events:
            queries.append(event_logs.query(events))
        if queries:
            headers = len(queries) > 1 or any(item.of_headers or item.of_bodies or item.of_traces for item in selected)
            chunk = await self.reader.read(span, queries[0], before, headers=headers, further_queries=queries[1:])
        else:
            chunk = await self.reader.read_headers(span, before)
        if events:
            chunk.logs = event_logs.matching_logs(chunk.logs, events)
        tables = await asyncio.to_thread(decode, self.facts, chunk.logs, datasets)
        if any(item.of_bodies for item in selected):
            bodies = await self._bodies(chunk)
            add_rows(tables, [(item, item.of_bodies(bodies, self.key)) for item in selected if item.of_bodies])
        if any(item.of_traces for item in selected):
            transfers = await self._internal_transfers(chunk)
            add_rows(tables, [(item, item.of_traces(transfers, self.key)) for item in selected if item.of_traces])
        # After the bodies, whose roots prove the number of transactions.
        add_rows(tables, [(item, item.of_headers(chunk.headers, self.key)) for item in selected if item.of_headers])
        blocks = [header.block() for header in chunk.headers]
        self.reader.recent = chunk.headers
        return SpanTables(
            span, tables, blocks[-1] if blocks else None, blocks, len(chunk.logs), chunk.restored, bool(blocks)
        )

    async def collect_receipts(self, height: int, datasets: Sequence[str]) -> SpanTables:
        """Return the rows of log datasets in one block, from the block's receipts; as `ReceiptReader`.

        The logs are checked against the block's bloom, unless the integrity is "off". Logs that no requested dataset
        decodes are raw in `logs`.

        Raises:
            SourceError: No endpoint gives the receipts, or they are wrong.
        """
        from chainfolio.adapters.evm.accounts.receipt_logs import check_bloom

        async def at(endpoint: Endpoint) -> list[Logs]:
            headers = await self.node.headers_at(endpoint, [height])
            by_root = are_receipts_proven(self.facts, self.settings.integrity)
            (logs_of_block,) = await logs_by_receipts(self.facts, endpoint, headers, by_root=by_root)
            if self.settings.integrity != "off":
                check_bloom(endpoint.name, logs_of_block, headers[0].logsBloom)
            return [logs_of_block]

        (logs_of_block,) = await self.node.agreed(
            at,
            key=lambda logs: tuple(comparable_logs(logs)),
            describe=lambda _: f"the receipts of block {height}",
            is_final=lambda _: self.node.is_final(height),
            kind="receipts",
        )
        tables = await asyncio.to_thread(decode, self.facts, logs_of_block, datasets)
        return SpanTables(Span(height, height), tables, None, event_count=len(logs_of_block))

    async def collect_accounts(
        self,
        span: Span,
        accounts: Sequence[str],
        datasets: Sequence[str],
        before: Block | None = None,
        budget: Budget | None = None,
    ) -> SpanTables:
        """Return the rows of some datasets that concern some accounts; as `accounts.history`."""
        return await self._accounts.collect(span, accounts, datasets, before, budget)

    async def forecast_accounts(
        self, span: Span, accounts: Sequence[str], datasets: Sequence[str], budget: Budget | None = None
    ) -> Forecast:
        """Estimate the cost of `collect_accounts`; as `accounts.forecast`."""
        return await self._accounts.forecast(span, accounts, datasets, budget)

    def decode_again(self, stored: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
        """Decode stored rows of token transfers, approvals and raw logs again; other rows are left out."""
        return decode(
            self.facts,
            without_duplicates(restore(stored)),
            [dataset.name for dataset in DATASETS.values() if dataset.is_restorable],
        )

    async def _bodies(self, chunk: Chunk) -> list[ExecutedTransaction]:
        """Return the transactions of a span with their receipts, in order.

        Blocks are read BODY_BATCH at a time.
        """
        transactions: list[ExecutedTransaction] = []
        for start in range(0, len(chunk.headers), BODY_BATCH):
            batch = chunk.headers[start : start + BODY_BATCH]
            transactions += await self._executed_transactions([header for header in batch if header.transactions])
        return transactions

    async def _internal_transfers(self, chunk: Chunk) -> Mapping[TracedBlock, Sequence[CoinTransfer]]:
        """Return the internal transfers of a span: from the explorer if there is one, else from traces."""
        blocks = traces.traceable_blocks(self.key, chunk.headers)
        return await (
            self.explorer.internal_transfers(blocks) if self.explorer else traces.internal_transfers(self.node, blocks)
        )

    async def _executed_transactions(self, headers: Sequence[Header]) -> list[ExecutedTransaction]:
        """Return the transactions of blocks with their receipts; the node's endpoints agree on them."""
        if not headers:
            return []
        heights = [header.height for header in headers]

        async def at(endpoint: Endpoint) -> list[list[ExecutedTransaction]]:
            bodies, receipts = await asyncio.gather(
                raw_blocks(endpoint, heights, "eth_getBlockByNumber", True),
                block_receipts(endpoint, headers),
            )
            return [
                self._match_body(endpoint.name, header, block, receipts_json)
                for header, block, receipts_json in zip(headers, bodies, receipts, strict=True)
            ]

        transactions_by_block = await self.node.agreed(
            at,
            key=lambda block: tuple(transactions.comparison_key(transaction) for transaction in block),
            describe=lambda question: f"the transactions of block {heights[question]}",
            is_final=lambda question: self.node.is_final(heights[question]),
            kind="bodies",
        )
        return [transaction for block in transactions_by_block for transaction in block]

    def _match_body(self, source: str, header: Header, block: bytes, receipts: bytes) -> list[ExecutedTransaction]:
        """Return a block's transactions with their receipts, checked against its header.

        With integrity "roots" its roots are compared, otherwise the transaction hashes that it lists.
        """
        executed = transactions.match_receipts(source, block, receipts, header)
        if self.settings.integrity == "roots":
            prove_bodies(self.facts, source, header, block, receipts)  # the roots cover more than the list of hashes
        else:
            transactions.check_header_hashes(source, executed, header)
        return executed


def build(
    key: str,
    settings: EvmSettings,
    environment: Environment,
    *,
    configs: Path,
    transport: Transport | None = None,
    memory: EndpointMemory = NO_MEMORY,
) -> EvmChain:
    """Build one chain from its settings and its file of facts.

    Raises:
        BadRequest: The settings name another chain id than the facts, or there are no facts of the chain.
        BadSettings: The file of facts is missing or invalid.
    """
    facts = chain_facts.of(key, settings.facts, configs)
    if settings.chain_id and settings.chain_id != facts.chain_id:
        raise BadRequest(
            f"chains.{key}.chain_id", f"{settings.chain_id} in the settings, {facts.chain_id} in the chain's facts"
        )
    endpoints = make_endpoints(EvmEndpoint, key, settings, environment, memory=memory, transport=transport)
    node = Node(
        facts,
        endpoints,
        environment,
        quorum=settings.quorum,
        hedge=settings.hedge,
        hashed=settings.integrity == "roots",
    )
    return EvmChain(facts, node, settings, _explorer(settings, environment) if settings.explorer else None)


def _explorer(settings: EvmSettings, environment: Environment) -> Explorer:
    from chainfolio.adapters.evm.explorer import Explorer, Fetching

    fetching = Fetching(HttpTransport(environment.answers))
    return Explorer(settings.explorer, fetching, environment, timeout_s=settings.timeout_s, max_rps=settings.max_rps)


def _load_ens_names() -> type[Names]:
    """Import web3, and return the class that resolves ENS names.

    Raises:
        MissingDependency: web3 is not installed.
    """
    limit = sys.getrecursionlimit()
    try:
        with needs_extra("ens", "an ENS name"):
            from chainfolio.adapters.evm.ens import Names
    finally:
        sys.setrecursionlimit(limit)  # py_ecc sets it to 100,000: then JSON that nests deeply ends the process
    return Names
