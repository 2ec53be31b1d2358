"""Sushi's MasterChef and its forks: tokens that are staked in numbered pools and earn a reward token."""

from __future__ import annotations

from collections.abc import Sequence

from chainfolio.adapters.evm.positions.rules import (
    Counterparty,
    DecoderPlan,
    Event,
    Family,
    MayRefuse,
    ProtocolMatch,
    ReadError,
)
from chainfolio.adapters.evm.protocols.stakes import unread_pools, verify_stakes
from chainfolio.adapters.evm.reads import AbiValue, Call
from chainfolio.protocols import DecodedPosition, TokenAmount, TypedCalls

MAX_POOLS = 5_000
# The functions of forks that return an account's reward in a pool, and the reward token. A fork with other names has
# them in its protocol's file: options `pending` and `reward`, as signatures of calls.
REWARDS = tuple(
    (f"pending{name}(uint256,address)(uint256)", f"{token}()(address)")
    for name, token in (
        ("Sushi", "sushi"),
        ("Sushi", "SUSHI"),
        ("Cake", "cake"),
        ("Reward", "rewardToken"),
        ("Rewards", "rewardToken"),
        ("Tokens", "rewardToken"),
        ("RewardToken", "rewardToken"),
        ("Egg", "egg"),
        ("Banana", "cake"),
        ("Banana", "banana"),
        ("Pickle", "pickle"),
        ("Alpaca", "alpaca"),
        ("VVS", "vvs"),
        ("Meerkat", "meerkat"),
        ("Mxs", "mxs"),
        ("Ice", "ice"),
        ("Stargate", "stargate"),
        ("Cvx", "cvx"),
        ("Joe", "joe"),
        ("BOO", "boo"),
        ("Spirit", "spirit"),
        ("Quick", "quick"),
        ("Brush", "brush"),
        ("Token", "token"),
    )
)


def position(match: ProtocolMatch) -> DecoderPlan:
    """Decode one position for each pool of the farm in which the account has something.

    Only the pools of the account's deposits are read if all deposits are indexed and there are some; otherwise the
    first MAX_POOLS pools are, because a fork may write other events. Pools beyond these are named as unknown. Stakes
    in a `farm` are verified (`verify_stakes`).

    Raises:
        ReadError: The farm does not say what is staked in a pool.
    """
    chef, account = match.contract, match.account
    (pool_count,) = yield [Call(chef, "poolLength()(uint256)")]
    deposited = [pool for (pool,) in match.values if pool < pool_count] if match.has_all_events else []
    pools = deposited or range(min(pool_count, MAX_POOLS))
    unread = [] if deposited else unread_pools(match, pool_count, MAX_POOLS)
    users = yield [Call(chef, "userInfo(uint256,address)(uint256,uint256)", (pool, account)) for pool in pools]
    staked = {pool: raw for pool, (raw, _) in zip(pools, users, strict=True) if raw}
    if not staked:
        return unread
    pools = list(staked)
    token_reads = _token_reads(chef, pools)
    results = yield [*token_reads, *_reward_reads(match, pools)]
    tokens = _staked_tokens(chef, pools, results[: len(token_reads)])
    rewards = _rewards(pools, results[len(token_reads) :])
    positions = [
        DecodedPosition(
            "FARMING",
            supplied=(TokenAmount(token, raw),),
            rewards=(reward,) if reward else (),
            pool=chef,
            unknown="" if reward else "what it earned: the farm answers to no known name of it",
        )
        for raw, token, reward in zip(staked.values(), tokens, rewards, strict=True)
    ]
    verified = (yield from verify_stakes(match, positions)) if match.is_listed("farm") else positions
    return [*verified, *unread]


def _token_reads(chef: str, pools: Sequence[int]) -> list[MayRefuse]:
    """Return the reads of each pool's staked token, by both versions of MasterChef."""
    return [
        MayRefuse(Call(chef, signature, (pool,)))
        for pool in pools
        for signature in ("lpToken(uint256)(address)", "poolInfo(uint256)(address)")
    ]


def _staked_tokens(chef: str, pools: Sequence[int], results: Sequence[str | None]) -> list[str]:
    """Return each pool's staked token from the results of `_token_reads`.

    Raises:
        ReadError: One is missing.
    """
    tokens = []
    for pool, second_version, first_version in zip(pools, results[::2], results[1::2], strict=True):
        token = second_version or first_version
        if token is None:
            raise ReadError(f"{chef} did not say what is staked in pool {pool}")
        tokens.append(token)
    return tokens


def _reward_reads(match: ProtocolMatch, pools: Sequence[int]) -> Sequence[Call | MayRefuse]:
    """Return the reads of the reward token and the rewards, by the file's or all known functions.

    For each pair of functions, the token comes first, then the reward of each pool. Guessed functions may refuse.
    """
    is_configured = "pending" in match.options
    functions = [(match.options["pending"], match.options["reward"])] if is_configured else REWARDS
    calls = [
        call
        for pending, reward in functions
        for call in (
            Call(match.contract, reward),
            *(Call(match.contract, pending, (pool, match.account)) for pool in pools),
        )
    ]
    return calls if is_configured else [MayRefuse(call) for call in calls]


def _rewards(pools: Sequence[int], results: Sequence[AbiValue]) -> list[TokenAmount | None]:
    """Return the reward in each pool from the results of `_reward_reads`; None if no function works."""
    width = 1 + len(pools)
    for start in range(0, len(results), width):
        token, *raws = results[start : start + width]
        if token is not None and None not in raws:
            return [TokenAmount(token, raw) for raw in raws]
    return [None] * len(pools)


DEPOSIT = "Deposit(address indexed user, uint256 indexed pid, uint256 amount)"
# Deposits into a `chef` are read from its events; a `farm` is one of hundreds of forks, whose events are not indexed.
FAMILY = Family(
    "masterchef",
    rules=(Counterparty("chef"), Event("chef", DEPOSIT, owner=0, values=(1,)), Counterparty("farm")),
    position=position,
    options=("pending", "reward"),
    calls=(
        TypedCalls("DEPOSIT", "loss", ("deposit", "enterStaking")),
        TypedCalls("CLAIM", "gain", ("deposit", "enterStaking", "harvest")),  # a deposit of nothing pays the rewards
        TypedCalls("WITHDRAW", "gain", ("withdraw", "leaveStaking", "emergencyWithdraw", "withdrawAndHarvest")),
        TypedCalls("STAKE", "loss", (), ("chef", "farm")),
        TypedCalls("UNSTAKE", "gain", (), ("chef", "farm")),
    ),
)
