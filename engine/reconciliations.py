"""Results of reconciliations: documents, their storage, and the issues that they add to other answers."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from chainfolio.assets import asset
from chainfolio.blocks import Span
from chainfolio.contracts import Issue
from chainfolio.portfolio.causes import OF_THE_INDEX, UNKNOWN
from chainfolio.portfolio.frames import frame

if TYPE_CHECKING:
    import polars as pl

    from chainfolio.storage.tail import Tail

ADAPTER: Final = "reconcile"
COLUMNS: Final = (
    "address",
    "chain",
    "firstBlock",
    "lastBlock",
    "asset",
    "status",
    "opening",
    "movements",
    "balance",
)
STATUSES: Final = ("equal", "differs", "unreadable", "unindexed", "untrusted")
MAX_SHOWN: Final = 5  # assets of one cause


class Difference(msgspec.Struct, rename="camel", frozen=True):
    """A block in which the balance of an asset changed by `amount` more than the indexed movements.

    Attributes:
        after: The last height at which both agreed; below `block - 1` if no balance between was readable.
        cause: A name of `chainfolio.portfolio.causes`.
        reason: The cause as a sentence.
    """

    asset: str
    block: int
    after: int
    amount: str
    cause: str
    reason: str

    @property
    def is_native(self) -> bool:
        """Return True if the asset is the native coin."""
        return asset(self.asset).is_native

    @property
    def is_index_gap(self) -> bool:
        """Return True if the index lacks rows; an unknown cause counts for the native coin only.

        Tokens with unexplained balances are easy to make, so they say nothing about the index.
        """
        return self.cause in OF_THE_INDEX and (self.is_native or self.cause != UNKNOWN)


class AssetReconciliation(msgspec.Struct, rename="camel", frozen=True):
    """One asset: opening balance, sum of movements and closing balance; null if unreadable."""

    asset: str
    status: str
    opening: str | None
    movements: str
    balance: str | None


class UntrustedAssets(msgspec.Struct, rename="camel", frozen=True):
    """Untrusted assets with unexplained balances, by cause: their number, and the first of them.

    Events of untrusted contracts say nothing about the index.
    """

    cause: str
    reason: str
    count: int
    assets: tuple[str, ...]


class Reconciliation(msgspec.Struct, rename="camel", frozen=True):
    """The reconciliation of one account on one chain.

    Attributes:
        unread_checkpoints: Heights whose state no endpoint has.
        more: Assets with more differences than are listed.
        notes: Remarks about how far the result can be relied upon.
        untrusted: Untrusted assets that differ or cannot be read; they are in no other list but `assets`.
    """

    address: str
    chain: str
    first_block: int
    last_block: int
    block_hash: str
    checkpoints: tuple[int, ...]
    unread_checkpoints: tuple[int, ...]
    counts: dict[str, int]
    assets: tuple[AssetReconciliation, ...]
    differences: tuple[Difference, ...]
    more: tuple[str, ...]
    notes: tuple[str, ...]
    untrusted: tuple[UntrustedAssets, ...] = ()

    @property
    def is_equal(self) -> bool:
        """Return True if every trusted asset was read, and none differs."""
        return not self.differs and not self.counts["unreadable"] and not self.counts["unindexed"]

    def to_polars(self) -> pl.DataFrame:
        """Return a row for each asset, amounts in its smallest unit (see `chainfolio.portfolio.frames`)."""
        rows = (
            [
                self.address,
                self.chain,
                self.first_block,
                self.last_block,
                each.asset,
                each.status,
                each.opening,
                each.movements,
                each.balance,
            ]
            for each in self.assets
        )
        numbers = ("opening", "movements", "balance")
        return frame(COLUMNS, rows, numbers=numbers, counts=("firstBlock", "lastBlock"), decimal_places=0)

    @property
    def differs(self) -> bool:
        """Return True if something differs that is trusted, or that the index lacks."""
        return bool(self.differences)


def store_result(tail: Tail, result: Reconciliation) -> None:
    """Store a result in place of the account's last one; assets that are equal are only counted."""
    stored = msgspec.structs.replace(result, assets=tuple(each for each in result.assets if each.status != "equal"))
    span = Span(result.first_block, result.last_block)
    tail.store_reconciliation(result.chain, result.address, span, result.block_hash, msgspec.json.encode(stored))


def stored_results(tail: Tail, chain: str, accounts: Collection[str] | None = None) -> list[Reconciliation]:
    """Return the stored results of accounts, by default of all."""
    rows = tail.reconciliations(chain)
    return [
        msgspec.json.decode(result, type=Reconciliation)
        for account, result in rows
        if accounts is None or account in accounts
    ]


def issues(tail: Tail, chain: str, accounts: Collection[str], *, natives: bool) -> Iterator[Issue]:
    """Yield an issue for each account whose stored reconciliation has differences.

    An issue makes an answer partial if the index lacks rows. With `natives` False, rows of coins do not count.
    """
    for each in stored_results(tail, chain, accounts):
        if each.differences:
            gaps = [
                difference
                for difference in each.differences
                if difference.is_index_gap and (natives or not difference.is_native)
            ]
            yield Issue(ADAPTER, chain, _summary(each, gaps or each.differences), bool(gaps), each.address)


def _summary(result: Reconciliation, differences: Sequence[Difference]) -> str:
    """Return a sentence about the earliest of `differences`, and how many other assets differ."""
    first = min(differences, key=lambda each: each.block)
    other_count = len({each.asset for each in result.differences}) - 1
    other_assets = f", and those of {other_count} more assets" if other_count else ""
    return (
        f"up to block {result.last_block} movements do not explain the balance of {first.asset} from block "
        f"{first.block} on ({first.cause}){other_assets}: chainfolio reconcile {result.address} --chain {result.chain}"
    )
