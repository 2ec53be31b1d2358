"""One Solana chain as the indexer sees it: where it stands, what lies in a span, what accounts have now."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adapters.solana import facts as chain_facts
from adapters.solana.datasets import DATASETS, REWARDS
from adapters.solana.endpoint import SolanaEndpoint
from adapters.solana.facts import Facts
from adapters.solana.node import Node
from adapters.solana.settings import SolanaSettings
from chainfolio.assets import Asset
from chainfolio.behind_nodes import BehindNodes
from chainfolio.blocks import Block, Span
from chainfolio.chains import Capability, Collected, KnownTransaction
from chainfolio.contracts import Holding, Issue, Token, TransactionDetails
from chainfolio.errors import SourceError
from chainfolio.kinds import EndpointMemory
from chainfolio.plans import Plan
from chainfolio.seams import Seams
from transport import remembered
from transport.http import Transport

# State and blocks are loaded when they are asked for.
if TYPE_CHECKING:
    from adapters.solana.accounts import Accounts
    from adapters.solana.history import AccountHistory
    from adapters.solana.reward_rows import RewardRows
    from adapters.solana.stake_histories import StakeHistories
    from chainfolio.budgets import Budget
    from chainfolio.positions import OpenPosition
    from chainfolio.protocols import InstalledProtocols
    from chainfolio.reads import ReadResult


class SolanaChain(BehindNodes[Node]):
    """A Solana chain behind its nodes. It keeps no old state and proves nothing."""

    kind = "solana"
    datasets = DATASETS
    usual = tuple(name for name, each in DATASETS.items() if not each.of_positions)
    capabilities = frozenset([Capability.ACCOUNT_HISTORY, Capability.TRANSACTIONS])
    past_positions = frozenset(["solana_stake"])

    def __init__(self, facts: Facts, node: Node, settings: SolanaSettings, memory: EndpointMemory) -> None:
        self.facts, self.node, self.settings, self.memory = facts, node, settings, memory
        self.key, self.caip2, self.info = facts.key, facts.caip2, facts.info

    async def first_served(self) -> int:
        """The lowest slot of which a node still has the block."""
        return await self.node.first_served()

    async def collect(
        self,
        span: Span,
        datasets: Sequence[str],
        contracts: Sequence[str] = (),
        before: Block | None = None,
        events: Sequence[str] = (),
    ) -> Collected:
        """The rows of whole blocks in a span."""
        from adapters.solana.spans import collect

        return await collect(self.node, self.key, span, datasets, contracts, before)

    @cached_property
    def _history(self) -> AccountHistory:
        from adapters.solana.history import AccountHistory

        return AccountHistory(self)

    @cached_property
    def _rewards(self) -> RewardRows:
        from adapters.solana.reward_rows import RewardRows

        return RewardRows(self)

    @cached_property
    def stake_histories(self) -> StakeHistories:
        """The stake accounts that accounts have and had."""
        from adapters.solana.stake_histories import StakeHistories

        return StakeHistories(self)

    async def positions_at(
        self, accounts: Collection[str], block: Block
    ) -> Mapping[str, tuple[Sequence[OpenPosition], Sequence[Issue]]]:
        """What stake accounts held at a block."""
        from adapters.solana.past_stakes import PastStakes

        past = PastStakes(self, block)
        return {account: await past.of(account) for account in accounts}

    async def collect_accounts(
        self,
        span: Span,
        accounts: Sequence[str],
        datasets: Sequence[str],
        before: Block | None = None,
        budget: Budget | None = None,
    ) -> Collected:
        """The rows that concern some accounts, from the transactions that name them or their token accounts; what
        their stake accounts earned by epochs."""
        if REWARDS in datasets:
            assert len(datasets) == 1, "it is read by epochs, and nothing else is"
            return await self._rewards.collect(span, accounts, before, budget)
        return await self._history.collect(span, accounts, datasets, before, budget)

    async def look_up(self, known: Sequence[KnownTransaction]) -> list[TransactionDetails]:
        """Transactions that the index knows, in order."""
        from adapters.solana.lookup import look_up

        return await look_up(self.node, known)

    async def answer(self, reads: Sequence[Any], block: Block) -> list[Any]:
        """The results of some reads, now: no older than a block. Each says at which block it was read."""
        from adapters.solana.state import answer

        return await answer(self.node, reads, block, with_stakes=self.settings.stake_accounts)

    async def answer_each(self, asked: Sequence[tuple[Block, Sequence[Any]]]) -> list[list[Any] | SourceError]:
        """The same for several blocks; an error in the place of one that cannot be read. What accounts have is read
        now, and no older than any of them, so it is read once; what programs say is not told of a past block."""
        from adapters.solana.reads import LeavesRead, MintRead, WalletRead

        of_now = WalletRead | MintRead | LeavesRead
        lasting = list(dict.fromkeys(read for _, reads in asked for read in reads if isinstance(read, of_now)))
        newest = max((block for block, _ in asked), key=lambda block: block.height, default=None)
        try:
            now = dict(zip(lasting, await self.answer(lasting, newest), strict=True)) if newest and lasting else {}
        except SourceError as error:
            return [error] * len(asked)
        return [await self._answered(block, reads, now) for block, reads in asked]

    async def _answered(self, block: Block, reads: Sequence[Any], known: Mapping[Any, Any]) -> list[Any] | SourceError:
        """The results of some reads at a block, of which some are known."""
        rest = list(dict.fromkeys(read for read in reads if read not in known))
        try:
            found = dict(zip(rest, await self.answer(rest, block), strict=True)) if rest else {}
        except SourceError as error:
            return error
        return [known[read] if read in known else found[read] for read in reads]

    def account_reader(self, installed: InstalledProtocols, listed: Collection[Asset] = ()) -> Accounts:
        """What reads accounts, with the positions of these protocols."""
        from adapters.solana.accounts import Accounts

        return Accounts(self.facts, installed, reward_epochs=self.settings.reward_epochs)

    def wallet_reads(self, holding: Holding) -> Sequence[tuple[str, ReadResult]]:
        """The read behind a loose holding."""
        from adapters.solana.reads import WalletRead
        from chainfolio.reads import ReadResult

        return [("balance", ReadResult(WalletRead(holding.account), holding.raw))]

    def balances(self, pairs: Sequence[tuple[str, Asset]]) -> Plan[Any, Any, Sequence[Any]]:
        """How much accounts have of assets."""
        from adapters.solana.accounts import balances

        return balances(pairs)

    def describe(self, assets: Sequence[Asset]) -> Plan[Any, Any, Mapping[Asset, Token]]:
        """What some mints say of themselves."""
        from adapters.solana.accounts import describe

        return describe(assets)

    async def examine(self) -> list[dict[str, Any]]:
        """What `doctor` shows of each endpoint."""
        from adapters.solana.doctor import examine

        return await examine(self)


def build(
    key: str,
    settings: SolanaSettings,
    seams: Seams,
    *,
    configs: Path,
    transport: Transport | None = None,
    memory: EndpointMemory = remembered.NO_MEMORY,
) -> SolanaChain:
    """Build one chain from its settings and its file of facts."""
    facts = chain_facts.of(key, settings.facts, configs)
    endpoints = remembered.endpoints(SolanaEndpoint, key, settings, seams, memory=memory, transport=transport)
    node = Node(facts, endpoints, seams, commitment=settings.commitment, hedge=settings.hedge)
    return SolanaChain(facts, node, settings, memory)
