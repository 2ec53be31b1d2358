"""One Starknet chain as the indexer sees it: heads, tables of a span, and accounts at a block."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chainfolio.adapters.starknet import accounts, doctor, lookup, state
from chainfolio.adapters.starknet import facts as chain_facts
from chainfolio.adapters.starknet.accounts import Accounts, Balance
from chainfolio.adapters.starknet.approvals import Approvals
from chainfolio.adapters.starknet.datasets import DATASETS
from chainfolio.adapters.starknet.endpoint import StarknetEndpoint
from chainfolio.adapters.starknet.facts import Facts
from chainfolio.adapters.starknet.history import AccountHistory
from chainfolio.adapters.starknet.node import Node
from chainfolio.adapters.starknet.settings import StarknetSettings
from chainfolio.adapters.starknet.spans import SpanReader
from chainfolio.assets import Asset
from chainfolio.behind_nodes import NodeBackedChain
from chainfolio.blocks import Block, Span
from chainfolio.capabilities import Capability
from chainfolio.chain_results import IndexedTransaction, SpanTables
from chainfolio.contracts import Holding, Token, TransactionDetails
from chainfolio.environment import Environment
from chainfolio.kinds import EndpointMemory
from chainfolio.plans import Plan
from chainfolio.reads import Read, ReadResult, Value
from chainfolio.transport.endpoint_factory import NO_MEMORY, make_endpoints
from chainfolio.transport.http import Transport

if TYPE_CHECKING:
    from chainfolio.budgets import Budget
    from chainfolio.positions import TokenUri
    from chainfolio.protocols import InstalledProtocols


class StarknetChain(NodeBackedChain[Node], Approvals):
    """A Starknet chain behind its nodes."""

    kind = "starknet"
    datasets = DATASETS
    default_datasets = tuple(DATASETS)
    capabilities = frozenset(
        [Capability.ACCOUNT_HISTORY, Capability.APPROVALS, Capability.PAST_BALANCES, Capability.TRANSACTIONS]
    )

    def __init__(self, facts: Facts, node: Node, settings: StarknetSettings) -> None:
        self.facts, self.node, self.settings = facts, node, settings
        self.key, self.caip2, self.info = facts.key, facts.caip2, facts.info
        self.reader = SpanReader(node)
        self._history = AccountHistory(self.reader)

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
        """Return the rows that concern some accounts, from the blocks in which they took part.

        Raises:
            SourceError: A search or a block could not be read, or contradict each other.
            Reorged: A block does not follow the one before it, or changed during the search.
        """
        return await self._history.collect(span, accounts, datasets, before, budget)

    async def look_up(self, transactions: Sequence[IndexedTransaction]) -> list[TransactionDetails]:
        """Return the details of indexed transactions, in order.

        Raises:
            SourceError: A transaction could not be read.
            Reorged: A transaction left the chain.
        """
        return await lookup.look_up(self.node, transactions)

    async def answer(self, reads: Sequence[Read[Value]], block: Block) -> list[Value]:
        """Return the results of calls, in order, all at the hash of a block.

        A refused call is Reverted, one without a contract Unknown.

        Raises:
            SourceError: The results could not be read.
            Reorged: The block left the chain.
        """
        return await state.answer(self.node, reads, block)

    def account_reader(self, installed: InstalledProtocols, trusted: Collection[Asset] = ()) -> Accounts:
        """Return a reader of accounts. No installed protocol supports Starknet yet."""
        return Accounts(self.facts)

    def wallet_reads(self, holding: Holding) -> Sequence[tuple[str, ReadResult]]:
        """Return the call that a holding outside of positions comes from."""
        return accounts.wallet_reads(self.facts, holding)

    def balances(self, pairs: Sequence[tuple[str, Asset]]) -> Plan[Sequence[Balance]]:
        """Return the balances of (account, asset) pairs, in order and in one round."""
        return accounts.balances(self.facts, pairs, accounts.call_both_spellings)

    def describe(self, assets: Sequence[Asset]) -> Plan[Mapping[Asset, Token]]:
        """Return symbol, name and decimals of tokens."""
        return accounts.describe(self.facts, assets)

    def token_uris(self, collectibles: Sequence[Asset]) -> Plan[Sequence[TokenUri]]:
        """Return where the metadata of collectibles are, in order."""
        return accounts.token_uris(self.facts, collectibles)

    async def examine(self) -> list[dict[str, Any]]:
        """Return a row of `doctor` per endpoint."""
        return await doctor.examine(self.node)


def build(
    key: str,
    settings: StarknetSettings,
    environment: Environment,
    *,
    configs: Path,
    transport: Transport | None = None,
    memory: EndpointMemory = NO_MEMORY,
) -> StarknetChain:
    """Build one chain from its settings and its file of facts.

    Raises:
        BadSettings: A setting or a fact is invalid.
    """
    facts = chain_facts.of(key, settings.facts, configs)
    endpoints = make_endpoints(StarknetEndpoint, key, settings, environment, memory=memory, transport=transport)
    return StarknetChain(facts, Node(facts, endpoints, environment, hedge=settings.hedge), settings)
