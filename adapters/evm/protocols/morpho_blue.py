"""Morpho Blue: one contract with many markets, each lending one token against another.

Anybody can open a market with an oracle of their choice, supply there on behalf of anybody, and borrow all of it back
against worthless collateral: the shares keep their claim on paper, and it grows. So a supply counts only if the file
lists the market, if the account supplied it itself, or if it could be withdrawn now.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple

from chainfolio import amounts
from chainfolio.adapters.evm.positions.rules import DecoderPlan, Event, EveryAccount, Family, MayRefuse, ProtocolMatch
from chainfolio.adapters.evm.reads import Call
from chainfolio.assets import ZERO_ADDRESS
from chainfolio.protocols import DecodedPosition, TokenAmount

WAD, PRICE_SCALE = 10**18, 10**36
WAD_DECIMALS = 18
VIRTUAL_SHARES, VIRTUAL_ASSETS = 10**6, 1
POSITION = "position(bytes32,address)(uint256,uint128,uint128)"
MARKET = "market(bytes32)(uint128,uint128,uint128,uint128,uint128,uint128)"
MARKET_PARAMS = "idToMarketParams(bytes32)(address,address,address,address,uint256)"
ON_PAPER = "another account supplied it, no file lists its market, and more is lent there than could be withdrawn now"
FEES = "fees of markets in which it never had anything else"
RATE = (
    "borrowRateView((address,address,address,address,uint256),"
    "(uint128,uint128,uint128,uint128,uint128,uint128))(uint256)"
)


class MarketParams(NamedTuple):
    """The fixed parameters of a market. `lltv` is the largest debt per collateral, times 10^18."""

    loan_token: str
    collateral_token: str
    oracle: str
    rate_model: str
    lltv: int


class AccountShares(NamedTuple):
    """The result of `position`: an account's shares of supply and debt, and its raw collateral."""

    supplied: int
    borrowed: int
    collateral: int


@dataclass(frozen=True, slots=True)
class MarketTotals:
    """The totals of a market, in raw units of the loan token and in shares.

    `fee_shares`: shares that accruing minted for the fee recipient.
    """

    supplied: int
    supplied_shares: int
    borrowed: int
    borrowed_shares: int
    updated_s: int
    fee: int
    fee_shares: int = 0

    def accrued(self, rate: int, seconds: int) -> MarketTotals:
        """Return the totals with the interest since their last update, including the fee.

        Source: `_accrueInterest` and `MathLib.wTaylorCompounded` of Morpho Blue. `rate` is per second, times 10^18.
        """
        first = rate * seconds
        second = first * first // (2 * WAD)
        interest = self.borrowed * (first + second + second * first // (3 * WAD)) // WAD
        supplied, fee = self.supplied + interest, interest * self.fee // WAD
        shares = fee * (self.supplied_shares + VIRTUAL_SHARES) // (supplied - fee + VIRTUAL_ASSETS)
        return MarketTotals(
            supplied,
            self.supplied_shares + shares,
            self.borrowed + interest,
            self.borrowed_shares,
            self.updated_s + seconds,
            self.fee,
            shares,
        )

    def assets(self, shares: int) -> int:
        """Return the raw amount that withdrawing shares pays, rounded down."""
        return shares * (self.supplied + VIRTUAL_ASSETS) // (self.supplied_shares + VIRTUAL_SHARES)

    def debt(self, shares: int) -> int:
        """Return the raw amount that repaying shares takes, rounded up."""
        return -(-shares * (self.borrowed + VIRTUAL_ASSETS) // (self.borrowed_shares + VIRTUAL_SHARES))


def position(match: ProtocolMatch) -> DecoderPlan:
    """Decode one position for each market in which the account has something, with interest.

    The contract has no list of its markets: those that are read are named by any events and by option
    `markets` of the protocol's file. The fee recipient gets shares without an event; that is reported as unknown if the
    file lists no markets.
    """
    morpho, account = match.contract, match.account
    listed_markets = [bytes.fromhex(text.removeprefix("0x")) for text in match.options.get("markets", "").split()]
    ids = list(dict.fromkeys([*(values[0] for values in match.values if values), *listed_markets]))
    fees = [DecodedPosition("LENDING", unknown=FEES)] if () in match.values and "markets" not in match.options else []
    results = (yield [Call(morpho, POSITION, (market, account)) for market in ids]) if ids else []
    shares = {market: AccountShares(*result) for market, result in zip(ids, results, strict=True) if any(result)}
    if not shares:
        return fees
    results = yield [Call(morpho, call, (market,)) for market in shares for call in (MARKET, MARKET_PARAMS)]
    totals, params = results[::2], [MarketParams(*result) for result in results[1::2]]
    rated = {
        market: (market_params, total)
        for market, market_params, total in zip(shares, params, totals, strict=True)
        if market_params.rate_model != ZERO_ADDRESS
    }
    fee_recipient, *results = yield [
        Call(morpho, "feeRecipient()(address)"),
        *(MayRefuse(Call(market_params.oracle, "price()(uint256)")) for market_params in params),
        *(
            Call(market_params.rate_model, RATE, (tuple(market_params), total))
            for market_params, total in rated.values()
        ),
    ]
    prices, rates = results[: len(params)], dict(zip(rated, results[len(params) :], strict=True))
    positions: list[DecodedPosition] = []
    for market, market_params, result, price in zip(shares, params, totals, prices, strict=True):
        total = MarketTotals(*result)
        if market in rates:
            total = total.accrued(rates[market], match.time_s - total.updated_s)
        fee_shares = total.fee_shares if account == fee_recipient else 0
        is_trusted = market in listed_markets or _has_supplied(match, market, market_params.loan_token)
        positions += _market_positions(morpho, shares[market], market_params, total, price, fee_shares, is_trusted)
    return positions + fees


def _has_supplied(match: ProtocolMatch, market: bytes, loan_token: str) -> bool:
    """Return True if the account supplied, itself or by a contract to which it sent the loan token."""
    callers = [values[1] for values in match.values if len(values) == 2 and values[0] == market]
    return any(caller == match.account or loan_token in match.sent.get(caller, ()) for caller in callers)


def _market_positions(
    morpho: str,
    shares: AccountShares,
    params: MarketParams,
    totals: MarketTotals,
    price: int | None,
    fee_shares: int,
    is_trusted: bool,
) -> list[DecodedPosition]:
    """Return the account's position in a market, and an unverified one for supply that does not count.

    Supply counts in a trusted market, or if the market has it unlent.

    Args:
        price: The collateral's price in the loan token; None if the oracle refuses.
        fee_shares: Shares of the fee recipient since the last update; 0 for other accounts.
    """
    debt = totals.debt(shares.borrowed)
    supply = TokenAmount(params.loan_token, totals.assets(shares.supplied + fee_shares))
    counts = is_trusted or supply.raw <= totals.supplied - totals.borrowed
    market = DecodedPosition(
        "LENDING",
        supplied=(*((supply,) if counts else ()), TokenAmount(params.collateral_token, shares.collateral)),
        borrowed=(TokenAmount(params.loan_token, debt),),
        name="Lending market",
        health=_health(shares.collateral, price, params.lltv, debt),
        pool=morpho,
    )
    if counts:
        return [market]
    return [
        market,
        DecodedPosition("LENDING", supplied=(supply,), name="Lending market", pool=morpho, unverified=ON_PAPER),
    ]


def _health(collateral: int, price: int | None, lltv: int, debt: int) -> Decimal | None:
    """Return the largest allowed debt divided by the debt; below one, the position can be liquidated.

    None without a debt or a price.
    """
    if not debt or price is None:
        return None
    return amounts.amount(collateral * price // PRICE_SCALE * lltv // WAD * WAD // debt, WAD_DECIMALS)


SUPPLIED = "Supply(bytes32 indexed id, address indexed caller, address indexed onBehalf, uint256, uint256)"
SECURED = "SupplyCollateral(bytes32 indexed id, address indexed caller, address indexed onBehalf, uint256)"
BORROWED = "Borrow(bytes32 indexed id, address, address indexed onBehalf, address indexed receiver, uint256, uint256)"
FAMILY = Family(
    "morpho_blue",
    rules=(
        Event("morpho", SUPPLIED, owner=2, values=(0, 1)),
        *(Event("morpho", event, owner=2, values=(0,)) for event in (SECURED, BORROWED)),
        Event("morpho", "SetFeeRecipient(address indexed newFeeRecipient)", owner=0),
        EveryAccount("morpho"),  # which costs nothing if no file lists markets
    ),
    position=position,
    options=("markets",),
)
