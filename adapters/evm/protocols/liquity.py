"""Liquity V1: troves (ether as collateral, LUSD as debt), the stability pool, and staked LQTY."""

from __future__ import annotations

from chainfolio import amounts
from chainfolio.adapters.evm.positions.rules import Counterparty, DecoderPlan, Event, Family, MayRefuse, ProtocolMatch
from chainfolio.adapters.evm.reads import Call
from chainfolio.assets import ZERO_ADDRESS
from chainfolio.protocols import DecodedPosition, TokenAmount, TypedCalls

TROVE = "getEntireDebtAndColl(address)(uint256,uint256,uint256,uint256)"
MIN_RATIO_PERCENT = 110  # a trove below it is liquidated
LAGS = "its LQTY is counted up to the last transaction of anybody with the pool: a withdrawal pays more"


def position(match: ProtocolMatch) -> DecoderPlan:
    """Decode what an account has in the contract of the match: a trove, a stability deposit, or a stake.

    Stakes and deposits are returned also if they are zero.
    """
    if match.is_listed("borrower_operations"):
        return (yield from _trove(match))
    (lusd,), (lqty,) = match.contracts["lusd"], match.contracts["lqty"]
    if match.is_listed("stability_pool"):
        supplied, ether, earned = yield [
            Call(match.contract, f"{function}(address)(uint256)", (match.account,))
            for function in ("getCompoundedLUSDDeposit", "getDepositorETHGain", "getDepositorLQTYGain")
        ]
        tokens, remark = (lusd, ZERO_ADDRESS, lqty), LAGS if earned or supplied else ""
    else:
        supplied, ether, earned = yield [
            Call(match.contract, f"{function}(address)(uint256)", (match.account,))
            for function in ("stakes", "getPendingETHGain", "getPendingLUSDGain")
        ]
        tokens, remark = (lqty, ZERO_ADDRESS, lusd), ""
    return DecodedPosition(
        "STAKED",
        supplied=(TokenAmount(tokens[0], supplied),),
        rewards=(TokenAmount(tokens[1], ether), TokenAmount(tokens[2], earned)),
        pool=match.contract,
        remark=remark,
    )


def _trove(match: ProtocolMatch) -> DecoderPlan:
    """Decode the trove of an account with its part of liquidations, and ether left by a redemption.

    Both positions are returned, also if they are empty. The debt includes the 200 LUSD that closing the trove gives
    back. The health is None without a debt, or if the price feed refuses.
    """
    (troves,), (surplus,), (feed,) = (match.contracts[role] for role in ("trove_manager", "surplus_pool", "price_feed"))
    (debt, collateral, _, _), left, price = yield [
        Call(troves, TROVE, (match.account,)),
        Call(surplus, "getCollateral(address)(uint256)", (match.account,)),
        MayRefuse(Call(feed, "lastGoodPrice()(uint256)")),
    ]
    health = amounts.amount(collateral * price * 100 // (debt * MIN_RATIO_PERCENT), 18) if debt and price else None
    trove = DecodedPosition(
        "LENDING",
        supplied=(TokenAmount(ZERO_ADDRESS, collateral),),
        borrowed=(TokenAmount(match.contracts["lusd"][0], debt),),
        name="Trove",
        health=health,
        pool=match.contract,
    )
    claimable = DecodedPosition(
        "DEPOSIT", supplied=(TokenAmount(ZERO_ADDRESS, left),), name="Redeemed trove", pool=surplus
    )
    return [trove, claimable]


POOLS = ("stability_pool", "lqty_staking")
TROVES = ("borrower_operations", "active_pool", "surplus_pool")  # they pay the ether of troves


FAMILY = Family(
    "liquity",
    rules=(
        Counterparty("borrower_operations"),
        # Ether that a contract sends may not be indexed.
        Event(
            "borrower_operations",
            "TroveUpdated(address indexed borrower, uint256 debt, uint256 coll, uint256 stake, uint8 operation)",
            owner=0,
        ),
        Counterparty("stability_pool"),
        Counterparty("lqty_staking"),
    ),
    position=position,
    roles=("trove_manager", "active_pool", "surplus_pool", "price_feed", "lusd", "lqty"),
    calls=(
        TypedCalls("OPENVAULT", "sent", ("openTrove",)),
        TypedCalls("CLOSEVAULT", "loss", ("closeTrove",)),
        # A trove burns LUSD only for a debt that is paid back, and mints it only for a new one.
        TypedCalls("REPAYVAULT", "burnt", ("repayLUSD", "adjustTrove")),
        TypedCalls("BORROW", "minted", ("withdrawLUSD", "adjustTrove")),
        TypedCalls("DEPOSIT", "loss", ("addColl", "adjustTrove")),
        TypedCalls("STAKE", "loss", ("provideToSP", "stake")),
        TypedCalls("UNSTAKE", "gain", ("withdrawFromSP", "unstake")),
        TypedCalls("WITHDRAW", "gain", ("withdrawColl", "claimCollateral", "adjustTrove")),
        TypedCalls("STAKE", "loss", (), POOLS),
        TypedCalls("UNSTAKE", "gain", (), POOLS),
        TypedCalls("OPENVAULT", "issued", (), ("borrower_operations",)),
        TypedCalls("REPAYVAULT", "redeemed", (), TROVES),
        TypedCalls("DEPOSIT", "loss", (), ("borrower_operations",)),
        TypedCalls("WITHDRAW", "gain", (), TROVES),
    ),
)
