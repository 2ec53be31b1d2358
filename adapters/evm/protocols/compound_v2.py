"""Compound V2 and its forks: one position a comptroller, with all of the account's markets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from chainfolio import amounts
from chainfolio.adapters.evm.positions.rules import DecoderPlan, Family, MayRefuse, ProtocolMatch, ReadError, Token
from chainfolio.adapters.evm.protocols.separate_shares import separate_shares
from chainfolio.adapters.evm.reads import Call, NativeBalance, Read, balance_of
from chainfolio.assets import ZERO_ADDRESS
from chainfolio.protocols import DecodedPosition, TokenAmount, UnlistedShare, UnverifiedShare

WAD, DOUBLE = 10**18, 10**36
WAD_DECIMALS = 18
MARKET = "markets(address)(bool,uint256)"
UNDERLYING = "underlying()(address)"
NOTHING_SUPPLIED = "the comptroller's code was not reviewed, and the account supplied nothing for what it owes there"
NOT_SENT = "the comptroller's code was not reviewed, and the account never sent its markets what they say it supplied"
NOT_THERE = "the comptroller's code was not reviewed, and its markets do not have what they say was supplied"
REWARD_STATE = "State(address)(uint224,uint32)"


@dataclass(slots=True)
class Market:
    """An account's part of one market.

    `debt` is in units of the asset as of the last interest, `rate` the asset per share and `factor` the part of the
    collateral that may be borrowed, both times 10^18. `entered`: the supplied amount is collateral. `supplied` and
    `borrowed` include interest up to the block.
    """

    token: str
    asset: str
    shares: int
    debt: int
    rate: int
    factor: int
    price: int
    entered: bool
    supplied: int = 0
    borrowed: int = 0


def position(match: ProtocolMatch) -> DecoderPlan:
    """Decode the markets that an account entered or whose tokens it touched as one position with interest.

    Further markets of the same asset have positions of their own (`separate_shares`).

    If a market refuses to count the newest interest, the stored amounts count. This, and a debt in VAI, is reported as
    unknown, without a health. Rewards are read if the protocol's file names their functions: `reward`, the call that
    returns the token, and `rewards`, the word with which the comptroller's functions begin ("comp", "venus").
    """
    comptroller, account = match.contract, match.account
    entered, oracle, minted = yield [
        Call(comptroller, "getAssetsIn(address)(address[])", (account,)),
        Call(comptroller, "oracle()(address)"),
        MayRefuse(Call(comptroller, "mintedVAIs(address)(uint256)", (account,))),
    ]
    markets = yield from _markets(match, entered, oracle)
    lending, borrowing = [market for market in markets if market.shares], [market for market in markets if market.debt]
    accrued = [
        *(Call(market.token, "balanceOfUnderlying(address)(uint256)", (account,), alone=True) for market in lending),
        *(Call(market.token, "borrowBalanceCurrent(address)(uint256)", (account,), alone=True) for market in borrowing),
    ]
    cash_reads = [_cash(market.asset, market.token) for market in lending] if match.is_fork else []
    results = yield [*map(MayRefuse, accrued), *cash_reads]
    balances, cash = results[: len(accrued)], results[len(accrued) :]
    for market, raw in zip(lending, balances[: len(lending)], strict=True):
        market.supplied = market.shares * market.rate // WAD if raw is None else raw
    for market, raw in zip(borrowing, balances[len(lending) :], strict=True):
        market.borrowed = market.debt if raw is None else raw
    unknown = ["the newest interest"] * (None in balances) + ["what it owes in VAI"] * bool(minted)
    market_health = None if unknown else health(markets)
    rewards = (yield from _rewards(match, lending, borrowing)) if "rewards" in match.options else ()
    unknown += ["what it earned beside interest"] * (rewards is None)
    decoded = DecodedPosition(
        "LENDING",
        supplied=tuple(TokenAmount(market.asset, market.supplied) for market in markets),
        borrowed=tuple(TokenAmount(market.asset, market.borrowed) for market in markets),
        rewards=rewards or (),
        unknown=" and ".join(unknown),
        name="Lending market",
        health=market_health,
        pool=comptroller,
        replaces=tuple(market.token for market in markets),
    )
    separate = separate_shares(decoded)
    if match.is_fork:
        cash_of = {market.token: (market, raw) for market, raw in zip(lending, cash, strict=True)}
        own_markets = ([cash_of[token] for token in each.replaces if token in cash_of] for each in separate)
        separate = [
            replace(each, unverified=_fork_problem(match, of_position))
            for each, of_position in zip(separate, own_markets, strict=True)
        ]
    first, *further = separate
    return [first, *further] if further else first


def _cash(asset: str, market: str) -> Read:
    """Return the read of a market's real balance of its asset."""
    return NativeBalance(market) if asset == ZERO_ADDRESS else balance_of(asset, market)


def _fork_problem(match: ProtocolMatch, lending: Sequence[tuple[Market, int]]) -> str:
    """Return why a position is unverified: unreviewed code of a comptroller may list any market.

    Empty if it is verified: the account supplied something and sent the asset to each of these markets, and the markets
    still have the supplied amounts. Debts without supplies are unverified.

    Args:
        match: The comptroller and the account.
        lending: The markets in which the position supplied something, with what they have of their asset.
    """
    if not lending:
        return NOTHING_SUPPLIED
    if any(not replace(match, contract=market.token).has_deposited(market.asset) for market, _ in lending):
        return NOT_SENT
    return "" if all(market.supplied <= raw for market, raw in lending) else NOT_THERE


def _markets(match: ProtocolMatch, entered: tuple[str, ...], oracle: str) -> DecoderPlan:
    """Read the listed markets among those that the account entered or whose tokens it touched.

    Raises:
        ReadError: A market returned an error code; its numbers are then zeros without meaning.
    """
    tokens = sorted({*entered, *match.tokens})
    listings = yield [Call(match.contract, MARKET, (token,)) for token in tokens]
    factors = {token: factor for token, (is_listed, factor) in zip(tokens, listings, strict=True) if is_listed}
    results = yield [
        read
        for token in factors
        for read in (
            Call(token, "getAccountSnapshot(address)(uint256,uint256,uint256,uint256)", (match.account,)),
            MayRefuse(Call(token, UNDERLYING)),
            MayRefuse(Call(oracle, "getUnderlyingPrice(address)(uint256)", (token,))),
        )
    ]
    snapshots, assets, prices = results[::3], results[1::3], results[2::3]
    markets = []
    for (token, factor), snapshot, asset, price in zip(factors.items(), snapshots, assets, prices, strict=True):
        error, shares, debt, rate = snapshot
        if error:
            raise ReadError(f"{token} did not say getAccountSnapshot: error {error}")
        is_entered = token in entered
        markets.append(Market(token, asset or ZERO_ADDRESS, shares, debt, rate, factor, price or 0, is_entered))
    return markets


def health(markets: list[Market]) -> Decimal | None:
    """Return the borrowing limit divided by the debt; below one, the account can be liquidated.

    None without a debt, or if the oracle has no price for a market that counts.
    """
    relevant = [
        market for market in markets if market.borrowed or (market.entered and market.supplied and market.factor)
    ]
    debt_value = sum(market.borrowed * market.price for market in relevant)
    if not debt_value or not all(market.price for market in relevant):
        return None
    limit = sum(market.supplied * market.factor * market.price for market in relevant if market.entered)
    return amounts.amount(limit // debt_value, WAD_DECIMALS)


def _rewards(match: ProtocolMatch, lending: list[Market], borrowing: list[Market]) -> DecoderPlan:
    """Return the rewards that claiming would pay now: the stored amount and those since then.

    None if the comptroller lacks these functions, as older versions at the same address do. Source:
    `distributeSupplierComp` and `distributeBorrowerComp` of Compound's `Comptroller`.
    """
    comptroller, account, prefix = match.contract, match.account, match.options["rewards"]
    reads = [
        call
        for side, role, markets in (("Supply", "Supplier", lending), ("Borrow", "Borrower", borrowing))
        for market in markets
        for call in (
            Call(comptroller, f"{prefix}{side}{REWARD_STATE}", (market.token,)),
            Call(comptroller, f"{prefix}{side}Speeds(address)(uint256)", (market.token,)),
            Call(comptroller, f"{prefix}{role}Index(address,address)(uint256)", (market.token, account)),
            Call(market.token, "totalSupply()(uint256)" if side == "Supply" else "totalBorrows()(uint256)"),
            Call(market.token, "borrowIndex()(uint256)"),
        )
    ]
    token, height, raw, *results = yield [
        MayRefuse(Call(comptroller, match.options["reward"])),
        MayRefuse(Call(comptroller, "getBlockNumber()(uint256)")),
        MayRefuse(Call(comptroller, f"{prefix}Accrued(address)(uint256)", (account,))),
        *map(MayRefuse, reads),
    ]
    if None in (token, height, raw, *results):
        return None
    sides = [*((market.shares, False) for market in lending), *((market.debt, True) for market in borrowing)]
    for (units, is_debt), start in zip(sides, range(0, len(results), 5), strict=True):
        (index, updated), speed, account_index, total, debt_index = results[start : start + 5]
        if is_debt:
            units, total = units * WAD // debt_index, total * WAD // debt_index
        if height > updated and speed and total:
            index += (height - updated) * speed * DOUBLE // total
        if account_index == 0 and index >= DOUBLE:
            account_index = DOUBLE
        raw += units * (index - account_index) // DOUBLE
    return (TokenAmount(token, raw),)


def unwrap(match: ProtocolMatch, raw: int) -> DecoderPlan:
    """Return the asset that redeeming `raw` of a market's tokens pays now; None if it is not listed.

    In unreviewed code an UnlistedShare, or an UnverifiedShare if the market has less of the asset.
    """
    (is_listed, _), asset, rate = yield [
        Call(match.answer, MARKET, (match.contract,)),
        MayRefuse(Call(match.contract, UNDERLYING)),
        Call(match.contract, "exchangeRateCurrent()(uint256)", alone=True),
    ]
    if not is_listed:
        return None
    part = TokenAmount(asset or ZERO_ADDRESS, raw * rate // WAD)
    if not match.is_fork:
        return (part,)
    (cash,) = yield [_cash(part.token, match.contract)]
    return UnlistedShare((part,)) if part.raw <= cash else UnverifiedShare(NOT_THERE)


FAMILY = Family(
    "compound_v2",
    rules=(Token(role="comptroller", question="comptroller()(address)", together=True),),
    position=position,
    unwrap=unwrap,
    options=("reward", "rewards"),
)
