"""Convex: Curve's pool shares that are staked through its booster, and locked CVX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from chainfolio.adapters.evm.positions.rules import Counterparty, DecoderPlan, Event, Family, MayRefuse, ProtocolMatch
from chainfolio.adapters.evm.reads import Call
from chainfolio.protocols import DecodedPosition, TokenAmount, TypedCalls

POOL = "poolInfo(uint256)(address,address,address,address,address,bool)"
LOCKS = "lockedBalances(address)(uint256,uint256,uint256)"
CLAIMABLE = "claimableRewards(address)((address,uint256)[])"
CLIFF, CLIFFS, MAX_SUPPLY = 10**23, 1000, 10**26  # CVX: each 100,000 minted lower the next by a thousandth
UNLOCKABLE = "the locks of this part are over: it can be withdrawn, and earns nothing"
EXTRA = "one of its extra rewards"


def position(match: ProtocolMatch) -> DecoderPlan:
    """Decode the pools of the account's deposits, a reward pool of the file, or the locker."""
    if match.is_listed("locker"):
        return (yield from _locks(match))
    if match.is_listed("reward_pool"):
        (staking_token,) = yield [Call(match.contract, "stakingToken()(address)")]
        return (yield from _stakes(match, [(match.contract, staking_token)]))
    pools = yield [Call(match.contract, POOL, (pool_id,)) for pool_id in sorted({row[0] for row in match.values})]
    return (yield from _stakes(match, [(pool[3], pool[0]) for pool in pools]))


def _stakes(match: ProtocolMatch, stakes: Sequence[tuple[str, str]]) -> DecoderPlan:
    """Return one position for each reward pool in which the account has a stake or a reward.

    A pool that refuses has an unknown position and hides no other one.

    Args:
        stakes: The pools, each with the token of one unit.
    """
    account, cvx = match.account, match.contracts.get("cvx", ())
    results = yield [
        *(Call(token, "totalSupply()(uint256)") for token in cvx),
        *(
            MayRefuse(read)
            for pool, _ in stakes
            for read in (
                Call(pool, "balanceOf(address)(uint256)", (account,)),
                Call(pool, "earned(address)(uint256)", (account,)),
                Call(pool, "rewardToken()(address)"),
                Call(pool, "extraRewardsLength()(uint256)"),
            )
        ),
    ]
    supplies, results = results[: len(cvx)], results[len(cvx) :]
    rows = [results[start : start + 4] for start in range(0, len(results), 4)]
    used = {pool: row[3] for (pool, _), row in zip(stakes, rows, strict=True) if None not in row and (row[0] or row[1])}
    extra_rewards = yield from _extra_rewards(account, used)
    positions = []
    for (pool, token), row in zip(stakes, rows, strict=True):
        if None in row:
            positions.append(DecodedPosition("STAKED", pool=pool, unknown="what it has there"))
        elif pool in used:
            extra = extra_rewards[pool]
            rewards = [TokenAmount(row[2], row[1]), *(part for part in extra if part is not None)]
            rewards += [TokenAmount(cvx[0], minted(row[1], supply)) for supply in supplies[:1]]
            position = DecodedPosition(
                "STAKED",
                supplied=(TokenAmount(token, row[0]),),
                rewards=tuple(rewards),
                pool=pool,
                unknown=EXTRA if None in extra else "",
            )
            positions.append(position)
    return positions


def _extra_rewards(account: str, counts: Mapping[str, int]) -> DecoderPlan:
    """Read the extra rewards of each pool; None for one that a contract refuses.

    Args:
        counts: The number of extra rewards by pool.
    """
    places = [(pool, index) for pool, count in counts.items() for index in range(count)]
    contracts = yield [MayRefuse(Call(pool, "extraRewards(uint256)(address)", (index,))) for pool, index in places]
    reward_contracts = [contract for contract in contracts if contract is not None]
    results = yield [
        MayRefuse(read)
        for contract in reward_contracts
        for read in (
            Call(contract, "rewardToken()(address)"),
            Call(contract, "earned(address)(uint256)", (account,)),
        )
    ]
    tokens, raws = results[::2], results[1::2]
    # Newer rewards are counted in a wrapper, which pays the token that it names.
    wrapped = yield [MayRefuse(Call(token or reward_contracts[0], "token()(address)")) for token in tokens]
    amounts = {
        contract: None if token is None or raw is None else TokenAmount(inner or token, raw)
        for contract, token, raw, inner in zip(reward_contracts, tokens, raws, wrapped, strict=True)
    }
    rewards: dict[str, list[TokenAmount | None]] = {pool: [] for pool in counts}
    for (pool, _), contract in zip(places, contracts, strict=True):
        rewards[pool].append(amounts.get(contract))
    return rewards


def minted(reward: int, supply: int) -> int:
    """Return the CVX that claiming `reward` of CRV mints, from the supply of CVX.

    Source: `mint` of `ConvexToken`.
    """
    remaining_cliffs = CLIFFS - supply // CLIFF
    return min(reward * remaining_cliffs // CLIFFS, MAX_SUPPLY - supply) if remaining_cliffs > 0 else 0


def _locks(match: ProtocolMatch) -> DecoderPlan:
    """Decode what is locked, and apart from it what could be unlocked now, which the total includes."""
    (total, unlockable, _), token, rewards = yield [
        Call(match.contract, LOCKS, (match.account,)),
        Call(match.contract, "stakingToken()(address)"),
        Call(match.contract, CLAIMABLE, (match.account,)),
    ]
    return [
        DecodedPosition(
            "LOCKED",
            supplied=(TokenAmount(token, total - unlockable),),
            rewards=tuple(TokenAmount(*reward) for reward in rewards),
            pool=match.contract,
        ),
        DecodedPosition(
            "LOCKED",
            supplied=(TokenAmount(token, unlockable),),
            name="Unlockable",
            pool=match.contract,
            remark=UNLOCKABLE if unlockable else "",
        ),
    ]


FAMILY = Family(
    "convex",
    rules=(
        Event(
            "booster",
            "Deposited(address indexed user, uint256 indexed poolid, uint256 amount)",
            owner=0,
            values=(1,),
        ),
        Counterparty("reward_pool"),
        Counterparty("locker"),
    ),
    position=position,
    roles=("cvx",),
    calls=(
        TypedCalls("STAKE", "loss", ("deposit", "depositAll", "stake", "stakeAll", "lock")),
        TypedCalls("CLAIM", "gain", ("getReward",)),
        TypedCalls("UNSTAKE", "gain", ("withdraw", "withdrawAndUnwrap", "withdrawAllAndUnwrap", "processExpiredLocks")),
        # The booster's staker takes pool shares, and the booster pays them back.
        TypedCalls("STAKE", "loss", (), ("voter_proxy", "locker", "reward_pool")),
        TypedCalls("UNSTAKE", "gain", (), ("booster", "locker", "reward_pool")),
    ),
)
