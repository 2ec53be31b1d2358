"""Snapshots: all holdings of accounts on one chain at one block, with prices.

A snapshot is made in four steps; each takes the results of the steps before:

    index       tokens that the accounts met, protocols that they used, today's transfers   IndexView
    reads       balances, positions and prices, all at the block's hash                     Reading
    judgement   spam, and positions that do not count                                       Judgement
    snapshot    the result, with issues in the order of their cause                         Snapshot

First rounds ask for all balances and for positions in protocols that the accounts used, the next ones for names, prices
and underlying assets. A wallet takes about three requests, one with positions six, whatever the number of tokens.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from chainfolio.assets import Asset
from chainfolio.blocks import Block
from chainfolio.contracts import Issue, Price, QuotedTokens, Snapshot, Spam, Token
from chainfolio.engine import reconciliations as reconciled
from chainfolio.engine.snapshots import account_index, collectibles
from chainfolio.engine.snapshots.account_rows import AccountRows
from chainfolio.engine.snapshots.build import build_snapshot, price_issues
from chainfolio.engine.snapshots.index_view import MAX_UNINDEXED_BLOCKS, IndexView, read_index
from chainfolio.engine.snapshots.judgement import Judge
from chainfolio.engine.snapshots.reading import Held, Reading, block_of, holdings_of, with_stakes_of
from chainfolio.engine.snapshots.replay import Replay, replays
from chainfolio.engine.snapshots.token_book import TokenBook
from chainfolio.engine.snapshots.token_context import TokenContext
from chainfolio.engine.snapshots.trust import Trust, is_coin, mark_untrusted
from chainfolio.engine.stored_prices.past_prices import PastPrices
from chainfolio.errors import BadAnswer, Reorged
from chainfolio.plans import Output, Plan, Report, run_batched
from chainfolio.positions import MAX_READS, MAX_ROUNDS, AccountReader, AccountState, BalanceResult
from chainfolio.price_sources import PriceSource
from chainfolio.pricing.fixed import pegged_assets
from chainfolio.pricing.rules import knows, rules_of
from chainfolio.protocols import InstalledProtocols
from chainfolio.spans import span

if TYPE_CHECKING:
    from chainfolio.chains import Chain
    from chainfolio.engine.stored_prices.store import PriceStore
    from chainfolio.engine.validators.stakes import Stakes
    from chainfolio.positions import BlockReader, OpenPosition
    from chainfolio.storage.lake import Lake
    from chainfolio.storage.tail import Tail

LIVE_LAG_S: Final = 768  # an index this close to the head is live: 64 blocks of Ethereum, 1,920 slots of Solana
COLLECTIBLES: Final = "collectibles"  # name of the plan that reads them; the other plans are named by account
MAX_SETTLED_BLOCKS: Final = 500  # headers of blocks with stored prices that are read at once


@dataclass(slots=True)
class Snapshotter:
    """Takes snapshots of one chain.

    Attributes:
        book: Names of tokens, and the tokens that are read even if an account never met them.
        sources: Price sources, in order of preference.
        store: Stores prices; None if nothing is stored.
        stakes: Reads the stakes of validators; None if no validators pay to accounts of this chain.
    """

    chain: Chain
    lake: Lake
    tail: Tail
    book: TokenBook
    sources: Sequence[PriceSource]
    installed: InstalledProtocols = field(default_factory=InstalledProtocols)
    store: PriceStore | None = None
    stakes: Stakes | None = None
    reader: AccountReader = field(init=False)
    past: PastPrices = field(init=False)
    _judge: Judge = field(init=False)
    _protocol_contracts: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        self.reader = self.chain.account_reader(self.installed, self.book.listed)
        self._judge = Judge(self.chain, self.lake, self.tail, self.book)
        contracts = [each for row in self.installed.rows for group in row.contracts.values() for each in group]
        self._protocol_contracts = frozenset(contracts)
        self.past = PastPrices(self.chain, self.sources, self.store)

    async def take(
        self,
        accounts: Sequence[str],
        block: Block | None = None,
        extra: Sequence[Asset] = (),
        *,
        live: bool = False,
        past: bool = False,
    ) -> Snapshot:
        """Take a snapshot at a block, or at the newest indexed block; store names and prices that are read.

        Args:
            accounts: Addresses in the chain's own form, without duplicates.
            block: Every read is bound to its hash. None for the newest indexed block, see `indexed_block`.
            extra: Tokens to read in addition to those that the accounts met.
            live: Without `block`: read at the head of the chain, and leave out the stakes of validators.
            past: Replay movements if the nodes of the chain answer about the present only.

        Raises:
            Reorged: `block` is no longer part of the chain.
            HistoryUnavailable: The state of the block is gone, or movements since the block are not indexed.
            SourceError: The chain could not be read.
        """
        with span("snapshot", chain=self.chain.key, accounts=len(accounts)):
            before = self.chain.requests
            if block is not None:
                return await self._take_at(accounts, block, extra, before, past=past)
            head = (await self.chain.heads()).latest
            start = head if live else self.indexed_block(head)
            try:
                snapshot = await self._take_at(accounts, start, extra, before, with_stakes=not live)
            except Reorged:  # the block left the chain before the index noticed
                head = (await self.chain.heads()).latest
                snapshot = await self._take_at(accounts, head, extra, before, with_stakes=not live)
            return replace(snapshot, head=max(head.height, snapshot.block.height))

    async def quote(self, assets: Sequence[Asset]) -> QuotedTokens:
        """Return names and prices of tokens and the native coin at the head of the chain; store them.

        Raises:
            SourceError: The chain could not be read.
        """
        try:
            return await self._quote(assets)
        except Reorged:
            return await self._quote(assets)

    async def _quote(self, assets: Sequence[Asset]) -> QuotedTokens:
        block = (await self.chain.heads()).latest
        context = await self.token_context(assets, block)
        prices = {price.asset: price for price in context.quotes.prices}
        issues = price_issues(context.quotes, {"": {*assets, self.native.asset}}, self.sources)
        return QuotedTokens(block, context.tokens, prices, (*context.issues, *issues), pegged_assets(self.sources))

    async def current_prices(self, assets: Sequence[Asset]) -> Mapping[Asset, Price]:
        """Return the prices of this chain's sources at its head; those that are unknown or unread are absent."""
        block = (await self.chain.heads()).latest
        prices, _ = await self.past.prices({block: assets})
        return prices[block.height]

    @property
    def native(self) -> Token:
        """The native coin as a token."""
        return self.chain.info.native

    def is_trusted_contract(self, contract: str) -> bool:
        """Return True if `contract` is trusted: native stand-in, on a list, or priced by the settings.

        The contract is written as documents show it.
        """
        return is_coin(self.chain.info, contract) or self._is_listed(self.chain.info.token_asset(contract))

    async def trust(
        self, assets: Mapping[str, Collection[Asset]], height: int, rows: AccountRows | None = None
    ) -> Trust:
        """Return which `assets` are trusted at a height, by the index (or `rows`) and the settings."""
        return await asyncio.to_thread(self._judge.trust, assets, self._is_listed, height, rows)

    def _is_listed(self, asset: Asset) -> bool:
        """Return True if an asset is on a list, in a protocol's file, or priced by the settings."""
        is_listed = asset in self._judge.listed_tokens or asset.reference in self._protocol_contracts
        return is_listed or self.book.is_trusted(asset) or any(knows(source, asset) for source in self.sources)

    async def _take_at(
        self,
        accounts: Sequence[str],
        block: Block,
        extra: Sequence[Asset],
        requests_before: int,
        *,
        past: bool = False,
        with_stakes: bool = True,
    ) -> Snapshot:
        """Take a snapshot at a block (`past`: not the newest), and store the accounts' tokens in the book."""
        is_replayed = past and replays(self.chain)
        index = await read_index(self.chain, self.lake, self.tail, self.reader, accounts, block)
        reading = await self._read(index, accounts, block, extra, is_replayed=is_replayed, with_stakes=with_stakes)
        for account in accounts:
            self.book.set_account_tokens(account, reading.account_tokens[account])
        judgement = await asyncio.to_thread(self._judge.judge, reading)
        snapshot = build_snapshot(self.chain, reading, judgement, self.sources)
        return replace(snapshot, requests=self.chain.requests - requests_before)

    async def _read(
        self,
        index: IndexView,
        accounts: Sequence[str],
        block: Block,
        extra: Sequence[Asset],
        *,
        is_replayed: bool,
        with_stakes: bool,
    ) -> Reading:
        """Read accounts at a block, replayed if `is_replayed`, and tokens of positions; raises like `take`."""
        tokens = index.tokens(extra)
        candidates = self._registry_candidates() if index.may_lack_tokens else frozenset()
        requested = {
            account: self._requested_tokens(tokens[account], candidates if missing else frozenset())
            for account, missing in index.missing_transfers.items()
        }
        assets = {account: {*each.tokens, *each.received_ids} for account, each in index.interactions.items()}
        context, trust = await asyncio.gather(self._new_context(block), self.trust(assets, block.height, index.rows))
        untrusted = trust.untrusted_contracts({asset for each in tokens.values() for asset in each} - set(extra))
        reader = self.reader.at(block)
        plans = await asyncio.to_thread(self._account_plans, index, tokens, requested, trust, context, reader)
        # A replay starts from current state: collectibles that are held now say nothing about the past block.
        selected, selection_issues = ([], []) if is_replayed else collectibles.select_all(index.interactions, trust)
        (states, (held_collectibles, unread)), (stakes, stake_issues) = await asyncio.gather(
            self._run_plans(plans, block, untrusted, collectibles.read(self.chain, selected, trust, reader)),
            self._read_stakes(accounts if with_stakes else (), block),
        )
        if is_replayed:
            states = await self._replay(states, block, context, untrusted)
        states = with_stakes_of(states, stakes, trust)
        holdings, balance_issues = holdings_of(states, requested, trust)
        position_tokens = {token for state in states.values() for each in state.positions for token in each.tokens}
        await self._load_tokens(context, position_tokens, untrusted)
        issues = [*self.reader.issues, *stake_issues, *selection_issues, *unread]
        issues += self._index_issues(index, accounts, len(candidates), holdings, context)
        return Reading(
            block=block_of(states, block),
            states=states,
            holdings=tuple(holdings),
            context=context,
            balance_issues=tuple(balance_issues),
            issues=tuple(issues),
            flows=index.flows,
            no_days=index.no_days,
            fees=index.fees,
            collectibles=tuple(held_collectibles),
            rows=index.rows,
        )

    async def _replay(
        self, states: dict[str, AccountState], block: Block, context: TokenContext, untrusted: Set[str]
    ) -> dict[str, AccountState]:
        """Return the states at a past block, replayed from the current ones, and load their tokens."""
        replay = Replay(self.chain, self.lake, self.tail, self.chain.info.blocks_in(LIVE_LAG_S))
        states = await replay.states(states, block)
        balances = {asset for each in states.values() for asset, raw in each.balances.items() if raw}
        await self._load_tokens(context, balances, untrusted)
        return states

    def _index_issues(
        self,
        index: IndexView,
        accounts: Sequence[str],
        candidate_count: int,
        holdings: Sequence[Held],
        context: TokenContext,
    ) -> list[Issue]:
        """Return issues about unknown protocols, gaps of the index, little-known tokens and missing movements."""
        issues = [
            issue
            for account in accounts
            for issue in self.reader.unread_protocols(account, index.interactions[account])
        ]
        issues += index.gap_issues(self.chain.key, candidate_count)
        priced = {price.asset for price in context.quotes.prices}
        issues += self.book.little_known_issues([(account, asset) for account, asset, _ in holdings], priced)
        issues += reconciled.issues(self.tail, self.chain.key, accounts, natives=False)
        # Missing movements concern the history alone: the balances of a portfolio are read from the chain.
        unexplained = account_index.unexplained_issues(self.tail, self.chain, accounts)
        return issues + [replace(issue, makes_partial=False) for issue in unexplained]

    async def _read_stakes(self, accounts: Sequence[str], block: Block) -> tuple[list[OpenPosition], list[Issue]]:
        """Read the stakes of the accounts' validators; nothing is read without accounts or validators."""
        return await self.stakes.of(accounts, block) if accounts and self.stakes is not None else ([], [])

    def _account_plans(
        self,
        index: IndexView,
        tokens: Mapping[str, Set[Asset]],
        requested: Mapping[str, Mapping[Asset, bool]],
        trust: Trust,
        context: TokenContext,
        reader: BlockReader,
    ) -> dict[str, Plan[AccountState]]:
        """Return the plan that reads each account; each also loads the tokens that moved today."""
        moved_today = {asset for each in index.flows.values() for asset in each.assets}
        plans = {}
        for account, interactions in index.interactions.items():
            expected = self.book.expected(account, tokens[account])
            plans[account] = reader.read(
                account,
                replace(interactions, self_acquired=frozenset(trust.own_assets.get(account, ()))),
                tuple(requested[account]),
                lambda assets: context.load({*assets, *moved_today}),
                context.prefetch(expected),
            )
        return plans

    async def _run_plans(
        self,
        plans: Mapping[str, Plan[AccountState]],
        block: Block,
        untrusted: Set[str],
        collectibles_plan: Plan[collectibles.CollectiblesResult],
    ) -> tuple[dict[str, AccountState], collectibles.CollectiblesResult]:
        """Read all accounts and their collectibles in the same rounds.

        Raises:
            SourceError: A plan failed. Decoders inside a plan are bounded one by one and do not fail it.
        """
        all_plans: dict[str, Plan[AccountState | collectibles.CollectiblesResult]] = {
            **plans,
            COLLECTIBLES: collectibles_plan,
        }
        reports = await self._run(all_plans, block, untrusted)
        for report in reports.values():
            if report.result is None:
                raise report.error or BadAnswer(self.chain.key, report.reason)
        states = {name: each.result for name, each in reports.items() if isinstance(each.result, AccountState)}
        held_collectibles = reports[COLLECTIBLES].result
        assert isinstance(held_collectibles, tuple), "the plan of collectibles returns them with issues"
        return states, held_collectibles

    async def _run(
        self, plans: Mapping[str, Plan[Output]], block: Block, untrusted: Set[str] = frozenset()
    ) -> dict[str, Report[Output]]:
        """Run plans in lockstep at a block; reads of `untrusted` contracts are marked.

        A plan may contain a whole account or source chain, so the limits are those of accounts.
        """
        return await run_batched(
            plans,
            lambda reads: self.chain.answer(mark_untrusted(reads, untrusted) if untrusted else reads, block),
            max_rounds=MAX_ROUNDS,
            max_reads=MAX_READS,
        )

    async def newest_block(self) -> Block:
        """Return the newest indexed block, or the head if the index is too far behind."""
        return self.indexed_block((await self.chain.heads()).latest)

    def indexed_block(self, head: Block) -> Block:
        """Return the newest indexed block; `head` if that is more than `MAX_UNINDEXED_BLOCKS` behind it."""
        top = self.tail.top(self.chain.key)
        return top if top is not None and head.height - MAX_UNINDEXED_BLOCKS <= top.height <= head.height else head

    def _requested_tokens(self, tokens: Set[Asset], candidates: Set[Asset]) -> dict[Asset, bool]:
        """Return the tokens to read of an account, True for those that it met."""
        requested = (tokens | self._judge.listed_tokens | candidates) - {self.chain.info.also_at}
        return {asset: asset in tokens for asset in sorted(requested, key=lambda asset: asset.reference)}

    def _registry_candidates(self) -> frozenset[Asset]:
        """Return the tokens on public lists: an account may hold them if its transfers are not indexed."""
        lists = self.chain.settings.registry_lists
        return frozenset(self.book.registry.assets_on(lists)) if lists and self.book.registry else frozenset()

    @property
    def unindexed_token_count(self) -> int:
        """Number of tokens that are read of an account without indexed transfers."""
        return len(self._judge.listed_tokens | self._registry_candidates())

    async def judge(
        self,
        pairs: Collection[tuple[str, Asset]],
        assets: Collection[Asset],
        block: Block,
        balances: dict[tuple[str, Asset], Any],
    ) -> tuple[dict[Asset, Token], dict[tuple[str, Asset], Spam]]:
        """Read descriptions of assets and judge pairs for spam, as in a portfolio at the block.

        New descriptions are stored.

        Args:
            pairs: Accounts and tokens to judge. Tokens that are trusted or no spam have no verdict.
            assets: Tokens to describe, and to price for the verdicts.
            balances: Known balances at the block; the ones that are read are added.

        Raises:
            SourceError: The chain could not be read.
        """
        context = await self._new_context(block)
        suspects = sorted(pair for pair in pairs if pair[1] not in self._judge.listed_tokens)
        unknown = [pair for pair in suspects if pair not in balances]
        plans: dict[str, Plan[Sequence[BalanceResult] | None]] = {
            "about": context.load(assets),
            "held": self.chain.balances(unknown),
        }
        untrusted = Trust(self._is_listed).untrusted_contracts({*assets, *(asset for _, asset in pairs)})
        reports = await self._run(plans, block, untrusted)
        for report in reports.values():
            if report.error is not None:
                raise report.error
        await asyncio.to_thread(context.save)
        balances |= zip(unknown, reports["held"].result or (), strict=True)
        holdings = [(*pair, balances[pair]) for pair in suspects]
        account_tokens: dict[str, set[Asset]] = {account: {self.native.asset} for account, _ in suspects}
        for account, token in suspects:
            account_tokens[account].add(token)
        spam = await asyncio.to_thread(self._judge.spam, holdings, account_tokens, context, block.height)
        return context.tokens, spam

    async def token_context(self, assets: Iterable[Asset], block: Block) -> TokenContext:
        """Read names and prices of tokens and the native coin at a block, and store them.

        Raises:
            SourceError: The chain could not be read.
        """
        context = await self._new_context(block)
        await self._load_tokens(context, assets)
        return context

    async def settle_prices(self) -> int:
        """Move stored prices of final blocks to the lake, and delete prices of blocks that left the chain.

        Returns the number of moved prices. Of blocks that the index does not know, at most MAX_SETTLED_BLOCKS headers
        are read; prices of the others stay. Raises SourceError if the chain could not be read.
        """
        store = self.store
        if store is None or not await asyncio.to_thread(store.has_waiting):
            return 0
        final = (await self.chain.heads()).finalized
        count, unknown = await asyncio.to_thread(store.move_final, final)
        if unknown:
            blocks = await self.chain.blocks(unknown[:MAX_SETTLED_BLOCKS])
            read_count, _ = await asyncio.to_thread(
                store.move_final, final, {block.height: block.hash for block in blocks}
            )
            count += read_count
        return count

    async def _new_context(self, block: Block) -> TokenContext:
        """Return the token context of a block, with the prices that are stored of it."""
        if self.store is None:
            return TokenContext(self.chain, self.book, self.sources, block)
        stored = await asyncio.to_thread(self.store.at, block)
        recent = await asyncio.to_thread(self.store.recent, block, rules_of(self.sources).guards.step_days)
        return TokenContext(self.chain, self.book, self.sources, block, stored, recent, self.store)

    async def _load_tokens(
        self, context: TokenContext, assets: Iterable[Asset], untrusted: Set[str] = frozenset()
    ) -> None:
        """Read names and prices that the context lacks, and save them."""
        reports = await self._run({"about": context.load(assets)}, context.block, untrusted)
        if (error := reports["about"].error) is not None:
            raise error
        await asyncio.to_thread(context.save)
