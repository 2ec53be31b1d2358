"""Containers: what an account put into positions, and what comes out of them.

A position keeps the lots that go into it: a deposit is no disposal. A container is the record of one position: its
`units` (shares of a vault, a pool or a lender; the liquidity of a position NFT) and the assets that went in for them.
Taking units out takes the same part of each asset. The difference to what the position pays is settled by `settle`.
Families do not matter here: they only say what goes in and what comes out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final, NamedTuple

from chainfolio.portfolio.pnl.entries import ARRIVED, DISPOSED, EARNED, Entry, Kind, share
from chainfolio.portfolio.pnl.trade_value import Side, equalise


@dataclass(slots=True)
class Container:
    """One position of an account: its units, and the quantities that went in for them, by asset.

    `may_contain` has the assets that went in for several shares at once: which one stands for what is unknown.
    """

    units: int = 0
    inside: dict[str, int] = field(default_factory=dict)
    may_contain: set[str] = field(default_factory=set)

    @property
    def contents(self) -> frozenset[str]:
        """The assets that went in, or may have."""
        return frozenset(self.inside.keys() | self.may_contain)

    def put(self, units: int, assets: Mapping[str, int]) -> None:
        """Add units and the assets that went in for them."""
        self.units += units
        for asset, quantity in assets.items():
            self.inside[asset] = self.inside.get(asset, 0) + quantity

    def take(self, units: int) -> dict[str, int]:
        """Take units out, at most all, and return their part of each asset; the last unit takes the rest."""
        units = min(units, self.units)
        parts = {asset: quantity * units // self.units for asset, quantity in self.inside.items()} if units else {}
        self.units -= units
        if not self.units:
            self.may_contain.clear()
        for asset, quantity in parts.items():
            self.inside[asset] -= quantity
        return {asset: quantity for asset, quantity in parts.items() if quantity}


class Redemption(NamedTuple):
    """The contents of redeemed shares.

    Attributes:
        contents: What went into positions for them, by asset.
        bought: How many of them were acquired otherwise, by share: these are sold for their part of the payment.
        part: The largest fraction of a redemption that was bought.
    """

    contents: dict[str, int]
    bought: dict[str, int]
    part: Fraction


SHARE: Final = -1  # in place of a quantity, for the share of a pool


class Holder(NamedTuple):
    """A contract with deposits for which it gave no share: the key of its protocol, and the deposited assets."""

    protocol: str
    assets: frozenset[str]


class Rent(NamedTuple):
    """The coins of an open account, the wallet that paid them, and the position that needs the account.

    `position` is empty if no position needs it.
    """

    wallet: str
    raw: int
    position: str


@dataclass(slots=True)
class Containers:
    """The containers of an account so far, by the key of their share.

    Attributes:
        assets: Assets that were deposited.
        farms: What is deposited in contracts that give no shares, by contract and asset.
        stakes: Contracts among these that took a position, or a deposit in a call of a known type. Also the keys of
            shares that came for stakes.
        rewards: Contracts of `farms`, each with an asset that it paid as income.
        loans: Contracts that lent an asset when they were called, each with the asset.
        lots: How much of each asset was acquired otherwise, and is still there.
        bought: Assets that were bought, or came with a value.
        taken: Assets that contracts took in transactions of no known type.
        by_share: What went into positions, by the key of their share.
        waiting: What burnt shares stood for that did not pay yet, by the key of the share's contract and asset.
        waiting_units: How many burnt shares did not pay yet, by the same key.
        rents: Coins that accounts need while they are open, by asset and account.
        protocols: Protocols by contract of `farms`, as of the call of the last deposit.
    """

    assets: set[str] = field(default_factory=set)
    farms: dict[str, dict[str, int]] = field(default_factory=dict)
    stakes: set[str] = field(default_factory=set)
    rewards: set[tuple[str, str]] = field(default_factory=set)
    loans: set[tuple[str, str]] = field(default_factory=set)
    lots: dict[str, int] = field(default_factory=dict)
    bought: set[str] = field(default_factory=set)
    taken: set[str] = field(default_factory=set)
    by_share: dict[str, Container] = field(default_factory=dict)
    waiting: dict[str, dict[str, int]] = field(default_factory=dict)
    waiting_units: dict[str, int] = field(default_factory=dict)
    rents: dict[tuple[str, str], Rent] = field(default_factory=dict)
    protocols: dict[str, str] = field(default_factory=dict)

    def add(self, entries: Iterable[Entry], type_: str, contract: str) -> None:
        """Add the entries of one transaction that called a contract, by the key it has as an asset.

        They give the assets that contracts took and lent, the deposited assets, and the quantities with lots.
        """
        for entry in entries:
            asset = entry.asset
            self.loans |= {(contract, asset)} if entry.kind == "borrow" else set()
            self.bought |= {asset} if entry.kind == "buy" or (entry.kind in ARRIVED and entry.value) else set()
            self.taken |= {asset} if entry.kind == "sent" and type_ == "INTERACTION" else set()
            if entry.kind == "deposit":
                self.assets |= {asset} if entry.reason != EARNED else set()
            elif entry.kind in ARRIVED:
                self.lots[asset] = self.lots.get(asset, 0) + entry.quantity
            elif entry.kind in DISPOSED:
                self.lots[asset] = max(self.lots.get(asset, 0) - entry.quantity, 0)

    def put(self, shares: Mapping[str, int], assets: Mapping[str, int]) -> None:
        """Add shares that an account received for deposited assets.

        Which of several shares stands for what is unknown: each may stand for all of it.
        """
        for asset, units in shares.items():
            container = self.by_share.setdefault(asset, Container())
            container.put(units, assets if len(shares) == 1 else {})
            container.may_contain |= assets.keys() if len(shares) > 1 else set()

    def stake(self, contract: str, asset: str, quantity: int, protocol: str = "") -> None:
        """Add a deposit in a contract that gives no shares; `protocol` is that of the call."""
        if protocol:
            self.protocols[contract] = protocol
        stakes = self.farms.setdefault(contract, {})
        stakes[asset] = stakes.get(asset, 0) + quantity

    def unstake(self, contracts: Iterable[str], asset: str, quantity: int) -> int:
        """Take up to a quantity out of contracts that give no shares, and return the quantity taken."""
        remaining = quantity
        for contract in contracts:
            stakes = self.farms.get(contract, {})
            taken = min(remaining, stakes.get(asset, 0))
            if taken:
                stakes[asset] -= taken
                remaining -= taken
        return quantity - remaining

    def never_took(self, contracts: Collection[str], asset: str) -> bool:
        """Return True if contracts that give no shares took other assets, and never this one."""
        return all(each in self.farms and asset not in self.farms[each] for each in contracts)

    def may_return(self, sides: Iterable[Side]) -> bool:
        """Return True if a contract took one of the assets before, in a transaction of no known type."""
        return any(side.asset in self.taken for side in sides)

    def holders(self) -> dict[str, Holder]:
        """Return the contracts that hold deposits and gave no shares for them."""
        return {
            contract: Holder(self.protocols.get(contract, ""), frozenset(asset for asset, raw in each.items() if raw))
            for contract, each in self.farms.items()
            if any(each.values())
        }

    def pools(self) -> Iterator[dict[str, int]]:
        """Yield what went into each position that exchanges its assets: it has several of them.

        A pool may have taken one asset alone, and so does a vault or a lender. Such a position has its share, too, with
        the quantity SHARE: the portfolio tells whether it exchanges its assets.
        """
        for key, container in self.by_share.items():
            inside = {asset: raw for asset, raw in container.inside.items() if raw}
            if container.units and len(container.inside) > 1:
                yield dict(container.inside)
            elif container.units and inside:
                yield {**inside, key: SHARE}

    def rent_sums(self) -> dict[tuple[str, str], int]:
        """Return the coins of all open accounts, by asset and the wallet that paid."""
        sums = dict[tuple[str, str], int]()
        for (asset, _), rent in self.rents.items():
            sums[asset, rent.wallet] = sums.get((asset, rent.wallet), 0) + rent.raw
        return sums

    def take_rents(self, position: str) -> dict[str, int]:
        """Remove the rents of a position, and return the coins by the wallet that paid."""
        sums = dict[str, int]()
        for key in [key for key, rent in self.rents.items() if rent.position == position]:
            rent = self.rents.pop(key)
            sums[rent.wallet] = sums.get(rent.wallet, 0) + rent.raw
        return {wallet: raw for wallet, raw in sums.items() if raw}

    def redeem(self, shares: Mapping[str, int]) -> Redemption:
        """Take redeemed shares out: of deposits, then bought ones. The rest is interest of shares."""
        contents, bought, part = dict[str, int](), dict[str, int](), Fraction(0)
        for asset, quantity in shares.items():
            container = self.by_share.get(asset, Container())
            surplus = max(quantity - container.units, 0)
            _add(contents, container.take(quantity))
            if sold := min(surplus, self.lots.get(asset, 0)):
                bought[asset] = sold
                part = max(part, Fraction(sold, quantity))
        return Redemption(contents, bought, part)

    def dispose(self, side: Side) -> tuple[Side | None, list[Side]]:
        """Take what was sold or given away, those that were acquired otherwise first.

        Returns:
            The part that has lots or no known origin (None if there is no such part), and the contents of the shares
            among the rest. What was paid for several assets counts as paid in equal parts.
        """
        container = self.by_share.get(side.asset)
        units = min(
            side.quantity - min(side.quantity, self.lots.get(side.asset, 0)), container.units if container else 0
        )
        if container is None or not units or not container.inside:
            return side, []
        contents = divided(side.part(units).value, container.take(units))
        surplus = side.quantity - units
        return (side.without(units) if surplus else None), contents


def settle(
    contents: Mapping[str, int],
    payments: Sequence[Side],
    trade_value: str,
    hidden: str = "",
    *,
    is_pool: bool = False,
) -> list[tuple[Kind, Side]]:
    """Return the movements of units that leave a position: what went in for them, and what it paid.

    All of `contents` returns with its lots. Of what is paid beyond that:

    - If the position is a pool or holds several assets, or pays none of those that went in, it exchanged the missing
      ones for the others: a trade.
    - Otherwise it is income, and what is missing is lost: sold for nothing.

    Args:
        contents: What went in, by asset.
        payments: What the position pays.
        trade_value: The rule of `equalise` for the value of the trade.
        hidden: An asset whose payments by contracts may not be indexed: if none of it came, no value is known.
        is_pool: The position is known to exchange its assets.
    """
    by_asset = {side.asset: side for side in payments}
    back: list[tuple[Kind, Side]] = []
    lost = list[Side]()
    for asset, raw in contents.items():
        side = by_asset.get(asset)
        value = None if side is None else side.part(raw).value
        back.append(("withdraw", Side(asset, raw, value)))
        if (missing := raw - (side.quantity if side else 0)) > 0:
            lost.append(side.part(missing) if side else Side(asset, missing, None))
    more = [side.part(beyond) for side in payments if (beyond := side.quantity - contents.get(side.asset, 0)) > 0]
    is_hidden = any(side.asset == hidden for side in lost) and hidden not in by_asset
    is_pool = is_pool or len(contents) > 1 or not any(asset in by_asset for asset in contents)
    if lost and more and is_pool:
        _exchange(lost, more, trade_value, is_hidden)
        return [*back, *(("sell", side) for side in lost), *(("buy", side) for side in more)]
    for side in lost:
        side.value = None if is_hidden else 0
    return [*back, *(("sell", side) for side in lost), *(("income", side) for side in more)]


def _exchange(lost: Sequence[Side], more: Sequence[Side], trade_value: str, is_hidden: bool) -> None:
    """Set the values of the assets that a position lost, and of those that came out instead.

    Both sides get the same total, as in `equalise`. If a lost asset has no price, and all others have, the lost assets
    get equal parts of it. All values become unknown if `is_hidden`.
    """
    if is_hidden:
        for side in (*lost, *more):
            side.value = None
        return
    equalise(more, lost, trade_value)
    values = [side.value for side in more]
    if None in values or all(side.value is not None for side in lost):
        return
    total = sum(value or 0 for value in values)
    for side, part in zip(lost, divided(total, {side.asset: side.quantity for side in lost}), strict=True):
        side.value = part.value


def divided(value: int | None, contents: Mapping[str, int]) -> list[Side]:
    """Return the contents of a position that was sold for a value, each with an equal part of it.

    All parts are unknown if the value is.
    """
    sides = [Side(asset, quantity, None) for asset, quantity in contents.items()]
    for i, side in enumerate(sides):
        if value is not None:
            side.value = share(value, 1, len(sides) - i)
            value -= side.value
    return sides


def split_rents(side: Side, rents: list[Side]) -> list[Side]:
    """Return the rents of a sold position with their part of the payment, which `side` loses.

    The part is what the coins are worth, at most all; if that is not known, neither is the rest.
    """
    for coins in rents:
        if coins.value is None:
            side.value = None
        elif side.value is not None:
            coins.value = min(coins.value, side.value)
            side.value -= coins.value
    return rents


def paid_for_rents(payments: list[Side], rents: Sequence[Side]) -> list[Side]:
    """Take the value of rents out of the payments for a position, in place, and return the part taken.

    Nothing is taken if a value is not known.
    """
    values = [side.value for side in (*payments, *rents)]
    total, worth = sum(side.value or 0 for side in payments), sum(side.value or 0 for side in rents)
    if None in values or not total or not worth:
        return []
    paid = list[Side]()
    for at, side in enumerate(payments):
        quantity = min(side.quantity * worth // total, side.quantity)
        if quantity:
            paid.append(side.part(quantity))
            payments[at] = side.without(quantity)
    payments[:] = [side for side in payments if side.quantity]
    return paid


def _add(total: dict[str, int], parts: Mapping[str, int]) -> None:
    for asset, quantity in parts.items():
        total[asset] = total.get(asset, 0) + quantity
