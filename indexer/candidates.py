"""What accounts met in the index: the tokens they may hold, and the contracts in which they may have something."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from chainfolio.blocks import Span, Spans
from chainfolio.contracts import Issue
from chainfolio.tables import ACCOUNT_TRANSFERS, TRANSFERS
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


def met(lake: Lake, tail: Tail, chain: str, accounts: Sequence[str], height: int) -> dict[str, Encounters]:
    """What accounts met up to a height, by account: in the tail, in what is not sorted yet, in sorted histories, each
    read once for all of them.

    In this order, which is the way that rows go: one that moves on meanwhile is met twice, and not missed.
    """
    import polars as pl

    own = pl.col("account").is_in(accounts)
    parts = []
    streams = [stream for _, stream in tail.rows(chain, "transfers", 0, height)]
    if streams:
        fresh = pl.from_arrow(ipc.load(streams, TRANSFERS))
        assert isinstance(fresh, pl.DataFrame)
        parts.append(_sides(fresh.lazy()).filter(own))
    for span in unsorted(tail, chain, height):
        within = pl.col("height").is_between(span.first, span.last)
        parts.append(_sides(lake.scan(TRANSFERS, chain=chain).filter(within)).filter(own))
    parts.append(lake.of_accounts(ACCOUNT_TRANSFERS, chain, accounts, ("height", *KINDS)))
    rows = pl.concat([part.filter(pl.col("height") <= height).select(KINDS).unique() for part in parts]).unique()
    found = {account: _Gathered() for account in accounts}
    for account, *row in rows.collect().iter_rows():
        found[account].add(*row)
    return {account: gathered.encounters for account, gathered in found.items()}


KINDS = ("account", "direction", "counterparty", "standard", "token", "token_id")


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


@dataclass(slots=True)
class _Gathered:
    """What one account met so far."""

    tokens: set[str] = field(default_factory=set)
    ids: defaultdict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    exchanged: defaultdict[str, set[str | None]] = field(default_factory=lambda: defaultdict(set))
    sent: set[str | None] = field(default_factory=set)

    def add(self, direction: str, counterparty: str, standard: str, token: str, token_id: bytes) -> None:
        """Take in one kind of its transfers."""
        self.exchanged[counterparty].add(token)
        if direction == "out":
            self.sent.add(token)
        if standard in FUNGIBLE:
            self.tokens.add(token)
        elif standard == "erc721" and direction == "in":
            self.ids[token].add(int.from_bytes(token_id, "big"))

    @property
    def encounters(self) -> Encounters:
        """All of it, for good."""
        return Encounters(
            frozenset(self.tokens),
            {collection: frozenset(found) for collection, found in self.ids.items()},
            {other: frozenset(moved) for other, moved in self.exchanged.items()},
            frozenset(self.sent),
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
