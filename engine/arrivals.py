"""How the tokens that accounts hold came to them, by the index: in whose transactions, and with how many others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final

from chainfolio.assets import Asset
from chainfolio.blocks import Span
from chainfolio.tables import ACCOUNT_TRANSFERS, TRANSACTIONS, TRANSFERS
from engine.account_index import NOTHING
from engine.rows import rows_at, rows_of
from portfolio.spam import Arrival

if TYPE_CHECKING:
    import polars as pl

    from storage.lake import Lake
    from storage.tail import Tail

PLACE: Final = ("height", "tx_index")
PAIR: Final = ("account", "token")
WHERE: Final = ("account", *PLACE)
KEY: Final = (*WHERE, "log_index", "item", "direction")
MOVED: Final = ("token", "raw")
# How many transactions of an account are looked up in tables that do not lie by account, one row group each. The newest
# go first.
MAX_PLACES: Final = 64


def arrivals(
    lake: Lake,
    tail: Tail,
    chain: str,
    tokens: Mapping[str, Collection[Asset]],
    trusted: Mapping[str, Collection[Asset]],
    height: int,
    listed: Collection[Asset] = (),
) -> dict[str, dict[Asset, Arrival]]:
    """How tokens came to accounts up to a height, both by account; those that the index has not seen come are absent.

    A transaction has something of the account's own in it where the account sent it, or where native coins or a token
    that is `trusted`, or `listed` for everybody, left it: what other contracts log can be anybody's invention.
    """
    import polars as pl

    found: dict[str, dict[Asset, Arrival]] = {account: {} for account in tokens}
    rows = rows_of(lake, tail, chain, ACCOUNT_TRANSFERS, list(tokens), (*KEY, *MOVED), span=Span(0, height))
    own = rows.select(*WHERE, "direction", *MOVED)
    met = own.join(_pairs(tokens), on=PAIR, how="semi")
    if met.is_empty():
        return found
    places = met.select(WHERE).unique()
    out = own.filter(pl.col("direction") == "out", pl.col("raw") != NOTHING)
    coins = out.filter(pl.col("token").is_null() | pl.col("token").is_in([asset.reference for asset in listed]))
    paid = pl.concat([coins, out.join(_pairs(trusted), on=PAIR, how="semi")])
    deeds = paid.select(WHERE).unique().join(places, on=WHERE, how="semi")
    # A token that came by nobody's doing that is known yet: its newest transaction may still be the account's own.
    asked = met.join(met.join(deeds, on=WHERE, how="semi"), on=PAIR, how="anti")
    others = asked.sort(PLACE).unique(PAIR, keep="last").select(WHERE).unique()
    deeds = pl.concat([deeds, _sent(lake, tail, chain, _newest(others))])
    solicited = met.join(deeds, on=WHERE, how="semi").select(PAIR).unique()
    foreign = met.join(solicited, on=PAIR, how="anti").filter(pl.col("direction") == "in")
    moved = _by_pair(met.filter(pl.col("raw") != NOTHING).group_by(PAIR).len())
    recipients, by_deed = _by_pair(_recipients(lake, tail, chain, foreign)), set(solicited.iter_rows())
    net = _net(met)
    named = {(account, asset.reference): asset for account, own in tokens.items() for asset in own}
    for pair in sorted(met.select(PAIR).unique().iter_rows()):
        arrival = Arrival(moved.get(pair, 0), pair in by_deed, recipients.get(pair, 0), net[pair])
        found[pair[0]][named[pair]] = arrival
    return found


def _net(moves: pl.DataFrame) -> dict[tuple[str, str], int]:
    """What came of each token to each account less what left it, exact."""
    found: defaultdict[tuple[str, str], int] = defaultdict(int)
    for account, token, direction, raw in moves.select(*PAIR, "direction", "raw").iter_rows():
        found[account, token] += int.from_bytes(raw, "big") * (1 if direction == "in" else -1)
    return found


def _pairs(tokens: Mapping[str, Collection[Asset]]) -> pl.DataFrame:
    """Accounts and their tokens, a row each."""
    import polars as pl

    rows = [(account, asset.reference) for account, own in tokens.items() for asset in own]
    return pl.DataFrame(rows, schema=dict.fromkeys(PAIR, pl.String), orient="row")


def _by_pair(counts: pl.DataFrame) -> dict[tuple[str, str], int]:
    return {(account, token): count for account, token, count in counts.iter_rows()}


def _sent(lake: Lake, tail: Tail, chain: str, places: pl.DataFrame) -> pl.DataFrame:
    """Those of some places whose transactions their accounts sent, as far as transactions are indexed."""
    import polars as pl

    rows = [
        rows.select(pl.col("sender").alias("account"), *PLACE).join(places, on=WHERE, how="semi")
        for rows in rows_at(lake, tail, chain, TRANSACTIONS, places["height"], (*PLACE, "sender"))
    ]
    return pl.concat(rows).unique() if rows else places.clear()


def _recipients(lake: Lake, tail: Tail, chain: str, met: pl.DataFrame) -> pl.DataFrame:
    """By account and token, to how many accounts the first of these transactions gave the token."""
    import polars as pl

    # The first time is enough: what is sent to thousands at once is so from the start.
    first = _newest(met.sort(PLACE).unique(PAIR, keep="first"))
    given = ("token", *PLACE)
    whole = [
        rows.join(first, on=given, how="semi")
        for rows in rows_at(
            lake, tail, chain, TRANSFERS, first["height"], (*given, "recipient"), pl.col("raw") != NOTHING
        )
    ]
    if not whole:
        return first.select(PAIR).clear().with_columns(pl.lit(0).alias("count"))
    counts = pl.concat(whole).group_by(given).agg(pl.col("recipient").n_unique().alias("count"))
    return first.join(counts, on=given).select(*PAIR, "count")


def _newest(places: pl.DataFrame) -> pl.DataFrame:
    """Of every account the newest places."""
    newest = places.sort(PLACE, descending=True).group_by("account", maintain_order=True).head(MAX_PLACES)
    return newest.select(places.columns)
