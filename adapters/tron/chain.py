"""One Tron chain as the indexer sees it: heads, tables of a span, and the current state of accounts."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from chainfolio import kinds
from chainfolio.adapters.tron import accounts, doctor, history, lookup, state
from chainfolio.adapters.tron import facts as chain_facts
from chainfolio.adapters.tron.accounts import Accounts
from chainfolio.adapters.tron.approvals import Approvals
from chainfolio.adapters.tron.datasets import DATASETS
from chainfolio.adapters.tron.facts import Facts
from chainfolio.adapters.tron.families import EvmProtocols
from chainfolio.adapters.tron.node import Node, TronNode
from chainfolio.adapters.tron.past import PastCoins
from chainfolio.adapters.tron.settings import TronSettings
from chainfolio.adapters.tron.signers import SignatureCheck
from chainfolio.adapters.tron.spans import SpanReader
from chainfolio.assets import Asset
from chainfolio.behind_nodes import NodeBackedChain
from chainfolio.blocks import Block, Span
from chainfolio.capabilities import Capability
from chainfolio.chain_results import IndexedTransaction, SpanTables
from chainfolio.contracts import Holding, Token, TransactionDetails
from chainfolio.environment import Environment
from chainfolio.kinds import EndpointMemory
from chainfolio.plans import Plan
from chainfolio.positions import BalanceResult, TokenUri
from chainfolio.reads import Read, ReadResult, Value
from chainfolio.transport.http import HttpTransport, WebTransport

if TYPE_CHECKING:
    from chainfolio.budgets import Budget
    from chainfolio.protocols import InstalledProtocols

API_KEY_HEADER, TRONGRID = "tron-pro-api-key", ".trongrid.io"
REQUESTS_PER_BLOCK = 4  # simultaneous requests per allowed one: a block takes two, and the next block is read ahead


class TronChain(NodeBackedChain[Node], Approvals):
    """A Tron chain behind its nodes, which keep no old state."""

    kind = "tron"
    datasets = DATASETS
    default_datasets = tuple(name for name, each in DATASETS.items() if each.is_default)
    capabilities = frozenset(
        [Capability.ACCOUNT_HISTORY, Capability.APPROVALS, Capability.PAST_COINS, Capability.TRANSACTIONS]
    )

    def __init__(self, facts: Facts, node: Node, settings: TronSettings, environment: Environment) -> None:
        """Prepare a chain over its nodes; no request is sent."""
        self.facts, self.node, self.settings = facts, node, settings
        self.key, self.caip2, self.info = facts.key, facts.caip2, facts.info
        self.reader = SpanReader(node, SignatureCheck(settings.signatures, environment.random))
        self.past_coins = PastCoins(node, environment.clock)

    async def collect(
        self,
        span: Span,
        datasets: Sequence[str],
        contracts: Sequence[str] = (),
        before: Block | None = None,
        events: Sequence[str] = (),
    ) -> SpanTables:
        """Return the rows of whole blocks in a span.

        Raises:
            SourceError: A block could not be read.
            Reorged: A block does not follow the one before it.
        """
        return await self.reader.collect(span, datasets, contracts, before)

    async def collect_accounts(
        self,
        span: Span,
        accounts: Sequence[str],
        datasets: Sequence[str],
        before: Block | None = None,
        budget: Budget | None = None,
    ) -> SpanTables:
        """Return the rows that concern some accounts, from the blocks with their transactions.

        Raises:
            SourceError: A list or a block could not be read.
            Reorged: A block does not follow the one before it.
        """
        trongrid = self.settings.trongrid
        return await history.collect_accounts(self.reader, span, accounts, datasets, before, budget, trongrid=trongrid)

    async def look_up(self, transactions: Sequence[IndexedTransaction]) -> list[TransactionDetails]:
        """Return the details of indexed transactions, in order.

        Raises:
            SourceError: A transaction could not be read.
            Reorged: A transaction left the chain.
        """
        return await lookup.look_up(self.node, transactions)

    async def answer(self, reads: Sequence[Read[Value]], block: Block) -> list[Value]:
        """Return the results of reads at the newest block, which is `block` or a later one.

        Raises:
            SourceError: The results could not be read.
        """
        return await state.answer(self.node, reads, block, self.facts.multicall)

    async def coins_at(self, accounts: Collection[str], block: Block) -> Mapping[str, int]:
        """Return native coins of accounts at a past block, in sun, without zero and unknown ones.

        All are from one node. Nodes without such balances give 0: others are asked in their place, and they are not
        asked again for an hour. Without a node that has them, the result is empty.
        """
        return await self.past_coins.at(accounts, block)

    def account_reader(self, installed: InstalledProtocols, trusted: Collection[Asset] = ()) -> Accounts:
        """Return a reader of accounts, with the installed protocols that the EVM's decoders read.

        Args:
            installed: The protocols of this chain.
            trusted: Tokens whose transfer events are trusted.
        """
        if not installed.rows:
            return Accounts(self.facts)
        protocols = EvmProtocols.build(kinds.abi_families_of(self.kind), self.facts, installed, trusted)
        return Accounts(self.facts, protocols, (), installed.issues)

    def wallet_reads(self, holding: Holding) -> Sequence[tuple[str, ReadResult]]:
        """Return the read that a holding outside of positions comes from."""
        return accounts.wallet_reads(holding)

    def balances(self, pairs: Sequence[tuple[str, Asset]]) -> Plan[Sequence[BalanceResult]]:
        """Return the balances of (account, asset) pairs, in order."""
        return accounts.balances(pairs)

    def describe(self, assets: Sequence[Asset]) -> Plan[Mapping[Asset, Token]]:
        """Return symbol, name and decimals of tokens."""
        return accounts.describe(assets)

    def token_uris(self, collectibles: Sequence[Asset]) -> Plan[Sequence[TokenUri]]:
        """Return where the metadata of collectibles are, in order."""
        return accounts.token_uris(collectibles)

    async def examine(self) -> list[dict[str, Any]]:
        """Return a row of `doctor` per endpoint."""
        return await doctor.examine(self.node, trongrid=self.settings.trongrid)


def build(
    key: str,
    settings: TronSettings,
    environment: Environment,
    *,
    configs: Path,
    transport: WebTransport | None = None,
    memory: EndpointMemory | None = None,
) -> TronChain:
    """Build one chain from its settings and its file of facts.

    Raises:
        BadSettings: A setting or a fact is invalid.
    """
    facts = chain_facts.of(key, settings.facts, configs)
    endpoints = [_endpoint(url, settings, environment, transport) for url in settings.rpc]
    return TronChain(facts, Node(facts, endpoints, environment, hedge=settings.hedge), settings, environment)


def _endpoint(url: str, settings: TronSettings, environment: Environment, transport: WebTransport | None) -> TronNode:
    """Return one endpoint. The API key is sent to TronGrid only, and only with TLS."""
    parts = urlsplit(url)
    is_trongrid = parts.scheme == "https" and f".{parts.hostname}".endswith(TRONGRID)
    key = settings.api_key if is_trongrid else ""
    transport = transport or HttpTransport(environment.answers, headers={API_KEY_HEADER: key} if key else None)
    return TronNode(
        url,
        transport,
        environment,
        timeout_s=settings.timeout_s,
        concurrency=settings.concurrency * REQUESTS_PER_BLOCK,
        max_rps=settings.max_rps,
        secret=key,
    )
