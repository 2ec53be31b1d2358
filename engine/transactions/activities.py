"""What accounts did on one chain by its index: movements, approvals, what they sent and what called them.

Only keys (account, height, position in the block) are made for everything; rows become activities for the few that a
page shows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from chainfolio import amounts
from chainfolio.addresses import AddressRules
from chainfolio.assets import Asset
from chainfolio.blocks import Span, Spans
from chainfolio.contracts import TransactionDetails
from chainfolio.engine.rows import check_ceiling, rows_at, rows_of
from chainfolio.errors import Reorged
from chainfolio.indexer.scopes import indexed_for_all
from chainfolio.portfolio.activity import Activity, Movement, Permission
from chainfolio.portfolio.poisoning import Counterparties, Interaction
from chainfolio.tables import ACCOUNT_APPROVALS, ACCOUNT_TRANSACTIONS, ACCOUNT_TRANSFERS, BLOCKS, REWARD, TRANSACTIONS

if TYPE_CHECKING:
    import polars as pl

    from chainfolio.chains import ChainInfo
    from chainfolio.storage.lake import Lake
    from chainfolio.storage.tail import Tail

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
TRIES: Final = 3
WHERE: Final = ("account", "height", "tx_index")
PLACE: Final = (*WHERE, "time", "tx_hash")
MOVED: Final = (*PLACE, "log_index", "item", "direction", "standard", "token", "token_id", "raw", "counterparty")
ALLOWED: Final = (*PLACE, "log_index", "token", "spender")
DETAILS: Final = ("sender", "recipient", "created", "raw", "fee", "status", "selector")


@dataclass(frozen=True, slots=True)
class Activities:
    """The rows of some accounts on one chain. `keys` are activities without their rows, in no order; `hashes` are
    those of the blocks that may still go."""

    chain: str
    info: ChainInfo
    keys: tuple[Activity, ...]
    hashes: Mapping[int, str]
    moved: pl.DataFrame
    allowed: pl.DataFrame
    named: pl.DataFrame

    def counterparties_of(self, account: str, listed: Collection[Asset], rules: AddressRules) -> Counterparties:
        """Whom an account truly dealt with: over the native coin, over tokens of `listed`, or in what it sent itself.
        Any other contract may say what it likes about anybody."""
        import polars as pl

        place = list(WHERE)
        sent = self.named.filter(pl.col("account") == account, pl.col("sender") == account)
        own = sent.select(place).with_columns(pl.lit(True).alias("own"))
        real = (
            self.moved.filter(pl.col("account") == account, pl.col("raw") != bytes(32))
            .join(own, on=place, how="left")
            .filter(
                pl.col("token").is_null()
                | pl.col("token").is_in(sorted(asset.reference for asset in listed))
                | pl.col("own")
            )
            .sort(place)
            .group_by("counterparty", "standard", "token")
            .agg(pl.first("height", "tx_index", "token_id"), pl.col("raw").max())
        )
        met = (
            Interaction(
                who, self._asset(standard, token, number).collection, (height, tx_index), amounts.raw_from_bytes(raw)
            )
            for who, standard, token, height, tx_index, number, raw in real.iter_rows()
        )
        return Counterparties.of(met, rules, self.info.native.decimals or 0)

    def _asset(self, standard: str, token: str | None, number: bytes | None) -> Asset:
        """What a row of transfers moved."""
        return self.info.asset(standard, token, None if number is None else amounts.raw_from_bytes(number))

    def _movement(self, row: Mapping[str, Any]) -> Movement:
        asset = self._asset(row["standard"], row["token"], row["token_id"])
        return Movement(
            row["log_index"],
            row["item"],
            row["direction"],
            row["standard"],
            asset,
            amounts.raw_from_bytes(row["raw"]),
            row["counterparty"],
        )

    def _permission(self, row: Mapping[str, Any]) -> Permission:
        return Permission(row["log_index"], self.info.token_asset(row["token"]), row["spender"])

    def whole(self, keys: Sequence[Activity]) -> list[Activity]:
        """Some of the keys with their rows, in the order given."""
        import polars as pl

        if not keys:
            return []
        chosen = pl.DataFrame(
            [(key.account, key.height, key.tx_index) for key in keys],
            schema={"account": pl.String, "height": pl.Int64, "tx_index": pl.Int32},
            orient="row",
        )
        movements, permissions, details = (
            _by_place(rows.join(chosen, on=list(WHERE), how="semi")) for rows in (self.moved, self.allowed, self.named)
        )
        activities = []
        for key in keys:
            place = (key.account, key.height, key.tx_index)
            activities.append(
                replace(
                    key,
                    movements=tuple(self._movement(row) for row in movements.get(place, ())),
                    permissions=tuple(self._permission(row) for row in permissions.get(place, ())),
                    details=next((_details(row) for row in details.get(place, ())), None),
                )
            )
        return activities


def read(
    lake: Lake, tail: Tail, chain: str, info: ChainInfo, accounts: Sequence[str], heights: Spans, most: int
) -> Activities:
    """What the index has of some accounts at some heights. NotFound where one has more than `most` transactions,
    Reorged where blocks leave the chain faster than they can be read."""
    for _ in range(TRIES):
        before = _hashes(tail, chain)
        activities = _read(lake, tail, chain, info, accounts, heights, most, before)
        if _stands(before, _hashes(tail, chain)):
            return activities
    raise Reorged(chain, max(before), before[max(before)])


def _hashes(tail: Tail, chain: str) -> dict[int, str]:
    """The blocks that may still go, and the one that they stand on."""
    anchor = tail.anchor(chain)
    return {block.height: block.hash for block in (*([anchor] if anchor else []), *tail.blocks(chain))}


def _stands(before: Mapping[int, str], after: Mapping[int, str]) -> bool:
    """Whether the blocks of before are still there; the lowest may have gone to the lake."""
    top = max(before, default=-1)
    same = all(after.get(height, block_hash) == block_hash for height, block_hash in before.items())
    return same and max(after, default=-1) >= top


def _read(
    lake: Lake,
    tail: Tail,
    chain: str,
    info: ChainInfo,
    accounts: Sequence[str],
    heights: Spans,
    most: int,
    hashes: Mapping[int, str],
) -> Activities:
    import polars as pl

    indexed = pl.any_horizontal(
        pl.lit(False), *(pl.col("height").is_between(span.first, span.last) for span in heights)
    )
    moved, allowed, named = (
        rows_of(lake, tail, chain, history, accounts, columns, where=indexed, max_transactions=most)
        for history, columns in (
            (ACCOUNT_TRANSFERS, MOVED),
            (ACCOUNT_APPROVALS, ALLOWED),
            (ACCOUNT_TRANSACTIONS, (*PLACE, *DETAILS)),
        )
    )
    moved = moved.filter((pl.col("standard") != REWARD) | (pl.col("direction") == "in"))  # nothing left the stake
    keys = pl.concat([rows.select(PLACE) for rows in (moved, allowed, named)]).unique(WHERE)
    for account, count in keys.group_by("account").len().iter_rows():
        check_ceiling(account, count, most)
    moved, allowed = moved.sort("log_index", "item", "direction"), allowed.sort("log_index")
    return Activities(chain, info, tuple(_key(chain, *row) for row in keys.iter_rows()), hashes, moved, allowed, named)


def indexed_transactions(
    lake: Lake, tail: Tail, chain: str, keys: Collection[Activity]
) -> dict[str, TransactionDetails]:
    """What `transactions` has of some activities, by hash; those it does not have are absent."""
    import polars as pl

    ours = pl.col("hash").is_in(sorted({key.tx_hash for key in keys}))
    heights = {key.height for key in keys}
    return {
        row["tx_hash"]: _details(row)
        for rows in rows_at(lake, tail, chain, TRANSACTIONS, heights, of_transaction(), ours)
        for row in rows.iter_rows(named=True)
    }


def of_transaction() -> list[pl.Expr]:
    """The columns of `transactions` that details are made of, under the names of `account_transactions`."""
    import polars as pl

    shared = [pl.col(name) for name in (*PLACE, *DETAILS) if name not in ("account", "tx_hash", "selector")]
    return [*shared, pl.col("hash").alias("tx_hash"), pl.col("input").bin.slice(0, 4).alias("selector")]


def indexed_hashes(lake: Lake, chain: str, heights: Collection[int]) -> dict[int, str]:
    """The hashes of final blocks whose headers are kept."""
    import polars as pl

    wanted = sorted(set(heights))
    if not wanted:
        return {}
    here = pl.col("height").is_between(wanted[0], wanted[-1]) & pl.col("height").is_in(wanted)
    return dict(
        lake.scan(BLOCKS, chain=chain, heights=Spans.of(wanted))
        .filter(here)
        .select("height", "hash")
        .collect()
        .iter_rows()
    )


# --- rows ------------------------------------------------------------------------------------------------------------


def _by_place(rows: pl.DataFrame) -> dict[tuple[str, int, int], list[dict[str, Any]]]:
    rows_by_place: dict[tuple[str, int, int], list[dict[str, Any]]] = {}
    for row in rows.iter_rows(named=True):
        rows_by_place.setdefault((row["account"], row["height"], row["tx_index"]), []).append(row)
    return rows_by_place


def _key(chain: str, account: str, height: int, tx_index: int, time: datetime, tx_hash: str) -> Activity:
    return Activity(chain, account, height, (time - EPOCH) // timedelta(microseconds=1), tx_index, tx_hash)


def _details(row: Mapping[str, Any]) -> TransactionDetails:
    return TransactionDetails(
        row["sender"],
        row["recipient"],
        row["created"],
        amounts.raw_from_bytes(row["raw"]),
        amounts.raw_from_bytes(row["fee"]),
        row["status"] == 0,
        row["selector"],
    )


def missing(
    tail: Tail, chain: str, accounts: Collection[str], datasets: Sequence[str], head: int, lag: int
) -> tuple[Spans, Spans]:
    """The heights that all of some datasets are indexed at for some accounts, and those up to the head that are not; an
    index that is so many blocks behind the head is not behind, one that has nothing is."""
    indexed_ranges = Spans([Span(0, head)])
    for name in datasets:
        indexed_ranges &= indexed_for_all(tail, chain, name, accounts)
    lag = lag if indexed_ranges else 0
    left = [span for span in Spans([Span(0, head)]) - indexed_ranges if span.last < head or span.first <= head - lag]
    return indexed_ranges, Spans(left)
