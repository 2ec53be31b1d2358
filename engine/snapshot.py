"""What some accounts hold on one chain at one block: everything read at that block's hash, prices too.

The first rounds ask for every balance, and for the positions in protocols that were met; the next for what held tokens
are, what they are worth and what lies behind them. So a snapshot of loose tokens is about three requests, and one of
positions about six, however many tokens, positions and accounts there are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from chainfolio.assets import Asset
from chainfolio.blocks import Block, Span, Spans
from chainfolio.contracts import Day, Holding, Issue, Price, Quoted, Snapshot, Spam, Token
from chainfolio.errors import BadAnswer, Reorged, SourceError
from chainfolio.interactions import Interactions
from chainfolio.plans import Output, Plan, Report, run_batched
from chainfolio.positions import MAX_READS, MAX_ROUNDS, AccountReader, AccountState, OpenPosition
from chainfolio.protocols import InstalledProtocols
from engine import account_index, collectibles, reconciled
from engine.daily import Daily, daily
from engine.descriptions import About
from engine.judging import Judge, Judgement
from engine.past_prices import Past
from engine.reading import Held, Reading, holdings_of, natives_of
from engine.replay import Replay, replays
from engine.sent import paid
from engine.tokens import TokenBook
from engine.trust import Trust, listed_apart, marked
from pricing.fixed import pegged
from pricing.quotes import PriceSource, Quotes
from pricing.rules import knows, rules_of

if TYPE_CHECKING:
    from chainfolio.chains import Chain, Collected
    from engine.price_store import PriceStore
    from engine.stakes import Stakes
    from storage.lake import Lake
    from storage.tail import Tail

LIVE_LAG_S = 768  # an index that is this close to the head is live: 64 blocks of Ethereum, 1,920 slots of Solana
MOST_RECENT = 64  # blocks that a snapshot reads beside the index
COLLECTIBLES = "collectibles"  # what the plan that reads them is called, beside those of accounts
MAX_SETTLED = 500  # blocks that are asked for at once, of those of which prices are kept


@dataclass(slots=True)
class Snapshotter:
    """Takes snapshots of one chain."""

    chain: Chain
    lake: Lake
    tail: Tail
    book: TokenBook
    sources: Sequence[PriceSource]
    installed: InstalledProtocols = field(default_factory=InstalledProtocols)
    store: PriceStore | None = None
    stakes: Stakes | None = None
    reader: AccountReader = field(init=False)
    past: Past = field(init=False)
    _judge: Judge = field(init=False)
    _protocol_contracts: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        self.reader = self.chain.account_reader(self.installed, self.book.listed)
        self._judge = Judge(self.chain, self.lake, self.tail, self.book)
        contracts = [each for row in self.installed.rows for several in row.contracts.values() for each in several]
        self._protocol_contracts = frozenset(contracts)
        self.past = Past(self.chain, self.sources, self.store)

    async def take(
        self,
        accounts: Sequence[str],
        block: Block | None = None,
        extra: Sequence[Asset] = (),
        *,
        live: bool = False,
        past: bool = False,
    ) -> Snapshot:
        """A snapshot at a block; without one at the newest that is indexed, or, `live`, at the newest of the chain.
        `extra` are tokens to look at beside those the accounts have met. `past`: at that very block, on chains too
        whose nodes answer about now alone. What validators have is in it unless it is `live`."""
        before = self.chain.requests
        if block is not None:
            return await self._at(accounts, block, extra, before, past=past)
        head = (await self.chain.heads()).latest
        try:
            taken = await self._at(accounts, head if live else self.indexed(head), extra, before, staked=not live)
        except Reorged:
            # The block has just left the chain, and the follower does not know yet: the head is the other "now".
            head = (await self.chain.heads()).latest
            taken = await self._at(accounts, head, extra, before, staked=not live)
        return replace(taken, head=max(head.height, taken.block.height))

    async def quote(self, assets: Sequence[Asset]) -> Quoted:
        """What some tokens and the native coin are and what they are worth, all at the head of the chain."""
        try:
            return await self._quoted(assets)
        except Reorged:
            return await self._quoted(assets)

    async def _quoted(self, assets: Sequence[Asset]) -> Quoted:
        block = (await self.chain.heads()).latest
        about = await self.known(assets, block)
        prices = {price.asset: price for price in about.quotes.prices}
        refused = price_issues(about.quotes, {"": {*assets, self.native.asset}}, self.sources)
        return Quoted(block, about.tokens, prices, (*about.issues, *refused), pegged(self.sources))

    async def worth(self, assets: Sequence[Asset]) -> Mapping[Asset, Price]:
        """What the sources of this chain say that some assets are worth now, be they of this chain or not."""
        block = (await self.chain.heads()).latest
        found, _ = await self.past.prices({block: assets})
        return found[block.height]

    @property
    def native(self) -> Token:
        """The native coin as a token."""
        return self.chain.info.native

    def vouches(self, contract: str) -> bool:
        """Whether somebody vouches for what a contract is, as documents show it: it stands for the native coin, lists
        name it, or the settings name a price of it."""
        info = self.chain.info
        if contract in {each.shown_contract for each in (info.native.asset, info.wrapped, info.also_at) if each}:
            return True
        return self._is_vouched(info.token_asset(contract))

    async def trust(self, met: Mapping[str, Collection[Asset]], height: int) -> Trust:
        """Return which of the assets that some accounts met are trusted at a height, by the index and the settings."""
        return await asyncio.to_thread(self._judge.trust, met, self._is_vouched, height)

    def _is_vouched(self, asset: Asset) -> bool:
        """Return True if an asset is on a list, a protocol's file names it, or the settings name a price of it."""
        is_listed = asset in self._judge.listed or self.book.is_trusted(asset)
        is_listed = is_listed or asset.reference in self._protocol_contracts
        return is_listed or any(knows(source, asset) for source in self.sources)

    async def _at(
        self,
        accounts: Sequence[str],
        block: Block,
        extra: Sequence[Asset],
        before: int,
        *,
        past: bool = False,
        staked: bool = True,
    ) -> Snapshot:
        reading = await self._read(accounts, block, extra, past=past and replays(self.chain), staked=staked)
        judgement = await asyncio.to_thread(self._judge.of, reading)
        return replace(assembled(self.chain, reading, judgement, self.sources), requests=self.chain.requests - before)

    async def _read(
        self, accounts: Sequence[str], block: Block, extra: Sequence[Asset], *, past: bool, staked: bool
    ) -> Reading:
        # Before the rows are read: what is covered by now is there then.
        unindexed = account_index.unindexed(self.tail, self.chain.key, block.height, self.reader.events, accounts)
        left = self._left(accounts, block)
        recent = await self._recent(block)
        index, info = (self.lake, self.tail, self.chain.key, accounts), self.chain.info
        loose = recent.tables["transfers"] if recent else None
        interactions, (moved, no_days) = await asyncio.gather(
            asyncio.to_thread(account_index.interactions_of, *index, block.height, info, unindexed, loose),
            asyncio.to_thread(daily, self.lake, self.tail, self.chain, accounts, block),
        )
        met = {account: {*interactions[account].tokens, *extra} for account in accounts}
        fresh = Spans([recent.span] if recent else [])
        left = {account: spans - fresh for account, spans in left.items()}
        candidates = self._candidates() if any(left.values()) else frozenset()
        wanted = {
            account: self._wanted(met[account], candidates if left[account] else frozenset()) for account in accounts
        }
        about, trust = await asyncio.gather(
            self._about(block),
            self.trust({each: {*own.tokens, *own.ids} for each, own in interactions.items()}, block.height),
        )
        met_by_any = {asset for each in met.values() for asset in each}
        strangers = trust.strangers(met_by_any - set(extra))
        own = {
            account: replace(each, own=frozenset(trust.own.get(account, ()))) for account, each in interactions.items()
        }
        plans = await asyncio.to_thread(self._plans, own, met, wanted, moved, about)
        # What nodes that answer about now alone say is not what was held then.
        owned, unasked = ([], []) if past else self._owned(interactions, trust)
        (states, (things, unread)), fees, (stakes, unstaked) = await asyncio.gather(
            self._answered(plans, block, strangers, collectibles.read(self.chain, owned, trust)),
            asyncio.to_thread(paid, *index, block),
            self._staked(accounts if staked else (), block),
        )
        if past:
            replay = Replay(self.chain, self.lake, self.tail, self.chain.info.blocks_in(LIVE_LAG_S))
            states = await replay.states(states, block)
            balances = {asset for each in states.values() for asset, raw in each.balances.items() if raw}
            await self._learn(about, balances, strangers)
        for each in stakes:
            state = states[each.account]
            states[each.account] = replace(state, positions=(*state.positions, each))
        states = {each: replace(state, issues=tuple(trust.resolve(state.issues))) for each, state in states.items()}
        held, unknown = holdings_of(states, wanted, trust)
        inside = {token for each in states.values() for one in each.positions for token in one.tokens}
        await self._learn(about, inside, strangers)
        issues = [*self.reader.issues, *unstaked, *unasked, *unread]
        issues += [issue for account in accounts for issue in self.reader.unknown(account, interactions[account])]
        issues += account_index.gaps(self.chain.key, left, unindexed, len(candidates))
        issues += self._little_known(held, about)
        issues += reconciled.issues(self.tail, self.chain.key, accounts, natives=False)
        # Of the history alone: the balances of a portfolio are the chain's own.
        unexplained = account_index.unexplained(self.tail, self.chain, accounts)
        issues += [replace(issue, makes_partial=False) for issue in unexplained]
        reading = Reading(
            block=_read_at(states, block), states=states, held=tuple(held), about=about,
            unknown=tuple(unknown), issues=tuple(issues), moved=moved, no_days=no_days, fees=fees,
            collectibles=tuple(things),
        )  # fmt: skip
        for account in accounts:
            self.book.named(account, reading.own[account])
        return reading

    async def _staked(self, accounts: Sequence[str], block: Block) -> tuple[list[OpenPosition], list[Issue]]:
        """What the validators of accounts have, on a chain that has validators; nothing is read for no accounts."""
        return await self.stakes.of(accounts, block) if accounts and self.stakes is not None else ([], [])

    def _left(self, accounts: Sequence[str], block: Block) -> dict[str, Spans]:
        """The heights, by account, at which it may have met tokens that nobody knows of."""
        if self.reader.finds_tokens:
            return dict.fromkeys(accounts, Spans())
        return account_index.unindexed_transfers(self.tail, self.chain.key, block.height, accounts)

    def _plans(
        self,
        interactions: Mapping[str, Interactions],
        met: Mapping[str, Set[Asset]],
        wanted: Mapping[str, Mapping[Asset, bool]],
        moved: Mapping[str, Daily],
        about: About,
    ) -> dict[str, Plan[Any, Any, AccountState]]:
        """What to read of each account."""
        reader = self.reader.at(about.block)
        also = {asset for each in moved.values() for asset in each.assets}
        plans = {}
        for account, own in interactions.items():
            expected = self.book.expected(account, met[account])
            plans[account] = reader.read(
                account, own, tuple(wanted[account]), lambda held: about.ask({*held, *also}), about.expect(expected)
            )
        return plans

    async def _recent(self, block: Block) -> Collected | None:
        """The transfers of the newest blocks where the index does not have them yet: read from the node, so that what
        has just come is not missed. None where there are none, or the node does not give them."""
        top = None if self.reader.finds_tokens else self.tail.top(self.chain.key)
        if top is None or not top.height < block.height <= top.height + MOST_RECENT:
            return None
        try:
            found = await self.chain.collect(Span(top.height + 1, block.height), ("transfers",), before=top)
        except SourceError:
            return None
        return found if found.last is None or found.last.hash == block.hash else None

    def _owned(
        self, interactions: Mapping[str, Interactions], trust: Trust
    ) -> tuple[list[collectibles.Owned], list[Issue]]:
        """The collectibles to ask for, of all accounts, and an issue for each account that has more."""
        several = [collectibles.chosen(account, each, trust) for account, each in interactions.items()]
        return [pair for pairs, _ in several for pair in pairs], [issue for _, issues in several for issue in issues]

    async def _answered(
        self,
        plans: Mapping[str, Plan[Any, Any, AccountState]],
        block: Block,
        strangers: Set[str],
        things: Plan[Any, Any, collectibles.Read],
    ) -> tuple[dict[str, AccountState], collectibles.Read]:
        """All accounts together, and their collectibles; the decoders inside are bounded one by one."""
        both: dict[str, Plan[Any, Any, Any]] = {**plans, COLLECTIBLES: things}
        reports = await self._run(both, block, strangers)
        for report in reports.values():
            if report.result is None:
                raise report.error or BadAnswer(self.chain.key, report.reason)
        results = {account: report.result for account, report in reports.items() if report.result is not None}
        return results, results.pop(COLLECTIBLES)

    async def _run(
        self, plans: Mapping[str, Plan[Any, Any, Output]], block: Block, strangers: Set[str] = frozenset()
    ) -> dict[str, Report[Output]]:
        """Plans that may hold whole accounts, or whole source chains: what is inside them is bounded one by one. Reads
        of `strangers` are marked as untrusted."""
        return await run_batched(
            plans,
            lambda reads: self.chain.answer(marked(reads, strangers) if strangers else reads, block),
            max_rounds=MAX_ROUNDS,
            max_reads=MAX_READS,
        )

    async def now(self) -> Block:
        """The newest block that is indexed, where indexing keeps up with the head; else the head itself."""
        return self.indexed((await self.chain.heads()).latest)

    def indexed(self, head: Block) -> Block:
        """The newest block that is indexed, where indexing keeps up with that head; else the head itself."""
        top = self.tail.top(self.chain.key)
        return top if top is not None and head.height - MOST_RECENT <= top.height <= head.height else head

    def _wanted(self, met: Set[Asset], candidates: Set[Asset]) -> dict[Asset, bool]:
        """The tokens to ask for an account, and whether there is reason to think that it holds some."""
        wanted = (met | self._judge.listed | candidates) - {self.chain.info.also_at}
        return {asset: asset in met for asset in sorted(wanted, key=_reference)}

    def _candidates(self) -> frozenset[Asset]:
        """The tokens that an account may hold, for all that the index knows: those that public lists name."""
        lists = self.chain.settings.registry_lists
        return frozenset(self.book.registry.named_by(lists)) if lists and self.book.registry else frozenset()

    @property
    def asked_tokens(self) -> int:
        """How many tokens are asked of an account of which nothing is indexed."""
        return len(self._judge.listed | self._candidates())

    def _little_known(self, held: Sequence[Held], about: About) -> Iterator[Issue]:
        """An issue for each held token of the registry that few lists name and nobody priced."""
        priced = {price.asset for price in about.quotes.prices}
        for account, asset, _ in held:
            lists = self.book.registry.lists(asset) if self.book.registry else 0
            if lists and asset not in priced and not self.book.is_trusted(asset):
                reason = f"only {lists} public lists name this token and it has no price: it is in no sum"
                yield Issue("registry", asset.reference, reason, makes_partial=False, account=account)

    async def judge(
        self,
        pairs: Collection[tuple[str, Asset]],
        assets: Collection[Asset],
        block: Block,
        balances: dict[tuple[str, Asset], Any],
    ) -> tuple[dict[Asset, Token], dict[tuple[str, Asset], Spam]]:
        """What some tokens are at a block, and what of those that moved, by account and token, is taken for spam: by
        the rules of a portfolio at that block, and in one round. `balances` are known of that block; it learns more."""
        about, asked = await self._about(block), sorted(pair for pair in pairs if pair[1] not in self._judge.listed)
        plans: dict[str, Plan[Any, Any, Any]] = {
            "about": about.ask(assets),
            "held": self.chain.balances(unknown := [pair for pair in asked if pair not in balances]),
        }
        strangers = Trust(self._is_vouched).strangers({*assets, *(asset for _, asset in pairs)})
        reports = await self._run(plans, block, strangers)
        for report in reports.values():
            if report.error is not None:
                raise report.error
        await asyncio.to_thread(about.keep)
        balances |= zip(unknown, reports["held"].result or (), strict=True)
        held = [(*pair, balances[pair]) for pair in asked]
        own: dict[str, set[Asset]] = {account: {self.native.asset} for account, _ in asked}
        for account, token in asked:
            own[account].add(token)
        return about.tokens, await asyncio.to_thread(self._judge.spam, held, own, about, block.height)

    async def known(self, assets: Iterable[Asset], block: Block) -> About:
        """What some tokens and the native coin are and what can be said of their prices, at a block."""
        about = await self._about(block)
        await self._learn(about, assets)
        return about

    async def settle_prices(self) -> int:
        """Move the prices that are kept of blocks that are final by now to the lake, and drop those of blocks that have
        left the chain; how many were moved. One request where the index does not know the blocks."""
        store = self.store
        if store is None or not await asyncio.to_thread(store.waits):
            return 0
        final = (await self.chain.heads()).finalized
        moved, unknown = await asyncio.to_thread(store.settle, final)
        if unknown:
            blocks = await self.chain.blocks(unknown[:MAX_SETTLED])
            more, _ = await asyncio.to_thread(store.settle, final, {block.height: block.hash for block in blocks})
            moved += more
        return moved

    async def _about(self, block: Block) -> About:
        """What collects it at a block, with the prices that are kept of it."""
        if self.store is None:
            return About(self.chain, self.book, self.sources, block)
        known = await asyncio.to_thread(self.store.at, block)
        last = await asyncio.to_thread(self.store.recent, block, rules_of(self.sources).guards.step_days)
        return About(self.chain, self.book, self.sources, block, known, last, self.store)

    async def _learn(self, about: About, assets: Iterable[Asset], strangers: Set[str] = frozenset()) -> None:
        """Ask for what is still to be asked, and keep what contracts said of themselves."""
        reports = await self._run({"about": about.ask(assets)}, about.block, strangers)
        if (error := reports["about"].error) is not None:
            raise error
        await asyncio.to_thread(about.keep)


def assembled(chain: Chain, reading: Reading, judgement: Judgement, sources: Sequence[PriceSource]) -> Snapshot:
    """A reading and what is thought of it, as one snapshot. What could not be read comes in the order of its cause:
    balances, positions, prices, the index."""
    about, native = reading.about, chain.info.native
    tokens, quotes = about.tokens, about.quotes
    natives, unread = natives_of(reading.states, native)
    states = [issue for state in reading.states.values() for issue in state.issues]
    return Snapshot(
        chain=chain.key,
        block=reading.block,
        accounts=tuple(reading.states),
        holdings=(*natives, *(Holding(account, tokens[asset], raw) for account, asset, raw in reading.held)),
        prices=quotes.prices,
        issues=tuple(listed_apart([
            *unread, *judgement.issues, *reading.unknown, *states, *about.issues,
            *price_issues(quotes, reading.own, sources), *reading.issues,
        ])),
        positions=tuple(each.named(tokens) for each in judgement.positions),
        spam=judgement.spam,
        fees=tuple(Holding(account, native, raw) for account, raw in reading.fees.items()),
        days=tuple(_day(account, each, tokens) for account, each in reading.moved.items()),
        pegged=pegged(sources),
        no_days=reading.no_days,
        collectibles=reading.collectibles,
    )  # fmt: skip


def _read_at(states: Mapping[str, AccountState], asked: Block) -> Block:
    """The block that accounts were read at: the one asked for, or where a chain keeps no old state a newer one."""
    blocks = {state.block or asked for state in states.values()}
    if len(blocks) > 1:
        raise BadAnswer("engine", "accounts of one snapshot were read at several blocks")
    return next(iter(blocks), asked)


def _reference(asset: Asset) -> str:
    return asset.reference


def _day(account: str, moved: Daily, tokens: Mapping[Asset, Token]) -> Day:
    came, left = (
        tuple(Holding(account, tokens[asset], raw) for asset, raw in sorted(side.items()) if raw)
        for side in (moved.came, moved.left)
    )
    return Day(account, came, left)


def price_issues(quotes: Quotes, own: Mapping[str, Set[Asset]], sources: Sequence[PriceSource]) -> list[Issue]:
    """Why assets that a source has facts about have no price, and where sources disagree, to each account that has some
    of them. Only an unread feed makes the answer partial: without its price the sums are too low."""
    priced: set[Asset] = {price.asset for price in quotes.prices}
    guards = rules_of(sources).guards
    said = [
        (each.source, each.asset, each.reason, each.is_unread) for each in quotes.refused if each.asset not in priced
    ]
    said += [(each.source, each.asset, guards.disagreements(each), False) for each in quotes.prices if each.others]
    return [
        Issue(source, str(asset), reason, makes_partial=is_unread, account=account)
        for source, asset, reason, is_unread in said
        if reason
        for account, tokens in own.items()
        if asset in tokens
    ]
