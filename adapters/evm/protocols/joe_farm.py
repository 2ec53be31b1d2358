"""Trader Joe's farms: staked pool shares that earn JOE and, in some pools, a second token."""

from __future__ import annotations

from chainfolio.adapters.evm.positions.rules import Counterparty, DecoderPlan, Event, Family, MayRefuse, ProtocolMatch
from chainfolio.adapters.evm.protocols.stakes import unread_pools
from chainfolio.adapters.evm.reads import Call
from chainfolio.assets import ZERO_ADDRESS
from chainfolio.protocols import DecodedPosition, TokenAmount, TypedCalls

MAX_POOLS = 2_000
PENDING = "pendingTokens(uint256,address)(uint256,address,string,uint256)"
NO_REWARDS = "what it earned"


def position(match: ProtocolMatch) -> DecoderPlan:
    """Decode one position for each pool in which the account has staked something.

    Only the pools of the account's deposits are read if all of these are indexed and there are some; otherwise the
    first MAX_POOLS pools are, and others are named as unknown. A pool that refuses to count its rewards hides no stake.
    """
    chef, account = match.contract, match.account
    length, *names = yield [
        Call(chef, "poolLength()(uint256)"),
        *(MayRefuse(Call(chef, f"{name}()(address)")) for name in ("JOE", "joe")),
    ]
    joe = names[0] or names[1]
    deposited = [pool for (pool,) in match.values if pool < length] if match.has_all_events else []
    pools = deposited or range(min(length, MAX_POOLS))
    users = yield [Call(chef, "userInfo(uint256,address)(uint256,uint256)", (pool, account)) for pool in pools]
    stakes = [(pool, raw) for pool, (raw, _) in zip(pools, users, strict=True) if raw]
    results = yield [
        read
        for pool, _ in stakes
        for read in (
            Call(chef, "poolInfo(uint256)(address)", (pool,)),
            MayRefuse(Call(chef, PENDING, (pool, account))),
        )
    ]
    positions = []
    for (_, raw), share, pending in zip(stakes, results[::2], results[1::2], strict=True):
        rewards = []
        if pending is not None and joe is not None:
            reward, bonus_token, _, bonus = pending
            rewards = [TokenAmount(joe, reward)]
            rewards += [TokenAmount(bonus_token, bonus)] if bonus_token != ZERO_ADDRESS else []
        stake = TokenAmount(share, raw)
        unknown = "" if rewards else NO_REWARDS
        position = DecodedPosition("FARMING", supplied=(stake,), rewards=tuple(rewards), pool=chef, unknown=unknown)
        positions.append(position)
    return positions if deposited else [*positions, *unread_pools(match, length, MAX_POOLS)]


FAMILY = Family(
    "joe_farm",
    rules=(
        Counterparty("chef"),
        Event("chef", "Deposit(address indexed user, uint256 indexed pid, uint256 amount)", owner=0, values=(1,)),
    ),
    position=position,
    calls=(
        TypedCalls("STAKE", "loss", ("deposit",)),
        TypedCalls("CLAIM", "gain", ("deposit",)),  # a deposit of nothing pays the rewards
        TypedCalls("UNSTAKE", "gain", ("withdraw", "emergencyWithdraw")),
        TypedCalls("STAKE", "loss", (), ("chef",)),
        TypedCalls("UNSTAKE", "gain", (), ("chef",)),
    ),
)
