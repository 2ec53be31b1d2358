"""The input of the gain calculation: entries, and the unit of money in which it is exact."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_EVEN, Context, Decimal
from functools import lru_cache
from typing import Final, Literal, NamedTuple

from chainfolio import amounts

MONEY_DIGITS: Final = 30
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
Kind = Literal[
    "buy",
    "income",
    "received",
    "borrow",
    "sell",
    "sent",
    "gift",
    "donate",
    "fee",
    "repay",
    "move",
    "depart",
    "arrive",
    "deposit",
    "withdraw",
    "unasked",
    "taken",
]
ACQUIRED: Final = frozenset({"buy", "income", "received", "borrow"})
ARRIVED: Final = ACQUIRED | {"unasked", "arrive"}
DISPOSED: Final = frozenset({"sell", "sent", "gift", "donate", "fee"})
NEVER_DEPOSITED: Final = "it was withdrawn and had never been deposited: its cost is not known"
UNASKED: Final = "what others sent of it is in no sum: this token is not trusted, or has no price"
EARNED: Final = "a stake earned it, and keeps it"
_ROUNDED: Final = Context(prec=1000, Emax=10_000, Emin=-10_000, rounding=ROUND_HALF_EVEN)


def money(value: Decimal) -> int:
    """Return a value as an integer of 10^-30: the unit in which gains are computed, rounded half to even."""
    return int(_ROUNDED.to_integral_value(_ROUNDED.scaleb(value, MONEY_DIGITS)))


def decimal(units: int) -> Decimal:
    """Return an integer of money (units of 10^-30) as the exact decimal."""
    return amounts.EXACT.scaleb(Decimal(units), -MONEY_DIGITS)


@lru_cache(maxsize=4096)  # a report shows the time of a transaction several times
def iso_time(at_us: int | None) -> str:
    """Return a time in UTC as ISO 8601; empty for None."""
    return "" if at_us is None else f"{EPOCH + timedelta(microseconds=at_us):%Y-%m-%dT%H:%M:%S.%fZ}"


def share(total: int, part: int, parts: int) -> int:
    """Return `part / parts` of a total, rounded up to the unit."""
    return -(-total * part // parts)


@dataclass(frozen=True, slots=True)
class AssetFacts:
    """Symbol, decimals, chain and contract of an asset, for display."""

    symbol: str
    decimals: int
    chain: str = ""
    contract: str = ""


class Entry(NamedTuple):
    """A quantity (smallest units) of one asset that an account got or gave away, and its value.

    `value` is without the `fee` in money that was paid for it: both belong to the cost of an acquisition, and the fee
    is subtracted from the proceeds of a disposal. It is None if it is not known, and `reason` says why. `order` sorts
    entries of the same time. A `move` goes from `wallet` to the own wallet `to`. What leaves for an own account on
    another chain and arrives there has the kinds `depart` and `arrive`, with the same `to`. Movements by others of an
    untrusted asset may be invented: they have the kinds `unasked` (in) and `taken` (out).
    """

    time_us: int
    kind: Kind
    asset: str
    quantity: int
    value: int | None = None
    fee: int = 0
    wallet: str = ""
    transaction: str = ""
    to: str = ""
    order: int = 0
    reason: str = ""

    @property
    def sort_key(self) -> tuple[int, int, bool, str, str, str, str, int]:
        """The position among all entries. At one time and order, assets come before they leave."""
        leaves = self.kind not in ARRIVED
        return self.time_us, self.order, leaves, self.transaction, self.wallet, self.asset, self.kind, self.quantity


def sort_entries(entries: Iterable[Entry]) -> list[Entry]:
    """Return entries by time, independent of their given order."""
    ordered = sorted(entries, key=lambda entry: entry.sort_key)
    assert all(entry.quantity > 0 for entry in ordered), "what moved is more than nothing"
    return ordered


def without_loans(
    entries: Iterable[Entry], deposited: dict[tuple[str, str], int], *, per_wallet: bool
) -> Iterator[Entry]:
    """Yield entries in order, without deposits and loans: deposits stay the owner's.

    Fills `deposited` with how much of each asset lies in protocols at the end, by asset and, if `per_wallet`, wallet.

    A withdrawal beyond the deposit is income at spot; of an asset that was never deposited it has no known cost,
    because it may come from another asset. With `per_wallet`, a deposit from another wallet moves to the one that it
    returns to. Rewards that stay in a stake count as deposits. A repayment beyond the loan is interest, a fee.
    """
    debts: dict[tuple[str, str], int] = {}
    deposited_assets: set[str] = set()  # assets that were deposited, and not only earned
    for entry in entries:
        kind = entry.kind
        if kind in ("deposit", "withdraw", "borrow", "repay"):
            key = entry.asset, entry.wallet if per_wallet else ""
            if kind == "deposit":
                deposited[key] = deposited.get(key, 0) + entry.quantity
                if entry.reason != EARNED:
                    deposited_assets.add(entry.asset)
            elif kind == "withdraw":
                yield from _withdrawn(entry, deposited, key, is_given=entry.asset in deposited_assets)
            elif kind == "borrow":
                debts[key] = debts.get(key, 0) + entry.quantity
                yield entry
            else:
                returned = min(entry.quantity, debts.get(key, 0))
                debts[key] = debts.get(key, 0) - returned
                if returned:
                    yield entry._replace(quantity=returned, value=None, fee=0)
                if returned < entry.quantity:
                    yield _remainder(entry, returned, "fee")
        else:
            yield entry


def _withdrawn(
    entry: Entry, deposited: dict[tuple[str, str], int], key: tuple[str, str], *, is_given: bool
) -> Iterator[Entry]:
    """Yield what a withdrawal has beyond returned deposits, and moves of deposits from other wallets.

    Lowers `deposited` by what returned. `is_given`: some of the asset was deposited before, and not only earned by a
    stake.
    """
    sources = [key] if key in deposited else sorted(each for each in deposited if each[0] == entry.asset)
    remaining = entry.quantity
    for source in sources:
        returned = min(remaining, deposited[source])
        deposited[source] -= returned
        remaining -= returned
        if returned and source != key:
            yield entry._replace(kind="move", quantity=returned, value=None, fee=0, wallet=source[1], to=entry.wallet)
    if remaining and entry.reason == UNASKED:
        yield _remainder(entry, entry.quantity - remaining, "unasked")
    elif remaining and is_given:
        yield _remainder(entry, entry.quantity - remaining, "income")
    elif remaining:
        yield _remainder(entry, entry.quantity - remaining, "received")._replace(value=None, reason=NEVER_DEPOSITED)


def _remainder(entry: Entry, returned: int, kind: Kind) -> Entry:
    """Return the part of an entry beyond `returned`, as an entry of another kind."""
    remaining = entry.quantity - returned
    value = None if entry.value is None else share(entry.value, remaining, entry.quantity)
    return entry._replace(kind=kind, quantity=remaining, value=value, fee=share(entry.fee, remaining, entry.quantity))
