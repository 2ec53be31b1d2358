"""What accounts met in the index: the tokens they may hold, and the contracts in which they may have something."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from chainfolio.blocks import Span, Spans
from chainfolio.contracts import Issue
from chainfolio.events import contract_of
from chainfolio.interactions import Interactions, NamedEvent
from chainfolio.tables import ACCOUNT_EVENTS, ACCOUNT_TRANSFERS, LOGS, TRANSFERS
from indexer import arrow_ipc
from indexer.materialise import of_events, pending
from portfolio.ledger import account_events

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

    from storage.lake import Lake
    from storage.tail import Tail

ADAPTER = "index"
FUNGIBLE, COLLECTIBLE = ("erc20", "wrap", "unwrap"), "erc721"
NOTHING = bytes(32)


def interactions_of(
    lake: Lake,
    tail: Tail,
    chain: str,
    accounts: Sequence[str],
    height: int,
    events: Mapping[str, Spans] | None = None,
    recent: pa.Table | None = None,
) -> dict[str, Interactions]:
    """What accounts met up to a height, by account: in the tail, in what is not sorted yet, in sorted histories, each
    read once for all of them, and in `recent` transfers that are not indexed yet.

    `events`: filters to look for, each with the heights that nobody indexed, as `unindexed` gave them before.

    In this order, which is the way that rows go: one that moves on meanwhile is met twice, and not missed.
    """
    import polars as pl

    own = pl.col("account").is_in(accounts)
    parts = []
    streams = [stream for _, stream in tail.rows(chain, "transfers", 0, height)]
    if streams:
        fresh = pl.from_arrow(arrow_ipc.load(streams, TRANSFERS))
        assert isinstance(fresh, pl.DataFrame)
        parts.append(_sides(fresh.lazy()).filter(own))
    for span in unsorted(tail, chain, "transfers", height):
        within = pl.col("height").is_between(span.first, span.last)
        parts.append(_sides(lake.scan(TRANSFERS, chain=chain, heights=[span]).filter(within)).filter(own))
    parts.append(lake.of_accounts(ACCOUNT_TRANSFERS, chain, accounts, ("height", *KINDS, "raw")))
    if recent is not None:
        parts.append(_sides(pl.LazyFrame(recent)).filter(own))
    kinds = (*KINDS, (pl.col("raw") != NOTHING).alias("moved"))
    rows = pl.concat([part.filter(pl.col("height") <= height).select(kinds).unique() for part in parts]).unique()
    found = {account: _Gathered() for account in accounts}
    for account, *row in rows.collect().iter_rows():
        found[account].add(*row)
    interactions = {account: gathered.interactions for account, gathered in found.items()}
    if not events:
        return interactions
    covered = frozenset(event for event, left in events.items() if not left)
    named = _events(lake, tail, chain, accounts, height, events)
    return {account: replace(each, events=named[account], covered=covered) for account, each in interactions.items()}


KINDS = ("account", "direction", "counterparty", "standard", "token", "token_id")


def _sides(transfers: pl.LazyFrame) -> pl.LazyFrame:
    """Each transfer once from either side, in the columns of `account_transfers`."""
    import polars as pl

    rest = ("height", "standard", "token", "token_id", "raw")
    sides = [
        transfers.select(
            *rest, pl.lit(way).alias("direction"), pl.col(who).alias("account"), pl.col(other).alias("counterparty")
        )
        for way, who, other in (("in", "recipient", "sender"), ("out", "sender", "recipient"))
    ]
    return pl.concat(sides)


def _events(
    lake: Lake, tail: Tail, chain: str, accounts: Sequence[str], height: int, filters: Collection[str]
) -> dict[str, dict[str, tuple[NamedEvent, ...]]]:
    """The distinct events of some filters that name accounts, by account, in the same order of places."""
    distinct = ("account", *NAMED[1:])
    rows = event_rows(lake, tail, chain, accounts, height, filters, distinct).sort(distinct)
    found: dict[str, dict[str, list[NamedEvent]]] = {account: {} for account in accounts}
    for account, address, topic0, place, *topics, data in rows.iter_rows():
        named = NamedEvent(place, tuple(topic for topic in topics if topic is not None), data)
        found[account].setdefault(f"{address}/{topic0}", []).append(named)
    return {account: {event: tuple(several) for event, several in events.items()} for account, events in found.items()}


def event_rows(
    lake: Lake, tail: Tail, chain: str, accounts: Sequence[str], height: int, filters: Collection[str],
    columns: Sequence[str],
) -> pl.DataFrame:  # fmt: skip
    """Rows of `account_events` of some filters that name accounts, up to a height; each of its columns chosen once, in
    no order."""
    import polars as pl

    wanted = of_events(filters)
    parts = []
    streams = [stream for _, stream in tail.rows(chain, "logs", 0, height)]
    if streams:
        fresh = pl.from_arrow(arrow_ipc.load(streams, LOGS))
        assert isinstance(fresh, pl.DataFrame)
        parts.append(account_events(fresh.filter(wanted)))
    for span in unsorted(tail, chain, "events", height):
        within = pl.col("height").is_between(span.first, span.last)
        parts.append(account_events(lake.scan(LOGS, chain=chain, heights=[span]).filter(within & wanted).collect()))
    by_account = tuple(dict.fromkeys(("account", "height", *columns)))
    read = tuple(dict.fromkeys((*by_account, "address", "topic0")))
    parts = [part.filter(pl.col("account").is_in(accounts)).select(by_account) for part in parts]
    parts.append(lake.of_accounts(ACCOUNT_EVENTS, chain, accounts, read).filter(wanted).select(by_account).collect())
    return pl.concat(parts).filter(pl.col("height") <= height).select(columns).unique()


NAMED = ("height", "address", "topic0", "place", "topic1", "topic2", "topic3", "data")


@dataclass(slots=True)
class _Gathered:
    """What one account met so far."""

    tokens: set[str] = field(default_factory=set)
    ids: defaultdict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    exchanged: defaultdict[str, set[str | None]] = field(default_factory=lambda: defaultdict(set))
    sent: defaultdict[str, set[str | None]] = field(default_factory=lambda: defaultdict(set))

    def add(self, direction: str, counterparty: str, standard: str, token: str, token_id: bytes, moved: bool) -> None:
        """Take in one kind of its transfers; anybody can make one of nothing (`moved`) in its name."""
        self.exchanged[counterparty].add(token)
        if direction == "out" and moved:
            self.sent[counterparty].add(token)
        if standard in FUNGIBLE:
            self.tokens.add(token)
        elif standard == COLLECTIBLE and direction == "in":
            self.ids[token].add(int.from_bytes(token_id, "big"))

    @property
    def interactions(self) -> Interactions:
        """All of it, for good."""
        return Interactions(
            frozenset(self.tokens),
            {collection: frozenset(found) for collection, found in self.ids.items()},
            {other: frozenset(tokens) for other, tokens in self.exchanged.items()},
            {other: frozenset(tokens) for other, tokens in self.sent.items()},
        )


def unsorted(tail: Tail, chain: str, source: str, height: int) -> Spans:
    """Heights at which a dataset is in the lake but not in the history of accounts yet."""
    behind = Spans()
    for filter_ in tail.indexed_filters(chain, source):
        behind |= pending(tail, chain, source, filter_)
    return behind & [Span(0, height)]


def unindexed(tail: Tail, chain: str, height: int, events: Collection[str]) -> dict[str, Spans]:
    """Some filters of the dataset `events`, each with the heights up to this one that nobody indexed."""
    return {event: Spans([Span(0, height)]) - tail.indexed_ranges(chain, "events", event) for event in events}


def gaps(
    tail: Tail, chain: str, height: int, unindexed: Mapping[str, Spans], recent: Span | None = None
) -> list[Issue]:
    """What the index cannot know about, as issues: blocks that nobody indexed, and contracts whose events are lacking
    in others. The transfers of `recent` blocks were read from the node."""
    left = Spans([Span(0, height)]) - tail.indexed_ranges(chain, "transfers")
    left -= Spans([recent] if recent else [])
    reason = f"token transfers are not indexed for blocks {_some(left)}: what was met only there may be missing"
    return [*([Issue(ADAPTER, chain, reason)] if left else []), *_silences(unindexed, left)]


def _silences(unindexed: Mapping[str, Spans], known: Spans) -> Iterator[Issue]:
    """An issue for each contract whose events are lacking in more blocks than are known to be."""
    lacking: dict[str, Spans] = {}
    for event, spans in unindexed.items():
        contract = contract_of(event)
        lacking[contract] = lacking.get(contract, Spans()) | (spans - known)
    for contract, spans in lacking.items():
        if spans:
            reason = f"events of {contract} are not indexed for blocks {_some(spans)}"
            reason += ": what others put there for an account may be missing (dataset `events`)"
            yield Issue(ADAPTER, contract, reason)


def _some(spans: Spans) -> str:
    """The first few spans, to be read."""
    several = [f"{span.first}..{span.last}" for span in spans]
    return ", ".join([*several[:3], *(["…"] if len(several) > 3 else [])])
