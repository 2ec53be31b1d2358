"""What accounts met in the index: the tokens they may hold, and the contracts in which they may have something."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING

from chainfolio.assets import Asset
from chainfolio.blocks import Span, Spans
from chainfolio.contracts import Issue
from chainfolio.interactions import EventRow, Interactions, contract_of
from chainfolio.tables import ACCOUNT_EVENTS, ACCOUNT_TRANSFERS
from engine.rows import rows_of
from indexer.materialise import of_events
from indexer.scopes import indexed_for

if TYPE_CHECKING:
    import pyarrow as pa

    from chainfolio.chains import Chain, ChainInfo
    from storage.lake import Lake
    from storage.tail import Tail

ADAPTER = "index"
EVENTS, TRANSFERS = "events", "transfers"
NOTHING = bytes(32)
KINDS = ("account", "direction", "counterparty", "standard", "token", "token_id")
NAMED = ("account", "address", "topic0", "place", "topic1", "topic2", "topic3", "data")


def interactions_of(
    lake: Lake,
    tail: Tail,
    chain: str,
    accounts: Sequence[str],
    height: int,
    info: ChainInfo,
    events: Mapping[str, Mapping[str, Spans]] | None = None,
    recent: pa.Table | None = None,
) -> dict[str, Interactions]:
    """What accounts met up to a height, by account, read once for all of them; also in `recent` transfers that are not
    indexed yet.

    `events`: by account the filters to look for, each with the heights that nobody indexed, as `unindexed` gave them
    before.
    """
    import polars as pl

    from portfolio.ledger import by_account

    kinds = [*(pl.col(name) for name in KINDS), (pl.col("raw") != NOTHING).alias("moved")]
    rows = rows_of(lake, tail, chain, ACCOUNT_TRANSFERS, accounts, kinds, span=Span(0, height))
    if recent is not None:
        own = by_account(ACCOUNT_TRANSFERS, pl.LazyFrame(recent)).filter(pl.col("account").is_in(accounts))
        rows = pl.concat([rows, own.filter(pl.col("height") <= height).select(kinds).collect()]).unique()
    assets: dict[tuple[str, str | None], Asset] = {}
    gathered = {account: _Gathered(info, assets) for account in accounts}
    for account, *row in rows.iter_rows():
        gathered[account].add(*row)
    interactions = {account: each.interactions for account, each in gathered.items()}
    filters = {event for own in (events or {}).values() for event in own}
    if not events or not filters:
        return interactions
    named = _events(lake, tail, chain, accounts, height, filters)
    covered = {account: frozenset(event for event, left in own.items() if not left) for account, own in events.items()}
    return {
        account: replace(each, events=named[account], covered=covered[account])
        for account, each in interactions.items()
    }


def _events(
    lake: Lake, tail: Tail, chain: str, accounts: Sequence[str], height: int, filters: Collection[str]
) -> dict[str, dict[str, tuple[EventRow, ...]]]:
    """The distinct events of some filters that name accounts, by account."""
    rows = rows_of(lake, tail, chain, ACCOUNT_EVENTS, accounts, NAMED, span=Span(0, height), where=of_events(filters))
    events: dict[str, dict[str, list[EventRow]]] = {account: {} for account in accounts}
    for row in rows.sort(NAMED).iter_rows(named=True):
        events[row["account"]].setdefault(f"{row['address']}/{row['topic0']}", []).append(row)
    return {account: {event: tuple(several) for event, several in own.items()} for account, own in events.items()}


@dataclass(slots=True)
class _Gathered:
    """What one account met so far. `assets` are those of all accounts, each made once."""

    info: ChainInfo
    assets: dict[tuple[str, str | None], Asset]
    tokens: set[Asset] = field(default_factory=set)
    ids: defaultdict[Asset, set[int]] = field(default_factory=lambda: defaultdict(set))
    left_ids: defaultdict[Asset, set[int]] = field(default_factory=lambda: defaultdict(set))
    exchanged: defaultdict[str, set[Asset]] = field(default_factory=lambda: defaultdict(set))
    sent: defaultdict[str, set[Asset]] = field(default_factory=lambda: defaultdict(set))

    def add(
        self, direction: str, counterparty: str, standard: str, token: str | None, token_id: bytes | None, moved: bool
    ) -> None:
        """Take in one kind of its transfers; anybody can make one of nothing (`moved`) in its name."""
        number = None if token_id is None else int.from_bytes(token_id, "big")
        asset = self.assets.get((standard, token))
        if asset is None:
            asset = self.assets[standard, token] = self.info.asset(standard, token, number).collection
        self.exchanged[counterparty].add(asset)
        if direction == "out" and moved:
            self.sent[counterparty].add(asset)
        if number is not None:
            (self.ids if direction == "in" else self.left_ids)[asset].add(number)
        elif not asset.is_native:
            self.tokens.add(asset)

    @property
    def interactions(self) -> Interactions:
        """All of it, for good."""
        return Interactions(
            frozenset(self.tokens),
            {collection: frozenset(ids) for collection, ids in self.ids.items()},
            {other: frozenset(tokens) for other, tokens in self.exchanged.items()},
            {other: frozenset(tokens) for other, tokens in self.sent.items()},
            left_ids={collection: frozenset(ids) for collection, ids in self.left_ids.items()},
        )


def unindexed(
    tail: Tail, chain: str, height: int, events: Collection[str], accounts: Collection[str]
) -> dict[str, dict[str, Spans]]:
    """By account, some filters of the dataset `events`, each with the heights up to this one that nobody indexed. All
    events that name an account are among those that are indexed of it alone."""
    whole = Spans([Span(0, height)])
    left = {event: whole - tail.indexed_ranges(chain, EVENTS, event) for event in events}
    own = {account: indexed_for(tail, chain, EVENTS, account) for account in accounts}
    return {account: {event: spans - own[account] for event, spans in left.items()} for account in accounts}


def unindexed_transfers(tail: Tail, chain: str, height: int, accounts: Collection[str]) -> dict[str, Spans]:
    """By account, the heights up to this one whose transfers nobody indexed."""
    whole = Spans([Span(0, height)])
    return {account: whole - indexed_for(tail, chain, TRANSFERS, account) for account in accounts}


def gaps(
    chain: str, left: Mapping[str, Spans], unindexed: Mapping[str, Mapping[str, Spans]], candidates: int = 0
) -> list[Issue]:
    """What the index cannot know about, as issues by account: blocks without transfers (`left`), and contracts whose
    events are lacking in others (`unindexed`). So many `candidates` were asked in the place of what is `left`."""
    found: dict[tuple[Issue, ...], list[str]] = {}
    whose = next(iter(left)) if len(left) == 1 else "ADDRESS"
    remedy = f"; chainfolio watch {whose} --chain {chain} reads it"
    for account, events in unindexed.items():
        issues = tuple(_gaps(chain, left[account], events, candidates, remedy))
        found.setdefault(issues, []).append(account)
    if len(found) == 1:  # about everybody who was asked for
        return list(next(iter(found)))
    own = [(issue, account) for issues, several in found.items() for issue in issues for account in several]
    return [replace(issue, account=account) for issue, account in own]


def unexplained(tail: Tail, chain: Chain, accounts: Collection[str]) -> Iterator[Issue]:
    """What was noticed and not found when accounts were read alone, an issue for each account: movements of theirs are
    missing. What is indexed of everybody by now lacks nothing."""
    places = [
        tail.indexed_ranges(chain.key, each.name) for each in chain.datasets.values() if each.by_account == "places"
    ]
    whole = reduce(Spans.__and__, places) if places else Spans()
    for account in accounts:
        left = [row for row in tail.unexplained(chain.key, account) if not whole.covers(Span(row[0], row[0]))]
        if left:
            height, asset, raw, reason = left[0]
            what = f"block {height}: {raw} of {asset}: {reason}" if raw else f"up to block {height}: {reason}"
            more = f" (and {len(left) - 1} more; chainfolio status lists them)" if left[1:] else ""
            yield Issue(ADAPTER, chain.key, f"movements may be missing: {what}{more}", account=account)


def _gaps(chain: str, left: Spans, events: Mapping[str, Spans], candidates: int, remedy: str) -> Iterator[Issue]:
    """What one account lacks: heights without transfers, and contracts whose events are lacking in others."""
    if left:
        reason = f"token transfers are not indexed for blocks {_some(left)}: what was met only there may be missing"
        but = f", except the {candidates:,} tokens that public lists name" if candidates else ""
        yield Issue(ADAPTER, chain, f"{reason}{but}{remedy}")
    lacking: dict[str, Spans] = {}
    for event, spans in events.items():
        contract = contract_of(event)
        lacking[contract] = lacking.get(contract, Spans()) | (spans - left)
    for contract, spans in lacking.items():
        if spans:
            reason = f"events of {contract} are not indexed for blocks {_some(spans)}"
            reason += ": what others put there for an account may be missing (dataset `events`)"
            yield Issue(ADAPTER, contract, reason)


def _some(spans: Spans) -> str:
    """The first few spans, to be read."""
    several = [f"{span.first}..{span.last}" for span in spans]
    return ", ".join([*several[:3], *(["…"] if len(several) > 3 else [])])
