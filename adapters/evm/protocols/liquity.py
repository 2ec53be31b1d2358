"""Liquity V1: troves (ether as collateral, LUSD as debt), the stability pool, and staked LQTY."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from chainfolio import amounts
from chainfolio.adapters.evm.positions.events import parse_event
from chainfolio.adapters.evm.positions.rules import Counterparty, DecoderPlan, Event, Family, MayRefuse, ProtocolMatch
from chainfolio.adapters.evm.positions.token_transfers import token_transfers
from chainfolio.adapters.evm.reads import Call
from chainfolio.assets import ZERO_ADDRESS
from chainfolio.position_changes import EventLog, VaultChange
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
    (debt, collateral, _, _), unclaimed, price = yield [
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
        "DEPOSIT", supplied=(TokenAmount(ZERO_ADDRESS, unclaimed),), name="Redeemed trove", pool=surplus
    )
    return [trove, claimable]


POOLS = ("stability_pool", "lqty_staking")
TROVE_UPDATED: Final = (
    "TroveUpdated(address indexed borrower, uint256 debt, uint256 coll, uint256 stake, uint8 operation)"
)
UPDATED: Final = parse_event(TROVE_UPDATED).topic
REDEEMED: Final = parse_event("Redemption(uint256,uint256,uint256,uint256)").topic
ALSO_REDEEMED: Final = "LUSD was redeemed in the transaction that changed a trove"


def vault_changes(logs: Sequence[EventLog], contracts: Mapping[str, Sequence[str]]) -> list[VaultChange]:
    """Return the changes of troves by their borrowers.

    They are the LUSD that was created for them or that they destroyed.

    A change without a token has collateral alone. Redemptions and liquidations destroy LUSD and pay ether, too, but
    change troves of others.

    Raises:
        ValueError: The transaction redeemed LUSD, too: the parts of both are unknown.
    """
    operations, tokens, troves = (contracts.get(role, ()) for role in ("borrower_operations", "lusd", "trove_manager"))
    updated = [log for log in logs if log.contract in operations and log.topics[:1] == (UPDATED,)]
    borrowers = {log.topics[1]: log.contract for log in updated if len(log.topics) == 2}
    if borrowers and any(log.contract in troves and log.topics[:1] == (REDEEMED,) for log in logs):
        raise ValueError(ALSO_REDEEMED)
    transfers = [each for each in token_transfers(logs) if each.token in tokens and each.created]
    changes = list[VaultChange]()
    for borrower, contract in borrowers.items():
        raw = sum(each.created for each in transfers if borrower in (each.sender, each.recipient))
        changes.append(VaultChange("loan", contract, contract + borrower[2:], None, tokens[0] if raw else "", raw))
    return changes


FAMILY = Family(
    "liquity",
    rules=(
        Counterparty("borrower_operations"),
        # Ether that a contract sends may not be indexed.
        Event(
            "borrower_operations",
            TROVE_UPDATED,
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
        # Ether of the active pool shows no own trove: it pays redemptions, which are swaps, and liquidations, too.
        TypedCalls("CLAIM", "gain", ("liquidate", "liquidateTroves", "batchLiquidateTroves")),
        TypedCalls("STAKE", "loss", (), POOLS),
        TypedCalls("UNSTAKE", "gain", (), POOLS),
        TypedCalls("OPENVAULT", "issued", (), ("borrower_operations",)),
        TypedCalls("DEPOSIT", "loss", (), ("borrower_operations",)),
        TypedCalls("WITHDRAW", "gain", (), ("surplus_pool",)),
    ),
    vault_changes=vault_changes,
)
