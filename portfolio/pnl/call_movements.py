"""Gains of positions by the calls of their programs, which show every amount.

The calls cannot be forged. But a position may have been opened by others, or changed by a call of no known meaning.
Then the values of what it moves are not known, and an issue says so.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from chainfolio.portfolio.pnl.containers import Containers, Rent, settle
from chainfolio.portfolio.pnl.position_changes import Movement, Position
from chainfolio.portfolio.pnl.trade_value import Side, leave_unexplained
from chainfolio.position_changes import CallChange, PositionChange

WHOLE: Final = 10_000  # ten-thousandths of a position
PAYING: Final = frozenset(["remove", "close", "lend", "swap debt"])  # kinds of changes that pay the owner
MOVING: Final = PAYING | {"add"}
NOT_OPENED: Final = "it changed a position that no known transaction opened: gains of what it moved are not known"
NO_RECIPIENT: Final = "an account was closed, and it is not known who got its coins: their gain is not known"
NOT_CLEAR: Final = "it changed a position in a way that is not known: gains of what it moved are not known"
Redeem = Callable[[Sequence[Movement], Mapping[str, int], bool], tuple[list[Movement], list[Movement]]]


Key = tuple[str, str]  # chain and hash of a transaction


def split_changes(
    changes: Mapping[Key, Sequence[PositionChange | CallChange] | None],
) -> tuple[dict[Key, Sequence[PositionChange] | None], dict[Key, Sequence[CallChange]]]:
    """Return changes by events, with those that are not known, and changes by calls.

    If not all calls of a transaction are recorded, its changes are not known, and those by calls are unclear ones.
    """
    by_events: dict[Key, Sequence[PositionChange] | None] = {}
    by_calls: dict[Key, Sequence[CallChange]] = {}
    for key, each in changes.items():
        if each is None:
            by_events[key] = None
            continue
        if calls := [change for change in each if isinstance(change, CallChange)]:
            by_calls[key] = calls
        by_events[key] = [change for change in each if isinstance(change, PositionChange)]
        if any(change.kind == "unread" for change in calls):
            by_events[key] = None
    return by_events, by_calls


def own_changes(
    changes: Sequence[CallChange],
    chain: str,
    wallet: str,
    own_wallets: Collection[str],
    positions: Collection[str],
    *,
    is_sender: bool,
) -> Sequence[CallChange]:
    """Return the changes that moved assets of a wallet or changed one of its positions, as the wallet's calls.

    If others sent the transaction and the wallet paid nothing, only changes of its positions count. Anybody can open a
    position for the wallet, or let another position pay the wallet: that payment is received. If others get a part of
    what a position of the wallet pays, or pay into it, its changes are unclear.

    Args:
        changes: All changes of one transaction.
        chain: The key of the chain.
        wallet: The wallet.
        own_wallets: All wallets of the account.
        positions: The keys of their positions.
        is_sender: An own wallet sent the transaction.
    """
    has_paid = any(raw < 0 for each in changes if each.owner == wallet for _, raw in each.moved)
    is_own = is_sender or has_paid
    opened = [each.position for each in changes if each.kind == "open" and each.owner == wallet and is_own]
    keys = {*positions, *(f"{chain}:{each}" for each in opened)}
    own_kinds = {(each.kind, each.position) for each in changes if each.owner in (wallet, "")}
    unclear = _of_others(changes, own_wallets)
    paying_kinds = PAYING | ({"debt"} if is_own else set())
    own_calls: list[CallChange] = []
    for each in changes:
        is_open = f"{chain}:{each.position}" in keys
        is_unclear = is_open and (each.kind, each.position) in unclear
        if each.kind == "rent" and each.moved[0][1] > 0:
            own_calls.append(each)
        elif each.owner == wallet:
            own_calls += [replace(each, kind="unclear") if is_unclear else each] if is_own or is_open else []
        elif not each.owner:
            own_calls += [each] if is_open else []
        elif is_unclear or (is_open and each.kind in paying_kinds and (each.kind, each.position) not in own_kinds):
            own_calls.append(CallChange("unclear", each.position, wallet))
    return _with_one_removal(own_calls)


def _of_others(changes: Sequence[CallChange], own_wallets: Collection[str]) -> set[tuple[str, str]]:
    """Return kind and position of changes in which others took part, or several own wallets.

    An account without own wallets that gets assets is the pool of the position, up to the amount that own wallets paid.
    If such accounts get more than that and others paid, the others paid each other.
    """
    received, paid = defaultdict[tuple[str, str, str], int](int), defaultdict[tuple[str, str, str], int](int)
    paid_by_others: set[tuple[str, str, str]] = set()
    wallets = defaultdict[tuple[str, str], set[str]](set)
    for each in (each for each in changes if each.owner and each.kind in MOVING):
        wallets[each.kind, each.position] |= {each.owner} & {*own_wallets}
        for mint, raw in each.moved:
            at = each.kind, each.position, mint
            if each.owner in own_wallets:
                paid[at] += max(-raw, 0)
            elif raw > 0:
                received[at] += raw
            else:
                paid_by_others.add(at)
    several = {at for at, owners in wallets.items() if len(owners) > 1}
    return several | {at[:2] for at in paid_by_others if received[at] > paid[at]}


def _with_one_removal(changes: Sequence[CallChange]) -> Sequence[CallChange]:
    """Return the changes with the removals of each closed position added up, in place of its last one."""
    closed = {each.position for each in changes if each.kind == "close"}
    merged: list[CallChange] = []
    last: dict[str, int] = {}
    for each in reversed(changes):
        is_last = not (each.kind == "remove" and each.position in closed and each.units != 0)
        at = len(merged) if is_last else last.setdefault(each.position, len(merged))
        merged[at:] = [_sum(each, merged[at]), *merged[at + 1 :]] if at < len(merged) else [each]
    return merged[::-1]


def _sum(a: CallChange, b: CallChange) -> CallChange:
    """Return `b` with the movements and units of both removals; units are None if one of them is not known."""
    raw_by_mint = defaultdict[str, int](int)
    for mint, raw in (*a.moved, *b.moved):
        raw_by_mint[mint] += raw
    units = None if a.units is None or b.units is None else a.units + b.units
    return replace(b, owner=a.owner or b.owner, moved=tuple(raw_by_mint.items()), units=units, part=None, span=None)


@dataclass(slots=True)
class CallMovements:
    """Collects what the calls of one transaction mean for one wallet.

    Attributes:
        chain: The key of the chain.
        wallet: The wallet.
        own_wallets: All wallets of the account.
        asset_of: Returns the key of a token; an empty text is the native coin.
        value_at: Returns an amount of an asset with its value at that time.
        positions: The positions of the account, by key.
        containers: Its shares, its deposits, and its lots.
        redeem: Returns the movements of redeemed shares: bought and sold ones, and those of containers.
        trade_value: The rule of `equalise`.
        deposits_are_disposals: As of `Treatment`.
        liquidity_is_disposal: As of `Treatment`.
        closing: The positions that this transaction closes: all their liquidity is removed.
        traded: Purchases and sales, which bear the fee of the transaction.
        settlements: The other movements.
        explained: What the calls moved between wallet and positions, by asset; positive if it came.
        problem: The reason why values are not known; empty if they are.
    """

    chain: str
    wallet: str
    own_wallets: Collection[str]
    asset_of: Callable[[str], str]
    value_at: Callable[[str, int], Side]
    positions: dict[str, Position]
    containers: Containers
    redeem: Redeem
    trade_value: str
    deposits_are_disposals: bool
    liquidity_is_disposal: bool
    closing: Collection[str]
    traded: list[Movement] = field(default_factory=list)
    settlements: list[Movement] = field(default_factory=list)
    explained: dict[str, int] = field(default_factory=dict)
    problem: str = ""

    def add(self, change: CallChange) -> None:
        """Apply one change: add to `traded` and `settlements`, and what it moved to `explained`."""
        if change.kind in ("rent", "cost"):
            self._pay_rent(change)
            return
        movements = [(self.asset_of(mint), raw) for mint, raw in change.moved if mint != change.position]
        incoming = [self.value_at(asset, raw) for asset, raw in movements if raw > 0]
        outgoing = [self.value_at(asset, -raw) for asset, raw in movements if raw < 0]
        for asset, raw in movements:
            self.explained[asset] = self.explained.get(asset, 0) + raw
        key = f"{self.chain}:{change.position}"
        if change.kind in ("add", "remove", "earn", "close", "resize"):
            self._change(key, change, incoming, outgoing)
        elif change.kind == "share":
            self._exchange_shares(key, change, incoming, outgoing)
        elif change.kind in ("lend", "debt", "swap debt"):
            self._lend(key, change, incoming, outgoing)
        elif change.kind == "request":
            self._request(key, outgoing)
        elif change.kind != "open":
            self._unclear(key, incoming, outgoing)

    def leave_unexplained(self, incoming: dict[str, Side], outgoing: dict[str, Side]) -> None:
        """Leave what the changes do not explain; without values if one is not clear: others may have paid for it."""
        leave_unexplained(incoming, outgoing, self.explained, self.value_at)
        for side in (*incoming.values(), *outgoing.values()) if self.problem == NOT_CLEAR else ():
            side.value = None

    def _pay_rent(self, change: CallChange) -> None:
        """Deposit the lamports that an own account needs to exist; withdraw them once it is closed.

        Lamports for accounts of others are a fee. So are lamports that a closed account paid to others.
        """
        (mint, raw), account = change.moved[0], change.position
        asset, rents = self.asset_of(mint), self.containers.rents
        _, prepaid, position = rents.get((asset, account), Rent(self.wallet, 0, ""))
        if raw < 0:
            self.explained[asset] = self.explained.get(asset, 0) + raw
            is_held = change.kind == "rent" and (prepaid > 0 or change.holder in self.own_wallets)
            self.settlements.append(("deposit" if is_held else "fee", self.value_at(asset, -raw)))
            position = f"{self.chain}:{change.needed_by}" if change.needed_by else position
            rents |= {(asset, account): Rent(self.wallet, prepaid - raw, position)} if is_held else {}
        elif prepaid and (change.owner == self.wallet or change.owner not in self.own_wallets):
            del rents[asset, account]
            self.settlements.append(("withdraw", Side(asset, prepaid, None)))
            refund = min(prepaid, raw) if change.owner == self.wallet else 0
            self.explained[asset] = self.explained.get(asset, 0) + refund
            if not change.owner:
                self._without_values((), [Side(asset, prepaid, None)], NO_RECIPIENT)
            elif prepaid > refund:
                self.settlements.append(("fee", self.value_at(asset, prepaid - refund)))

    def _is_disposal(self, change: CallChange) -> bool:
        return self.deposits_are_disposals or (change.is_pool and self.liquidity_is_disposal)

    def _change(self, key: str, change: CallChange, incoming: Sequence[Side], outgoing: Sequence[Side]) -> None:
        """Apply a change of a position that is an NFT or an account; without values if it is not clear."""
        position = self.positions.get(key)
        if position is None or not position.is_clear:
            if incoming or outgoing:
                self._without_values(incoming, outgoing, NOT_OPENED if position is None else NOT_CLEAR)
        elif change.kind == "earn":
            self.settlements += [("income", side) for side in incoming]
        elif change.kind == "resize":
            position.span = None
        elif outgoing and not incoming:
            self._put(key, position, change, outgoing)
        elif change.kind == "add":
            self._unclear(key, incoming, outgoing)
        elif incoming or change.kind == "close":
            self._take(key, position, change, incoming)

    def _put(self, key: str, position: Position, change: CallChange, outgoing: Sequence[Side]) -> None:
        """Put assets into a position: a deposit, or a purchase of units if that is a disposal."""
        position.is_measured = position.is_measured and bool(change.units)
        if self._is_disposal(change):
            position.container.put(change.units or 1, {})
            self.traded += [("sell", side) for side in outgoing]
            self.traded.append(("buy", Side(key, change.units or 1, _total(outgoing))))
        else:
            position.container.put(change.units or 1, {side.asset: side.quantity for side in outgoing})
            self.settlements += [("deposit", side) for side in outgoing]

    def _take(self, key: str, position: Position, change: CallChange, incoming: Sequence[Side]) -> None:
        """Take removed liquidity out; a payment for no liquidity is income.

        The position becomes unclear if its units are not known, or if nothing was paid for them.
        """
        if change.units == 0:
            self.settlements += [("income", side) for side in incoming]
            return
        units = self._units(key, position, change)
        if units == 0 and not incoming:
            return
        if not units or not incoming:
            self._unclear(key, incoming, ())
            return
        contents = position.container.take(units)
        if self._is_disposal(change):
            self.traded += [("buy", side) for side in incoming]
            self.traded.append(("sell", Side(key, units, _total(incoming))))
        else:
            self.settlements += settle(contents, incoming, self.trade_value, is_pool=change.is_pool)

    def _units(self, key: str, position: Position, change: CallChange) -> int | None:
        """Return the removed units; None if they are not known.

        A position of bins counts ten-thousandths: the same part of each bin leaves with them. One that is sold for its
        liquidity has one unit, which cannot be sold in parts.
        """
        container = position.container
        if change.part == WHOLE and change.span is None:
            return container.units
        if key in self.closing:
            is_all = not position.is_measured or change.units in (None, container.units)
            return container.units if is_all else None
        if change.part is not None:
            span, removed = position.span, change.span
            if span is None or removed is None or removed[0] > span[0] or removed[1] < span[1]:
                return None
            if change.part == WHOLE:
                return container.units
            if self._is_disposal(change):
                return None
            container.units *= WHOLE  # so that each part is a whole number of units
            return container.units // WHOLE * change.part
        is_known = position.is_measured and change.units is not None and change.units <= container.units
        return change.units if is_known else None

    def _exchange_shares(
        self, key: str, change: CallChange, incoming: Sequence[Side], outgoing: Sequence[Side]
    ) -> None:
        """Put assets in for shares, or redeem shares for assets."""
        raw = dict(change.moved).get(change.position, 0)
        self.explained[key] = self.explained.get(key, 0) + raw
        container = self.containers.by_share.get(key) if raw < 0 and change.is_pool else None
        inside = {asset for asset, quantity in container.inside.items() if quantity} if container else set()
        is_partly_paid = bool(inside - {side.asset for side in incoming})  # others got the rest
        if not raw or not (outgoing if raw > 0 else incoming) or (incoming if raw > 0 else outgoing) or is_partly_paid:
            self._without_values(incoming, outgoing, NOT_CLEAR)
            self.settlements += [("received", Side(key, raw, None))] if raw > 0 else []
            if raw < 0:
                contents, bought, _ = self.containers.redeem({key: -raw})
                self._lose({**contents, **bought}, deposited=contents)
        elif self._is_disposal(change):
            share = Side(key, abs(raw), _total(incoming or outgoing))
            self.traded += [("sell", side) for side in outgoing] + [("buy", side) for side in incoming]
            self.traded.append(("buy" if raw > 0 else "sell", share))
        elif raw > 0:
            self.containers.put({key: raw}, {side.asset: side.quantity for side in outgoing})
            self.settlements += [("deposit", side) for side in outgoing]
        else:
            outside, settlements = self.redeem([("withdraw", side) for side in incoming], {key: -raw}, change.is_pool)
            self.traded += [each for each in outside if each[0] in ("buy", "sell")]
            self.settlements += settlements
            for side in (side for kind, side in outside if kind not in ("buy", "sell")):  # shares of no known origin
                self._without_values([side], (), NOT_OPENED)

    def _lend(self, key: str, change: CallChange, incoming: Sequence[Side], outgoing: Sequence[Side]) -> None:
        """Deposit and withdraw, the deposit first; or borrow and repay; no values if it is not clear."""
        position = self.positions.get(key)
        if position is None or not position.is_clear:
            self._without_values(incoming, outgoing, NOT_OPENED if position is None else NOT_CLEAR)
            return
        if change.kind == "debt":
            self.settlements += [("borrow", side) for side in incoming] + [("repay", side) for side in outgoing]
            return
        for side in outgoing:
            if change.kind == "swap debt":
                self.settlements.append(("repay", side))
            elif self.deposits_are_disposals:
                self.settlements.append(("sent", side))
            else:
                self.containers.stake(change.position, side.asset, side.quantity)
                self.settlements.append(("deposit", side))
        for side in incoming:
            self._return_deposit(change.position, side)

    def _return_deposit(self, account: str, side: Side) -> None:
        """Take a payment out of an account without shares: its deposit first, then interest."""
        if self.deposits_are_disposals:
            self.settlements.append(("received", side))
            return
        is_known = side.asset in self.containers.farms.get(account, {})
        returned = self.containers.unstake([account], side.asset, side.quantity)
        if returned:
            self.settlements.append(("withdraw", side.part(returned)))
        if returned < side.quantity and is_known:
            self.settlements.append(("income", side.without(returned) if returned else side))
        elif returned < side.quantity:
            self._without_values([side], (), NOT_OPENED)

    def _request(self, key: str, outgoing: Sequence[Side]) -> None:
        """Put what shares stand for into a position that pays later; bought shares go in themselves."""
        shares = {side.asset: side.quantity for side in outgoing}
        contents, bought, _ = self.containers.redeem(shares)
        position = self.positions[key] = Position()
        position.container.put(1, contents)
        position.container.put(0, bought)
        for asset, raw in bought.items():
            self.containers.lots[asset] -= raw
        self.settlements += [("deposit", Side(asset, raw, None)) for asset, raw in bought.items()]
        if not contents and not bought:
            position.is_clear = False

    def _unclear(self, key: str, incoming: Sequence[Side], outgoing: Sequence[Side]) -> None:
        """Count what a call of no known meaning moved, and what was in its position, without values."""
        position = self.positions.get(key)
        contents = {} if position is None else position.close()
        if position is not None:
            position.is_clear = False
            for asset, raw in self.containers.farms.pop(key.removeprefix(f"{self.chain}:"), {}).items():
                contents[asset] = contents.get(asset, 0) + raw
        sold = {key: raw} if (raw := self.containers.lots.get(key, 0)) else {}
        self._lose({**contents, **sold}, deposited=contents)
        self._without_values(incoming, outgoing, NOT_CLEAR)

    def _lose(self, assets: Mapping[str, int], deposited: Collection[str]) -> None:
        """Sell assets for an unknown value; those that were deposited come out before."""
        self.settlements += [
            ("withdraw", Side(asset, raw, None)) for asset, raw in assets.items() if asset in deposited
        ]
        self.settlements += [("sell", Side(asset, raw, None)) for asset, raw in assets.items()]

    def _without_values(self, incoming: Sequence[Side], outgoing: Sequence[Side], problem: str) -> None:
        self.settlements += [("received", Side(side.asset, side.quantity, None)) for side in incoming]
        self.settlements += [("sell", Side(side.asset, side.quantity, None)) for side in outgoing]
        self.problem = problem


def _total(sides: Sequence[Side]) -> int | None:
    """Return the value of all sides; None if one of them is not known."""
    if any(side.value is None for side in sides):
        return None
    return sum(side.value or 0 for side in sides)
