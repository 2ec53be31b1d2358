"""What accounts did, over all chains, as pages of one list: from the index, and from the node what the index lacks.

A page is cut from a total order, so pages that follow one another meet everything once, and one that is told where the
page before it ended goes on there, whatever came meanwhile. It is given only where nothing that nobody indexed could
stand in it or before it: else it is `NotIndexed`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace as changed

from chainfolio.addresses import rules_of
from chainfolio.assets import Asset
from chainfolio.blocks import Block, Span, Spans
from chainfolio.chains import Capability, Chain, IndexedTransaction, require_capability, times_at
from chainfolio.contracts import Issue, Token, TransactionDetails
from chainfolio.datasets import Dataset
from chainfolio.engine.answers import MAX_LOOKUPS, TransactionFilter
from chainfolio.engine.prices.past_prices import Prices
from chainfolio.engine.rows import check_ceiling
from chainfolio.engine.snapshots.snapshotter import LIVE_LAG_S, Snapshotter
from chainfolio.engine.stored_heads import StoredHeads
from chainfolio.engine.transactions.activities import Activities, indexed_hashes, indexed_transactions, missing, read
from chainfolio.engine.transactions.page_positions import Reached, reached, remaining
from chainfolio.engine.validators.stakes import PROTOCOL
from chainfolio.errors import HistoryUnavailable, NotIndexed, Unavailable, UnsupportedMethod
from chainfolio.indexer.scopes import indexed_for_all
from chainfolio.portfolio.activity import Activity, Functions, sort_activities
from chainfolio.portfolio.facts import ChainFacts, ProtocolFacts
from chainfolio.portfolio.poisoning import Counterparties
from chainfolio.portfolio.statement import RenderContext, assets_of, mentions, protocol_key, record, with_prices
from chainfolio.portfolio.transactions import TransactionDocument
from chainfolio.tables import TRANSACTIONS

if TYPE_CHECKING:
    from chainfolio.indexer.registry import Registry
    from chainfolio.storage.tail import Tail

PIECE: Final = 250  # activities that are made whole at a time, at first
MAX_PIECE: Final = 4000
FAR_FUTURE_US: Final = 2**63
Record = tuple[Activity, TransactionDocument]


@dataclass(frozen=True, slots=True)
class Subject:
    """One chain to read, and the accounts of its kind. `datasets` are those that its operator indexes."""

    snapshotter: Snapshotter
    shown: ChainFacts
    datasets: tuple[str, ...]
    accounts: tuple[str, ...]

    @property
    def key(self) -> str:
        """The chain's key."""
        return self.snapshotter.chain.key

    @property
    def issues(self) -> list[Issue]:
        """What the chain could say, and its index is not asked to know."""
        return [
            Issue(self.key, each.name, f"{each.loss} (dataset `{each.name}`)")
            for each in self._of_activity
            if each.loss and each.name not in self.datasets
        ]

    @property
    def wanted(self) -> tuple[str, ...]:
        """The datasets without which an answer would leave something out unsaid."""
        return tuple(each.name for each in self._of_activity if not each.loss or each.name in self.datasets)

    @property
    def _of_activity(self) -> list[Dataset]:
        """The datasets of the chain that say what accounts did, those first without which there is no answer."""
        every = self.snapshotter.chain.datasets.values()
        found = [each for each in every if each.in_activity and not each.reward_protocol]
        return sorted(found, key=lambda each: bool(each.loss))


@dataclass(frozen=True, slots=True)
class Hole:
    """A span that nobody indexed, and the times of its first and its last block."""

    chain: str
    dataset: str
    span: Span
    first_us: int
    last_us: int

    def error(self) -> NotIndexed:
        """What it makes of an answer that would need it."""
        return NotIndexed(self.chain, self.dataset, self.span.first, self.span.last)

    def is_clear(self, activity: Activity, newest_first: bool) -> bool:
        """Whether nothing of the hole could stand before an activity."""
        return activity.time_us > self.last_us if newest_first else activity.time_us < self.first_us


@dataclass(slots=True)
class Statement:
    """Answers one question about some accounts on some chains. `issues` is what could not be read for the answer,
    `unearned` what positions earned and is not indexed, `heads` how far the chains were.

    With `stored_heads`, chains whose nodes do not answer (`silent`) are answered from what is stored; without, the
    error of the node is raised."""

    registry: Registry
    functions: Functions
    most: int
    wanted: TransactionFilter
    issues: list[Issue] = field(default_factory=list)
    unearned: list[Issue] = field(default_factory=list)
    heads: dict[str, int] = field(default_factory=dict)
    stored_heads: StoredHeads | None = None
    max_lookups: int = MAX_LOOKUPS
    silent: set[str] = field(default_factory=set)
    _subjects: dict[str, Subject] = field(default_factory=dict)
    _histories: dict[str, Activities] = field(default_factory=dict)
    _holes: list[Hole] = field(default_factory=list)
    _balances: dict[tuple[str, Asset], Any] = field(default_factory=dict)  # at those blocks
    _judged_at: dict[str, Block] = field(default_factory=dict)
    _tokens: dict[str, dict[Asset, Token]] = field(default_factory=dict)
    _spam: set[tuple[str, Asset]] = field(default_factory=set)
    _counterparties: dict[str, dict[str, Counterparties]] = field(default_factory=dict)
    _lookups: int = 0

    async def page(self, subjects: Sequence[Subject]) -> tuple[list[TransactionDocument], Reached | None]:
        """One page, and how far it goes, None where it is the last. NotFound above the ceiling, NotIndexed where it
        would need what nobody indexed."""
        self._subjects = {subject.key: subject for subject in subjects}
        await asyncio.gather(*(self._read(subject) for subject in subjects))
        self._check()
        keys = await asyncio.to_thread(self._left)
        found = await self._cut(keys)
        if len(found) < self.wanted.limit and self._holes:
            raise self._nearest().error()
        documents = await self._priced(found)
        if len(found) < self.wanted.limit:
            return documents, None
        count = self.wanted.offset + len(found)
        return documents, reached(count, found[-1][0], keys, self._is_replaceable, self.wanted.after)

    def _left(self) -> list[Activity]:
        """Return the part of the list that was not read before, in its order."""
        keys, after = self._certain(), self.wanted.after
        return keys if after is None else remaining(keys, after, self.wanted.newest_first)

    def _is_replaceable(self, activity: Activity) -> bool:
        """Return True for rows of blocks that may still leave the chain."""
        return activity.height in self._histories[activity.chain].hashes

    def _certain(self) -> list[Activity]:
        """The keys in the order of the list, as far as nothing that nobody indexed could stand among them."""
        newest_first = self.wanted.newest_first
        clear = [
            key
            for history in self._histories.values()
            for key in history.keys
            if self._is_in_time(key) and all(hole.is_clear(key, newest_first) for hole in self._holes)
        ]
        return sort_activities(clear, newest_first)

    def _check(self) -> None:
        counts = Counter(key.account for history in self._histories.values() for key in history.keys)
        for account, count in counts.items():
            check_ceiling(account, count, self.most)

    def _is_in_time(self, key: Activity) -> bool:
        since_us, until_us = self.wanted.since_us, self.wanted.until_us
        return (since_us is None or key.time_us >= since_us) and (until_us is None or key.time_us <= until_us)

    # --- what is known ------------------------------------------------------------------------------------------------

    async def _read(self, subject: Subject) -> None:
        source, accounts = subject.snapshotter, subject.accounts
        latest = await self._head(source.chain)
        head = self.heads[subject.key] = latest.height
        self._judged_at[subject.key] = source.indexed_block(latest)
        lag = source.chain.info.blocks_in(LIVE_LAG_S)
        indexed_ranges, left = await asyncio.to_thread(
            missing, source.tail, subject.key, accounts, subject.wanted, head, lag
        )
        self.unearned += await asyncio.to_thread(_not_earned, source.tail, source.chain, accounts, indexed_ranges)
        self._histories[subject.key] = await asyncio.to_thread(
            read, source.lake, source.tail, subject.key, source.chain.info, accounts, indexed_ranges, self.most
        )
        await self._look_for_holes(subject, left)

    async def _head(self, chain: Chain) -> Block:
        """Return the newest block of a chain; the newest stored one, with an issue, if its node does not answer."""
        if self.stored_heads is None:
            return (await chain.heads()).latest
        head = await self.stored_heads.latest(chain)
        if head.issue is not None:
            self.silent.add(chain.key)
            self.issues.append(head.issue)
        return head.block

    async def _look_for_holes(self, subject: Subject, left: Spans) -> None:
        """Keep the first span in the way of the list, by the times of its ends: others come after it."""
        if not left:
            return
        spans = sorted(left, reverse=self.wanted.newest_first)
        if subject.key in self.silent:
            ends = [_bounds(span, self._histories[subject.key].keys) for span in spans]
        else:
            ends = await _ends(subject.snapshotter.chain, spans)
        for span, (first_us, last_us) in zip(spans, ends, strict=True):
            since_us, until_us = self.wanted.since_us, self.wanted.until_us
            if (until_us is None or first_us <= until_us) and (since_us is None or last_us >= since_us):
                tail = subject.snapshotter.tail
                lacks = {
                    name: len(Spans([span]) - indexed_for_all(tail, subject.key, name, subject.accounts))
                    for name in subject.wanted
                }
                self._holes.append(Hole(subject.key, max(lacks, key=lacks.__getitem__), span, first_us, last_us))
                return

    def _nearest(self) -> Hole:
        if self.wanted.newest_first:
            return max(self._holes, key=lambda hole: hole.last_us)
        return min(self._holes, key=lambda hole: hole.first_us)

    # --- what is shown ------------------------------------------------------------------------------------------------

    async def _cut(self, keys: Sequence[Activity]) -> list[Record]:
        first = self.wanted.offset - (self.wanted.after.count if self.wanted.after else 0)
        last = first + self.wanted.limit
        if not self._filters:
            return [each for piece in _pieces(keys[first:last]) for each in await self._records(piece)]
        found: list[Record] = []
        passed = 0
        grows = all("transactions" in subject.wanted for subject in self._subjects.values())
        for piece in _pieces(keys, MAX_PIECE if grows else PIECE):
            for each in await self._fitting(piece):
                passed += 1
                if passed > first:
                    found.append(each)
                if passed == last:
                    return found
        return found

    @property
    def _filters(self) -> bool:
        """Whether anything is asked that only a record can say. Dust has no sign while nothing past has a price."""
        wanted = self.wanted
        parts = (wanted.search, wanted.counterparties, wanted.types, wanted.protocols, wanted.hide_spam)
        return any(parts) or wanted.token_id is not None

    async def _fitting(self, piece: Sequence[Activity]) -> list[Record]:
        wanted = self.wanted
        protocols = {key for written in wanted.protocols for key in (written, protocol_key(written))}
        records = await self._records(piece, self._may_fit)
        return [
            (activity, document)
            for activity, document in records
            if (not wanted.types or document.type in wanted.types)
            and (not protocols or document.protocol.key in protocols)
            and (not wanted.counterparties or activity.counterparties & set(wanted.counterparties))
            and not (wanted.hide_spam and document.type == "SPAM")
        ]

    def _may_fit(self, activity: Activity) -> bool:
        """What the index alone says: whoever does not fit is not looked up."""
        number = self.wanted.token_id
        return number is None or any(move.asset.token_id == str(number) for move in activity.movements)

    async def _records(
        self, keys: Sequence[Activity], may_fit: Callable[[Activity], bool] = lambda activity: True
    ) -> list[Record]:
        """Keys with their records, in the order given, of one round each for tokens and for transactions."""
        found: dict[tuple[str, str, str], Record] = {}
        for chain, history in self._histories.items():
            subject = self._subjects[chain]
            ours = await asyncio.to_thread(history.whole, [key for key in keys if key.chain == chain])
            ours = [activity for activity in ours if may_fit(activity)]
            tokens = self._tokens.setdefault(chain, {})
            if chain in self.silent:
                await self._recall(subject, tokens, ours)
            else:
                self._spam |= await learn(subject.snapshotter, tokens, ours, self._judged_at[chain], self._balances)
            if search := self.wanted.search:
                native = subject.snapshotter.native
                ours = [activity for activity in ours if mentions(activity, tokens, native, search)]
            await asyncio.to_thread(self._meet, subject, history, {activity.account for activity in ours})
            context = self._context(subject, tokens)
            for activity in await self._looked_up(subject, history, ours):
                found[activity.chain, activity.account, activity.tx_hash] = activity, record(activity, context)
        places = ((key.chain, key.account, key.tx_hash) for key in keys)
        return [found[place] for place in places if place in found]

    async def _recall(self, subject: Subject, tokens: dict[Asset, Token], activities: Collection[Activity]) -> None:
        """Add to the known tokens what is stored of those that activities moved or allowed. None is taken for spam."""
        assets = _assets_of(activities) - tokens.keys()
        book = subject.snapshotter.book
        tokens |= await asyncio.to_thread(book.stored, assets)
        unlisted = len(assets - book.listed.keys())
        if unlisted and not any(issue.subject == "tokens" and issue.adapter == subject.key for issue in self.issues):
            reason = "names and decimals of tokens are those that were stored, and none is checked for spam"
            self.issues.append(Issue(subject.key, "tokens", f"the node does not answer: {reason}"))

    async def _priced(self, found: Sequence[Record]) -> list[TransactionDocument]:
        """The records of a page with the prices of their blocks, by one reading a chain."""
        here: dict[str, dict[Block, set[Asset]]] = {}
        for chain, some in _by_chain(found).items():
            blocks = await self._blocks(chain, {activity.height: activity.time_us for activity, _ in some})
            wanted, native = here.setdefault(chain, {}), self._native(chain)
            for activity, _ in some:
                wanted.setdefault(blocks[activity.height], set()).update(assets_of(activity, native))
        read = await asyncio.gather(*(self._prices(chain, wanted) for chain, wanted in here.items()))
        prices = {chain: prices for chain, (prices, _) in zip(here, read, strict=True)}
        self.issues += [issue for _, issues in read for issue in issues]
        withdrew = await self._withdrew([activity for activity, _ in found if activity.is_of_protocol])
        return [
            with_prices(
                document if (own := withdrew.get(activity.sort_key)) is None else changed(document, validators=own),
                self._native(activity.chain),
                prices[activity.chain][activity.height],
            )
            for activity, document in found
        ]

    async def _prices(self, chain: str, wanted: Mapping[Block, set[Asset]]) -> tuple[Prices, list[Issue]]:
        source = self._subjects[chain].snapshotter
        if chain not in self.silent:
            return await source.past.prices(wanted)
        anchor = source.tail.anchor(chain)
        return await source.past.stored(wanted, -1 if anchor is None else anchor.height)

    async def _withdrew(self, paid: Sequence[Activity]) -> dict[tuple[Any, ...], tuple[int, ...]]:
        """The validators of withdrawals, by the place of the activity, where a beacon chain is indexed."""
        found: dict[tuple[Any, ...], tuple[int, ...]] = {}
        for chain in {activity.chain for activity in paid}:
            own = [activity for activity in paid if activity.chain == chain]
            if (stakes := self._subjects[chain].snapshotter.stakes) is not None:
                times = {activity.time_us for activity in own}
                known = await stakes.withdrawing_validators({activity.account for activity in own}, times)
                places = ((each.sort_key, known.get((each.account, each.time_us), ())) for each in own)
                found |= {place: tuple(validators) for place, validators in places if validators}
        return found

    def _native(self, chain: str) -> Asset:
        return self._subjects[chain].snapshotter.native.asset

    async def _blocks(self, chain: str, times: Mapping[int, int]) -> dict[int, Block]:
        """Blocks of the index by their heights, without a hash where none is kept."""
        kept = self._histories[chain].hashes
        lake = self._subjects[chain].snapshotter.lake
        hashes = {**await asyncio.to_thread(indexed_hashes, lake, chain, times.keys() - kept.keys()), **kept}
        return {height: Block(height, hashes.get(height, ""), "", time_us) for height, time_us in times.items()}

    def _meet(self, subject: Subject, history: Activities, accounts: set[str]) -> None:
        """Find out whom accounts dealt with."""
        counterparties = self._counterparties.setdefault(subject.key, {})
        chain, listed = subject.snapshotter.chain, subject.snapshotter.book.listed
        rules = rules_of(chain.kind)
        for account in accounts - counterparties.keys():
            counterparties[account] = history.counterparties_of(account, listed, rules)

    def _context(self, subject: Subject, tokens: Mapping[Asset, Token]) -> RenderContext:
        def protocol_of(contract: str) -> ProtocolFacts | None:
            held = self.registry.of(contract, (subject.key,))
            return self.registry.facts[held[0][1].key] if held else None

        source = subject.snapshotter
        return RenderContext(
            subject.shown,
            source.native,
            tokens,
            frozenset(source.book.listed),
            protocol_of,
            self.functions,
            self._counterparties.get(subject.key, {}),
            source.chain.info.also_at,
            self._spam,
            rules_of(source.chain.kind).burn_addresses,
            self.registry.facts.get(PROTOCOL),
            self._staking(source.chain),
            source.chain.info.fee_collectors,
            self.wanted.options,
        )

    def _staking(self, chain: Chain) -> ProtocolFacts | None:
        """The protocol whose positions earn on a chain."""
        keys = [each.reward_protocol for each in chain.datasets.values() if each.reward_protocol]
        return self.registry.facts.get(keys[0]) if keys else None

    async def _looked_up(self, subject: Subject, history: Activities, ours: list[Activity]) -> list[Activity]:
        """Return activities with what their transactions say: those that name the account are at hand, others are read
        once, and stored."""
        source = subject.snapshotter
        ours = [replace(each, details=_of_protocol(each)) if each.is_of_protocol else each for each in ours]
        unknown = [activity for activity in ours if activity.details is None]
        stored = await asyncio.to_thread(indexed_transactions, source.lake, source.tail, subject.key, unknown)
        others = [each.tx_hash for each in unknown if each.tx_hash not in stored]
        lookups = await asyncio.to_thread(source.tail.lookups, subject.key, others)
        stored |= {each: msgspec.json.decode(details, type=TransactionDetails) for each, details in lookups.items()}
        asked = {activity.tx_hash: activity for activity in unknown if activity.tx_hash not in stored}
        self._lookups += len(asked)
        self._check_lookups(source.chain, [activity.height for activity in asked.values()])
        if asked and subject.key in self.silent:
            raise Unavailable(subject.key, "the node does not answer, and not all of these transactions are stored")
        final = {activity.height for activity in asked.values()} - history.hashes.keys()
        hashes = {**await asyncio.to_thread(indexed_hashes, source.lake, subject.key, final), **history.hashes}
        known = [
            IndexedTransaction(
                tx_hash, one.height, one.tx_index, one.time_us // 1_000_000, hashes.get(one.height), one.height in final
            )
            for tx_hash, one in asked.items()
        ]
        if known:
            found = await require_capability(source.chain, Capability.TRANSACTIONS).look_up(known)
            stored |= {each.tx_hash: details for each, details in zip(known, found, strict=True)}
            blocks = [None if each.final else each.block_hash or "" for each in known]
            rows = [
                (each.tx_hash, each.height, block_hash, msgspec.json.encode(details))
                for each, block_hash, details in zip(known, blocks, found, strict=True)
            ]
            await asyncio.to_thread(source.tail.add_lookups, subject.key, rows)
        return [one if one.details else replace(one, details=stored[one.tx_hash]) for one in ours]

    def _check_lookups(self, chain: Chain, heights: Sequence[int]) -> None:
        """NotIndexed where the index has to say what the chain cannot be asked, or not so often; Incapable where
        neither could ever say it."""
        if not heights:
            return
        if all(each.table is not TRANSACTIONS for each in chain.datasets.values()):
            require_capability(chain, Capability.TRANSACTIONS)
        if self._lookups > self.max_lookups or Capability.TRANSACTIONS not in chain.capabilities:
            raise NotIndexed(chain.key, "transactions", min(heights), max(heights))


def _not_earned(tail: Tail, chain: Chain, accounts: Sequence[str], indexed: Spans) -> list[Issue]:
    """What positions earned and nobody indexed, of heights of which all else is known."""
    return [
        Issue(chain.key, each.name, f"{each.loss} from block {left[0].first} on (dataset `{each.name}`)")
        for each in chain.datasets.values()
        if each.reward_protocol
        if (left := list(indexed - indexed_for_all(tail, chain.key, each.name, accounts)))
    ]


def _of_protocol(activity: Activity) -> TransactionDetails:
    """What stands in the place of a transaction where there is none: nobody sent it, and nobody paid for it."""
    return TransactionDetails(activity.movements[0].counterparty, activity.account, None, 0, 0, False, b"")


def _bounds(span: Span, keys: Sequence[Activity]) -> tuple[int, int]:
    """Return moments between which a span lies, by the activities of its chain around it."""
    below = [key.time_us for key in keys if key.height < span.first]
    above = [key.time_us for key in keys if key.height > span.last]
    return max(below, default=0) + bool(below), min(above, default=FAR_FUTURE_US) - bool(above)


async def _ends(chain: Chain, spans: Sequence[Span]) -> list[tuple[int, int]]:
    """The times of the first and the last block of spans. Blocks that no node has any more may be of any time: nothing
    is taken for certain before or behind them."""
    try:
        times = await times_at(chain, {end for span in spans for end in (span.first, span.last)})
    except (HistoryUnavailable, UnsupportedMethod):
        return [(0, FAR_FUTURE_US) for _ in spans]
    return [(times[span.first], times[span.last]) for span in spans]


def _by_chain(found: Sequence[Record]) -> dict[str, list[Record]]:
    chains: dict[str, list[Record]] = {}
    for each in found:
        chains.setdefault(each[0].chain, []).append(each)
    return chains


def _pieces(keys: Sequence[Activity], most: int = PIECE) -> Iterator[Sequence[Activity]]:
    """Pieces each twice as long as the one before, so that a filter that finds little reads the lake a few times."""
    start, size = 0, PIECE
    while start < len(keys):
        yield keys[start : start + size]
        start, size = start + size, min(2 * size, most)


async def learn(
    snapshotter: Snapshotter,
    known: dict[Asset, Token],
    activities: Collection[Activity],
    block: Block,
    balances: dict[tuple[str, Asset], Any],
) -> set[tuple[str, Asset]]:
    """Add to the known tokens those that activities moved or allowed, as they are at a block. By account and token,
    what of those that moved is taken for spam, as a portfolio at that block would say it. `balances` are known of that
    block; it learns more."""
    listed = snapshotter.book.listed
    moves = [(each.account, move.asset.collection) for each in activities for move in each.movements]
    moved = {pair for pair in moves if not pair[1].is_native}
    assets = _assets_of(activities)
    known |= {asset: listed[asset] for asset in assets & listed.keys()}
    if assets <= listed.keys():
        return set()
    tokens, spam = await snapshotter.judge(moved, assets - listed.keys(), block, balances)
    known |= tokens
    return set(spam)


def _assets_of(activities: Collection[Activity]) -> set[Asset]:
    """Return the tokens and collections that activities moved or allowed."""
    moved = {move.asset.collection for each in activities for move in each.movements}
    allowed = {permission.asset for each in activities for permission in each.permissions}
    return {asset for asset in moved if not asset.is_native} | allowed
