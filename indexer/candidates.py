"""What an account met in the index: the tokens it may hold, and the contracts in which it may have something."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from chainfolio.blocks import Span, Spans
from chainfolio.contracts import Issue
from chainfolio.tables import ACCOUNT_EVENTS, LOGS, TRANSFERS
from indexer import ipc
from indexer.derive import of_events, pending
from portfolio.ledger import account_events

if TYPE_CHECKING:
    import polars as pl

    from storage.lake import Lake
    from storage.tail import Tail

ADAPTER = "index"
FUNGIBLE = ("erc20", "wrap", "unwrap")


class Named(NamedTuple):
    """An event that names an account: which topic does, from 1; the topics but the first; the data."""

    place: int
    topics: tuple[str, ...]
    data: bytes


@dataclass(frozen=True, slots=True)
class Encounters:
    """What an account met in its transfers: fungible tokens; tokens of ERC-721 collections that came to it, by
    collection; with whom it exchanged which tokens (None: native coins), and to whom it sent them.

    `events` that name it, by filter of the dataset of this name; `covered` are the filters that are indexed whole, so
    that an event which is not there was not written.
    """

    tokens: frozenset[str] = frozenset()
    ids: Mapping[str, frozenset[int]] = field(default_factory=dict)
    exchanged: Mapping[str, frozenset[str | None]] = field(default_factory=dict)
    sent: frozenset[str | None] = frozenset()
    events: Mapping[str, tuple[Named, ...]] = field(default_factory=dict)
    covered: frozenset[str] = frozenset()


def met(
    lake: Lake, tail: Tail, chain: str, account: str, height: int, events: Mapping[str, Spans] | None = None
) -> Encounters:
    """What an account met up to a height: in the tail, in what is not sorted yet, in its sorted history.

    `events`: filters to look for, each with the heights that nobody indexed, as `unheard` gave them before.

    In this order, which is the way that rows go: one that moves on meanwhile is met twice, and not missed.
    """
    import polars as pl

    own = pl.col("account") == account
    parts = []
    streams = [stream for _, stream in tail.rows(chain, "transfers", 0, height)]
    if streams:
        fresh = pl.from_arrow(ipc.load(streams, TRANSFERS))
        assert isinstance(fresh, pl.DataFrame)
        parts.append(_sides(fresh.lazy()).filter(own))
    for span in unsorted(tail, chain, "transfers", height):
        within = pl.col("height").is_between(span.first, span.last)
        parts.append(_sides(lake.scan(TRANSFERS, chain=chain).filter(within)).filter(own))
    parts.append(lake.account_transfers(chain, account, ("height", *KINDS)))
    rows = pl.concat([part.filter(pl.col("height") <= height).select(KINDS).unique() for part in parts]).unique()
    found = _encounters(rows.collect())
    if not events:
        return found
    covered = frozenset(event for event, left in events.items() if not left)
    return replace(found, events=_events(lake, tail, chain, account, height, events), covered=covered)


KINDS = ("direction", "counterparty", "standard", "token", "token_id")


def _sides(transfers: pl.LazyFrame) -> pl.LazyFrame:
    """Each transfer once from either side, in the columns of `account_transfers`."""
    import polars as pl

    rest = ("height", "standard", "token", "token_id")
    sides = [
        transfers.select(
            *rest, pl.lit(way).alias("direction"), pl.col(who).alias("account"), pl.col(other).alias("counterparty")
        )
        for way, who, other in (("in", "recipient", "sender"), ("out", "sender", "recipient"))
    ]
    return pl.concat(sides)


def _events(
    lake: Lake, tail: Tail, chain: str, account: str, height: int, filters: Collection[str]
) -> dict[str, tuple[Named, ...]]:
    """The distinct events of some filters that name an account, in the same order of places."""
    import polars as pl

    wanted = of_events(filters)
    parts = []
    streams = [stream for _, stream in tail.rows(chain, "logs", 0, height)]
    if streams:
        fresh = pl.from_arrow(ipc.load(streams, LOGS))
        assert isinstance(fresh, pl.DataFrame)
        parts.append(account_events(fresh.filter(wanted)))
    for span in unsorted(tail, chain, "events", height):
        within = pl.col("height").is_between(span.first, span.last)
        parts.append(account_events(lake.scan(LOGS, chain=chain).filter(within & wanted).collect()))
    parts = [part.filter(pl.col("account") == account).select(NAMED) for part in parts]
    parts.append(lake.of_account(ACCOUNT_EVENTS, chain, account, NAMED).filter(wanted).collect())
    rows = pl.concat(parts).filter(pl.col("height") <= height).select(NAMED[1:]).unique().sort(NAMED[1:])
    found: dict[str, list[Named]] = {}
    for address, topic0, place, *topics, data in rows.iter_rows():
        named = Named(place, tuple(topic for topic in topics if topic is not None), data)
        found.setdefault(f"{address}/{topic0}", []).append(named)
    return {event: tuple(several) for event, several in found.items()}


NAMED = ("height", "address", "topic0", "place", "topic1", "topic2", "topic3", "data")


def _encounters(rows: pl.DataFrame) -> Encounters:
    tokens: set[str] = set()
    ids, exchanged = defaultdict[str, set[int]](set), defaultdict[str, set[str | None]](set)
    sent: set[str | None] = set()
    for direction, counterparty, standard, token, token_id in rows.select(KINDS).iter_rows():
        exchanged[counterparty].add(token)
        if direction == "out":
            sent.add(token)
        if standard in FUNGIBLE:
            tokens.add(token)
        elif standard == "erc721" and direction == "in":
            ids[token].add(int.from_bytes(token_id, "big"))
    return Encounters(
        frozenset(tokens),
        {collection: frozenset(found) for collection, found in ids.items()},
        {other: frozenset(moved) for other, moved in exchanged.items()},
        frozenset(sent),
    )


def unsorted(tail: Tail, chain: str, source: str, height: int) -> Spans:
    """Heights at which a dataset is in the lake but not in the history of accounts yet."""
    behind = Spans()
    for filter_ in tail.cover_filters(chain, source):
        behind |= pending(tail, chain, source, filter_)
    return behind & [Span(0, height)]


def unheard(tail: Tail, chain: str, height: int, events: Collection[str]) -> dict[str, Spans]:
    """Some filters of the dataset `events`, each with the heights up to this one that nobody indexed."""
    return {event: Spans([Span(0, height)]) - tail.cover(chain, "events", event) for event in events}


def gaps(tail: Tail, chain: str, height: int, unheard: Mapping[str, Spans]) -> list[Issue]:
    """What the index cannot know about, as issues: blocks that nobody indexed, and contracts whose events are lacking
    in others."""
    left = Spans([Span(0, height)]) - tail.cover(chain, "transfers")
    reason = f"token transfers are not indexed for blocks {_some(left)}: what was met only there may be missing"
    return [*([Issue(ADAPTER, chain, reason)] if left else []), *_silences(unheard, left)]


def _silences(unheard: Mapping[str, Spans], known: Spans) -> Iterator[Issue]:
    """An issue for each contract whose events are lacking in more blocks than are known to be."""
    lacking: dict[str, Spans] = {}
    for event, spans in unheard.items():
        contract = event.partition("/")[0]
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
