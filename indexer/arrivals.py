"""How the tokens that an account holds came to it, by the index: in whose transactions, and with how many others."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Final

from chainfolio.blocks import Span
from chainfolio.tables import ACCOUNT_TRANSFERS, TRANSACTIONS, TRANSFERS, Table
from indexer import ipc
from indexer.candidates import FUNGIBLE, unsorted
from portfolio.spam import Arrival

if TYPE_CHECKING:
    import polars as pl

    from storage.lake import Lake
    from storage.tail import Tail

NOTHING: Final = bytes(32)
PLACE: Final = ("height", "tx_index")
COLUMNS: Final = (*PLACE, "direction", "standard", "token", "raw")
# How many transactions are looked up in tables that do not lie by account: one row group each. The newest go first.
MOST_PLACES: Final = 64


def arrivals(
    lake: Lake, tail: Tail, chain: str, account: str, tokens: Collection[str], trusted: Collection[str], height: int
) -> dict[str, Arrival]:
    """How some tokens came to an account up to a height; those that the index has not seen come are absent.

    A transaction has something of the account's own in it where the account sent it, or where native coins or a token
    that is `trusted` left the account: what other contracts log can be anybody's invention.
    """
    import polars as pl

    own = _history(lake, tail, chain, account, height)
    met = own.filter(pl.col("token").is_in(tokens), pl.col("standard").is_in(FUNGIBLE))
    if met.is_empty():
        return {}
    places = met.select(PLACE).unique()
    paid = own.filter(
        pl.col("direction") == "out",
        pl.col("raw") != NOTHING,
        pl.col("token").is_null() | pl.col("token").is_in(trusted),
    )
    deeds = paid.select(PLACE).unique().join(places, on=PLACE, how="semi")
    # A token that came by nobody's doing that is known yet: its newest transaction may still be the account's own.
    asked = set(met["token"].to_list()) - set(met.join(deeds, on=PLACE, how="semi")["token"].to_list())
    others = met.filter(pl.col("token").is_in(asked)).sort(PLACE).unique("token", keep="last").select(PLACE).unique()
    deeds = pl.concat([deeds, _sent(lake, tail, chain, account, _newest(others))])
    solicited = set(met.join(deeds, on=PLACE, how="semi")["token"].to_list())
    moved = dict(met.filter(pl.col("raw") != NOTHING).group_by("token").len().iter_rows())
    foreign = met.filter(~pl.col("token").is_in(solicited), pl.col("direction") == "in")
    recipients = _recipients(lake, tail, chain, foreign)
    return {
        token: Arrival(moved.get(token, 0), token in solicited, recipients.get(token, 0))
        for token in sorted(met["token"].unique().to_list())
    }


def _history(lake: Lake, tail: Tail, chain: str, account: str, height: int) -> pl.DataFrame:
    """An account's transfers up to a height: the tail, what is not sorted yet, sorted history; each once."""
    import polars as pl

    from portfolio.ledger import account_transfers

    mine = (pl.col("sender") == account) | (pl.col("recipient") == account)
    loose = [_fresh(tail, chain, TRANSFERS, Span(0, height)).filter(mine)]
    for span in unsorted(tail, chain, "transfers", height):
        within = pl.col("height").is_between(span.first, span.last)
        loose.append(lake.scan(TRANSFERS, chain=chain).filter(mine, within).select(TRANSFERS.names).collect())
    key = ("height", "tx_index", "log_index", "item", "direction")
    columns = tuple(dict.fromkeys((*key, *COLUMNS)))
    parts = [account_transfers(rows).filter(pl.col("account") == account).select(columns) for rows in loose]
    names = [name for name in ACCOUNT_TRANSFERS.names if name in columns]
    sorted_ = lake.account_transfers(chain, account, names).filter(pl.col("height") <= height)
    return pl.concat([*parts, sorted_.select(columns).collect()]).unique(key).select(COLUMNS)


def _sent(lake: Lake, tail: Tail, chain: str, account: str, places: pl.DataFrame) -> pl.DataFrame:
    """Those of some places whose transactions the account sent, as far as transactions are indexed."""
    import polars as pl

    mine = pl.col("sender") == account
    rows = [
        rows.filter(mine).select(PLACE) for rows in _at(lake, tail, chain, TRANSACTIONS, places["height"].to_list())
    ]
    return pl.concat(rows).unique().join(places, on=PLACE, how="semi") if rows else places.clear()


def _recipients(lake: Lake, tail: Tail, chain: str, met: pl.DataFrame) -> dict[str, int]:
    """By token, the most accounts that one of these transactions gave it to."""
    import polars as pl

    # The first time is enough: what is sent to thousands at once is so from the start.
    first = _newest(met.sort(PLACE).unique("token", keep="first"))
    whole = [
        rows.filter(pl.col("token").is_in(first["token"].to_list()), pl.col("raw") != NOTHING)
        .select("token", *PLACE, "recipient")
        for rows in _at(lake, tail, chain, TRANSFERS, first["height"].to_list())
    ]  # fmt: skip
    if not whole:
        return {}
    here = pl.concat(whole).join(first, on=["token", *PLACE], how="semi")
    return dict(here.group_by("token").agg(pl.col("recipient").n_unique()).iter_rows())


def _newest(places: pl.DataFrame) -> pl.DataFrame:
    return places.sort(PLACE, descending=True).head(MOST_PLACES)


def _at(lake: Lake, tail: Tail, chain: str, table: Table, heights: Iterable[int]) -> list[pl.DataFrame]:
    """A table's rows at some heights: the tail, then the lake, of which only the row groups around them are read."""
    import polars as pl

    wanted = sorted(set(heights))
    if not wanted:
        return []
    # One comparison each, and not one with a list: these let row groups be passed over.
    here = reduce(or_, (pl.col("height") == height for height in wanted))
    fresh = _fresh(tail, chain, table, Span(wanted[0], wanted[-1])).filter(here)
    return [fresh, lake.scan(table, chain=chain).filter(here).select(table.names).collect()]


def _fresh(tail: Tail, chain: str, table: Table, span: Span) -> pl.DataFrame:
    import polars as pl

    rows = pl.from_arrow(ipc.load((s for _, s in tail.rows(chain, table.name, span.first, span.last)), table))
    assert isinstance(rows, pl.DataFrame)
    return rows.select(table.names)
