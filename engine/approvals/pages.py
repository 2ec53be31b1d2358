"""Pages of approval events, newest first, and the holdings of the approved tokens.

A page goes down from a position (height and log index), so new blocks change no later page. Where the index ends the
list raises `NotIndexed`: missing blocks are not an empty list.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from chainfolio import amounts
from chainfolio.assets import Asset
from chainfolio.blocks import Span, Spans
from chainfolio.contracts import Price, Token
from chainfolio.engine.results import Approval, ApprovedAsset, EventPosition
from chainfolio.engine.rows import ChainIndex, rows_of
from chainfolio.engine.snapshots.index_view import MAX_UNINDEXED_BLOCKS
from chainfolio.engine.snapshots.snapshotter import Snapshotter
from chainfolio.errors import BadRequest, NotIndexed
from chainfolio.indexer.scopes import indexed_for_all
from chainfolio.plans import Plan, run_batched
from chainfolio.portfolio.valuation import market_value
from chainfolio.positions import MAX_ROUNDS, BalanceResult
from chainfolio.price_sources import Quotes
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
AMOUNT: Final = "raw"  # filled by approvals of an amount, null for those of collectibles
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
STALE: Final = "the chain has changed since that page: begin again without a cursor"


def approvals_page(
    lake: Lake,
    tail: Tail,
    chain: str,
    owners: Sequence[str],
    limit: int,
    start: EventPosition | int,
    lag: int = MAX_UNINDEXED_BLOCKS,
) -> tuple[list[Approval], EventPosition | None]:
    """Return up to `limit` approvals of amounts, newest first, and the position of the next page.

    Approvals of 0 are included. The position is None only if the page reaches block 0.

    Args:
        start: The chain's head for the newest approvals, or the position at which an earlier page ended.
        lag: Blocks that the index may be behind the head.

    Raises:
        BadRequest: The position has left the chain.
        NotIndexed: Blocks of the page are not indexed, or the index lags too far behind the head.
    """
    span = _indexed_span(tail, chain, owners, start, lag)
    row_count = limit + (2 if isinstance(start, EventPosition) else 1)
    rows = _rows(lake, tail, chain, owners, span, row_count, start)
    if isinstance(start, EventPosition):
        if not rows or rows[0].position != start:
            raise BadRequest("cursor", STALE)
        rows = rows[1:]
    items = rows[:limit]
    if len(rows) > limit or (items and span.first > 0):
        return items, items[-1].position
    if span.first > 0:
        raise _not_indexed(tail, chain, owners, span.first - 1)
    return items, None


def check_complete(tail: Tail, chain: str, owners: Sequence[str], head: int, lag: int) -> None:
    """Raise NotIndexed if a block up to the head (less `lag`) is not indexed."""
    span = _indexed_span(tail, chain, owners, head, lag)
    if span.first > 0:
        raise _not_indexed(tail, chain, owners, span.first - 1)


def _indexed_span(tail: Tail, chain: str, owners: Sequence[str], start: EventPosition | int, lag: int) -> Span:
    """Return the indexed span to read, from the start of the page down to the first gap.

    Raises:
        BadRequest: The start is a position whose block is no longer indexed.
        NotIndexed: The start is a head, and the index ends more than `lag` blocks below it.
    """
    spans = list(indexed_for_all(tail, chain, APPROVALS.name, owners))
    if isinstance(start, EventPosition):
        for span in spans:
            if start.height in span:
                return Span(span.first, start.height)
        raise BadRequest("cursor", STALE)
    if not spans or spans[-1].last < start - lag:
        raise NotIndexed(chain, APPROVALS.name, spans[-1].last + 1 if spans else 0, start)
    return spans[-1]


def _not_indexed(tail: Tail, chain: str, owners: Sequence[str], last: int) -> NotIndexed:
    """Return the error for the missing blocks below a span."""
    missing = Spans([Span(0, last)]) - indexed_for_all(tail, chain, APPROVALS.name, owners)
    first = max((span.first for span in missing), default=0)
    return NotIndexed(chain, APPROVALS.name, first, last)


def _rows(
    lake: Lake, tail: Tail, chain: str, owners: Sequence[str], span: Span, limit: int, start: EventPosition | int
) -> list[Approval]:
    """Return up to `limit` approvals of amounts in `span`, newest first.

    If `start` is a position, only those at or before it. If it is a height, `span` is the limit.
    """
    import polars as pl

    condition = pl.col(AMOUNT).is_not_null()
    if isinstance(start, EventPosition):
        below = pl.col("height") < start.height
        condition &= below | ((pl.col("height") == start.height) & (pl.col("log_index") <= start.log_index))
    rows = rows_of(ChainIndex(lake, tail, chain), ACCOUNT_APPROVALS, owners, COLUMNS, span=span, where=condition)
    newest = rows.sort("height", "log_index", descending=True).head(limit)
    return [approval(row) for row in newest.iter_rows(named=True)]


def approval(row: Mapping[str, Any]) -> Approval:
    """Return the approval of an amount that a row of `account_approvals` holds."""
    position = EventPosition(row["height"], row["log_index"], row["tx_hash"])
    raw = amounts.raw_from_bytes(row["raw"])
    return Approval(position, time_us(row["time"]), row["token"], row["account"], row["spender"], raw)


def time_us(time: datetime) -> int:
    """Return a timestamp of a table in microseconds."""
    return (time - EPOCH) // timedelta(microseconds=1)


# --- holdings of the approved tokens -------------------------------------------------------------------------------


async def assets(snapshotter: Snapshotter, pairs: Iterable[tuple[str, str]]) -> dict[tuple[str, str], ApprovedAsset]:
    """Return the current holdings by (account, token), if balance, decimals and price are known.

    The balances take one round in addition to those of the price sources.

    Raises:
        SourceError: The node does not answer.
    """
    sorted_pairs = sorted(set(pairs))
    if not sorted_pairs:
        return {}
    chain, info = snapshotter.chain, snapshotter.chain.info
    tokens = {token: info.token_asset(token) for _, token in sorted_pairs}
    block = await snapshotter.newest_block()
    book = snapshotter.book.described_at(tokens.values(), block)
    plans: dict[str, Plan[Sequence[BalanceResult] | Mapping[Asset, Token] | Quotes]] = {
        "balances": chain.balances([(account, tokens[token]) for account, token in sorted_pairs]),
        "tokens": chain.describe([asset for asset in tokens.values() if asset not in book]),
        "prices": query_sources(snapshotter.sources, tokens.values(), block),
    }
    reports = await run_batched(plans, lambda reads: chain.answer(reads, block), max_rounds=MAX_ROUNDS)
    balances, tokens_read, quotes = (report.result for report in reports.values())
    raws = dict(zip(sorted_pairs, balances if isinstance(balances, Sequence) else (), strict=False))
    described = book | (dict(tokens_read) if isinstance(tokens_read, Mapping) else {})
    token_at = {contract: described[asset] for contract, asset in tokens.items()}
    prices = {price.asset: price for price in quotes.prices} if isinstance(quotes, Quotes) else {}
    return {
        pair: _asset(token_at[pair[1]], raw, prices[token_at[pair[1]].asset])
        for pair, raw in raws.items()
        if isinstance(raw, int) and token_at[pair[1]].asset in prices and token_at[pair[1]].decimals is not None
    }


def _asset(token: Token, raw: int, price: Price) -> ApprovedAsset:
    assert token.decimals is not None, "only tokens with decimals are asked for"
    balance = amounts.amount(raw, token.decimals)
    return ApprovedAsset(token.symbol, token.name, token.decimals, balance, price.usd, market_value(balance, price))
