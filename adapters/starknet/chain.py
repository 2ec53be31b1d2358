"""One Starknet chain as the indexer sees it: where it stands, what lies in a span, what accounts have at a block."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chainfolio.adapters.starknet import facts as chain_facts
from chainfolio.adapters.starknet.approvals import Approvals
from chainfolio.adapters.starknet.datasets import DATASETS
from chainfolio.adapters.starknet.endpoint import StarknetEndpoint
from chainfolio.adapters.starknet.facts import Facts
from chainfolio.adapters.starknet.node import Node
from chainfolio.adapters.starknet.settings import StarknetSettings
from chainfolio.assets import Asset
from chainfolio.behind_nodes import NodeBackedChain
from chainfolio.blocks import Block, Span
from chainfolio.chains import Capability, IndexedTransaction, SpanTables
from chainfolio.contracts import Holding, Token, TransactionDetails
from chainfolio.environment import Environment
from chainfolio.kinds import EndpointMemory
from chainfolio.plans import Plan
from chainfolio.transport.endpoint_factory import NO_MEMORY, make_endpoints
from chainfolio.transport.http import Transport

# State and blocks are loaded when they are asked for.
if TYPE_CHECKING:
    from chainfolio.adapters.starknet.accounts import Accounts
    from chainfolio.adapters.starknet.history import AccountHistory
    from chainfolio.budgets import Budget
    from chainfolio.protocols import InstalledProtocols
    from chainfolio.reads import ReadResult


class StarknetChain(NodeBackedChain[Node], Approvals):
    """A Starknet chain behind its nodes. `collections` are contracts whose events do not say whether they are such."""

    kind = "starknet"
    datasets = DATASETS
    default_datasets = tuple(DATASETS)
    capabilities = frozenset(
        [
            Capability.ACCOUNT_HISTORY,
            Capability.APPROVALS,
            Capability.PAST_BALANCES,
            Capability.TRANSACTIONS,
        ]
    )

    def __init__(self, facts: Facts, node: Node, settings: StarknetSettings) -> None:
        self.facts, self.node, self.settings = facts, node, settings
        self.key, self.caip2, self.info = facts.key, facts.caip2, facts.info
        self.collections: dict[str, bool] = {}

    async def collect(
        self,
        span: Span,
        datasets: Sequence[str],
        contracts: Sequence[str] = (),
        before: Block | None = None,
        events: Sequence[str] = (),
    ) -> SpanTables:
        """The rows of whole blocks in a span."""
        from chainfolio.adapters.starknet.spans import collect

        return await collect(self, span, datasets, contracts, before)

    @cached_property
    def _history(self) -> AccountHistory:
        from chainfolio.adapters.starknet.history import AccountHistory

        return AccountHistory(self)

    async def collect_accounts(
        self,
        span: Span,
        accounts: Sequence[str],
        datasets: Sequence[str],
        before: Block | None = None,
        budget: Budget | None = None,
    ) -> SpanTables:
        """The rows that concern some accounts, from the blocks in which something of them is found."""
        return await self._history.collect(span, accounts, datasets, before, budget)

    async def look_up(self, transactions: Sequence[IndexedTransaction]) -> list[TransactionDetails]:
        """Transactions that the index knows, in order."""
        from chainfolio.adapters.starknet.lookup import look_up

        return await look_up(self.node, transactions)

    async def answer(self, reads: Sequence[Any], block: Block) -> list[Any]:
        """The results of some calls, all at that block's hash."""
        from chainfolio.adapters.starknet.state import answer

        return await answer(self.node, reads, block)

    def account_reader(self, installed: InstalledProtocols, trusted: Collection[Asset] = ()) -> Accounts:
        """What reads accounts. There are no protocols of this kind yet."""
        from chainfolio.adapters.starknet.accounts import Accounts

        return Accounts(self.facts)

    def wallet_reads(self, holding: Holding) -> Sequence[tuple[str, ReadResult]]:
        """The call behind a loose holding."""
        from chainfolio.adapters.starknet.state import Call
        from chainfolio.reads import ReadResult

        call = Call(self.facts.contract_of(holding.token.asset), "balanceOf", (int(holding.account, 16),))
        return [("balance", ReadResult(call, holding.raw))]

    def balances(self, pairs: Sequence[tuple[str, Asset]]) -> Plan[Any, Any, Sequence[Any]]:
        """How much accounts have of assets."""
        from chainfolio.adapters.starknet.accounts import asked_at_once, balances

        return balances(self.facts, pairs, asked_at_once)

    def describe(self, assets: Sequence[Asset]) -> Plan[Any, Any, Mapping[Asset, Token]]:
        """What some tokens say of themselves."""
        from chainfolio.adapters.starknet.accounts import describe

        return describe(self.facts, assets)

    async def examine(self) -> list[dict[str, Any]]:
        """What `doctor` shows of each endpoint."""
        from chainfolio.adapters.starknet.doctor import examine

        return await examine(self)


def build(
    key: str,
    settings: StarknetSettings,
    environment: Environment,
    *,
    configs: Path,
    transport: Transport | None = None,
    memory: EndpointMemory = NO_MEMORY,
) -> StarknetChain:
    """Build one chain from its settings and its file of facts."""
    facts = chain_facts.of(key, settings.facts, configs)
    endpoints = make_endpoints(StarknetEndpoint, key, settings, environment, memory=memory, transport=transport)
    return StarknetChain(facts, Node(facts, endpoints, environment, hedge=settings.hedge), settings)
