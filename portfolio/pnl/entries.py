"""What the calculation of gains starts from: entries, and the unit of money in which it is exact."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from decimal import ROUND_HALF_EVEN, Context, Decimal
from typing import Final, Literal, NamedTuple

from chainfolio import amounts

MONEY_DIGITS: Final = 30
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
    "deposit",
    "withdraw",
    "unasked",
    "taken",
]
ACQUIRED: Final = frozenset({"buy", "income", "received", "borrow"})
ARRIVED: Final = ACQUIRED | {"unasked"}
DISPOSED: Final = frozenset({"sell", "sent", "gift", "donate", "fee"})
NEVER_DEPOSITED: Final = "it was withdrawn and had never been deposited: its cost is not known"
UNASKED: Final = "what others sent of it is in no sum: nobody vouches for this token"
EARNED: Final = "a stake earned it, and keeps it"
_ROUNDED: Final = Context(prec=1000, Emax=10_000, Emin=-10_000, rounding=ROUND_HALF_EVEN)


def money(value: Decimal) -> int:
    """A value as an integer of 10^-30: the unit in which gains are computed, rounded half to even."""
    return int(_ROUNDED.to_integral_value(_ROUNDED.scaleb(value, MONEY_DIGITS)))


def decimal(units: int) -> Decimal:
    """An integer of money as the exact decimal."""
    return amounts.EXACT.scaleb(Decimal(units), -MONEY_DIGITS)


def share(total: int, part: int, parts: int) -> int:
    """So many `of` parts of a sum, rounded up to the unit; what is left is the rest, so that no unit is lost."""
    return -(-total * part // parts)


class Entry(NamedTuple):
    """A quantity (smallest units) of one asset that an account got or gave away, and what it was worth.

    `value` is without the `fee` in money that was paid for it: both belong to the cost of what is acquired, and the
    fee is taken from the proceeds of what is disposed of. It is None where nobody knows it, and `reason` says why.
    `order` places what happened at the same time. A `move` goes from `wallet` to the own wallet `to`.
    What others did with an asset that nobody vouches for may be invented: `unasked` came, `taken` left.
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
        """Where it stands among all. At one moment assets come before they leave."""
        leaves = self.kind not in ARRIVED
        return self.time_us, self.order, leaves, self.transaction, self.wallet, self.asset, self.kind, self.quantity


def sort_entries(entries: Iterable[Entry]) -> list[Entry]:
    """Entries by time: the result does not depend on the order in which they were given."""
    ordered = sorted(entries, key=lambda entry: entry.sort_key)
    assert all(entry.quantity > 0 for entry in ordered), "what moved is more than nothing"
    return ordered


def without_loans(
    entries: Iterable[Entry], deposited: dict[tuple[str, str], int], *, per_wallet: bool
) -> Iterator[Entry]:
    """Entries in order, without deposits: what is deposited stays the owner's. `deposited` is filled with how much of
    each asset lies in protocols at the end, by asset and, `per_wallet`, wallet.

    What comes back beyond the deposit is income at spot, and of an asset that was never deposited it has no known cost:
    it may be what something else became. What was deposited from another wallet, per wallet, moves to the one that it
    comes back to. What a stake earned is a deposit of no more than that. What is paid back beyond what was borrowed is
    interest, a fee.
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
    """What a withdrawal is beyond what only came back; `deposited` is lowered by that. `is_given`: some of the asset
    was deposited before, beside what a stake earned."""
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
    """What is left of an entry behind the part that only came back, as an entry of another kind."""
    remaining = entry.quantity - returned
    value = None if entry.value is None else share(entry.value, remaining, entry.quantity)
    return entry._replace(kind=kind, quantity=remaining, value=value, fee=share(entry.fee, remaining, entry.quantity))
