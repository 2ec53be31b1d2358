"""Exact values of holdings. Unpriced assets and spam stay visible, outside every sum.

No token makes this raise. A failed read makes an answer partial. A token with invalid metadata does not:
otherwise a stranger could make any portfolio partial by sending one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Final

from chainfolio import amounts
from chainfolio.assets import Asset
from chainfolio.blocks import Block
from chainfolio.contracts import Collectible, DayFlows, EpochReward, Holding, Issue, Position, Price, Snapshot, Spam
from chainfolio.reads import ReadResult

BEYOND: Final = (
    "its market could pay {most} USD at most: all that is held of it is worth no more here, though its price says "
    "{whole} USD"
)
MAX_UNCLEAR: Final = 5  # tokens without decimals that a chain's issues name: anybody can send any number
UNCLEAR: Final = "the token does not say its decimals: how much this is cannot be known"


@dataclass(frozen=True, slots=True)
class ValuedHolding:
    """A holding with its amount, price and value.

    Attributes:
        amount: None if the token has no decimals.
        price: None if it has none.
        value_usd: None without an amount or a price.
        spam: Why the token is spam; None if it is not.
        is_counted: The holding is part of the sums.
        is_pegged: The operator declares the asset pegged to a fixed sum of fiat money.
        uncapped_usd: The value by its price, if the market could not pay as much for all of it that the account has;
            `value_usd` is then what the market could still pay.
    """

    holding: Holding
    chain: str
    block: Block
    amount: Decimal | None
    price: Price | None
    value_usd: Decimal | None
    spam: Spam | None = None
    is_counted: bool = True
    is_pegged: bool = False
    uncapped_usd: Decimal | None = None


@dataclass(frozen=True, slots=True)
class ValuedPosition:
    """A valued position. Borrowed parts are positive; `shares` are replaced tokens, as raw amounts."""

    account: str
    chain: str
    protocol: str
    type: str
    name: str
    supplied: tuple[ValuedHolding, ...] = ()
    borrowed: tuple[ValuedHolding, ...] = ()
    rewards: tuple[ValuedHolding, ...] = ()
    health: Decimal | None = None
    unlock_s: int = 0
    vault: str = ""
    pool: str = ""
    block: Block | None = None
    calls: tuple[ReadResult, ...] = field(default=(), compare=False)
    earned: tuple[EpochReward, ...] = ()
    shares: tuple[tuple[Asset, int], ...] = ()

    @property
    def value_usd(self) -> Decimal:
        """Supplied assets and rewards less borrowed ones, without unpriced parts."""
        debts = [part.copy_negate() for part in _values_usd(self.borrowed)]  # unary minus would round to 28 digits
        return amounts.total([*_values_usd(self.supplied), *_values_usd(self.rewards), *debts])

    @property
    def parts(self) -> tuple[ValuedHolding, ...]:
        """Everything in it."""
        return (*self.supplied, *self.borrowed, *self.rewards)


@dataclass(frozen=True, slots=True)
class ValuedDay:
    """Assets that an account received and sent on one chain since 00:00 UTC."""

    account: str
    chain: str
    received: tuple[ValuedHolding, ...] = ()
    sent: tuple[ValuedHolding, ...] = ()

    @property
    def income(self) -> Decimal:
        """The value in USD of the received assets that have a price."""
        return amounts.total(_values_usd(self.received))

    @property
    def expense(self) -> Decimal:
        """The value in USD of the sent assets and fees that have a price."""
        return amounts.total(_values_usd(self.sent))


@dataclass(frozen=True, slots=True)
class Valuation:
    """The valued holdings of some accounts on some chains.

    Attributes:
        scope: The chains that were read, by account.
        unread: The failed reads, by account.
        fees: Fees paid per account and chain, if known.
        days: Movements of today per account and chain, if known.
        heights: The height that was read and the chain's head then, by chain; None as head if the block was chosen.
        no_days: The reason why today's movements are not known, by chain.
        collectibles: They have no value.
    """

    holdings: tuple[ValuedHolding, ...]
    positions: tuple[ValuedPosition, ...] = ()
    scope: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    unread: Mapping[str, tuple[Issue, ...]] = field(default_factory=dict)
    fees: tuple[ValuedHolding, ...] = ()
    days: tuple[ValuedDay, ...] = ()
    heights: Mapping[str, tuple[int, int | None]] = field(default_factory=dict)
    no_days: Mapping[str, str] = field(default_factory=dict)
    collectibles: tuple[Collectible, ...] = ()

    @property
    def value_usd(self) -> Decimal:
        """The net worth of all accounts, in USD."""
        return amounts.total([*_values_usd(self.holdings), *(position.value_usd for position in self.positions)])

    @property
    def all_holdings(self) -> tuple[ValuedHolding, ...]:
        """Loose holdings and the parts of positions."""
        return (*self.holdings, *(part for position in self.positions for part in position.parts))

    @property
    def unclear_issues(self) -> tuple[Issue, ...]:
        """Issues of tokens of unknown amount: one for each, or one with their count if a chain has many."""
        tokens: defaultdict[str, set[str]] = defaultdict(set)
        for valued in self.all_holdings:
            if valued.amount is None:
                tokens[valued.holding.token.asset.chain].add(str(valued.holding.token.asset))
        return tuple(issue for chain in sorted(tokens) for issue in _unclear_issues(chain, sorted(tokens[chain])))

    @property
    def capped_issues(self) -> tuple[Issue, ...]:
        """An issue per asset valued below its price because its market could not pay more. None makes partial."""
        parts_by_asset: defaultdict[tuple[str, Asset], list[ValuedHolding]] = defaultdict(list)
        owned = (part for each in self.positions for part in (*each.supplied, *each.rewards))
        for part in (*self.holdings, *owned):
            if part.is_counted:
                parts_by_asset[part.holding.account, part.holding.token.asset].append(part)
        return tuple(issue for parts in parts_by_asset.values() if (issue := _capped_issue(parts)) is not None)

    def with_spam(self) -> Valuation:
        """Return the valuation with spam in its sums."""
        days = tuple(replace(day, received=_include(day.received), sent=_include(day.sent)) for day in self.days)
        positions = tuple(
            replace(each, supplied=_include(each.supplied), rewards=_include(each.rewards)) for each in self.positions
        )
        return replace(self, holdings=_include(self.holdings), positions=positions, days=days)

    def for_account(self, account: str) -> Valuation:
        """Return the part of one account, empty if it is unknown; `heights` and `no_days` stay whole."""
        return Valuation(
            tuple(valued for valued in self.holdings if valued.holding.account == account),
            tuple(position for position in self.positions if position.account == account),
            {account: self.scope.get(account, ())},
            {account: self.unread.get(account, ())},
            tuple(fee for fee in self.fees if fee.holding.account == account),
            tuple(day for day in self.days if day.account == account),
            self.heights,
            self.no_days,
            tuple(each for each in self.collectibles if each.holding.account == account),
        )

    def by_account(self) -> dict[str, Valuation]:
        """Return the part of every account, as `for_account`, in one pass."""
        holdings, fees = defaultdict[str, list[ValuedHolding]](list), defaultdict[str, list[ValuedHolding]](list)
        positions, days = defaultdict[str, list[ValuedPosition]](list), defaultdict[str, list[ValuedDay]](list)
        for valued in self.holdings:
            holdings[valued.holding.account].append(valued)
        for position in self.positions:
            positions[position.account].append(position)
        for fee in self.fees:
            fees[fee.holding.account].append(fee)
        for day in self.days:
            days[day.account].append(day)
        collectibles = defaultdict[str, list[Collectible]](list)
        for each in self.collectibles:
            collectibles[each.holding.account].append(each)
        return {
            account: Valuation(
                tuple(holdings[account]),
                tuple(positions[account]),
                {account: chains},
                {account: self.unread.get(account, ())},
                tuple(fees[account]),
                tuple(days[account]),
                self.heights,
                self.no_days,
                tuple(collectibles[account]),
            )
            for account, chains in self.scope.items()
        }


def _unclear_issues(chain: str, tokens: Sequence[str]) -> Iterator[Issue]:
    """Yield an issue per token, or one with their number if there are many; they make nothing partial."""
    if len(tokens) > MAX_UNCLEAR:
        subject = f"{len(tokens)} subjects on {chain}"
        yield Issue("portfolio", subject, UNCLEAR, makes_partial=False, count=len(tokens))
    else:
        yield from (Issue("portfolio", token, UNCLEAR, makes_partial=False) for token in tokens)


def _capped_issue(parts: Sequence[ValuedHolding]) -> Issue | None:
    """Return the issue about one account's parts of an asset; None if the market could pay their value."""
    price = next((part.price for part in parts if part.uncapped_usd is not None), None)
    if price is None:
        return None
    full = [part.value_usd if part.uncapped_usd is None else part.uncapped_usd for part in parts]
    full_value = amounts.total([each for each in full if each is not None])
    reason = BEYOND.format(whole=amounts.text(full_value), most=amounts.text(amounts.total(_values_usd(parts))))
    return Issue(price.source, str(price.asset), reason, makes_partial=False)


def _values_usd(parts: Iterable[ValuedHolding]) -> list[Decimal]:
    return [part.value_usd for part in parts if part.value_usd is not None and part.is_counted]


def _include(parts: Iterable[ValuedHolding]) -> tuple[ValuedHolding, ...]:
    return tuple(replace(part, is_counted=True) for part in parts)


def valuate(snapshots: Sequence[Snapshot]) -> Valuation:
    """Value snapshots of several chains at the prices read with them.

    Holdings of zero, and shares that a position replaces, are left out. The amount that the market of a price could pay
    is paid once per account: first for loose holdings, then for positions.
    """
    holdings, fees, days = list[ValuedHolding](), list[ValuedHolding](), list[ValuedDay]()
    positions, scope, unread = list[ValuedPosition](), dict[str, tuple[str, ...]](), dict[str, tuple[Issue, ...]]()
    for snapshot in snapshots:
        issues = _issues_by_account(snapshot)
        for account in snapshot.accounts:
            scope[account] = tuple(sorted({*scope.get(account, ()), snapshot.chain}))
            unread[account] = (*unread.get(account, ()), *issues[account])
        prices, replaced = prices_of(snapshot), replaced_assets(snapshot)
        chain_holdings = [
            _value_loose(holding, snapshot, prices)
            for holding in snapshot.holdings
            if holding.raw != 0 and (holding.account, holding.token.asset) not in replaced
        ]
        balances = {(each.account, each.token.asset): each.raw for each in snapshot.holdings}
        chain_positions = [_value_position(each, snapshot, prices, balances) for each in snapshot.positions]
        if capped_assets(prices):
            chain_holdings, chain_positions = _cap_values(chain_holdings, chain_positions)
        holdings += chain_holdings
        positions += chain_positions
        fees += [
            value_holding(fee, snapshot.chain, snapshot.block, prices.get(fee.token.asset)) for fee in snapshot.fees
        ]
        days += [_value_day(day, snapshot, prices) for day in snapshot.day_flows]
    heights = {each.chain: (each.block.height, each.head) for each in snapshots if each.block.hash}
    no_days = {each.chain: each.day_flows_problem for each in snapshots if each.day_flows_problem}
    collectibles = tuple(
        Collectible(each.chain, each.block, holding, each.spam.get((holding.account, holding.token.asset.collection)))
        for each in snapshots
        for holding in each.collectibles
    )
    return Valuation(
        tuple(holdings), tuple(positions), scope, unread, tuple(fees), tuple(days), heights, no_days, collectibles
    )


def prices_of(snapshot: Snapshot) -> dict[Asset, Price]:
    """Return the prices of a snapshot by asset; of several of one asset the first."""
    return {price.asset: price for price in reversed(snapshot.prices)}


def capped_assets(prices: Mapping[Asset, Price]) -> set[Asset]:
    """Return the assets whose market limits their value."""
    return {
        asset for asset, price in prices.items() if usable_price(price) is not None and max_value(price) is not None
    }


def replaced_assets(snapshot: Snapshot) -> set[tuple[str, Asset]]:
    """Return account and asset of each share that a position replaces."""
    return {(each.account, share) for each in snapshot.positions for share in each.replaces}


def _cap_values(
    loose: Sequence[ValuedHolding], valued_positions: Sequence[ValuedPosition]
) -> tuple[list[ValuedHolding], list[ValuedPosition]]:
    """Return holdings and positions, each part limited to what its market could still pay.

    The parts before it reduce that sum. Parts that are in no sum come last.
    """
    remaining: dict[tuple[str, Asset], Decimal] = {}
    holdings, positions = list(loose), list(valued_positions)
    for is_counted in (True, False):
        holdings = [_cap_value(part, remaining, is_counted=is_counted) for part in holdings]
        positions = [
            replace(
                each,
                supplied=tuple(_cap_value(part, remaining, is_counted=is_counted) for part in each.supplied),
                rewards=tuple(_cap_value(part, remaining, is_counted=is_counted) for part in each.rewards),
            )
            for each in positions
        ]
    return holdings, positions


def _cap_value(part: ValuedHolding, remaining: dict[tuple[str, Asset], Decimal], *, is_counted: bool) -> ValuedHolding:
    """Limit a part to what remains of its market for its account, and reduce that by its value.

    Unchanged without a limit or value, or if the part's `is_counted` differs.
    """
    limit = None if part.price is None else max_value(part.price)
    if limit is None or part.value_usd is None or part.is_counted is not is_counted:
        return part
    key = part.holding.account, part.holding.token.asset
    available = remaining.get(key, limit)
    payable = min(part.value_usd, available)
    remaining[key] = amounts.EXACT.subtract(available, payable)
    if payable == part.value_usd:
        return part
    return replace(
        part, value_usd=payable, uncapped_usd=part.value_usd if part.uncapped_usd is None else part.uncapped_usd
    )


def _issues_by_account(snapshot: Snapshot) -> dict[str, list[Issue]]:
    """Return the issues of a snapshot by account, in order; general issues appear under each account."""
    by_account: dict[str, list[Issue]] = {account: [] for account in snapshot.accounts}
    for issue in snapshot.issues:
        subject = issue.account or issue.subject
        for account in [subject] if subject in by_account else by_account:
            by_account[account].append(issue)
    return by_account


def _value_position(
    position: Position, snapshot: Snapshot, prices: Mapping[Asset, Price], balances: Mapping[tuple[str, Asset], int]
) -> ValuedPosition:
    """Value each part of a position like a loose holding, and mark spam.

    Parts have no prices if the amounts are unverified.
    """
    usable_prices = {} if position.unverified else prices
    supplied, borrowed, rewards = (
        tuple(
            value_holding(part, snapshot.chain, snapshot.block, usable_prices.get(part.token.asset), is_debt=is_debt)
            for part in side
        )
        for side, is_debt in ((position.supplied, False), (position.borrowed, True), (position.rewards, False))
    )
    supplied, rewards = (
        tuple(_mark_spam(part, _spam_of(part, position, snapshot)) for part in side) for side in (supplied, rewards)
    )
    return ValuedPosition(
        position.account,
        snapshot.chain,
        position.protocol,
        position.type,
        position.name,
        supplied,
        borrowed,
        rewards,
        position.health,
        position.unlock_s,
        position.vault,
        position.pool,
        snapshot.block,
        position.calls,
        position.epoch_rewards,
        tuple((each, raw) for each in position.shares if (raw := balances.get((position.account, each), 0))),
    )


def _spam_of(part: ValuedHolding, position: Position, snapshot: Snapshot) -> Spam | None:
    """Return why a part is spam: its token is, or every share that the position replaces; else None."""
    shares = [snapshot.spam.get((position.account, share)) for share in position.replaces]
    token_spam = snapshot.spam.get((position.account, part.holding.token.asset))
    return token_spam or (shares[0] if shares and None not in shares else None)


def _value_day(day: DayFlows, snapshot: Snapshot, prices: Mapping[Asset, Price]) -> ValuedDay:
    received, sent = (
        tuple(_value_loose(each, snapshot, prices) for each in side) for side in (day.inflows, day.outflows)
    )
    return ValuedDay(day.account, snapshot.chain, received, sent)


def _value_loose(holding: Holding, snapshot: Snapshot, prices: Mapping[Asset, Price]) -> ValuedHolding:
    """Value a loose holding, with the snapshot's judgement of its token."""
    asset = holding.token.asset
    part = value_holding(holding, snapshot.chain, snapshot.block, prices.get(asset), asset in snapshot.pegged)
    return _mark_spam(part, snapshot.spam.get((holding.account, asset)))


def _mark_spam(valued: ValuedHolding, spam: Spam | None) -> ValuedHolding:
    """Return the holding marked as spam and excluded from sums; unchanged if `spam` is None."""
    return valued if spam is None else replace(valued, spam=spam, is_counted=False)


def value_holding(
    holding: Holding, chain: str, block: Block, price: Price | None, is_pegged: bool = False, *, is_debt: bool = False
) -> ValuedHolding:
    """Value one holding at one price, limited to what the price's market could pay unless it is a debt.

    The value is None without a usable price, or if decimals or raw amount are out of range.
    """
    decimals = holding.token.decimals
    is_valid = decimals is not None and 0 <= decimals <= amounts.MAX_DECIMALS and 0 <= holding.raw <= amounts.MAX_RAW
    amount = amounts.amount(holding.raw, decimals) if is_valid and decimals is not None else None
    priced = usable_price(price)
    value_usd = amounts.value_of(amount, priced.usd) if amount is not None and priced is not None else None
    uncapped_usd, limit = None, None if priced is None or is_debt else max_value(priced)
    if value_usd is not None and limit is not None and value_usd > limit:
        uncapped_usd, value_usd = value_usd, limit
    return ValuedHolding(
        holding, chain, block, amount, priced, value_usd, is_pegged=is_pegged, uncapped_usd=uncapped_usd
    )


def market_value(amount: Decimal, price: Price) -> Decimal:
    """Return the value of an amount in USD, limited to what the price's market could pay."""
    value_usd, limit = amounts.value_of(amount, price.usd), max_value(price)
    return value_usd if limit is None else min(value_usd, limit)


def usable_price(price: Price | None) -> Price | None:
    """Return the price if it is finite and above zero, else None."""
    return price if price is not None and price.usd.is_finite() and price.usd > 0 else None


def max_value(price: Price) -> Decimal | None:
    """Return the most that a price's market could pay in USD; None if not known."""
    depth = price.depth_usd
    return max(depth, amounts.ZERO) if depth is not None and depth.is_finite() else None
