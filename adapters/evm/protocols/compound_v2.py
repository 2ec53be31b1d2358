"""Compound V2 and its forks: one position a comptroller, with all that was supplied and borrowed in its markets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from adapters.evm.positions.rules import DecoderPlan, Family, MayRefuse, ProtocolMatch, Token, Unread
from adapters.evm.reads import Call, NativeBalance, Read, balance_of
from chainfolio import amounts
from chainfolio.assets import ZERO_ADDRESS
from chainfolio.protocols import DecodedPosition, TokenAmount, Unlisted, Unverified

WAD, DOUBLE = 10**18, 10**36
WAD_DECIMALS = 18
MARKET = "markets(address)(bool,uint256)"
UNDERLYING = "underlying()(address)"
NOTHING_SUPPLIED = "nobody read the code of this comptroller, and the account supplied nothing for what it owes there"
NOT_SENT = "nobody read the code of this comptroller, and the account never sent its markets what they say it supplied"
NOT_THERE = "nobody read the code of this comptroller, and its markets do not have what they say was supplied"
STATE = "State(address)(uint224,uint32)"


@dataclass(slots=True)
class Market:
    """What an account has in one market. `entered`: what it supplied there is collateral."""

    token: str
    asset: str
    shares: int
    owed: int
    rate: int
    factor: int
    price: int
    entered: bool
    supplied: int = 0
    borrowed: int = 0


def position(match: ProtocolMatch) -> DecoderPlan:
    """What an account has in the markets that it entered or whose tokens it met, interest up to this block included.

    What it earned beside is read where the protocol's file says what that is called: `reward`, the call that answers
    with the token, and `rewards`, the word that the comptroller's functions begin with ("comp", "venus").
    """
    comptroller, account = match.contract, match.account
    entered, oracle, minted = yield [
        Call(comptroller, "getAssetsIn(address)(address[])", (account,)),
        Call(comptroller, "oracle()(address)"),
        MayRefuse(Call(comptroller, "mintedVAIs(address)(uint256)", (account,))),
    ]
    markets = yield from _markets(match, entered, oracle)
    held, owing = [each for each in markets if each.shares], [each for each in markets if each.owed]
    cash = [_cash(each.asset, each.token) for each in held] if match.is_fork else []
    told = yield [
        *(
            MayRefuse(Call(each.token, "balanceOfUnderlying(address)(uint256)", (account,), alone=True))
            for each in held
        ),
        *(
            MayRefuse(Call(each.token, "borrowBalanceCurrent(address)(uint256)", (account,), alone=True))
            for each in owing
        ),
        *cash,
    ]
    told, there = told[: len(held) + len(owing)], told[len(held) + len(owing) :]
    for each, raw in zip(held, told[: len(held)], strict=True):
        each.supplied = each.shares * each.rate // WAD if raw is None else raw
    for each, raw in zip(owing, told[len(held) :], strict=True):
        each.borrowed = each.owed if raw is None else raw
    unknown = ["the newest interest"] * (None in told) + ["what it owes in VAI"] * bool(minted)
    healthy = None if unknown else health(markets)
    rewards = (yield from _rewards(match, held, owing)) if "rewards" in match.options else ()
    unknown += ["what it earned beside interest"] * (rewards is None)
    return DecodedPosition(
        "LENDING",
        supplied=tuple(TokenAmount(each.asset, each.supplied) for each in markets),
        borrowed=tuple(TokenAmount(each.asset, each.borrowed) for each in markets),
        rewards=rewards or (),
        unknown=" and ".join(unknown),
        name="Lending market",
        health=healthy,
        pool=comptroller,
        replaces=tuple(each.token for each in markets),
        unverified=_doubt(match, held, there) if match.is_fork else "",
    )


def _cash(asset: str, market: str) -> Read:
    """What a market really has of its asset."""
    return NativeBalance(market) if asset == ZERO_ADDRESS else balance_of(asset, market)


def _doubt(match: ProtocolMatch, held: list[Market], there: Sequence[int]) -> str:
    """Why nobody can rely on a comptroller whose code nobody read, and which may list any market: empty where all that
    was supplied is there, and the account sent something to each of these markets."""
    if not held:
        return NOTHING_SUPPLIED
    if any(not replace(match, contract=each.token).deposited(each.asset) for each in held):
        return NOT_SENT
    return "" if all(each.supplied <= cash for each, cash in zip(held, there, strict=True)) else NOT_THERE


def _markets(match: ProtocolMatch, entered: tuple[str, ...], oracle: str) -> DecoderPlan:
    """The markets that the comptroller lists, of those that the account entered or whose tokens it met.

    Unread where one answers with the code of an error: the numbers beside it are zeros that mean nothing.
    """
    tokens = sorted({*entered, *match.tokens})
    listed = yield [Call(match.contract, MARKET, (token,)) for token in tokens]
    factors = {token: factor for token, (known, factor) in zip(tokens, listed, strict=True) if known}
    told = yield [
        ask
        for token in factors
        for ask in (
            Call(token, "getAccountSnapshot(address)(uint256,uint256,uint256,uint256)", (match.account,)),
            MayRefuse(Call(token, UNDERLYING)),
            MayRefuse(Call(oracle, "getUnderlyingPrice(address)(uint256)", (token,))),
        )
    ]
    for token, (error, *_) in zip(factors, told[::3], strict=True):
        if error:
            raise Unread(f"{token} did not say getAccountSnapshot: error {error}")
    return [
        Market(token, asset or ZERO_ADDRESS, shares, owed, rate, factor, price or 0, token in entered)
        for (token, factor), ((_, shares, owed, rate), asset, price) in zip(
            factors.items(), zip(told[::3], told[1::3], told[2::3], strict=True), strict=True
        )
    ]


def health(markets: list[Market]) -> Decimal | None:
    """How many times over the collateral covers the debt: below one it can be liquidated. None where nothing is owed,
    or where the oracle has no price for something that counts."""
    counting = [each for each in markets if each.borrowed or (each.entered and each.supplied and each.factor)]
    owed = sum(each.borrowed * each.price for each in counting)
    if not owed or not all(each.price for each in counting):
        return None
    limit = sum(each.supplied * each.factor * each.price for each in counting if each.entered)
    return amounts.amount(limit // owed, WAD_DECIMALS)


def _rewards(match: ProtocolMatch, held: list[Market], owing: list[Market]) -> DecoderPlan:
    """What claiming would give now: what was written down, and what each market has brought since.

    None where the comptroller does not know these functions, as earlier ones at the same address did not.
    """
    comptroller, account, word = match.contract, match.account, match.options["rewards"]
    reads = [
        ask
        for side, markets, of in (("Supply", held, "Supplier"), ("Borrow", owing, "Borrower"))
        for each in markets
        for ask in (
            Call(comptroller, f"{word}{side}{STATE}", (each.token,)),
            Call(comptroller, f"{word}{side}Speeds(address)(uint256)", (each.token,)),
            Call(comptroller, f"{word}{of}Index(address,address)(uint256)", (each.token, account)),
            Call(each.token, "totalSupply()(uint256)" if side == "Supply" else "totalBorrows()(uint256)"),
            Call(each.token, "borrowIndex()(uint256)"),
        )
    ]
    token, height, earned, *told = yield [
        MayRefuse(Call(comptroller, match.options["reward"])),
        MayRefuse(Call(comptroller, "getBlockNumber()(uint256)")),
        MayRefuse(Call(comptroller, f"{word}Accrued(address)(uint256)", (account,))),
        *map(MayRefuse, reads),
    ]
    if None in (token, height, earned, *told):
        return None
    sides: list[Any] = [*((each.shares, False) for each in held), *((each.owed, True) for each in owing)]
    for (raw, is_debt), at in zip(sides, range(0, len(told), 5), strict=True):
        (index, since), speed, own, total, debt_index = told[at : at + 5]
        if is_debt:
            raw, total = raw * WAD // debt_index, total * WAD // debt_index
        if height > since and speed and total:
            index += (height - since) * speed * DOUBLE // total
        if own == 0 and index >= DOUBLE:
            own = DOUBLE
        earned += raw * (index - own) // DOUBLE
    return (TokenAmount(token, earned),)


def unwrap(match: ProtocolMatch, raw: int) -> DecoderPlan:
    """What redeeming so many of a market's tokens gives now; None where the comptroller does not list it."""
    (listed, _), asset, rate = yield [
        Call(match.answer, MARKET, (match.contract,)),
        MayRefuse(Call(match.contract, UNDERLYING)),
        Call(match.contract, "exchangeRateCurrent()(uint256)", alone=True),
    ]
    if not listed:
        return None
    part = TokenAmount(asset or ZERO_ADDRESS, raw * rate // WAD)
    if not match.is_fork:
        return (part,)
    (cash,) = yield [_cash(part.token, match.contract)]
    return Unlisted((part,)) if part.raw <= cash else Unverified(NOT_THERE)


FAMILY = Family(
    "compound_v2",
    rules=(Token(role="comptroller", question="comptroller()(address)", together=True),),
    position=position,
    unwrap=unwrap,
    options=("reward", "rewards"),
)
