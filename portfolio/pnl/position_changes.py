"""Gains of positions that are collectibles, by events: liquidity in steps, and fees.

The principal of removed liquidity stays claimable inside the position until it is collected, perhaps in another
transaction and together with fees. Only the fees are income.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from chainfolio.portfolio.pnl.containers import Container, settle
from chainfolio.portfolio.pnl.entries import Kind
from chainfolio.portfolio.pnl.trade_value import Side
from chainfolio.position_changes import PositionChange

Movement = tuple[Kind, Side]
SEVERAL_CHANGES: Final = "it changed several positions at once, without amounts in events: their gains are not known"


class Movements(NamedTuple):
    """Movements by positions: purchases and sales, which bear the fee of the transaction, and settlements."""

    traded: Sequence[Movement]
    settlements: Sequence[Movement]


NO_MOVEMENTS: Final = Movements((), ())


@dataclass(slots=True)
class Claim:
    """Principal of one token that a position released but did not pay yet, and its deposited amount."""

    raw: int = 0
    went_in: int = 0


@dataclass(slots=True)
class Position:
    """One position of an account.

    Attributes:
        sold: The liquidity of claims that is to be sold, if it counts as a disposal.
        holder: The contract that held its tokens first, if its events tell no amounts.
        is_bought: Others created it: it is an asset with a cost, and its principal is what it is sold for.
        is_measured: Its liquidity is known. Otherwise it is one unit.
        span: Its bins; None if it has none, or if they are not known.
        is_clear: False once a change was not understood.
    """

    container: Container = field(default_factory=Container)
    tokens: list[str] = field(default_factory=lambda: ["", ""])
    claims: tuple[Claim, Claim] = field(default_factory=lambda: (Claim(), Claim()))
    sold: int = 0
    holder: str = ""
    is_bought: bool = False
    is_measured: bool = True
    span: tuple[int, int] | None = None
    is_clear: bool = True

    @classmethod
    def bought(cls, liquidity: int) -> Position:
        """Return a position that others created, with its liquidity; 0 if it is not known."""
        return cls(Container(liquidity or 1), is_bought=True, is_measured=bool(liquidity))

    def release(self, units: int) -> dict[str, int]:
        """Take liquidity out, and return what went in for it. All is sold if its whole liquidity is not known."""
        self.sold += units if self.is_measured else self.container.units
        return self.container.take(units if self.is_measured else self.container.units)

    def accepts(self, change: PositionChange) -> bool:
        """Return True for a change that the contract of the position's tokens logged.

        A change without amounts names the collection itself, and anybody can log that: the first one sets `holder`.
        """
        if not change.has_amounts:
            self.holder = self.holder or change.pool
        return change.has_amounts or self.holder == change.pool

    def pool(self) -> dict[str, int]:
        """Return what went in of each token and was not paid back."""
        inside = dict.fromkeys(filter(None, self.tokens), 0) | self.container.inside
        for token, claim in zip(self.tokens, self.claims, strict=True):
            if claim.went_in:
                inside[token] += claim.went_in
        return inside

    def close(self) -> dict[str, int]:
        """Take everything out: what went in and was not paid back, by asset."""
        contents = self.container.take(self.container.units)
        for token, claim in zip(self.tokens, self.claims, strict=True):
            if claim.went_in:
                contents[token] = contents.get(token, 0) + claim.went_in
                claim.raw = claim.went_in = 0
        return contents


UNMEASURED: Final = "a bought position paid principal: which part of its cost that is, is known when it is burnt"


def net_units(changes: Iterable[PositionChange], chain: str) -> dict[str, int]:
    """Return the liquidity that changes without amounts added or (negative) removed, by position."""
    units = dict[str, int]()
    for change in changes:
        if not change.has_amounts:
            units[change.key(chain)] = units.get(change.key(chain), 0) + change.units
    return units


class Net(NamedTuple):
    """The movements of a wallet in one transaction, by asset."""

    incoming: dict[str, Side]
    outgoing: dict[str, Side]


@dataclass(slots=True)
class PositionMovements:
    """Collects what the changes of one transaction mean.

    Attributes:
        asset_of: Returns the key of a token.
        value_at: Returns an amount of an asset with its value at that time.
        trade_value: The rule of `equalise`.
        is_disposal: Liquidity is sold for its units, not kept in a container.
        gross_in: What came to the wallet, by asset. No event can claim more: any contract can log one.
        gross_out: What left the wallet, by asset.
        traded: Purchases and sales, which bear the fee of the transaction.
        settlements: The other movements.
        explained: What the changes moved between wallet and positions, by asset; positive if it came.
    """

    asset_of: Callable[[str], str]
    value_at: Callable[[str, int], Side]
    trade_value: str
    is_disposal: bool
    gross_in: dict[str, int]
    gross_out: dict[str, int]
    traded: list[Movement] = field(default_factory=list)
    settlements: list[Movement] = field(default_factory=list)
    explained: dict[str, int] = field(default_factory=dict)
    problem: str = ""

    def _is_traded(self, position: Position) -> bool:
        """Return True if liquidity of a position is bought and sold."""
        return self.is_disposal or position.is_bought

    def _sell(self, key: str, position: Position, principal: Sequence[Side]) -> None:
        """Sell removed liquidity for principal, which is bought.

        Without a known liquidity, its cost is not known. Only the purchase is recorded if no liquidity was removed.
        """
        self.traded += [("buy", side) for side in principal]
        if not position.sold:
            return
        if position.is_measured:
            self.traded.append(("sell", Side(key, position.sold, _total(principal))))
        else:
            self.settlements.append(("sell", Side(key, position.sold, None)))
            self.problem = UNMEASURED
        position.sold = 0

    def add_net(self, units: Mapping[str, int], positions: Mapping[str, Position], net: Net, native: str) -> None:
        """Apply changes whose events tell no amounts: all that the wallet moved belongs to their positions.

        What came and nothing was removed for is a fee. Of several positions, the parts are not known: values are
        removed.

        Args:
            units: The liquidity that was added or (negative) removed, by the key of the position.
            positions: The positions of the account.
            net: What came and what left. What is explained is removed.
            native: An asset whose payments by contracts may not be indexed.
        """
        contents = dict[str, int]()
        for key, removed in ((key, -each) for key, each in units.items() if each < 0):
            for asset, raw in positions[key].release(removed).items():
                contents[asset] = contents.get(asset, 0) + raw
        put = next((key for key, each in units.items() if each > 0), "")
        payments, added = list(net.incoming.values()), list(net.outgoing.values()) if put else []
        if put:
            assets = {side.asset: side.quantity for side in added}
            positions[put].container.put(units[put], {} if self._is_traded(positions[put]) else assets)
            net.outgoing.clear()
        net.incoming.clear()
        first = len(self.traded), len(self.settlements)
        if any(self._is_traded(positions[key]) for key in units):
            self._trade_net(units, positions, added, payments)
        else:
            self.settlements += [("deposit", side) for side in added]
            if any(each < 0 for each in units.values()):
                self.settlements += settle(contents, payments, self.trade_value, native, is_pool=True)
            else:
                self.settlements += [("income", side) for side in payments]
        if len(units) > 1:
            for _, side in (*self.traded[first[0] :], *self.settlements[first[1] :]):
                side.value = None
            self.problem = SEVERAL_CHANGES

    def _trade_net(
        self,
        units: Mapping[str, int],
        positions: Mapping[str, Position],
        added: Sequence[Side],
        payments: Sequence[Side],
    ) -> None:
        """Sell what was added for liquidity, and removed liquidity for what was paid."""
        for key, each in units.items():
            if each > 0:
                self.traded += [("sell", side) for side in added]
                self.traded.append(("buy", Side(key, each, _total(added))))
            elif each < 0:
                self._sell(key, positions[key], payments)
        if not any(each < 0 for each in units.values()):
            self.settlements += [("income", side) for side in payments]

    def add(self, key: str, position: Position, change: PositionChange) -> None:
        """Apply one change of a position, whose asset key is `key`."""
        for i, token in enumerate(change.tokens):
            if token:
                position.tokens[i] = self.asset_of(token)
        if change.units > 0:
            self._put(key, position, change)
        elif change.units < 0:
            self._release(position, change)
        else:
            self._pay(key, position, change.raws)

    def _put(self, key: str, position: Position, change: PositionChange) -> None:
        """Add liquidity with the assets that went in: a deposit, or a sale of them for liquidity."""
        amounts = {
            token: min(raw, self.gross_out.get(token, 0))
            for token, raw in zip(position.tokens, change.raws, strict=True)
        }
        assets = {token: raw for token, raw in amounts.items() if raw}
        position.container.put(change.units, {} if position.is_bought else assets)
        sides = [self.value_at(asset, raw) for asset, raw in assets.items()]
        for side in sides:
            self.gross_out[side.asset] -= side.quantity
            self._explain(side.asset, -side.quantity)
        if self._is_traded(position):
            self.traded += [("sell", side) for side in sides]
            self.traded.append(("buy", Side(key, change.units, _total(sides))))
        else:
            self.settlements += [("deposit", side) for side in sides]

    def _release(self, position: Position, change: PositionChange) -> None:
        contents = position.release(-change.units)
        for token, claim, raw in zip(position.tokens, position.claims, change.raws, strict=True):
            claim.raw += raw
            claim.went_in += contents.get(token, 0)

    def _pay(self, key: str, position: Position, raws: Sequence[int]) -> None:
        """Settle a payment: principal that was released first, then fees."""
        contents, principal, fees = dict[str, int](), list[Side](), list[Side]()
        for token, claim, logged in zip(position.tokens, position.claims, raws, strict=True):
            raw = min(logged, self.gross_in.get(token, 0))
            part = min(raw, claim.raw)
            went_in = claim.went_in * part // claim.raw if claim.raw else claim.went_in if logged == raw else 0
            claim.raw -= part
            claim.went_in -= went_in
            if raw:
                self.gross_in[token] -= raw
                self._explain(token, raw)
            contents |= {token: went_in} if went_in else {}
            principal += [self.value_at(token, part)] if part else []
            fees += [self.value_at(token, raw - part)] if raw > part else []
        if self._is_traded(position):
            self._sell(key, position, principal)
        else:
            self.settlements += settle(contents, principal, self.trade_value, is_pool=True)
        self.settlements += [("income", side) for side in fees]

    def _explain(self, asset: str, raw: int) -> None:
        self.explained[asset] = self.explained.get(asset, 0) + raw


def _total(sides: Sequence[Side]) -> int | None:
    """Return the value of all sides; None if one of them is not known."""
    if any(side.value is None for side in sides):
        return None
    return sum(side.value or 0 for side in sides)
