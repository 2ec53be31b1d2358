"""Which tokens an account may hold: all it ever met in the index, and the list. Where there is an index, both."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chainfolio.blocks import Span, Spans
from chainfolio.contracts import Issue
from chainfolio.tables import TRANSFERS
from indexer import ipc
from indexer.derive import pending

if TYPE_CHECKING:
    from storage.lake import Lake
    from storage.tail import Tail

ADAPTER = "index"
FUNGIBLE = ("erc20", "wrap", "unwrap")


def met(lake: Lake, tail: Tail, chain: str, account: str, height: int) -> set[str]:
    """The fungible tokens in the account's transfers up to a height: the tail, what is not sorted yet, sorted history.

    In this order, which is the way that rows go: one that moves on meanwhile is met twice, and not missed.
    """
    import polars as pl

    def tokens(rows: pl.LazyFrame) -> set[str]:
        own = rows.filter(pl.col("standard").is_in(FUNGIBLE), pl.col("height") <= height)
        return set(own.select(pl.col("token").unique()).collect()["token"].to_list())

    mine = (pl.col("sender") == account) | (pl.col("recipient") == account)
    found: set[str] = set()
    streams = [stream for _, stream in tail.rows(chain, "transfers", 0, height)]
    if streams:
        fresh = pl.from_arrow(ipc.load(streams, TRANSFERS))
        assert isinstance(fresh, pl.DataFrame)
        found |= tokens(fresh.lazy().filter(mine))
    for span in unsorted(tail, chain, height):
        within = pl.col("height").is_between(span.first, span.last)
        found |= tokens(lake.scan(TRANSFERS, chain=chain).filter(mine, within))
    return found | tokens(lake.account_transfers(chain, account, ("standard", "height", "token")))


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
