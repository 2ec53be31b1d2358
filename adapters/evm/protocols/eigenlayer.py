"""EigenLayer: restaked tokens and ether, and withdrawals that wait in the queue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from chainfolio.adapters.evm.positions.rules import Counterparty, DecoderPlan, Event, Family, MayRefuse, ProtocolMatch
from chainfolio.adapters.evm.reads import Call
from chainfolio.assets import ZERO_ADDRESS
from chainfolio.protocols import DecodedPosition, TokenAmount, TypedCalls

DEPOSITED = "getDepositedShares(address)(address[],uint256[])"
WITHDRAWABLE = "getWithdrawableShares(address,address[])(uint256[],uint256[])"
QUEUED = "getQueuedWithdrawals(address)((address,address,address,uint256,uint32,address[],uint256[])[],uint256[][])"
ETHER_STRATEGY = "0xbeac0eeeeeeeeeeeeeeeeeeeeeeeeeeeeeebeac0"  # shares are wei; it is no contract
VALIDATORS = "this ether lies with validators: it counts twice if they are watched, too"


@dataclass(frozen=True, slots=True)
class StrategyShares:
    """Shares of one strategy after slashing; `start_block` is 0 if no withdrawal is queued."""

    strategy: str
    shares: int
    start_block: int


def position(match: ProtocolMatch) -> DecoderPlan:
    """Decode what an account has in one strategy, or in all strategies that the file does not name.

    A strategy matches by its token, the pod manager by the account's pod (restaked ether), and the delegation manager
    by a delegation: it then decodes the other strategies. Amounts are withdrawable ones, so after slashing. None if
    nothing is staked or queued there.
    """
    (manager,), account = match.contracts["delegation"], match.account
    deposited, (withdrawals, queued_shares) = yield [
        Call(manager, DEPOSITED, (account,)),
        Call(manager, QUEUED, (account,)),
    ]
    queued = [
        StrategyShares(strategy, raw, withdrawal[4])
        for withdrawal, shares in zip(withdrawals, queued_shares, strict=True)
        for strategy, raw in zip(withdrawal[5], shares, strict=True)
    ]
    strategies = {*deposited[0], *(part.strategy for part in queued)}
    if match.is_listed("strategy"):
        strategies &= {match.contract}
    elif match.is_listed("pod_manager"):
        strategies &= {ETHER_STRATEGY}
    else:
        strategies -= {ETHER_STRATEGY, *match.contracts.get("strategy", ())}
    staked = tuple(strategy for strategy in deposited[0] if strategy in strategies)
    queued = [part for part in queued if part.strategy in strategies]
    if not staked and not queued:
        return None
    raws = (yield [Call(manager, WITHDRAWABLE, (account, staked))])[0][0] if staked else ()
    parts = [StrategyShares(*part, start_block=0) for part in zip(staked, raws, strict=True)]
    return (yield from _positions(manager, [*parts, *queued]))


def _positions(manager: str, parts: Sequence[StrategyShares]) -> DecoderPlan:
    """Return a position for each part, in their order: STAKED, or LOCKED if its withdrawal is queued.

    One round of reads. If a strategy refuses, its position is unknown; the others are not affected. Ether needs no
    call: its shares are wei.
    """
    values = yield [
        read
        for part in parts
        if part.strategy != ETHER_STRATEGY
        for read in (
            MayRefuse(Call(part.strategy, "underlyingToken()(address)")),
            MayRefuse(Call(part.strategy, "sharesToUnderlyingView(uint256)(uint256)", (part.shares,))),
        )
    ]
    results = iter(values)
    positions = []
    for part in parts:
        is_ether = part.strategy == ETHER_STRATEGY
        token, raw = (ZERO_ADDRESS, part.shares) if is_ether else (next(results), next(results))
        is_known = token is not None and raw is not None
        positions.append(
            DecodedPosition(
                "LOCKED" if part.start_block else "STAKED",
                supplied=(TokenAmount(token, raw),) if is_known else (),
                name=f"Withdrawal queued at block {part.start_block}" if part.start_block else "",
                pool=manager if part.start_block else part.strategy,
                remark=VALIDATORS if is_ether else "",
                unknown="" if is_known else f"{part.shares} shares of the strategy {part.strategy}",
            )
        )
    return positions


FAMILY = Family(
    "eigenlayer",
    rules=(
        Counterparty("strategy"),
        Event("pod_manager", "PodDeployed(address indexed eigenPod, address indexed podOwner)", owner=1),
        Event("delegation", "StakerDelegated(address indexed staker, address indexed operator)", owner=0),
    ),
    position=position,
    calls=(
        TypedCalls("STAKE", "loss", ("depositIntoStrategy", "depositIntoStrategyWithSignature")),
        TypedCalls("UNSTAKE", "gain", ("completeQueuedWithdrawal", "completeQueuedWithdrawals")),
        TypedCalls("CLAIM", "gain", ("processClaim", "processClaims")),
        TypedCalls("STAKE", "loss", (), ("strategy",)),
        TypedCalls("UNSTAKE", "gain", (), ("strategy",)),
        TypedCalls("CLAIM", "gain", (), ("rewards_coordinator",)),
    ),
)
