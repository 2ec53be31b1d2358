"""How the tokens that accounts hold came to them, by the index: in whose transactions, and with how many others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from chainfolio.blocks import Span, Spans
from chainfolio.tables import ACCOUNT_TRANSFERS, TRANSACTIONS, TRANSFERS, Table
from engine.account_index import COLLECTIBLE, FUNGIBLE, NOTHING, unsorted
from indexer import arrow_ipc
from portfolio.spam import Arrival

if TYPE_CHECKING:
    import polars as pl

    from storage.lake import Lake
    from storage.tail import Tail

PLACE: Final = ("height", "tx_index")
PAIR: Final = ("account", "token")
WHERE: Final = ("account", *PLACE)
COLUMNS: Final = (*WHERE, "direction", "standard", "token", "raw")
# How many transactions of an account are looked up in tables that do not lie by account, one row group each. The newest
# go first.
MOST_PLACES: Final = 64
MOST_HEIGHTS: Final = 1024  # that are looked up together


def arrivals(
    lake: Lake,
    tail: Tail,
    chain: str,
    tokens: Mapping[str, Collection[str]],
    trusted: Mapping[str, Collection[str]],
    height: int,
    listed: Collection[str] = (),
) -> dict[str, dict[str, Arrival]]:
    """How tokens came to accounts up to a height, both by account; those that the index has not seen come are absent.

    A transaction has something of the account's own in it where the account sent it, or where native coins or a token
    that is `trusted`, or `listed` for everybody, left it: what other contracts log can be anybody's invention.
    """
    import polars as pl

    found: dict[str, dict[str, Arrival]] = {account: {} for account in tokens}
    own = _history(lake, tail, chain, list(tokens), height)
    met = own.join(_pairs(tokens), on=PAIR, how="semi").filter(pl.col("standard").is_in((*FUNGIBLE, COLLECTIBLE)))
    if met.is_empty():
        return found
    places = met.select(WHERE).unique()
    out = own.filter(pl.col("direction") == "out", pl.col("raw") != NOTHING)
    coins = out.filter(pl.col("token").is_null() | pl.col("token").is_in(list(listed)))
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
    for account, token in sorted(met.select(PAIR).unique().iter_rows()):
        pair = (account, token)
        found[account][token] = Arrival(moved.get(pair, 0), pair in by_deed, recipients.get(pair, 0), net[pair])
    return found


def _net(moves: pl.DataFrame) -> dict[tuple[str, str], int]:
    """What came of each token to each account less what left it, exact."""
    found: defaultdict[tuple[str, str], int] = defaultdict(int)
    for account, token, direction, raw in moves.select(*PAIR, "direction", "raw").iter_rows():
        found[account, token] += int.from_bytes(raw, "big") * (1 if direction == "in" else -1)
    return found


def _pairs(tokens: Mapping[str, Collection[str]]) -> pl.DataFrame:
    """Accounts and their tokens, a row each."""
    import polars as pl

    rows = [(account, token) for account, own in tokens.items() for token in own]
    return pl.DataFrame(rows, schema=dict.fromkeys(PAIR, pl.String), orient="row")


def _by_pair(counts: pl.DataFrame) -> dict[tuple[str, str], int]:
    return {(account, token): count for account, token, count in counts.iter_rows()}


def _history(lake: Lake, tail: Tail, chain: str, accounts: Sequence[str], height: int) -> pl.DataFrame:
    """The transfers of accounts up to a height: the tail, what is not sorted yet, sorted histories; each once."""
    import polars as pl

    from portfolio.ledger import account_transfers

    mine = pl.col("sender").is_in(accounts) | pl.col("recipient").is_in(accounts)
    loose = [_fresh(tail, chain, TRANSFERS, Span(0, height)).filter(mine)]
    for span in unsorted(tail, chain, "transfers", height):
        within = pl.col("height").is_between(span.first, span.last)
        loose.append(
            lake.scan(TRANSFERS, chain=chain, heights=[span]).filter(mine, within).select(TRANSFERS.names).collect()
        )
    key = ("account", "height", "tx_index", "log_index", "item", "direction")
    columns = tuple(dict.fromkeys((*key, *COLUMNS)))
    own = pl.col("account").is_in(accounts)
    parts = [account_transfers(rows).filter(own).select(columns) for rows in loose]
    names = [name for name in ACCOUNT_TRANSFERS.names if name in columns]
    sorted_ = lake.of_accounts(ACCOUNT_TRANSFERS, chain, accounts, names).filter(pl.col("height") <= height)
    return pl.concat([*parts, sorted_.select(columns).collect()]).unique(key).select(COLUMNS)


def _sent(lake: Lake, tail: Tail, chain: str, places: pl.DataFrame) -> pl.DataFrame:
    """Those of some places whose transactions their accounts sent, as far as transactions are indexed."""
    import polars as pl

    rows = [
        rows.select(pl.col("sender").alias("account"), *PLACE).join(places, on=WHERE, how="semi")
        for rows in _at(lake, tail, chain, TRANSACTIONS, (*PLACE, "sender"), places["height"].to_list())
    ]
    return pl.concat(rows).unique() if rows else places.clear()


def _recipients(lake: Lake, tail: Tail, chain: str, met: pl.DataFrame) -> pl.DataFrame:
    """By account and token, to how many accounts the first of these transactions gave the token."""
    import polars as pl

    # The first time is enough: what is sent to thousands at once is so from the start.
    first = _newest(met.sort(PLACE).unique(PAIR, keep="first"))
    given = ("token", *PLACE)
    whole = [
        rows.filter(pl.col("raw") != NOTHING).join(first, on=given, how="semi")
        for rows in _at(lake, tail, chain, TRANSFERS, (*given, "recipient", "raw"), first["height"].to_list())
    ]
    if not whole:
        return first.select(PAIR).clear().with_columns(pl.lit(0).alias("count"))
    counts = pl.concat(whole).group_by(given).agg(pl.col("recipient").n_unique().alias("count"))
    return first.join(counts, on=given).select(*PAIR, "count")


def _newest(places: pl.DataFrame) -> pl.DataFrame:
    """Of every account the newest places."""
    newest = places.sort(PLACE, descending=True).group_by("account", maintain_order=True).head(MOST_PLACES)
    return newest.select(places.columns)


def _at(
    lake: Lake, tail: Tail, chain: str, table: Table, columns: Sequence[str], heights: Iterable[int]
) -> Iterator[pl.DataFrame]:
    """A table's rows at some heights, so many heights at a time: the tail, then the lake, of which only the row groups
    around them are read."""
    import polars as pl

    wanted = sorted(set(heights))
    for start in range(0, len(wanted), MOST_HEIGHTS):
        some = wanted[start : start + MOST_HEIGHTS]
        here = pl.col("height").is_in(some)
        yield _fresh(tail, chain, table, Span(some[0], some[-1])).filter(here).select(columns)
        yield lake.scan(table, chain=chain, heights=Spans.of(some)).filter(here).select(columns).collect()


def _fresh(tail: Tail, chain: str, table: Table, span: Span) -> pl.DataFrame:
    import polars as pl

    rows = pl.from_arrow(arrow_ipc.load((s for _, s in tail.rows(chain, table.name, span.first, span.last)), table))
    assert isinstance(rows, pl.DataFrame)
    return rows.select(table.names)
