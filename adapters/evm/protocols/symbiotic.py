"""Symbiotic's vaults: restaked collateral, and withdrawals that wait for the end of their epoch."""

from __future__ import annotations

from chainfolio.adapters.evm.positions.rules import (
    Counterparty,
    DecoderPlan,
    Event,
    Family,
    ProtocolMatch,
    ReadError,
    Token,
)
from chainfolio.adapters.evm.reads import Call
from chainfolio.protocols import DecodedPosition, TokenAmount, TypedCalls

MAX_EPOCHS = 1_000


def position(match: ProtocolMatch) -> DecoderPlan:
    """Decode the collateral that is staked in one vault, and one position for each unclaimed withdrawal.

    A withdrawal belongs to the epoch after the one in which it was asked for, and stays claimable. None if no factory
    of the file knows the vault. Vaults of release 1 have no token: only their events and transfers name accounts.

    Raises:
        ReadError: The vault had more than MAX_EPOCHS epochs.
    """
    vault, account = match.contract, match.account
    collateral, staked, current, start_s, epoch_s, *is_entity = yield [
        Call(vault, "collateral()(address)"),
        Call(vault, "activeBalanceOf(address)(uint256)", (account,)),
        Call(vault, "currentEpoch()(uint256)"),
        Call(vault, "currentEpochStart()(uint48)"),
        Call(vault, "epochDuration()(uint48)"),
        *(Call(factory, "isEntity(address)(bool)", (vault,)) for factory in match.contracts.get("factory", ())),
    ]
    if not any(is_entity):
        return None
    if current > MAX_EPOCHS:
        raise ReadError(f"{vault} had {current} epochs, each with withdrawals")
    epochs = range(current + 2)
    queued_raws = yield [Call(vault, "withdrawalsOf(uint256,address)(uint256)", (epoch, account)) for epoch in epochs]
    withdrawals = [(epoch, raw) for epoch, raw in zip(epochs, queued_raws, strict=True) if raw]
    claimed = yield [
        Call(vault, "isWithdrawalsClaimed(uint256,address)(bool)", (epoch, account)) for epoch, _ in withdrawals
    ]
    return [
        DecodedPosition("STAKED", supplied=(TokenAmount(collateral, staked),), pool=vault, replaces=(vault,)),
        *(
            DecodedPosition(
                "LOCKED",
                supplied=(TokenAmount(collateral, raw),),
                name=f"Withdrawal of epoch {epoch}",
                unlock_s=start_s + (epoch + 1 - current) * epoch_s,
                pool=vault,
            )
            for (epoch, raw), is_claimed in zip(withdrawals, claimed, strict=True)
            if not is_claimed
        ),
    ]


FAMILY = Family(
    "symbiotic",
    rules=(
        Token("factory", "FACTORY()(address)"),
        Counterparty("vault"),
        Event(
            "vault",
            "Deposit(address indexed depositor, address indexed onBehalfOf, uint256 amount, uint256 shares)",
            owner=1,
        ),
        Event(
            "vault",
            "Withdraw(address indexed withdrawer, address indexed claimer, uint256 amount, uint256 b, uint256 m)",
            owner=1,
        ),
    ),
    position=position,
    calls=(
        TypedCalls("STAKE", "loss", ("deposit",)),
        TypedCalls("UNSTAKE", "gain", ("claim", "claimBatch")),
    ),
)
