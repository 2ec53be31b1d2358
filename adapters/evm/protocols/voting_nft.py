"""Vote locks that are ERC-721 tokens (Velodrome V2, Aerodrome): locked amount, end, and rebase."""

from __future__ import annotations

from chainfolio.adapters.evm.positions.rules import Collection, DecoderPlan, Family, MayRefuse, ProtocolMatch
from chainfolio.adapters.evm.reads import OWNER, Call
from chainfolio.protocols import DecodedPosition, TokenAmount, TypedCalls

LOCKED = "locked(uint256)((int128,uint256,bool))"
IN_MANAGED_LOCK = 1  # `EscrowType.LOCKED`: the amount is counted in a managed lock of another owner
VOTES = "the fees and incentives of its votes"
MANAGED = "what the managed lock earned for it"


def position(match: ProtocolMatch) -> DecoderPlan:
    """Decode one lock: its amount, when it ends (0 for permanent ones), and its rebase.

    None if the account does not own the lock. What a lock put into a managed lock is its weight there. Fees and
    incentives of votes are read by the family `voting_rewards` if the file names the voter, and else unknown.
    """
    escrow, number = match.contract, match.id
    owner, (amount, end_s, is_permanent), token, has_voted, escrow_type, managed, *rebases = yield [
        MayRefuse(Call(escrow, OWNER, (number,))),
        Call(escrow, LOCKED, (number,)),
        Call(escrow, "token()(address)"),
        Call(escrow, "voted(uint256)(bool)", (number,)),
        MayRefuse(Call(escrow, "escrowType(uint256)(uint8)", (number,))),
        MayRefuse(Call(escrow, "idToManaged(uint256)(uint256)", (number,))),
        *(
            Call(distributor, "claimable(uint256)(uint256)", (number,))
            for distributor in match.contracts.get("rewards_distributor", ())
        ),
    ]
    if owner != match.account:
        return None
    is_managed = escrow_type == IN_MANAGED_LOCK
    if is_managed:
        (amount,) = yield [Call(escrow, "weights(uint256,uint256)(uint256)", (number, managed))]
    return DecodedPosition(
        "LOCKED",
        supplied=(TokenAmount(token, amount),),
        rewards=(TokenAmount(token, sum(rebases)),),
        name=f"Lock {number}" + (f" in managed lock {managed}" if is_managed else ""),
        unlock_s=0 if is_permanent else end_s,
        pool=escrow,
        unknown=MANAGED if is_managed else VOTES if has_voted and "voter" not in match.contracts else "",
    )


FAMILY = Family(
    "voting_nft",
    rules=(Collection("voting_escrow"),),
    position=position,
    roles=("rewards_distributor", "voter"),
    calls=(
        TypedCalls("STAKE", "loss", ("createLock", "createLockFor", "increaseAmount", "depositFor")),
        TypedCalls("UNSTAKE", "gain", ("withdraw",)),
        TypedCalls("STAKE", "loss", (), ("voting_escrow",)),
        TypedCalls("UNSTAKE", "gain", (), ("voting_escrow",)),
    ),
)
