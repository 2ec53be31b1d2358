"""What holdings are worth, exactly. What nobody priced, and what is spam, stays in sight, outside every sum; no token
makes this raise.

A read that failed (`unread`) makes an answer partial. A token that says nonsense about itself (`unclear`) does not:
else anybody could spoil anybody's portfolio by sending it one.
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
from chainfolio.contracts import Day, Earning, Holding, Issue, Position, Price, Snapshot, Spam
from chainfolio.reads import ReadResult

BEYOND: Final = (
    "its market could pay {most} USD at most: all that is held of it is worth no more here, though its price says "
    "{whole} USD"
)
MAX_UNCLEAR: Final = 5  # tokens of a chain without decimals that are named: anybody can send any number
UNCLEAR: Final = "the token does not say its decimals: how much this is cannot be known"


@dataclass(frozen=True, slots=True)
class Valued:
    """A holding with its amount (None: its token has no decimals), price and worth (None: nobody priced it).

    `spam` is why it is taken for spam (None: it is not), `counted` whether sums have it in them, `pegged` whether it is
    meant to be worth a fixed sum. `beyond_usd`: what it would be worth by its price, where the market of that price
    could not pay as much for all that the account has of it; then it is worth what the market could still pay.
    """

    holding: Holding
    chain: str
    block: Block
    amount: Decimal | None
    price: Price | None
    value_usd: Decimal | None
    spam: Spam | None = None
    counted: bool = True
    pegged: bool = False
    beyond_usd: Decimal | None = None


@dataclass(frozen=True, slots=True)
class ValuedPosition:
    """A position with what its parts are worth. Borrowed parts are positive like all others: its worth is net."""

    account: str
    chain: str
    protocol: str
    type: str
    name: str
    supplied: tuple[Valued, ...] = ()
    borrowed: tuple[Valued, ...] = ()
    rewards: tuple[Valued, ...] = ()
    health: Decimal | None = None
    unlock_s: int = 0
    vault: str = ""
    pool: str = ""
    block: Block | None = None
    calls: tuple[ReadResult, ...] = field(default=(), compare=False)
    earned: tuple[Earning, ...] = ()

    @property
    def value_usd(self) -> Decimal:
        """Supplied and rewards less borrowed, of what has a price."""
        owed = [part.copy_negate() for part in _values_usd(self.borrowed)]  # unary minus would round to 28 digits
        return amounts.total([*_values_usd(self.supplied), *_values_usd(self.rewards), *owed])

    @property
    def parts(self) -> tuple[Valued, ...]:
        """Everything in it."""
        return (*self.supplied, *self.borrowed, *self.rewards)


@dataclass(frozen=True, slots=True)
class ValuedDay:
    """What came to an account on one chain since 00:00 UTC, and what left it."""

    account: str
    chain: str
    came: tuple[Valued, ...] = ()
    left: tuple[Valued, ...] = ()

    @property
    def income(self) -> Decimal:
        """What came, of what has a price."""
        return amounts.total(_values_usd(self.came))

    @property
    def expense(self) -> Decimal:
        """What left and what was paid in fees, of what has a price."""
        return amounts.total(_values_usd(self.left))


@dataclass(frozen=True, slots=True)
class Valuation:
    """Everything some accounts hold on some chains. `scope`: which chains were read for each account, `unread`: what of
    them was not, `fees` and `days`: what they paid on each chain and what moved today, where that is known. `heights`:
    at which height each chain was read, and that of its head then, None where the block was chosen. `no_days`: why it
    is not known of a chain what moved today. `collectibles` have no value: each with its chain."""

    holdings: tuple[Valued, ...]
    positions: tuple[ValuedPosition, ...] = ()
    scope: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    unread: Mapping[str, tuple[Issue, ...]] = field(default_factory=dict)
    fees: tuple[Valued, ...] = ()
    days: tuple[ValuedDay, ...] = ()
    heights: Mapping[str, tuple[int, int | None]] = field(default_factory=dict)
    no_days: Mapping[str, str] = field(default_factory=dict)
    collectibles: tuple[tuple[str, Holding], ...] = ()

    @property
    def value_usd(self) -> Decimal:
        """The net worth of all accounts together, in USD."""
        return amounts.total([*_values_usd(self.holdings), *(position.value_usd for position in self.positions)])

    @property
    def everything(self) -> tuple[Valued, ...]:
        """All holdings, those inside positions too."""
        return (*self.holdings, *(part for position in self.positions for part in position.parts))

    @property
    def unclear(self) -> tuple[Issue, ...]:
        """An issue for each token of which no amount can be told; one with their count if a chain has many."""
        tokens: defaultdict[str, set[str]] = defaultdict(set)
        for valued in self.everything:
            if valued.amount is None:
                tokens[valued.holding.token.asset.chain].add(str(valued.holding.token.asset))
        return tuple(issue for chain in sorted(tokens) for issue in _unclear(chain, sorted(tokens[chain])))

    @property
    def beyond(self) -> tuple[Issue, ...]:
        """What is worth less than its price says, for its market could not pay that: said, and no failed read."""
        found: defaultdict[tuple[str, Asset], list[Valued]] = defaultdict(list)
        held = (part for each in self.positions for part in (*each.supplied, *each.rewards))
        for part in (*self.holdings, *held):
            if part.counted:
                found[part.holding.account, part.holding.token.asset].append(part)
        return tuple(issue for parts in found.values() if (issue := _beyond(parts)) is not None)

    def with_spam(self) -> Valuation:
        """The same with what is taken for spam in its sums."""
        days = tuple(replace(day, came=_counted(day.came), left=_counted(day.left)) for day in self.days)
        positions = tuple(
            replace(each, supplied=_counted(each.supplied), rewards=_counted(each.rewards)) for each in self.positions
        )
        return replace(self, holdings=_counted(self.holdings), positions=positions, days=days)

    def of(self, account: str) -> Valuation:
        """The part that belongs to one account."""
        return Valuation(
            tuple(valued for valued in self.holdings if valued.holding.account == account),
            tuple(position for position in self.positions if position.account == account),
            {account: self.scope.get(account, ())},
            {account: self.unread.get(account, ())},
            tuple(fee for fee in self.fees if fee.holding.account == account),
            tuple(day for day in self.days if day.account == account),
            self.heights,
            self.no_days,
            tuple(each for each in self.collectibles if each[1].account == account),
        )

    def apart(self) -> dict[str, Valuation]:
        """The part of every account, as `of`, in one pass over all of them."""
        holdings, fees = defaultdict[str, list[Valued]](list), defaultdict[str, list[Valued]](list)
        positions, days = defaultdict[str, list[ValuedPosition]](list), defaultdict[str, list[ValuedDay]](list)
        for valued in self.holdings:
            holdings[valued.holding.account].append(valued)
        for position in self.positions:
            positions[position.account].append(position)
        for fee in self.fees:
            fees[fee.holding.account].append(fee)
        for day in self.days:
            days[day.account].append(day)
        collectibles = defaultdict[str, list[tuple[str, Holding]]](list)
        for each in self.collectibles:
            collectibles[each[1].account].append(each)
        return {
            account: Valuation(
                tuple(holdings[account]), tuple(positions[account]), {account: chains},
                {account: self.unread.get(account, ())}, tuple(fees[account]),
                tuple(days[account]), self.heights, self.no_days, tuple(collectibles[account]),
            )
            for account, chains in self.scope.items()
        }  # fmt: skip


def _unclear(chain: str, tokens: Sequence[str]) -> Iterator[Issue]:
    if len(tokens) > MAX_UNCLEAR:
        subject = f"{len(tokens)} subjects on {chain}"
        yield Issue("portfolio", subject, UNCLEAR, makes_partial=False, count=len(tokens))
    else:
        yield from (Issue("portfolio", token, UNCLEAR, makes_partial=False) for token in tokens)


def _beyond(parts: Sequence[Valued]) -> Issue | None:
    """What to say of all that an account has of one asset; None where its market could pay as much."""
    price = next((part.price for part in parts if part.beyond_usd is not None), None)
    if price is None:
        return None
    full = [part.value_usd if part.beyond_usd is None else part.beyond_usd for part in parts]
    whole = amounts.total([each for each in full if each is not None])
    reason = BEYOND.format(whole=amounts.text(whole), most=amounts.text(amounts.total(_values_usd(parts))))
    return Issue(price.source, str(price.asset), reason, makes_partial=False)


def _values_usd(parts: Iterable[Valued]) -> list[Decimal]:
    return [part.value_usd for part in parts if part.value_usd is not None and part.counted]


def _counted(parts: Iterable[Valued]) -> tuple[Valued, ...]:
    return tuple(replace(part, counted=True) for part in parts)


def value(snapshots: Sequence[Snapshot]) -> Valuation:
    """Snapshots of several chains, valued at the prices read with them.

    Left out are holdings of zero, and those that a position is another view of. What the market of a price could pay,
    it pays an account once: for what lies loose, then for what lies in positions.
    """
    holdings: list[Valued] = []
    inside, fees, days = list[ValuedPosition](), list[Valued](), list[ValuedDay]()
    scope: dict[str, tuple[str, ...]] = {}
    unread: dict[str, tuple[Issue, ...]] = {}
    for snapshot in snapshots:
        said = _issues(snapshot)
        for account in snapshot.accounts:
            scope[account] = tuple(sorted({*scope.get(account, ()), snapshot.chain}))
            unread[account] = (*unread.get(account, ()), *said[account])
        prices, shown = prices_of(snapshot), shown_of(snapshot)
        loose = [
            _loose(holding, snapshot, prices)
            for holding in snapshot.holdings
            if holding.raw != 0 and (holding.account, holding.token.asset) not in shown
        ]
        opened = [_valued_position(each, snapshot, prices) for each in snapshot.positions]
        if thin_of(prices):
            loose, opened = _paid_once(loose, opened)
        holdings += loose
        inside += opened
        fees += [valued(fee, snapshot.chain, snapshot.block, prices.get(fee.token.asset)) for fee in snapshot.fees]
        days += [_valued_day(day, snapshot, prices) for day in snapshot.days]
    heights = {each.chain: (each.block.height, each.head) for each in snapshots if each.block.hash}
    no_days = {each.chain: each.no_days for each in snapshots if each.no_days}
    things = tuple((each.chain, holding) for each in snapshots for holding in each.collectibles)
    return Valuation(tuple(holdings), tuple(inside), scope, unread, tuple(fees), tuple(days), heights, no_days, things)


def prices_of(snapshot: Snapshot) -> dict[Asset, Price]:
    """The prices of a snapshot by asset; of several of one asset the first."""
    return {price.asset: price for price in reversed(snapshot.prices)}


def thin_of(prices: Mapping[Asset, Price]) -> set[Asset]:
    """What has a price that a market makes, so that it is worth no more than that could pay."""
    return {asset for asset, price in prices.items() if usable(price) is not None and bound(price) is not None}


def shown_of(snapshot: Snapshot) -> set[tuple[str, Asset]]:
    """What positions are another view of, by account and asset."""
    return {(each.account, share) for each in snapshot.positions for share in each.replaces}


def _paid_once(loose: Sequence[Valued], opened: Sequence[ValuedPosition]) -> tuple[list[Valued], list[ValuedPosition]]:
    """The same, each part worth what its market could still pay its account after the parts before it; those that no
    sum has in it come last."""
    left: dict[tuple[str, Asset], Decimal] = {}
    holdings, positions = list(loose), list(opened)
    for counted in (True, False):
        holdings = [_paid(part, left, counted=counted) for part in holdings]
        positions = [
            replace(
                each,
                supplied=tuple(_paid(part, left, counted=counted) for part in each.supplied),
                rewards=tuple(_paid(part, left, counted=counted) for part in each.rewards),
            )
            for each in positions
        ]
    return holdings, positions


def _paid(part: Valued, left: dict[tuple[str, Asset], Decimal], *, counted: bool) -> Valued:
    """A part with what is `left` of its market for its account, which becomes less by as much."""
    most = None if part.price is None else bound(part.price)
    if most is None or part.value_usd is None or part.counted is not counted:
        return part
    key = part.holding.account, part.holding.token.asset
    there = left.get(key, most)
    paid = min(part.value_usd, there)
    left[key] = amounts.EXACT.subtract(there, paid)
    if paid == part.value_usd:
        return part
    return replace(part, value_usd=paid, beyond_usd=part.value_usd if part.beyond_usd is None else part.beyond_usd)


def _issues(snapshot: Snapshot) -> dict[str, list[Issue]]:
    """The issues of a snapshot by the account they are about, those about everybody with each, in their order."""
    said: dict[str, list[Issue]] = {account: [] for account in snapshot.accounts}
    for issue in snapshot.issues:
        whose = issue.account or issue.subject
        for account in [whose] if whose in said else said:
            said[account].append(issue)
    return said


def _valued_position(position: Position, snapshot: Snapshot, prices: Mapping[Asset, Price]) -> ValuedPosition:
    """One position, its parts valued like loose holdings; without prices where its amounts are only claimed."""
    usable = {} if position.unverified else prices
    supplied, borrowed, rewards = (
        tuple(valued(part, snapshot.chain, snapshot.block, usable.get(part.token.asset), owed=owed) for part in side)
        for side, owed in ((position.supplied, False), (position.borrowed, True), (position.rewards, False))
    )
    supplied, rewards = (
        tuple(_unless_spam(part, _spam_of(part, position, snapshot)) for part in side) for side in (supplied, rewards)
    )
    return ValuedPosition(
        position.account, snapshot.chain, position.protocol, position.type, position.name, supplied, borrowed, rewards,
        position.health, position.unlock_s, position.vault, position.pool, snapshot.block, position.calls,
        position.earned,
    )  # fmt: skip


def _spam_of(part: Valued, position: Position, snapshot: Snapshot) -> Spam | None:
    """Why a part is taken for spam: for what it is, or because every share that the position stands for is spam."""
    shares = [snapshot.spam.get((position.account, share)) for share in position.replaces]
    own = snapshot.spam.get((position.account, part.holding.token.asset))
    return own or (shares[0] if shares and None not in shares else None)


def _valued_day(day: Day, snapshot: Snapshot, prices: Mapping[Asset, Price]) -> ValuedDay:
    came, left = (tuple(_loose(each, snapshot, prices) for each in side) for side in (day.came, day.left))
    return ValuedDay(day.account, snapshot.chain, came, left)


def _loose(holding: Holding, snapshot: Snapshot, prices: Mapping[Asset, Price]) -> Valued:
    """Something in no position, by what the snapshot says of its token."""
    asset = holding.token.asset
    part = valued(holding, snapshot.chain, snapshot.block, prices.get(asset), asset in snapshot.pegged)
    return _unless_spam(part, snapshot.spam.get((holding.account, asset)))


def _unless_spam(valued: Valued, spam: Spam | None) -> Valued:
    """What is taken for spam stays in sight, and is in no sum."""
    return valued if spam is None else replace(valued, spam=spam, counted=False)


def valued(
    holding: Holding, chain: str, block: Block, price: Price | None, pegged: bool = False, *, owed: bool = False
) -> Valued:
    """One holding at one price. It is worth no more than the market of the price could pay, unless it is `owed`."""
    decimals = holding.token.decimals
    meant = decimals is not None and 0 <= decimals <= amounts.MAX_DECIMALS and 0 <= holding.raw <= amounts.MAX_RAW
    amount = amounts.amount(holding.raw, decimals) if meant and decimals is not None else None
    known = usable(price)
    value_usd = amounts.value_of(amount, known.usd) if amount is not None and known is not None else None
    beyond_usd, most = None, None if known is None or owed else bound(known)
    if value_usd is not None and most is not None and value_usd > most:
        beyond_usd, value_usd = value_usd, most
    return Valued(holding, chain, block, amount, known, value_usd, pegged=pegged, beyond_usd=beyond_usd)


def market_value(amount: Decimal, price: Price) -> Decimal:
    """What an amount is worth in USD: no more than the market of the price could pay."""
    value_usd, most = amounts.value_of(amount, price.usd), bound(price)
    return value_usd if most is None else min(value_usd, most)


def usable(price: Price | None) -> Price | None:
    """A price that something can be valued with."""
    return price if price is not None and price.usd.is_finite() and price.usd > 0 else None


def bound(price: Price) -> Decimal | None:
    """What the market of a price could pay at most; None where nobody knows."""
    depth = price.depth_usd
    return max(depth, amounts.ZERO) if depth is not None and depth.is_finite() else None
