"""Venus' XVS vault: staked tokens with their reward, and withdrawals that wait for their time."""

from __future__ import annotations

from chainfolio.adapters.evm.positions.rules import Counterparty, DecoderPlan, Event, Family, ProtocolMatch
from chainfolio.adapters.evm.protocols.stakes import unread_pools
from chainfolio.adapters.evm.reads import Call
from chainfolio.protocols import DecodedPosition, TokenAmount, TypedCalls

MAX_POOLS = 32
KEY = "(address,uint256,address)"  # the reward token and the pool's number among those that pay it, and an account
REQUESTS = f"getWithdrawalRequests{KEY}((uint256,uint128,uint128)[])"


def position(match: ProtocolMatch) -> DecoderPlan:
    """Decode each pool: what the account has staked, also if it is zero, and each waiting withdrawal.

    What waits earns nothing, and the vault counts it as staked until it is taken. Rewards include those that the vault
    owes because a payment failed. The first MAX_POOLS pools that pay XVS are read, and those of the account's deposits;
    others are named as unknown unless all deposits are indexed.
    """
    vault, account = match.contract, match.account
    (xvs,) = yield [Call(vault, "xvsAddress()(address)")]
    (count,) = yield [Call(vault, "poolLength(address)(uint256)", (xvs,))]
    pools = sorted({*((xvs, index) for index in range(min(count, MAX_POOLS))), *match.values})
    rewards = sorted({reward for reward, _ in pools})
    results = yield [
        *(Call(vault, "pendingRewardTransfers(address,address)(uint256)", (token, account)) for token in rewards),
        *(
            read
            for reward, index in pools
            for read in (
                Call(vault, "poolInfos(address,uint256)(address)", (reward, index)),
                Call(vault, f"getUserInfo{KEY}(uint256,uint256,uint256)", (reward, index, account)),
                Call(vault, f"pendingReward{KEY}(uint256)", (reward, index, account)),
                Call(vault, REQUESTS, (reward, index, account)),
            )
        ),
    ]
    owed, results = dict(zip(rewards, results[: len(rewards)], strict=True)), results[len(rewards) :]
    positions = []
    for (reward, _), start in zip(pools, range(0, len(results), 4), strict=True):
        token, (raw, _, waiting), pending, requests = results[start : start + 4]
        stake = DecodedPosition(
            "STAKED",
            supplied=(TokenAmount(token, raw - waiting),),
            rewards=(TokenAmount(reward, pending + owed.pop(reward, 0)),),  # owed once, whatever the pool
            pool=vault,
        )
        withdrawals = (
            DecodedPosition(
                "LOCKED", supplied=(TokenAmount(token, part),), name="Withdrawal", unlock_s=end_s, pool=vault
            )
            for part, end_s, _ in requests
        )
        positions += [stake, *withdrawals]
    return positions if match.has_all_events else [*positions, *unread_pools(match, count, MAX_POOLS)]


FAMILY = Family(
    "venus_vault",
    rules=(
        Counterparty("xvs_vault"),
        Event(
            "xvs_vault",
            "Deposit(address indexed user, address indexed rewardToken, uint256 indexed pid, uint256 amount)",
            owner=0,
            values=(1, 2),
        ),
    ),
    position=position,
    roles=("xvs_store",),
    calls=(
        TypedCalls("STAKE", "loss", ("deposit",)),
        TypedCalls("CLAIM", "gain", ("claim", "requestWithdrawal")),  # a request pays the rewards
        TypedCalls("UNSTAKE", "gain", ("executeWithdrawal",)),
        TypedCalls("STAKE", "loss", (), ("xvs_vault",)),
        TypedCalls("UNSTAKE", "gain", (), ("xvs_vault",)),
        TypedCalls("CLAIM", "gain", (), ("xvs_store",)),
    ),
)
