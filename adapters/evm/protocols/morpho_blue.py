"""Morpho Blue: one contract with many markets, each lending one token against another.

Anybody can open a market with an oracle of its own, supply there for anybody, and borrow all of it back against
worthless collateral: what a share is worth on paper stays, and grows. So what was supplied counts where the file lists
the market, where the account supplied it itself, or where it could be withdrawn now.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal

from adapters.evm.positions.rules import Always, DecoderPlan, Event, Family, MayRefuse, ProtocolMatch
from adapters.evm.reads import Call
from chainfolio import amounts
from chainfolio.assets import ZERO_ADDRESS
from chainfolio.protocols import DecodedPosition, TokenAmount

WAD, PRICE_SCALE = 10**18, 10**36
WAD_DECIMALS = 18
VIRTUAL_SHARES, VIRTUAL_ASSETS = 10**6, 1
POSITION = "position(bytes32,address)(uint256,uint128,uint128)"
MARKET = "market(bytes32)(uint128,uint128,uint128,uint128,uint128,uint128)"
TERMS = "idToMarketParams(bytes32)(address,address,address,address,uint256)"
ON_PAPER = "somebody else supplied it, no file lists its market, and more is lent there than could be withdrawn now"
FEES = "fees of markets in which it never had anything else"
RATE = (
    "borrowRateView((address,address,address,address,uint256),"
    "(uint128,uint128,uint128,uint128,uint128,uint128))(uint256)"
)


@dataclass(frozen=True, slots=True)
class Terms:
    """What a market was made with."""

    loan: str
    collateral: str
    oracle: str
    rates: str
    lltv: int  # how much of the collateral may be owed, times 10**18


@dataclass(frozen=True, slots=True)
class Totals:
    """What all of a market supplied and owes, in units of its token and in shares."""

    supplied: int
    supplied_shares: int
    borrowed: int
    borrowed_shares: int
    updated_s: int
    fee: int
    fee_shares: int = 0

    def grown(self, rate: int, seconds: int) -> Totals:
        """With the interest since it was last brought up to date, of which a part may go to who takes the fee."""
        first = rate * seconds
        second = first * first // (2 * WAD)
        interest = self.borrowed * (first + second + second * first // (3 * WAD)) // WAD
        supplied, fee = self.supplied + interest, interest * self.fee // WAD
        shares = fee * (self.supplied_shares + VIRTUAL_SHARES) // (supplied - fee + VIRTUAL_ASSETS)
        return Totals(
            supplied, self.supplied_shares + shares, self.borrowed + interest, self.borrowed_shares,
            self.updated_s + seconds, self.fee, shares,
        )  # fmt: skip

    def assets(self, shares: int) -> int:
        """What withdrawing so many shares gives."""
        return shares * (self.supplied + VIRTUAL_ASSETS) // (self.supplied_shares + VIRTUAL_SHARES)

    def owed(self, shares: int) -> int:
        """What repaying so many shares takes."""
        return -(-shares * (self.borrowed + VIRTUAL_ASSETS) // (self.borrowed_shares + VIRTUAL_SHARES))


def position(match: ProtocolMatch) -> DecoderPlan:
    """One position for each market in which the account has something, interest up to this block included.

    The contract has no list of its markets: those that are read are the ids of events, whoever caused them, and those
    that the protocol's file has as `markets`. Who takes the fee gets shares without an event: where no file lists the
    markets, that is said.
    """
    morpho, account = match.contract, match.account
    listed = [bytes.fromhex(each.removeprefix("0x")) for each in match.options.get("markets", "").split()]
    ids = list(dict.fromkeys([*(values[0] for values in match.values if values), *listed]))
    fees = [DecodedPosition("LENDING", unknown=FEES)] if () in match.values and "markets" not in match.options else []
    own = (yield [Call(morpho, POSITION, (each, account)) for each in ids]) if ids else []
    held = {each: shares for each, shares in zip(ids, own, strict=True) if any(shares)}
    if not held:
        return fees
    told = yield [Call(morpho, ask, (each,)) for each in held for ask in (MARKET, TERMS)]
    totals, terms = told[::2], [Terms(*each) for each in told[1::2]]
    rated = [(each, total) for each, total in zip(terms, totals, strict=True) if each.rates != ZERO_ADDRESS]
    taker, *said = yield [
        Call(morpho, "feeRecipient()(address)"),
        *(MayRefuse(Call(each.oracle, "price()(uint256)")) for each in terms),
        *(Call(each.rates, RATE, (_tuple(each), total)) for each, total in rated),
    ]
    prices, rates = said[: len(terms)], iter(said[len(terms) :])
    believed = {each for each in ids if each in listed}
    return [
        found
        for (each, shares), its, total, price in zip(held.items(), terms, totals, prices, strict=True)
        for found in _founds(
            match,
            shares,
            its,
            _now(match, its, Totals(*total), rates),
            price,
            taker,
            each in believed or _has_supplied(match, each, its.loan),
        )
    ] + fees


def _has_supplied(match: ProtocolMatch, market: bytes, loan: str) -> bool:
    """Whether the account supplied something itself, or by a contract to which it gave what is lent there."""
    callers = [values[1] for values in match.values if len(values) == 2 and values[0] == market]
    return any(caller == match.account or loan in match.sent.get(caller, ()) for caller in callers)


def _tuple(terms: Terms) -> tuple[str, str, str, str, int]:
    return (terms.loan, terms.collateral, terms.oracle, terms.rates, terms.lltv)


def _now(match: ProtocolMatch, terms: Terms, totals: Totals, rates: Iterator[int]) -> Totals:
    """The totals as of this block; a market without rates earns nothing."""
    return totals if terms.rates == ZERO_ADDRESS else totals.grown(next(rates), match.time_s - totals.updated_s)


def _founds(
    match: ProtocolMatch,
    shares: tuple[int, int, int],
    terms: Terms,
    totals: Totals,
    price: int | None,
    taker: str,
    believed: bool,
) -> list[DecodedPosition]:
    """What the account has in one market; what it has only on paper stands apart."""
    supplied, borrowed, collateral = shares
    owed = totals.owed(borrowed)
    lent = TokenAmount(terms.loan, totals.assets(supplied + (totals.fee_shares if match.account == taker else 0)))
    counts = believed or lent.raw <= totals.supplied - totals.borrowed
    whole = DecodedPosition(
        "LENDING",
        supplied=(*((lent,) if counts else ()), TokenAmount(terms.collateral, collateral)),
        borrowed=(TokenAmount(terms.loan, owed),),
        name="Lending market",
        health=_health(collateral, price, terms.lltv, owed),
        pool=match.contract,
    )
    if counts:
        return [whole]
    return [
        whole,
        DecodedPosition("LENDING", supplied=(lent,), name="Lending market", pool=match.contract, unverified=ON_PAPER),
    ]


def _health(collateral: int, price: int | None, lltv: int, owed: int) -> Decimal | None:
    """How many times over what may be owed covers what is: below one it can be liquidated."""
    if not owed or price is None:
        return None
    return amounts.amount(collateral * price // PRICE_SCALE * lltv // WAD * WAD // owed, WAD_DECIMALS)


SUPPLIED = "Supply(bytes32 indexed id, address indexed caller, address indexed onBehalf, uint256, uint256)"
SECURED = "SupplyCollateral(bytes32 indexed id, address indexed caller, address indexed onBehalf, uint256)"
BORROWED = "Borrow(bytes32 indexed id, address, address indexed onBehalf, address indexed receiver, uint256, uint256)"
FAMILY = Family(
    "morpho_blue",
    rules=(
        Event("morpho", SUPPLIED, owner=2, of=(0, 1)),
        *(Event("morpho", event, owner=2, of=(0,)) for event in (SECURED, BORROWED)),
        Event("morpho", "SetFeeRecipient(address indexed newFeeRecipient)", owner=0),
        Always("morpho"),  # which costs nothing where no file lists markets
    ),
    position=position,
    options=("markets",),
)
