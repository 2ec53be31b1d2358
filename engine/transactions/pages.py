"""Pages of the activities of accounts over all chains, from the index and, for missing rows, nodes.

A page is a slice of a total order, so the pages of a list show each record once. A page that starts at the end of an
earlier one goes on there, whatever blocks came meanwhile. If an unindexed record could stand in a page or before it,
the page raises `NotIndexed`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace as with_fields

from chainfolio.addresses import rules_of
from chainfolio.assets import Asset
from chainfolio.blocks import Block, Spans
from chainfolio.chains import Chain
from chainfolio.contracts import Issue, Token, TransactionDetails
from chainfolio.engine.results import ListPosition, TransactionFilter
from chainfolio.engine.rows import check_transaction_count
from chainfolio.engine.snapshots.snapshotter import LIVE_LAG_S, Snapshotter
from chainfolio.engine.stored_heads import StoredHeads
from chainfolio.engine.stored_prices.past_prices import Prices
from chainfolio.engine.transactions.activities import Activities, indexed_hashes, missing, read_activities
from chainfolio.engine.transactions.index_gaps import IndexGap, bounds, end_times
from chainfolio.engine.transactions.lookups import Lookups
from chainfolio.engine.transactions.page_positions import position_after, remaining
from chainfolio.engine.transactions.page_tokens import PageTokens
from chainfolio.engine.transactions.subjects import Subject
from chainfolio.engine.validators.stakes import PROTOCOL
from chainfolio.indexer.scopes import indexed_for_all
from chainfolio.portfolio.activity import Activity, Functions, sort_activities
from chainfolio.portfolio.facts import ProtocolFacts
from chainfolio.portfolio.pnl.trade_value import PriceKey, PriceKind, Strength
from chainfolio.portfolio.poisoning import Counterparties
from chainfolio.portfolio.statement import RenderContext, assets_of, mentions, protocol_key, records_of, with_prices
from chainfolio.portfolio.transactions import TransactionDocument, is_dust, may_be_dust
from chainfolio.pricing.rules import rules_of as rules_of_prices

if TYPE_CHECKING:
    from chainfolio.indexer.registry import Registry
    from chainfolio.storage.tail import Tail

PIECE: Final = 250  # activities of the first piece, which get their rows together
MAX_PIECE: Final = 4000
Record = tuple[Activity, TransactionDocument]


@dataclass(slots=True)
class Statement:
    """Reads one page of activities of accounts on some chains.

    Attributes:
        max_transactions: Maximum per account.
        issues: What could not be read for the page.
        reward_issues: Rewards of positions that are not indexed.
        heads: Height of the head of each chain.
        stored_heads: If given, chains whose nodes do not answer are read from the store; else their error is raised.
        silent: Keys of the chains that are read from the store.
        strengths: The strengths of the page's prices, where they are no feeds.
        lookups: Reads the transactions that are not in the index.
        progress: Gets the number of records that were read, and of those that will be.
    """

    registry: Registry
    functions: Functions
    max_transactions: int
    filters: TransactionFilter
    issues: list[Issue] = field(default_factory=list)
    reward_issues: list[Issue] = field(default_factory=list)
    heads: dict[str, int] = field(default_factory=dict)
    stored_heads: StoredHeads | None = None
    lookups: Lookups = field(default_factory=Lookups)
    progress: Callable[[int, int], None] = lambda done, total: None
    silent: set[str] = field(default_factory=set)
    strengths: dict[PriceKey, Strength] = field(default_factory=dict)
    _subjects: dict[str, Subject] = field(default_factory=dict)
    _histories: dict[str, Activities] = field(default_factory=dict)
    _gaps: list[IndexGap] = field(default_factory=list)
    _tokens: dict[str, PageTokens] = field(default_factory=dict)
    _counterparties: dict[str, dict[str, Counterparties]] = field(default_factory=dict)

    async def page(self, subjects: Sequence[Subject]) -> tuple[list[TransactionDocument], ListPosition | None]:
        """Return one page in the order of the list, and its end; None on the last page.

        Records that are not in the index are read from nodes and stored. Errors of `Lookups.with_details` are raised
        too.

        Raises:
            NotFound: An account has more than `max_transactions`.
            NotIndexed: The page needs a span that is not indexed.
            SourceError: A node does not answer, and there are no `stored_heads`.
        """
        self._subjects = {subject.key: subject for subject in subjects}
        await asyncio.gather(*(self._read(subject) for subject in subjects))
        self._check()
        keys = await asyncio.to_thread(self._unread_keys)
        records = await self._page_records(keys)
        if len(records) < self.filters.limit and self._gaps:
            raise self._nearest_gap().error()
        documents = await self._priced(records)
        if len(records) < self.filters.limit:
            return documents, None
        count = self.filters.offset + len(records)
        return documents, position_after(count, records[-1][0], keys, self._is_replaceable, self.filters.after)

    def _unread_keys(self) -> list[Activity]:
        """Return the unread part of the list, in its order."""
        keys, after = self._certain_keys(), self.filters.after
        return keys if after is None else remaining(keys, after, self.filters.newest_first)

    def _is_replaceable(self, activity: Activity) -> bool:
        """Return True for rows of blocks that may still leave the chain."""
        return activity.height in self._histories[activity.chain].hashes

    def _certain_keys(self) -> list[Activity]:
        """Return the keys within the requested time in the order of the list, without those behind a gap."""
        newest_first = self.filters.newest_first
        clear = [
            key
            for history in self._histories.values()
            for key in history.keys
            if self._is_in_time(key) and all(gap.is_clear(key, newest_first) for gap in self._gaps)
        ]
        return sort_activities(clear, newest_first)

    def _check(self) -> None:
        counts = Counter(key.account for history in self._histories.values() for key in history.keys)
        for account, count in counts.items():
            check_transaction_count(account, count, self.max_transactions)

    def _is_in_time(self, key: Activity) -> bool:
        since_us, until_us = self.filters.since_us, self.filters.until_us
        return (since_us is None or key.time_us >= since_us) and (until_us is None or key.time_us <= until_us)

    # --- reading the index --------------------------------------------------------------------------------------------

    async def _read(self, subject: Subject) -> None:
        """Store a chain's head, activities, gaps of the index and issues of rewards for the page."""
        source, accounts = subject.snapshotter, subject.accounts
        latest = await self._head(source.chain)
        head = self.heads[subject.key] = latest.height
        self._tokens[subject.key] = PageTokens(source, source.indexed_block(latest))
        lag = source.chain.info.blocks_in(LIVE_LAG_S)
        indexed_ranges, gaps = await asyncio.to_thread(
            missing, source.tail, subject.key, accounts, subject.required_datasets, head, lag
        )
        self.reward_issues += await asyncio.to_thread(
            _reward_issues, source.tail, source.chain, accounts, indexed_ranges
        )
        limit = self.max_transactions
        self._histories[subject.key] = await asyncio.to_thread(
            read_activities, source.lake, source.tail, subject.key, source.chain.info, accounts, indexed_ranges, limit
        )
        await self._find_gap(subject, gaps)

    async def _head(self, chain: Chain) -> Block:
        """Return the newest block of a chain; the newest stored one, with an issue, without its node."""
        if self.stored_heads is None:
            return (await chain.heads()).latest
        head = await self.stored_heads.latest(chain)
        if head.issue is not None:
            self.silent.add(chain.key)
            self.issues.append(head.issue)
        return head.block

    async def _find_gap(self, subject: Subject, gaps: Spans) -> None:
        """Store the first missing span, in the order of the list, that overlaps the requested time."""
        if not gaps:
            return
        spans = sorted(gaps, reverse=self.filters.newest_first)
        if subject.key in self.silent:
            ends = [bounds(span, self._histories[subject.key].keys) for span in spans]
        else:
            ends = await end_times(subject.snapshotter.chain, spans)
        for span, (first_us, last_us) in zip(spans, ends, strict=True):
            since_us, until_us = self.filters.since_us, self.filters.until_us
            if (until_us is None or first_us <= until_us) and (since_us is None or last_us >= since_us):
                tail = subject.snapshotter.tail
                counts = {
                    name: len(Spans([span]) - indexed_for_all(tail, subject.key, name, subject.accounts))
                    for name in subject.required_datasets
                }
                self._gaps.append(IndexGap(subject.key, max(counts, key=counts.__getitem__), span, first_us, last_us))
                return

    def _nearest_gap(self) -> IndexGap:
        if self.filters.newest_first:
            return max(self._gaps, key=lambda gap: gap.last_us)
        return min(self._gaps, key=lambda gap: gap.first_us)

    # --- records of the page ------------------------------------------------------------------------------------------

    async def _page_records(self, keys: Sequence[Activity]) -> list[Record]:
        """Return the page's records: `offset` and `limit` count only those that pass the filters."""
        first = self.filters.offset - (self.filters.after.count if self.filters.after else 0)
        end = first + self.filters.limit
        if not self._needs_records:
            return await self._all_records(keys[first:end])
        records: list[Record] = []
        matched = 0
        grows = all("transactions" in subject.required_datasets for subject in self._subjects.values())
        for piece in _pieces(keys, MAX_PIECE if grows else PIECE):
            for each in await self._matching(piece):
                matched += 1
                if matched > first:
                    records.append(each)
                if matched == end:
                    return records
        return records

    async def _all_records(self, keys: Sequence[Activity]) -> list[Record]:
        """Return the records of all keys, read piece by piece; their tokens are read together."""
        records: list[Record] = []
        for chain in self._histories:
            await self._add_tokens(chain, [key for key in keys if key.chain == chain])
        for piece in _pieces(keys, MAX_PIECE):
            records += await self._records(piece)
            self.progress(len(records), len(keys))
        return records

    @property
    def _needs_records(self) -> bool:
        """Return True if a filter needs the records themselves."""
        filters = self.filters
        parts = (filters.search, filters.counterparties, filters.types, filters.protocols)
        return any(parts) or filters.hide_spam or filters.hide_dust or filters.token_id is not None

    async def _matching(self, piece: Sequence[Activity]) -> list[Record]:
        """Return the records of a piece that pass the filters; without dust if the filters hide it."""
        filters = self.filters
        protocols = {key for protocol in filters.protocols for key in (protocol, protocol_key(protocol))}
        records = await self._records(piece, self._may_match)
        matching = [
            (activity, document)
            for activity, document in records
            if (not filters.types or document.type in filters.types)
            and (not protocols or document.protocol.key in protocols)
            and (not filters.counterparties or activity.counterparties & set(filters.counterparties))
            and not (filters.hide_spam and document.type == "SPAM")
        ]
        return await self._without_dust(matching) if filters.hide_dust else matching

    async def _without_dust(self, records: Sequence[Record]) -> list[Record]:
        """Return the records without dust, at the prices of their blocks."""
        candidates = [(activity, document) for activity, document in records if may_be_dust(document)]
        row_ids = [_row_id(activity) for activity, _ in candidates]
        priced = zip(row_ids, await self._priced(candidates), strict=True)
        dust = {row_id for row_id, document in priced if is_dust(document)}
        return [(activity, document) for activity, document in records if _row_id(activity) not in dust]

    def _may_match(self, activity: Activity) -> bool:
        """Return False if the index alone shows that an activity does not match."""
        number = self.filters.token_id
        return number is None or any(move.asset.token_id == str(number) for move in activity.movements)

    async def _records(
        self, keys: Sequence[Activity], may_match: Callable[[Activity], bool] = lambda activity: True
    ) -> list[Record]:
        """Return the records of the keys that may match and mention the searched text, in their order.

        Tokens and transactions take one round each per chain. Transactions that are read are stored.
        """
        records: dict[tuple[str, str, str], Record] = {}
        for chain, history in self._histories.items():
            subject = self._subjects[chain]
            activities = await asyncio.to_thread(history.with_rows, [key for key in keys if key.chain == chain])
            activities = [activity for activity in activities if may_match(activity)]
            await self._add_tokens(chain, activities)
            tokens = self._tokens[chain].tokens
            if search := self.filters.search:
                native = subject.snapshotter.native
                activities = [activity for activity in activities if mentions(activity, tokens, native, search)]
            await asyncio.to_thread(
                self._read_counterparties, subject, history, {activity.account for activity in activities}
            )
            context = self._context(subject, tokens)
            detailed = await self._with_details(subject, history, activities)
            documents = zip(detailed, records_of(detailed, context), strict=True)
            records |= {_row_id(each[0]): each for each in documents}
        return [records[row_id] for row_id in map(_row_id, keys) if row_id in records]

    async def _add_tokens(self, chain: str, keys: Sequence[Activity]) -> None:
        """Add the tokens of activities to those of the page; stored ones if no node of the chain answers."""
        moved = await asyncio.to_thread(self._histories[chain].moved_tokens, keys)
        if chain not in self.silent:
            await self._tokens[chain].add(moved)
        elif (issue := await self._tokens[chain].add_stored(moved.assets)) is not None and issue not in self.issues:
            self.issues.append(issue)

    async def _priced(self, records: Sequence[Record]) -> list[TransactionDocument]:
        """Return the documents of a page with the prices at their blocks: one read per chain.

        Issues of unread prices and the strengths of prices are added to the statement.
        """
        assets_by_block: dict[str, dict[Block, set[Asset]]] = {}
        for chain, chain_records in _by_chain(records).items():
            blocks = await self._blocks(chain, {activity.height: activity.time_us for activity, _ in chain_records})
            assets, native = assets_by_block.setdefault(chain, {}), self._native(chain)
            for activity, _ in chain_records:
                assets.setdefault(blocks[activity.height], set()).update(assets_of(activity, native))
        results = await asyncio.gather(*(self._prices(chain, assets) for chain, assets in assets_by_block.items()))
        prices = {chain: prices for chain, (prices, _) in zip(assets_by_block, results, strict=True)}
        for chain, chain_prices in prices.items():
            self.strengths |= _strengths(self._subjects[chain].snapshotter, chain_prices)
        self.issues += [issue for _, issues in results for issue in issues]
        withdrew = await self._withdrawing_validators([activity for activity, _ in records if activity.is_of_protocol])
        return [
            with_prices(
                document if (ids := withdrew.get(activity.sort_key)) is None else with_fields(document, validators=ids),
                self._native(activity.chain),
                prices[activity.chain][activity.height],
            )
            for activity, document in records
        ]

    async def _prices(self, chain: str, assets_by_block: Mapping[Block, set[Asset]]) -> tuple[Prices, list[Issue]]:
        """Return prices by block and issues; only stored ones if no node of the chain answers."""
        source = self._subjects[chain].snapshotter
        if chain not in self.silent:
            return await source.past.prices(assets_by_block)
        anchor = source.tail.anchor(chain)
        return await source.past.stored(assets_by_block, -1 if anchor is None else anchor.height)

    async def _withdrawing_validators(self, activities: Sequence[Activity]) -> dict[tuple[Any, ...], tuple[int, ...]]:
        """Return the validators of withdrawals by the sort key of the activity, if a beacon chain is indexed."""
        validators: dict[tuple[Any, ...], tuple[int, ...]] = {}
        for chain in {activity.chain for activity in activities}:
            of_chain = [activity for activity in activities if activity.chain == chain]
            if (stakes := self._subjects[chain].snapshotter.stakes) is not None:
                times = {activity.time_us for activity in of_chain}
                by_payment = await stakes.withdrawing_validators({activity.account for activity in of_chain}, times)
                by_sort_key = ((each.sort_key, by_payment.get((each.account, each.time_us), ())) for each in of_chain)
                validators |= {sort_key: tuple(indexes) for sort_key, indexes in by_sort_key if indexes}
        return validators

    def _native(self, chain: str) -> Asset:
        return self._subjects[chain].snapshotter.native.asset

    async def _blocks(self, chain: str, times: Mapping[int, int]) -> dict[int, Block]:
        """Return indexed blocks by height, with an empty hash if none is stored."""
        recent = self._histories[chain].hashes
        lake = self._subjects[chain].snapshotter.lake
        hashes = {**await asyncio.to_thread(indexed_hashes, lake, chain, times.keys() - recent.keys()), **recent}
        return {height: Block(height, hashes.get(height, ""), "", time_us) for height, time_us in times.items()}

    def _read_counterparties(self, subject: Subject, history: Activities, accounts: set[str]) -> None:
        """Cache the counterparties of the accounts."""
        counterparties = self._counterparties.setdefault(subject.key, {})
        chain, listed = subject.snapshotter.chain, subject.snapshotter.book.listed
        rules = rules_of(chain.kind)
        for account in accounts - counterparties.keys():
            counterparties[account] = history.counterparties_of(account, listed, rules)

    def _context(self, subject: Subject, tokens: Mapping[Asset, Token]) -> RenderContext:
        """Return what records of a chain are rendered with."""

        @cache
        def protocol_of(contract: str) -> ProtocolFacts | None:
            entries = self.registry.of(contract, (subject.key,))
            return self.registry.facts[entries[0][1].key] if entries else None

        source = subject.snapshotter
        return RenderContext(
            subject.facts,
            source.native,
            tokens,
            frozenset(source.book.listed),
            protocol_of,
            self.functions,
            self._counterparties.get(subject.key, {}),
            source.chain.info.also_at,
            self._tokens[subject.key].spam,
            rules_of(source.chain.kind).burn_addresses,
            self.registry.facts.get(PROTOCOL),
            self._staking(source.chain),
            source.chain.info.fee_collectors,
            self.filters.options,
            cache(source.is_trusted_contract),
        )

    def _staking(self, chain: Chain) -> ProtocolFacts | None:
        """Return the protocol of a chain's staking rewards."""
        keys = [each.reward_protocol for each in chain.datasets.values() if each.reward_protocol]
        return self.registry.facts.get(keys[0]) if keys else None

    async def _with_details(self, subject: Subject, history: Activities, activities: list[Activity]) -> list[Activity]:
        """Return the activities with the details of their transactions."""
        activities = [
            replace(each, details=_protocol_details(each)) if each.is_of_protocol else each for each in activities
        ]
        return await self.lookups.with_details(
            subject.snapshotter, history, activities, is_silent=subject.key in self.silent
        )


def _reward_issues(tail: Tail, chain: Chain, accounts: Sequence[str], indexed: Spans) -> list[Issue]:
    """Return issues for the rewards of positions that are not indexed, at heights where all else is."""
    return [
        Issue(chain.key, each.name, f"{each.loss} from block {gaps[0].first} on (dataset `{each.name}`)")
        for each in chain.datasets.values()
        if each.reward_protocol
        if (gaps := list(indexed - indexed_for_all(tail, chain.key, each.name, accounts)))
    ]


def _strengths(source: Snapshotter, prices: Prices) -> dict[PriceKey, Strength]:
    """Return the strengths of prices of stable assets and of prices from a market; other prices have none."""
    rules, chain = rules_of_prices(source.sources), source.chain.key
    strengths: dict[PriceKey, Strength] = {}
    for height, block_prices in prices.items():
        for asset, price in block_prices.items():
            if rules.class_of(asset) == "stable":
                strengths[chain, height, asset.shown_contract] = Strength(PriceKind.STABLE)
            elif price.depth_usd is not None:
                strengths[chain, height, asset.shown_contract] = Strength(PriceKind.MARKET, price.depth_usd)
    return strengths


def _protocol_details(activity: Activity) -> TransactionDetails:
    """Return the details of an activity without a transaction: it has no sender and no fee."""
    return TransactionDetails(activity.movements[0].counterparty, activity.account, None, 0, 0, False, b"")


def _by_chain(records: Sequence[Record]) -> dict[str, list[Record]]:
    chains: dict[str, list[Record]] = {}
    for each in records:
        chains.setdefault(each[0].chain, []).append(each)
    return chains


def _row_id(activity: Activity) -> tuple[str, str, str]:
    return activity.chain, activity.account, activity.tx_hash


def _pieces(keys: Sequence[Activity], max_size: int = PIECE) -> Iterator[Sequence[Activity]]:
    """Yield pieces, each twice as long as the one before.

    A filter with few matches then reads the lake only a few times.
    """
    start, size = 0, PIECE
    while start < len(keys):
        yield keys[start : start + size]
        start, size = start + size, min(2 * size, max_size)
