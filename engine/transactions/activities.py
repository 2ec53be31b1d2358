"""Activities of accounts on one chain by its index: transfers, approvals and transactions.

Keys (account, height, index in the block) are made for all activities; details only for those that a page shows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from chainfolio import amounts
from chainfolio.addresses import AddressRules
from chainfolio.assets import Asset
from chainfolio.blocks import Span, Spans
from chainfolio.contracts import TransactionDetails
from chainfolio.engine.rows import ChainIndex, check_transaction_count, rows_at, rows_of
from chainfolio.errors import Reorged
from chainfolio.indexer.scopes import indexed_for_all
from chainfolio.portfolio.activity import Activity, Movement, Permission
from chainfolio.portfolio.poisoning import Counterparties, Interaction
from chainfolio.tables import ACCOUNT_APPROVALS, ACCOUNT_TRANSACTIONS, ACCOUNT_TRANSFERS, BLOCKS, REWARD, TRANSACTIONS

if TYPE_CHECKING:
    import polars as pl

    from chainfolio.chain_results import ChainInfo
    from chainfolio.storage.lake import Lake
    from chainfolio.storage.tail import Tail

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MAX_ATTEMPTS: Final = 3
POSITION: Final = ("account", "height", "tx_index")
KEY: Final = (*POSITION, "time", "tx_hash")
TRANSFER_COLUMNS: Final = (
    *KEY,
    "log_index",
    "item",
    "direction",
    "standard",
    "token",
    "token_id",
    "raw",
    "counterparty",
)
APPROVAL_COLUMNS: Final = (*KEY, "log_index", "token", "spender")
DETAILS: Final = ("sender", "recipient", "created", "raw", "fee", "status", "selector")


Row = TypeVar("Row")
Rows = defaultdict[tuple[str, int, int], list[Row]]  # by account, height and index in the block


class MovedTokens(NamedTuple):
    """The tokens of activities.

    Attributes:
        pairs: Accounts, each with a token or collection that moved.
        approved: Tokens that were approved.
    """

    pairs: frozenset[tuple[str, Asset]]
    approved: frozenset[Asset]

    @property
    def assets(self) -> frozenset[Asset]:
        """Return the distinct tokens and collections."""
        return self.approved.union(asset for _, asset in self.pairs)


@dataclass(frozen=True, slots=True)
class Activities:
    """The rows of some accounts on one chain.

    Attributes:
        keys: Activities without their rows, in no order.
        hashes: Hashes of the blocks that may still be replaced, by height.
    """

    chain: str
    info: ChainInfo
    keys: tuple[Activity, ...]
    hashes: Mapping[int, str]
    transfers: pl.DataFrame
    approvals: pl.DataFrame
    transactions: pl.DataFrame

    def counterparties_of(self, account: str, listed: Collection[Asset], rules: AddressRules) -> Counterparties:
        """Return the counterparties with whom an account really interacted.

        Transfers of the native coin, of `listed` tokens, and in the account's own transactions count, if they moved
        more than zero. Any other contract may log what it likes about any account.
        """
        import polars as pl

        position = list(POSITION)
        transactions = self.transactions.filter(pl.col("account") == account, pl.col("sender") == account)
        own = transactions.select(position).with_columns(pl.lit(True).alias("own"))
        real = (
            self.transfers.filter(pl.col("account") == account, pl.col("raw") != bytes(32))
            .join(own, on=position, how="left")
            .filter(
                pl.col("token").is_null()
                | pl.col("token").is_in(sorted(asset.reference for asset in listed))
                | pl.col("own")
            )
            .sort(position)
            .group_by("counterparty", "standard", "token")
            .agg(pl.first("height", "tx_index", "token_id"), pl.col("raw").max())
        )
        interactions = (
            Interaction(
                peer, self._asset(standard, token, number).collection, (height, tx_index), amounts.raw_from_bytes(raw)
            )
            for peer, standard, token, height, tx_index, number, raw in real.iter_rows()
        )
        return Counterparties.of(interactions, rules, self.info.native.decimals or 0)

    def _asset(self, standard: str, token: str | None, number: bytes | None) -> Asset:
        """Return the asset that a row of transfers moved."""
        return self.info.asset(standard, token, None if number is None else amounts.raw_from_bytes(number))

    def _movements(self, chosen: pl.DataFrame) -> Rows[Movement]:
        """Return the movements of some activities, by position."""
        columns = ("standard", "token", "token_id", "log_index", "item", "direction", "raw", "counterparty")
        asset_of, movements = cache(self._asset), Rows[Movement](list)
        rows = self.transfers.join(chosen, on=list(POSITION), how="semi").select(*POSITION, *columns)
        for account, height, tx_index, *values in rows.iter_rows():
            standard, token, token_id, log_index, item, direction, raw, counterparty = values
            asset, amount = asset_of(standard, token, token_id), amounts.raw_from_bytes(raw)
            movement = Movement(log_index, item, direction, standard, asset, amount, counterparty)
            movements[account, height, tx_index].append(movement)
        return movements

    def _permissions(self, chosen: pl.DataFrame) -> Rows[Permission]:
        """Return the approvals of some activities, by position."""
        permissions = Rows[Permission](list)
        rows = self.approvals.join(chosen, on=list(POSITION), how="semi")
        for account, height, tx_index, log_index, token, spender in rows.select(
            *POSITION, "log_index", "token", "spender"
        ).iter_rows():
            permission = Permission(log_index, self.info.token_asset(token), spender)
            permissions[account, height, tx_index].append(permission)
        return permissions

    def moved_tokens(self, keys: Sequence[Activity]) -> MovedTokens:
        """Return the tokens that moved, with their accounts, or were approved in some keys; no native coin."""
        import polars as pl

        chosen, columns = _positions(keys), ["account", "standard", "token"]
        rows = self.transfers.filter(pl.col("token").is_not_null()).join(chosen, on=list(POSITION), how="semi")
        kinds = rows.unique([*columns, pl.col("token_id").is_null()]).select(*columns, "token_id")
        approved = self.approvals.join(chosen, on=list(POSITION), how="semi")["token"].unique()
        return MovedTokens(
            frozenset((account, self._asset(*asset).collection) for account, *asset in kinds.iter_rows()),
            frozenset(self.info.token_asset(token) for token in approved),
        )

    def with_rows(self, keys: Sequence[Activity]) -> list[Activity]:
        """Return the activities of some keys with their rows, in the same order.

        A key without rows keeps empty movements and permissions, and None as details.
        """
        if not keys:
            return []
        chosen = _positions(keys)
        movements, permissions = self._movements(chosen), self._permissions(chosen)
        transactions = self.transactions.join(chosen, on=list(POSITION), how="semi").select(*POSITION, *DETAILS)
        details = {tuple(row[:3]): _details(*row[3:]) for row in transactions.iter_rows()}
        return [
            Activity(
                key.chain,
                key.account,
                key.height,
                key.time_us,
                key.tx_index,
                key.tx_hash,
                tuple(movements.get(position, ())),
                tuple(permissions.get(position, ())),
                details.get(position),
            )
            for key in keys
            for position in [(key.account, key.height, key.tx_index)]
        ]


def read_activities(
    lake: Lake, tail: Tail, chain: str, info: ChainInfo, accounts: Sequence[str], heights: Spans, max_transactions: int
) -> Activities:
    """Read the indexed activities of some accounts at some heights.

    Raises:
        NotFound: An account has more than `max_transactions`.
        Reorged: Blocks leave the chain faster than they can be read.
    """
    for _ in range(MAX_ATTEMPTS):
        before = _hashes(tail, chain)
        activities = _read(ChainIndex(lake, tail, chain), info, accounts, heights, max_transactions, before)
        if _is_same_chain(before, _hashes(tail, chain)):
            return activities
    raise Reorged(chain, max(before), before[max(before)])


def _hashes(tail: Tail, chain: str) -> dict[int, str]:
    """Return the hashes of the replaceable blocks and of the block below them, by height."""
    anchor = tail.anchor(chain)
    return {block.height: block.hash for block in (*([anchor] if anchor else []), *tail.blocks(chain))}


def _is_same_chain(before: Mapping[int, str], after: Mapping[int, str]) -> bool:
    """Return True if the earlier blocks are still there; the lowest may have moved to the lake."""
    top = max(before, default=-1)
    has_all = all(after.get(height, block_hash) == block_hash for height, block_hash in before.items())
    return has_all and max(after, default=-1) >= top


def _read(
    index: ChainIndex,
    info: ChainInfo,
    accounts: Sequence[str],
    heights: Spans,
    max_transactions: int,
    hashes: Mapping[int, str],
) -> Activities:
    """Read the activities from the index in one pass; the tail may change meanwhile.

    Rows outside `heights` are left out, and so is the departure side of a reward.

    Raises:
        NotFound: An account has more than `max_transactions`.
    """
    import polars as pl

    indexed = pl.any_horizontal(
        pl.lit(False), *(pl.col("height").is_between(span.first, span.last) for span in heights)
    )
    transfers, approvals, transactions = (
        rows_of(index, history, accounts, columns, where=indexed, max_transactions=max_transactions)
        for history, columns in (
            (ACCOUNT_TRANSFERS, TRANSFER_COLUMNS),
            (ACCOUNT_APPROVALS, APPROVAL_COLUMNS),
            (ACCOUNT_TRANSACTIONS, (*KEY, *DETAILS)),
        )
    )
    # A reward does not leave the stake.
    transfers = transfers.filter((pl.col("standard") != REWARD) | (pl.col("direction") == "in"))
    keys = pl.concat([rows.select(KEY) for rows in (transfers, approvals, transactions)]).unique(POSITION)
    for account, count in keys.group_by("account").len().iter_rows():
        check_transaction_count(account, count, max_transactions)
    transfers, approvals = transfers.sort("log_index", "item", "direction"), approvals.sort("log_index")
    activities = tuple(_key(index.chain, *row) for row in keys.iter_rows())
    return Activities(index.chain, info, activities, hashes, transfers, approvals, transactions)


def indexed_transactions(
    lake: Lake, tail: Tail, chain: str, keys: Collection[Activity]
) -> dict[str, TransactionDetails]:
    """Return the details that the table `transactions` has of some activities, by hash; others are absent."""
    import polars as pl

    has_hash = pl.col("hash").is_in(sorted({key.tx_hash for key in keys}))
    heights = {key.height for key in keys}
    return {
        tx_hash: _details(*details)
        for rows in rows_at(lake, tail, chain, TRANSACTIONS, heights, transaction_columns(), has_hash)
        for tx_hash, *details in rows.select("tx_hash", *DETAILS).iter_rows()
    }


def transaction_columns() -> list[pl.Expr]:
    """Return the columns of `transactions` for details, under the names of `account_transactions`."""
    import polars as pl

    shared = [pl.col(name) for name in (*KEY, *DETAILS) if name not in ("account", "tx_hash", "selector")]
    return [*shared, pl.col("hash").alias("tx_hash"), pl.col("input").bin.slice(0, 4).alias("selector")]


def indexed_hashes(lake: Lake, chain: str, heights: Collection[int]) -> dict[int, str]:
    """Return the hashes of final blocks whose headers are stored, by height; other heights are absent."""
    import polars as pl

    sorted_heights = sorted(set(heights))
    if not sorted_heights:
        return {}
    here = pl.col("height").is_between(sorted_heights[0], sorted_heights[-1]) & pl.col("height").is_in(sorted_heights)
    return dict(
        lake.scan(BLOCKS, chain=chain, heights=Spans.of(sorted_heights))
        .filter(here)
        .select("height", "hash")
        .collect()
        .iter_rows()
    )


# --- rows ------------------------------------------------------------------------------------------------------------


def _positions(keys: Sequence[Activity]) -> pl.DataFrame:
    import polars as pl

    return pl.DataFrame(
        [(key.account, key.height, key.tx_index) for key in keys],
        schema={"account": pl.String, "height": pl.Int64, "tx_index": pl.Int32},
        orient="row",
    )


def _key(chain: str, account: str, height: int, tx_index: int, time: datetime, tx_hash: str) -> Activity:
    return Activity(chain, account, height, (time - EPOCH) // timedelta(microseconds=1), tx_index, tx_hash)


def _details(
    sender: str,
    recipient: str | None,
    created: str | None,
    raw: bytes,
    fee: bytes,
    status: int | None,
    selector: bytes | None,
) -> TransactionDetails:
    """Return the details in the columns `DETAILS` of a row; status 0 means that the transaction failed."""
    value, paid = amounts.raw_from_bytes(raw), amounts.raw_from_bytes(fee)
    return TransactionDetails(sender, recipient, created, value, paid, status == 0, selector)


def missing(
    tail: Tail, chain: str, accounts: Collection[str], datasets: Sequence[str], head: int, lag: int
) -> tuple[Spans, Spans]:
    """Return the heights up to the head that are indexed in all datasets for the accounts, and the others.

    An index that ends at most `lag` blocks before the head counts as complete, an empty one does not.
    """
    indexed_ranges = Spans([Span(0, head)])
    for name in datasets:
        indexed_ranges &= indexed_for_all(tail, chain, name, accounts)
    lag = lag if indexed_ranges else 0
    gaps = [span for span in Spans([Span(0, head)]) - indexed_ranges if span.last < head or span.first <= head - lag]
    return indexed_ranges, Spans(gaps)
