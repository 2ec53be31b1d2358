"""Gearbox' staked GEAR, and the parts of it that are on their way out."""

from __future__ import annotations

from chainfolio.adapters.evm.positions.rules import Counterparty, DecoderPlan, Family, ProtocolMatch, ReadError
from chainfolio.adapters.evm.reads import Call
from chainfolio.protocols import DecodedPosition, TokenAmount, TypedCalls

EPOCH_S = 7 * 86_400


def position(match: ProtocolMatch) -> DecoderPlan:
    """Decode what is staked, and each amount that can be withdrawn now or after one of four epochs.

    The contract's `balanceOf` includes all of these. Its `availableBalance` leaves out what has voted.

    Raises:
        ReadError: More is on its way out than the contract has for the account.
    """
    staking, account = match.contract, match.account
    gear, total, (ready, later), first_s, epoch = yield [
        Call(staking, "gear()(address)"),
        Call(staking, "balanceOf(address)(uint256)", (account,)),
        Call(staking, "getWithdrawableAmounts(address)(uint256,uint256[4])", (account,)),
        Call(staking, "firstEpochTimestamp()(uint256)"),
        Call(staking, "getCurrentEpoch()(uint16)"),
    ]
    staked = total - ready - sum(later)
    if staked < 0:
        raise ReadError(f"{staking} has less for the account than is on its way out")
    leaving = [(ready, 0), *((raw, first_s + (epoch + n) * EPOCH_S) for n, raw in enumerate(later))]
    return [
        DecodedPosition("STAKED", supplied=(TokenAmount(gear, staked),), pool=staking),
        *(
            DecodedPosition(
                "LOCKED", supplied=(TokenAmount(gear, raw),), name="Withdrawal", unlock_s=end_s, pool=staking
            )
            for raw, end_s in leaving
            if raw
        ),
    ]


FAMILY = Family(
    "gear_staking",
    rules=(Counterparty("gear_staking"),),
    position=position,
    calls=(
        TypedCalls("STAKE", "loss", ("deposit", "depositWithPermit")),
        TypedCalls("UNSTAKE", "gain", ("claimWithdrawals",)),
        TypedCalls("STAKE", "loss", (), ("gear_staking",)),
        TypedCalls("UNSTAKE", "gain", (), ("gear_staking",)),
    ),
)
