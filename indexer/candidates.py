"""What an account met in the index: the tokens it may hold, and the contracts in which it may have something."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from chainfolio.blocks import Span, Spans
from chainfolio.contracts import Issue
from chainfolio.tables import TRANSFERS
from indexer import ipc
from indexer.derive import pending

if TYPE_CHECKING:
    import polars as pl

    from storage.lake import Lake
    from storage.tail import Tail

ADAPTER = "index"
FUNGIBLE = ("erc20", "wrap", "unwrap")


@dataclass(frozen=True, slots=True)
class Encounters:
    """What an account met in its transfers: fungible tokens; tokens of ERC-721 collections that came to it, by
    collection; with whom it exchanged which tokens (None: native coins), and to whom it sent them."""

    tokens: frozenset[str] = frozenset()
    ids: Mapping[str, frozenset[int]] = field(default_factory=dict)
    exchanged: Mapping[str, frozenset[str | None]] = field(default_factory=dict)
    sent: frozenset[str | None] = frozenset()

    def __or__(self, other: Encounters) -> Encounters:
        """What is in either."""
        none: frozenset[int] = frozenset()
        nothing: frozenset[str | None] = frozenset()
        mine, theirs = self.exchanged, other.exchanged
        return Encounters(
            self.tokens | other.tokens,
            {each: self.ids.get(each, none) | other.ids.get(each, none) for each in {*self.ids, *other.ids}},
            {each: mine.get(each, nothing) | theirs.get(each, nothing) for each in {*mine, *theirs}},
            self.sent | other.sent,
        )


def met(lake: Lake, tail: Tail, chain: str, account: str, height: int) -> Encounters:
    """What an account met up to a height: in the tail, in what is not sorted yet, in its sorted history.

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
    for span in unsorted(tail, chain, height):
        within = pl.col("height").is_between(span.first, span.last)
        parts.append(_sides(lake.scan(TRANSFERS, chain=chain).filter(within)).filter(own))
    parts.append(lake.account_transfers(chain, account, ("height", *KINDS)))
    rows = pl.concat([part.filter(pl.col("height") <= height).select(KINDS).unique() for part in parts]).unique()
    return _encounters(rows.collect())


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


def unsorted(tail: Tail, chain: str, height: int) -> Spans:
    """Heights whose transfers are in the lake but not in `account_transfers` yet."""
    behind = Spans()
    for filter_ in tail.cover_filters(chain, "transfers"):
        behind |= pending(tail, chain, "transfers", filter_)
    return behind & [Span(0, height)]


def gaps(tail: Tail, chain: str, height: int) -> Issue | None:
    """What the index cannot know about, as an issue: tokens met in blocks that nobody indexed."""
    left = Spans([Span(0, height)]) - tail.cover(chain, "transfers")
    if not left:
        return None
    spans = ", ".join(f"{span.first}..{span.last}" for span in list(left)[:3]) + (", …" if len(list(left)) > 3 else "")
    reason = f"token transfers are not indexed for blocks {spans}: tokens met only there may be missing"
    return Issue(ADAPTER, chain, reason)
