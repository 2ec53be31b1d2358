"""The change of a value between two days, as a statement that adds up.

*closing - opening = flows + realised + unrealised + income - fees + debts + rewards + unexplained*

For each asset, the change of its value is what came less what left at the values of transactions, the gains of
disposals, and the change of the gain that is still open. If the transactions of an asset do not add up to what is held,
only the sum of both gains is known: it is a row of `unexplained`, and other assets keep their gains.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final, NamedTuple

import msgspec

from chainfolio import amounts
from chainfolio.portfolio.document import UNKNOWN, AssetDocument, Portfolio
from chainfolio.portfolio.pnl.closing import ClosingCheck, is_collectible, owed_assets, owned_assets, spam_assets
from chainfolio.portfolio.pnl.debts import Debt, debt_fault
from chainfolio.portfolio.pnl.entries import ACQUIRED, DISPOSED, UNASKED, Entry, decimal
from chainfolio.portfolio.pnl.gains import NO_PRICE, SHORT, Gain, RemainingLots
from chainfolio.portfolio.pnl.share_lots import NO_SHARES, ShareLots, value_of_part
from chainfolio.portfolio.transactions import raw_balance

ONE_DAY: Final = "some of it has no value on one of both days"
NOT_CONTINUED: Final = "its lots of the last day do not follow from those of the first one"
OWN_VALUE: Final = "a day gives this share or collectible a value of its own: its gain is not computed"
OTHER_VALUE: Final = "the value of a day differs from that of its assets"


class UnexplainedChangeDocument(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """An asset whose gain is not known, with the part of the change that nothing explains.

    `raw` is what is held beyond its transactions, in its smallest unit, on the first of both days on which it differs.
    `firstBlock` is the block of the first transaction that moved the asset; null if none did.
    """

    chain: str
    contract: str
    symbol: str
    raw: str
    first_block: int | None
    value: str
    reason: str


class ChangesDocument(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The parts of a change of value, in the currency of the performance.

    `endValue` less `startValue` is exactly `flows` + `realised` + `unrealised` + `income` - `fees` + `debts` +
    `rewards` + the values of `unexplained`. `flows` is what came from outside less what was sent there; income is
    apart. `realised` are gains of disposals, by the lots of `method`, and `unrealised` the change of open gains. `fees`
    are those that are in no cost and in no proceeds. `debts` is what loans gained or lost, with their interest, and
    `rewards` the change of what can be claimed. All are `N/A` if transactions are not known; `reason` says why.
    """

    method: str
    flows: str = UNKNOWN
    realised: str = UNKNOWN
    unrealised: str = UNKNOWN
    income: str = UNKNOWN
    fees: str = UNKNOWN
    debts: str = UNKNOWN
    rewards: str = UNKNOWN
    unexplained: tuple[UnexplainedChangeDocument, ...] = ()
    reason: str = ""


@dataclass(slots=True)
class HoldingValue:
    """The value and debt of one asset on one day. `is_unvalued`: a part has no value or is spam."""

    value: Decimal = amounts.ZERO
    owed: int = 0
    owed_value: Decimal = amounts.ZERO
    is_valued: bool = False
    is_unvalued: bool = False
    symbol: str = ""
    decimals: int = 0

    def add(self, asset: AssetDocument, value: Decimal | None, *, is_owed: bool = False) -> None:
        """Add a part of the asset; one with a balance but a `value` of None makes the asset unvalued."""
        raw = raw_balance(asset)
        self.symbol = self.symbol or asset.symbol
        self.decimals = self.decimals if asset.decimal == UNKNOWN else int(asset.decimal)
        if is_owed:
            self.owed += raw
        if value is None:
            self.is_unvalued = self.is_unvalued or bool(raw)
            return
        self.is_valued = True
        if is_owed:
            self.owed_value = amounts.total([self.owed_value, value])
        else:
            self.value = amounts.total([self.value, value])


@dataclass(frozen=True, slots=True)
class DayState:
    """An account at the beginning of a day: its value, its assets and its lots, by the keys of assets."""

    value: Decimal
    holdings: Mapping[str, HoldingValue]
    rewards: Decimal
    lots: Mapping[str, RemainingLots]
    checks: Mapping[str, ClosingCheck]
    debts: Mapping[str, Debt]

    def holding(self, asset: str) -> HoldingValue:
        """Return what is held of an asset; nothing if none is."""
        return self.holdings.get(asset, HoldingValue())

    def cost(self, asset: str) -> int:
        """Return the cost of an asset's lots, in units of money; zero if it is not known."""
        lots = self.lots.get(asset)
        return 0 if lots is None else lots.cost or 0

    def lots_fault(self, asset: str) -> tuple[str, int]:
        """Return why the cost of an asset is not known, and the raw difference; ("", 0) if it is known."""
        check = self.checks.get(asset)
        for _, raw, reason in check.differences if check is not None else ():
            return reason(self.holding(asset).decimals), raw
        lots = self.lots.get(asset)
        if lots is None:
            return "", 0
        if lots.short or lots.unasked:
            return SHORT if lots.short else UNASKED, 0
        return (lots.reason if lots.cost is None else ""), 0

    def debt_fault(self, asset: str) -> str:
        """Return why the gain of an asset's debt is not known; empty if it is."""
        return debt_fault(self.holding(asset).owed, self.debts.get(asset, Debt()))

    def deposits(self, asset: str) -> tuple[int, int, bool]:
        """Return deposited quantity, quantity in protocols, and True if protocols show all that was deposited.

        Without a check nothing was deposited.
        """
        check = self.checks.get(asset)
        return (0, 0, True) if check is None else (check.deposited, check.held.in_protocols, not check.protocols_fault)

    @property
    def rest(self) -> Decimal:
        """The part of the value that no asset has: zero, unless values were rounded."""
        parts = [part for each in self.holdings.values() for part in (each.value, each.owed_value.copy_negate())]
        return amounts.total([self.value, self.rewards.copy_negate(), *(part.copy_negate() for part in parts)])


def closed_assets(first: DayState, last: DayState) -> frozenset[str]:
    """Return the assets whose transactions add up to what is held on both days."""
    keys = {*first.lots, *last.lots}
    return frozenset(key for key in keys if not any(each.lots_fault(key)[0] for each in (first, last)))


def contains_deposits(asset: str, before: DayState, after: DayState) -> bool:
    """Return True if what was deposited or withdrawn of an asset between two days is in the values of both.

    It is if protocols show all deposits on both days. If they do not, most of the change must be in what they show.
    """
    deposited_before, shown_before, is_whole_before = before.deposits(asset)
    deposited, shown, is_whole = after.deposits(asset)
    if is_whole_before and is_whole:
        return True
    change = deposited - deposited_before
    return 2 * abs(change - (shown - shown_before)) < abs(change)


def day_holdings(
    portfolios: Iterable[Portfolio],
    aliases: Mapping[str, str],
    converted: Callable[[Decimal], Decimal],
    shares: ShareLots = NO_SHARES,
) -> tuple[dict[str, HoldingValue], Decimal]:
    """Return holdings by asset and the value of claimable rewards. `converted` changes the currency.

    What lots of `shares` stand for in positions is the value of the share.
    """
    holdings, rewards = defaultdict[str, HoldingValue](HoldingValue), list[Decimal]()

    def worth(asset: AssetDocument) -> Decimal | None:
        has_value = asset.value != UNKNOWN and asset.spam is msgspec.UNSET
        of_share = value_of_part(asset, raw) if (raw := shares.raw(asset)) else None
        value_usd = Decimal(asset.value) if has_value else amounts.ZERO
        return converted(amounts.EXACT.subtract(value_usd, of_share or amounts.ZERO)) if has_value else None

    for share, value_usd in shares.parts():
        holdings[share].value = amounts.total([holdings[share].value, converted(value_usd)])
        holdings[share].is_valued = True
    for document in portfolios:
        for assets, is_owed in (((each for each, _ in owned_assets(document)), False), (owed_assets(document), True)):
            for asset in assets:
                key = aliases.get(asset.chain_contract, asset.chain_contract)
                holdings[key].add(asset, worth(asset), is_owed=is_owed)
        for key in spam_assets([document]):
            holdings[aliases.get(key, key)].is_unvalued = True
        rewards += [value for asset in _claimable(document) if (value := worth(asset)) is not None]
    return dict(holdings), amounts.total(rewards)


def _claimable(document: Portfolio) -> Iterator[AssetDocument]:
    """Yield the rewards of all positions."""
    for protocol in document.asset_by_protocols.values():
        for chain in protocol.chains.values():
            for positions in chain.protocol_positions.values():
                for nested in positions.protocol_positions:
                    yield from nested.reward_assets


@dataclass(slots=True)
class _Activity:
    """Sums of the movements of one asset in the period, in units of money."""

    flow: int = 0
    income: int = 0
    fees: int = 0
    borrowed: int = 0
    acquired: int = 0  # cost of lots that came
    released: int = 0  # cost of lots that were disposed of
    realised: int = 0
    has_repaid: bool = False
    has_crossed: bool = False  # over chains: its lots came from another asset, or went there
    reason: str = ""

    def add_entry(self, entry: Entry) -> None:
        """Add one entry, without its gain. `entry` has no deposits, as of `without_loans`.

        An unsolicited entry, or one without a value, only sets the `reason` why gains are not known.
        """
        value, kind = entry.value, entry.kind
        if kind in ("unasked", "taken"):
            self.reason = self.reason or UNASKED
        elif kind == "repay":
            self.has_repaid = True
        elif kind in ("depart", "arrive"):
            self.has_crossed = True
        elif kind not in ACQUIRED | DISPOSED:
            return
        elif value is None:
            self.reason = self.reason or entry.reason or NO_PRICE
        elif kind in ACQUIRED:
            self.acquired += value + entry.fee
            self.fees -= entry.fee
            self.income += value if kind == "income" else 0
            self.borrowed += value if kind == "borrow" else 0
            self.flow += value if kind in ("buy", "received") else 0
        else:
            self.fees += (value if kind == "fee" else 0) - entry.fee
            self.flow -= 0 if kind == "fee" else value

    def add_gain(self, gain: Gain) -> None:
        """Add the gain of a disposal; income is ignored, and an unknown gain only leaves its reason."""
        if gain.kind == "income":
            return
        if gain.cost is None or gain.gain is None:
            self.reason = self.reason or gain.reason
            return
        self.realised += gain.gain
        self.released += gain.cost


class _Parts(NamedTuple):
    """The parts of the change of one asset, in the currency; what is not known is in `unexplained`."""

    flows: Decimal
    realised: Decimal
    unrealised: Decimal
    income: Decimal
    fees: Decimal
    debts: Decimal
    unexplained: Decimal


@dataclass(frozen=True, slots=True)
class ValueChange:
    """Computes the parts of the change between two days.

    Attributes:
        entries: All movements between both days, without deposits and loans that return, as of `without_loans`.
        gains: The gains of disposals between both days.
        shares: Tokens that stand for deposits: days usually show the deposits in their place.
        first_blocks: The block of the first transaction that moved an asset.
        is_trusted: Returns False for contracts whose movements by others may be invented.
    """

    opening: DayState
    closing: DayState
    entries: Sequence[Entry]
    gains: Sequence[Gain]
    shares: Collection[str] = ()
    first_blocks: Mapping[str, int] = field(default_factory=dict)
    is_trusted: Callable[[str], bool] = field(default=lambda asset: True)

    def document(self, method: str) -> ChangesDocument:
        """Return the statement. Assets whose gain is not known are rows of `unexplained`, by key."""
        activities = self._activities()
        faults = {asset: fault for asset in activities if (fault := self._fault(asset, activities[asset]))[0]}
        self._add_uncontinued(activities, faults)
        sums, rows = defaultdict[str, list[Decimal]](list), []
        for asset, activity in sorted(activities.items()):
            if not self._is_measured(asset, is_faulty=asset in faults):
                continue
            reason, raw = faults.get(asset, ("", 0))
            parts, debt_reason = self._parts(asset, activity, has_known_gains=not reason)
            for name, part in parts._asdict().items():
                sums[name].append(part)
            if reason or debt_reason:
                rows.append(self._row(asset, raw, parts.unexplained, reason or debt_reason))
        if rest := _difference(self.closing.rest, self.opening.rest):
            rows.append(self._row("", 0, rest, OTHER_VALUE))
        names = [name for name in _Parts._fields if name != "unexplained"]
        return ChangesDocument(
            method=method,
            **{name: amounts.text(amounts.total(sums[name])) for name in names},
            rewards=amounts.text(_difference(self.closing.rewards, self.opening.rewards)),
            unexplained=tuple(rows),
        )

    def _activities(self) -> dict[str, _Activity]:
        """Return what happened to each asset that moved, or is held on one of the days."""
        keys = {*self.opening.holdings, *self.closing.holdings, *self.opening.lots, *self.closing.lots}
        activities = defaultdict[str, _Activity](_Activity, {key: _Activity() for key in keys})
        for entry in self.entries:
            activities[entry.asset].add_entry(entry)
        for gain in self.gains:
            activities[gain.asset].add_gain(gain)
        return dict(activities)

    def _fault(self, asset: str, activity: _Activity) -> tuple[str, int]:
        """Return why the gain of an asset is not known, and the raw difference; ("", 0) if it is known."""
        for state in (self.opening, self.closing):
            reason, raw = state.lots_fault(asset)
            if reason:
                return reason, raw
        if self._is_apart(asset):
            return OWN_VALUE, 0
        first, last = self.opening.holding(asset), self.closing.holding(asset)
        if first.is_unvalued or last.is_unvalued:
            return ONE_DAY, 0
        if activity.reason:
            return activity.reason, 0
        is_continued = activity.has_repaid or activity.has_crossed or not self._rest_of_lots(asset, activity)
        return ("" if is_continued else NOT_CONTINUED), 0

    def _add_uncontinued(self, activities: Mapping[str, _Activity], faults: dict[str, tuple[str, int]]) -> None:
        """Add faults of assets whose lots went over chains, unless they arrived at the same cost."""
        crossed = [key for key, each in activities.items() if each.has_crossed and key not in faults]
        if sum(self._rest_of_lots(asset, activities[asset]) for asset in crossed):
            faults |= dict.fromkeys(crossed, (NOT_CONTINUED, 0))

    def _rest_of_lots(self, asset: str, activity: _Activity) -> int:
        """Return the cost of lots that left otherwise than by a disposal: by repayments, or over chains."""
        return activity.acquired - activity.released - self.closing.cost(asset) + self.opening.cost(asset)

    def _is_measured(self, asset: str, *, is_faulty: bool) -> bool:
        """Return True if an asset is in the values of a day, or was in between.

        What has no value lies outside. So do untrusted tokens that do not close: anybody can make them. Shares and
        collectibles are measured only if a day gives them a value of their own.
        """
        first, last = self.opening.holding(asset), self.closing.holding(asset)
        if first.is_valued or last.is_valued:
            return True
        if self._is_apart(asset):
            return False
        return not (first.is_unvalued or last.is_unvalued) and (not is_faulty or self.is_trusted(asset))

    def _is_apart(self, asset: str) -> bool:
        """Return True for shares, which stand for deposits, and collectibles: their gains are not computed."""
        return asset in self.shares or is_collectible(asset)

    def _parts(self, asset: str, activity: _Activity, *, has_known_gains: bool) -> tuple[_Parts, str]:
        """Return the parts of one asset's change of value, and why its debt's gain is unknown, or "".

        The realised gain is that of the lots. The unrealised gain is the growth of the value less that of the cost. The
        change of a debt without a known gain is `unexplained`.

        Args:
            has_known_gains: If False, gains are zero, and what flows, income and fees leave over is `unexplained`.
        """
        first, last = self.opening.holding(asset), self.closing.holding(asset)
        grown, owed_more = _difference(last.value, first.value), _difference(last.owed_value, first.owed_value)
        flow, income, fees = decimal(activity.flow), decimal(activity.income), decimal(activity.fees)
        debt_reason = self.opening.debt_fault(asset) or self.closing.debt_fault(asset)
        if not has_known_gains:
            explained = amounts.total([flow, income, fees.copy_negate()])
            rest = _difference(_difference(grown, owed_more), explained)
            return _Parts(flow, amounts.ZERO, amounts.ZERO, income, fees, amounts.ZERO, rest), debt_reason
        added = decimal(self.closing.cost(asset) - self.opening.cost(asset))
        left = self._rest_of_lots(asset, activity)  # what crossed chains is zero over all assets
        repaid, crossed = (left, 0) if activity.has_repaid else (0, left)
        debts = _difference(decimal(activity.borrowed - repaid), owed_more)
        realised, unrealised = decimal(activity.realised - crossed), _difference(grown, added)
        debt, rest = (amounts.ZERO, debts) if debt_reason else (debts, amounts.ZERO)
        return _Parts(flow, realised, unrealised, income, fees, debt, rest), debt_reason

    def _row(self, asset: str, raw: int, value: Decimal, reason: str) -> UnexplainedChangeDocument:
        """Return the row of an unexplained change, with the asset's symbol and first indexed block."""
        chain, _, contract = asset.partition(":")
        symbol = self.closing.holding(asset).symbol or self.opening.holding(asset).symbol
        return UnexplainedChangeDocument(
            chain=chain,
            contract=contract,
            symbol=symbol,
            raw=str(raw),
            first_block=self.first_blocks.get(asset),
            value=amounts.text(value),
            reason=reason,
        )


def _difference(minuend: Decimal, subtrahend: Decimal) -> Decimal:
    return amounts.EXACT.subtract(minuend, subtrahend)
