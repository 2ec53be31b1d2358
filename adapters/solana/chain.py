"""One Solana chain as the indexer uses it: heads, rows of spans, and the state of accounts."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from chainfolio.adapters.solana import facts as chain_facts
from chainfolio.adapters.solana.datasets import DATASETS, REWARDS
from chainfolio.adapters.solana.endpoint import SolanaEndpoint
from chainfolio.adapters.solana.facts import Facts
from chainfolio.adapters.solana.node import Node
from chainfolio.adapters.solana.settings import SolanaSettings
from chainfolio.assets import Asset
from chainfolio.behind_nodes import NodeBackedChain
from chainfolio.blocks import Block, Span
from chainfolio.capabilities import Capability
from chainfolio.chain_results import IndexedTransaction, SpanTables
from chainfolio.contracts import Holding, Issue, Token, TransactionDetails
from chainfolio.environment import Environment
from chainfolio.errors import SourceError
from chainfolio.kinds import EndpointMemory
from chainfolio.reads import Value
from chainfolio.transport.endpoint_factory import NO_MEMORY, make_endpoints
from chainfolio.transport.http import Transport

# Modules of state and blocks load solders, pyarrow and others, so they are imported when they are needed.
if TYPE_CHECKING:
    from chainfolio.adapters.solana.accounts import Accounts
    from chainfolio.adapters.solana.history import AccountHistory
    from chainfolio.adapters.solana.reward_rows import RewardRows
    from chainfolio.adapters.solana.stake_histories import StakeHistories
    from chainfolio.budgets import Budget
    from chainfolio.plans import Plan, Unknown
    from chainfolio.position_changes import CallChange
    from chainfolio.positions import OpenPosition, TokenUri
    from chainfolio.protocols import InstalledProtocol, InstalledProtocols
    from chainfolio.reads import Read, ReadResult


class SolanaChain(NodeBackedChain[Node]):
    """A Solana chain behind its nodes. They keep no past state and prove nothing."""

    kind = "solana"
    datasets = DATASETS
    default_datasets = tuple(name for name, each in DATASETS.items() if not each.reward_protocol)
    capabilities = frozenset(
        [
            Capability.ACCOUNT_HISTORY,
            Capability.OLDEST_BLOCK,
            Capability.PAST_POSITIONS,
            Capability.PROGRAM_CALLS,
            Capability.TRANSACTIONS,
        ]
    )
    past_positions = frozenset(["solana_stake"])

    def __init__(self, facts: Facts, node: Node, settings: SolanaSettings, memory: EndpointMemory) -> None:
        self.facts, self.node, self.settings, self.memory = facts, node, settings, memory
        self.key, self.caip2, self.info = facts.key, facts.caip2, facts.info

    async def first_served(self) -> int:
        """Return the oldest slot whose block a node still has."""
        return await self.node.first_served()

    async def collect(
        self,
        span: Span,
        datasets: Sequence[str],
        contracts: Sequence[str] = (),
        before: Block | None = None,
        events: Sequence[str] = (),
    ) -> SpanTables:
        """Read the rows of whole blocks in a span, as `spans.collect`.

        Args:
            span: The slots to read.
            datasets: Names of the datasets.
            contracts: Keep only transfers of these mints and of lamports; empty for all.
            before: The block that the span must follow; None if it is not known.
            events: Not used.

        Raises:
            Reorged: The span does not follow `before`.
            BadAnswer: A block is missing.
        """
        from chainfolio.adapters.solana.spans import collect

        return await collect(self.node, self.key, span, datasets, contracts, before)

    @cached_property
    def _history(self) -> AccountHistory:
        from chainfolio.adapters.solana.history import AccountHistory

        return AccountHistory(self.node, self.stake_histories)

    @cached_property
    def _rewards(self) -> RewardRows:
        from chainfolio.adapters.solana.reward_rows import RewardRows

        return RewardRows(self.node, self.stake_histories if self.settings.stake_accounts else None)

    @cached_property
    def stake_histories(self) -> StakeHistories:
        """The reader of current and past stake accounts."""
        from chainfolio.adapters.solana.stake_histories import StakeHistories

        return StakeHistories(self.node, self.memory)

    async def positions_at(
        self, accounts: Collection[str], block: Block
    ) -> Mapping[str, tuple[Sequence[OpenPosition], Sequence[Issue]]]:
        """Read the stake accounts of accounts at a block, as positions and issues by account.

        An account that could not be read has an issue and no positions; nothing is raised for it. Without the setting
        `stake_accounts` there are neither.
        """
        if not self.settings.stake_accounts:
            return dict.fromkeys(accounts, ((), ()))
        from chainfolio.adapters.solana.past_stakes import PastStakes

        past = PastStakes(self.node, self.stake_histories, block)
        return {account: await past.of(account) for account in accounts}

    async def collect_accounts(
        self,
        span: Span,
        accounts: Sequence[str],
        datasets: Sequence[str],
        before: Block | None = None,
        budget: Budget | None = None,
    ) -> SpanTables:
        """Read the rows that concern some accounts, for the first part of a span.

        They come from transactions that name the accounts or their token accounts. Staking rewards are read by epochs,
        and cannot be combined with other datasets.
        """
        if REWARDS in datasets:
            assert len(datasets) == 1, "rewards are read by epochs, unlike other datasets"
            return await self._rewards.collect(span, accounts, before, budget)
        return await self._history.collect(span, accounts, datasets, before, budget)

    async def look_up(self, transactions: Sequence[IndexedTransaction]) -> list[TransactionDetails]:
        """Read the details of transactions that the index has, in order."""
        from chainfolio.adapters.solana.lookup import look_up

        return await look_up(self.node, transactions)

    async def call_changes(
        self, transactions: Sequence[tuple[str, int]], protocols: Sequence[InstalledProtocol]
    ) -> list[tuple[CallChange, ...] | None]:
        """Return what calls of protocols changed in transactions, in order."""
        from chainfolio.adapters.solana.call_reads import call_changes

        return await call_changes(self.node, transactions, protocols)

    async def answer(self, reads: Sequence[Read[Value]], block: Block) -> list[Value]:
        """Return the results of reads now, not older than `block`. Wallets name the block of their state."""
        from chainfolio.adapters.solana.state import answer

        return await answer(self.node, reads, block, with_stakes=self.settings.stake_accounts)

    async def answer_each(
        self, requests: Sequence[tuple[Block, Sequence[Read[Value]]]]
    ) -> list[list[Value] | SourceError]:
        """Return the results of reads at each of several blocks, or the error of a block that cannot be read.

        Wallets, mints and NFT lists are read once, now, and not older than any of the blocks. Program accounts are read
        per block, and are Unknown for past blocks.
        """
        from chainfolio.adapters.solana.reads import LeavesRead, MintRead, WalletRead

        current_reads = WalletRead | MintRead | LeavesRead
        shared_reads: list[Read[object]] = list(
            dict.fromkeys(read for _, reads in requests for read in reads if isinstance(read, current_reads))
        )
        newest = max((block for block, _ in requests), key=lambda block: block.height, default=None)
        try:
            shared_results = (
                dict(zip(shared_reads, await self.answer(shared_reads, newest), strict=True))
                if newest and shared_reads
                else {}
            )
        except SourceError as error:
            return [error] * len(requests)
        return [await self._answer_at(block, reads, shared_results) for block, reads in requests]

    async def _answer_at(
        self, block: Block, reads: Sequence[Read[Value]], known_results: Mapping[Read[object], object]
    ) -> list[Value] | SourceError:
        """Return the results of reads at a block, or its error. `known_results` are not read again."""
        missing = list(dict.fromkeys(read for read in reads if read not in known_results))
        try:
            results = dict(zip(missing, await self.answer(missing, block), strict=True)) if missing else {}
        except SourceError as error:
            return error
        return [cast(Value, known_results[read]) if read in known_results else results[read] for read in reads]

    def account_reader(self, installed: InstalledProtocols, trusted: Collection[Asset] = ()) -> Accounts:
        """Return the reader of accounts, with the positions of some protocols."""
        from chainfolio.adapters.solana.accounts import Accounts

        return Accounts(self.facts, installed, reward_epochs=self.settings.reward_epochs)

    def wallet_reads(self, holding: Holding) -> Sequence[tuple[str, ReadResult]]:
        """Return the read behind a holding that is in no position."""
        from chainfolio.adapters.solana.reads import WalletRead
        from chainfolio.reads import ReadResult

        return [("balance", ReadResult(WalletRead(holding.account), holding.raw))]

    def balances(self, pairs: Sequence[tuple[str, Asset]]) -> Plan[Sequence[int | Unknown]]:
        """Plan the reads of balances, in the order of `pairs`."""
        from chainfolio.adapters.solana.accounts import balances

        return balances(pairs)

    def describe(self, assets: Sequence[Asset]) -> Plan[Mapping[Asset, Token]]:
        """Plan the reads of symbol, name and decimals of tokens."""
        from chainfolio.adapters.solana.accounts import describe

        return describe(assets)

    def token_uris(self, collectibles: Sequence[Asset]) -> Plan[Sequence[TokenUri]]:
        """Plan the reads of where the metadata of collectibles are."""
        from chainfolio.adapters.solana.accounts import token_uris

        return token_uris(collectibles)

    async def examine(self) -> list[dict[str, Any]]:
        """Read the rows of `doctor`, one per endpoint."""
        from chainfolio.adapters.solana.doctor import examine

        return await examine(self.node)


def build(
    key: str,
    settings: SolanaSettings,
    environment: Environment,
    *,
    configs: Path,
    transport: Transport | None = None,
    memory: EndpointMemory = NO_MEMORY,
) -> SolanaChain:
    """Build a chain from its settings and its facts."""
    facts = chain_facts.of(key, settings.facts, configs)
    endpoints = make_endpoints(SolanaEndpoint, key, settings, environment, memory=memory, transport=transport)
    node = Node(facts, endpoints, environment, commitment=settings.commitment, hedge=settings.hedge)
    return SolanaChain(facts, node, settings, memory)
