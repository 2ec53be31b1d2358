"""What comparing the balances of accounts with their movements found: as a document, where it is kept, and what it says
about other answers."""

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
MAX_SHOWN: Final = 5  # assets of one cause that are named


class Difference(msgspec.Struct, rename="camel", frozen=True):
    """A block in which the balance of an asset changed by `amount` more than the movements of the index say.

    `after` is the height before it, at which the two were still equal; a lower one where no balance between them could
    be read. `cause` is a name, `reason` a sentence."""

    asset: str
    block: int
    after: int
    amount: str
    cause: str
    reason: str

    @property
    def is_native(self) -> bool:
        """Whether it is one of the native coin."""
        return asset(self.asset).is_native

    @property
    def is_lacking(self) -> bool:
        """Whether the index lacks something. Anybody can make a token that nothing explains, and it says nothing."""
        return self.cause in OF_THE_INDEX and (self.is_native or self.cause != UNKNOWN)


class Reconciled(msgspec.Struct, rename="camel", frozen=True):
    """One asset: what was there before the range, what moved in it, what is there at its end. Null: it could not be
    read."""

    asset: str
    status: str
    opening: str | None
    movements: str
    balance: str | None


class ListedApart(msgspec.Struct, rename="camel", frozen=True):
    """Untrusted assets whose balances nothing explains, for one cause: how many there are, and the first of them. What
    the contract of a stranger logs says nothing about the index."""

    cause: str
    reason: str
    count: int
    assets: tuple[str, ...]


class Reconciliation(msgspec.Struct, rename="camel", frozen=True):
    """One account on one chain. `unread_checkpoints` are those whose state nobody serves any more. `more`: assets that
    have more differences than are listed. `notes` say what the result is worth. `untrusted` are assets that nobody
    trusts and that differ or cannot be read: they are in no other list but `assets`."""

    address: str
    chain: str
    first_block: int
    last_block: int
    block_hash: str
    checkpoints: tuple[int, ...]
    unread_checkpoints: tuple[int, ...]
    counts: dict[str, int]
    assets: tuple[Reconciled, ...]
    differences: tuple[Difference, ...]
    more: tuple[str, ...]
    notes: tuple[str, ...]
    untrusted: tuple[ListedApart, ...] = ()

    @property
    def is_equal(self) -> bool:
        """Return True if every trusted asset was read, and none differs."""
        return not self.differs and not self.counts["unreadable"] and not self.counts["unindexed"]

    def to_polars(self) -> pl.DataFrame:
        """A row for each asset, amounts in its smallest unit, as `chainfolio.portfolio.frames` says."""
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


def keep(tail: Tail, found: Reconciliation) -> None:
    """Keep a result in the place of the account's last one; assets that are equal are only counted."""
    kept = msgspec.structs.replace(found, assets=tuple(each for each in found.assets if each.status != "equal"))
    span = Span(found.first_block, found.last_block)
    tail.store_reconciliation(found.chain, found.address, span, found.block_hash, msgspec.json.encode(kept))


def kept(tail: Tail, chain: str, accounts: Collection[str] | None = None) -> list[Reconciliation]:
    """The last results of some accounts, or of all, where they still stand."""
    rows = tail.reconciliations(chain)
    return [
        msgspec.json.decode(result, type=Reconciliation)
        for account, result in rows
        if accounts is None or account in accounts
    ]


def issues(tail: Tail, chain: str, accounts: Collection[str], *, natives: bool) -> Iterator[Issue]:
    """What is known to differ, an issue for each account. It makes an answer partial where the index lacks something;
    where only coins are lacking, one that needs the movements of `natives`."""
    for each in kept(tail, chain, accounts):
        if each.differences:
            lacking = [one for one in each.differences if one.is_lacking and (natives or not one.is_native)]
            yield Issue(ADAPTER, chain, _told(each, lacking or each.differences), bool(lacking), each.address)


def _told(found: Reconciliation, some: Sequence[Difference]) -> str:
    """Some differences of an account, in one sentence."""
    first = min(some, key=lambda each: each.block)
    others = len({each.asset for each in found.differences}) - 1
    more = f", and those of {others} more assets" if others else ""
    return (
        f"up to block {found.last_block} movements do not explain the balance of {first.asset} from block "
        f"{first.block} on ({first.cause}){more}: chainfolio reconcile {found.address} --chain {found.chain}"
    )
