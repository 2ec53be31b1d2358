"""Approvals that accounts gave, as mined, newest first, a page at a time; and what the approved tokens are worth now.

A page goes down from a place (height and log index), so blocks that come meanwhile change no later page. It ends where
the index ends: below that is `NotIndexed`, which is not the same as no more approvals.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from chainfolio import amounts
from chainfolio.blocks import Span, Spans
from chainfolio.contracts import Price, Token
from chainfolio.engine.answers import Approval, ApprovedAsset, Place
from chainfolio.engine.rows import rows_of
from chainfolio.engine.snapshots.index_view import MAX_UNINDEXED_BLOCKS
from chainfolio.engine.snapshots.snapshotter import Snapshotter
from chainfolio.errors import BadRequest, NotIndexed, SourceError
from chainfolio.indexer.scopes import indexed_for_all
from chainfolio.plans import Plan, run_batched
from chainfolio.portfolio.valuation import market_value
from chainfolio.positions import MAX_ROUNDS
from chainfolio.pricing.quotes import Quotes
from chainfolio.pricing.source_chain import query_sources
from chainfolio.tables import ACCOUNT_APPROVALS, APPROVALS

if TYPE_CHECKING:
    from chainfolio.storage.lake import Lake
    from chainfolio.storage.tail import Tail

COLUMNS: Final = (
    "account",
    "height",
    "tx_index",
    "log_index",
    "time",
    "tx_hash",
    "token",
    "spender",
    "token_id",
    "raw",
    "approved",
)
AMOUNT: Final = "raw"  # the column that an approval of an amount fills; others allow collectibles
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
STALE: Final = "the chain has changed since that page: begin again without a cursor"


def page(
    lake: Lake,
    tail: Tail,
    chain: str,
    owners: Sequence[str],
    limit: int,
    start: Place | int,
    lag: int = MAX_UNINDEXED_BLOCKS,
) -> tuple[list[Approval], Place | None]:
    """Up to `limit` approvals, and the place to go on from (None: there are no more).

    `start` is the chain's head for the newest, or the place that an earlier page ended at. BadRequest where that place
    has left the chain; NotIndexed where the index does not reach, or is more than `lag` blocks behind the head.
    """
    covered = _covered(tail, chain, owners, start, lag)
    wanted = limit + (2 if isinstance(start, Place) else 1)
    rows = _rows(lake, tail, chain, owners, covered, wanted, start)
    if isinstance(start, Place):
        if not rows or rows[0].place != start:
            raise BadRequest("cursor", STALE)
        rows = rows[1:]
    items = rows[:limit]
    if len(rows) > limit or (items and covered.first > 0):
        return items, items[-1].place
    if covered.first > 0:
        raise _hole(tail, chain, owners, covered.first - 1)
    return items, None


def check_whole(tail: Tail, chain: str, owners: Sequence[str], head: int, lag: int) -> None:
    """NotIndexed where a block up to the head (or close to it) is not indexed."""
    covered = _covered(tail, chain, owners, head, lag)
    if covered.first > 0:
        raise _hole(tail, chain, owners, covered.first - 1)


def _covered(tail: Tail, chain: str, owners: Sequence[str], start: Place | int, lag: int) -> Span:
    """The span of the index to read, from where the page starts down to where nothing is indexed."""
    spans = list(indexed_for_all(tail, chain, APPROVALS.name, owners))
    if isinstance(start, Place):
        for span in spans:
            if start.height in span:
                return Span(span.first, start.height)
        raise BadRequest("cursor", STALE)
    if not spans or spans[-1].last < start - lag:
        raise NotIndexed(chain, APPROVALS.name, spans[-1].last + 1 if spans else 0, start)
    return spans[-1]


def _hole(tail: Tail, chain: str, owners: Sequence[str], last: int) -> NotIndexed:
    """What is missing below a span."""
    missing = Spans([Span(0, last)]) - indexed_for_all(tail, chain, APPROVALS.name, owners)
    first = max((span.first for span in missing), default=0)
    return NotIndexed(chain, APPROVALS.name, first, last)


def _rows(
    lake: Lake, tail: Tail, chain: str, owners: Sequence[str], span: Span, wanted: int, start: Place | int
) -> list[Approval]:
    """The newest rows from the start on."""
    import polars as pl

    mine = pl.col(AMOUNT).is_not_null()
    if isinstance(start, Place):
        below = pl.col("height") < start.height
        mine &= below | ((pl.col("height") == start.height) & (pl.col("log_index") <= start.log_index))
    rows = rows_of(lake, tail, chain, ACCOUNT_APPROVALS, owners, COLUMNS, span=span, where=mine)
    newest = rows.sort("height", "log_index", descending=True).head(wanted)
    return [approval(row) for row in newest.iter_rows(named=True)]


def approval(row: Mapping[str, Any]) -> Approval:
    """An approval of an amount, from a row of `account_approvals`."""
    place = Place(row["height"], row["log_index"], row["tx_hash"])
    raw = amounts.raw_from_bytes(row["raw"])
    return Approval(place, time_us(row["time"]), row["token"], row["account"], row["spender"], raw)


def time_us(time: datetime) -> int:
    """A moment of a table in microseconds."""
    return (time - EPOCH) // timedelta(microseconds=1)


# --- what the tokens are worth now -----------------------------------------------------------------------------------


async def assets(snapshotter: Snapshotter, pairs: Iterable[tuple[str, str]]) -> dict[tuple[str, str], ApprovedAsset]:
    """What accounts hold now of some tokens, by (account, token): only where balance, decimals and price are known.

    One round beside what the price sources need. Where the node does not answer, nothing is known.
    """
    wanted = sorted(set(pairs))
    if not wanted:
        return {}
    chain, info = snapshotter.chain, snapshotter.chain.info
    tokens = {token: info.token_asset(token) for _, token in wanted}
    try:
        block = await snapshotter.newest_block()
        book = snapshotter.book.described_at(tokens.values(), block)
        plans: dict[str, Plan[Any, Any, Any]] = {
            "balances": chain.balances([(account, tokens[token]) for account, token in wanted]),
            "tokens": chain.describe([asset for asset in tokens.values() if asset not in book]),
            "prices": query_sources(snapshotter.sources, tokens.values(), block),
        }
        reports = await run_batched(plans, lambda reads: chain.answer(reads, block), max_rounds=MAX_ROUNDS)
    except SourceError:
        return {}
    quotes: Quotes = reports["prices"].result or Quotes()
    raws = dict(zip(wanted, reports["balances"].result or (), strict=False))
    described = book | (reports["tokens"].result or {})
    token_at = {contract: described[asset] for contract, asset in tokens.items()}
    prices = {price.asset: price for price in quotes.prices}
    return {
        pair: _asset(token_at[pair[1]], raw, prices[token_at[pair[1]].asset])
        for pair, raw in raws.items()
        if isinstance(raw, int) and token_at[pair[1]].asset in prices and token_at[pair[1]].decimals is not None
    }


def _asset(token: Token, raw: int, price: Price) -> ApprovedAsset:
    assert token.decimals is not None, "only tokens with decimals are asked for"
    held = amounts.amount(raw, token.decimals)
    return ApprovedAsset(token.symbol, token.name, token.decimals, held, price.usd, market_value(held, price))
