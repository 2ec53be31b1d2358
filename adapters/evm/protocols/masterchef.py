"""Sushi's MasterChef and its forks: shares that are staked in numbered pools and earn a token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from adapters.evm.positions.rules import Counterparty, DecoderPlan, Event, Family, MayRefuse, ProtocolMatch, Unread
from adapters.evm.protocols.stakes import borne_out
from adapters.evm.reads import Call
from chainfolio.protocols import DecodedPosition, TokenAmount

MAX_POOLS = 5_000
# What forks call the reward of an account in a pool, and the token it is paid in. A fork that calls it otherwise says
# so in its protocol's file: `pending` and `reward`, as signatures of calls.
REWARDS = tuple(
    (f"pending{name}(uint256,address)(uint256)", f"{token}()(address)")
    for name, token in (
        ("Sushi", "sushi"), ("Sushi", "SUSHI"), ("Cake", "cake"), ("Reward", "rewardToken"), ("Rewards", "rewardToken"),
        ("Tokens", "rewardToken"), ("RewardToken", "rewardToken"), ("Egg", "egg"), ("Banana", "cake"),
        ("Banana", "banana"), ("Pickle", "pickle"), ("Alpaca", "alpaca"), ("VVS", "vvs"), ("Meerkat", "meerkat"),
        ("Mxs", "mxs"), ("Ice", "ice"), ("Stargate", "stargate"), ("Cvx", "cvx"), ("Joe", "joe"), ("BOO", "boo"),
        ("Spirit", "spirit"), ("Quick", "quick"), ("Brush", "brush"), ("Token", "token"),
    )
)  # fmt: skip


def position(match: ProtocolMatch) -> DecoderPlan:
    """One position for each pool of the farm in which the account has something.

    The pools of its deposits are read, where all of those are indexed; else every pool, and so for somebody who met
    the farm and is in no event of it: a fork may write other ones.
    """
    chef, account = match.contract, match.account
    (count,) = yield [Call(chef, "poolLength()(uint256)")]
    known = [pool for (pool,) in match.values if pool < count] if match.covered else []
    pools = known or range(min(count, MAX_POOLS))
    users = yield [Call(chef, "userInfo(uint256,address)(uint256,uint256)", (at, account)) for at in pools]
    staked = [(at, raw) for at, (raw, _) in zip(pools, users, strict=True) if raw]
    if not staked:
        return []
    pools = [at for at, _ in staked]
    kinds = _kinds(chef, pools)
    told = yield [*kinds, *_payments(match, pools)]
    shares, rewards = _shares(chef, pools, told[: len(kinds)]), _rewards(pools, told[len(kinds) :])
    found = [
        DecodedPosition(
            "FARMING",
            supplied=(TokenAmount(share, raw),),
            rewards=(reward,) if reward else (),
            pool=chef,
            unknown="" if reward else "what it earned: the farm answers to no known name of it",
        )
        for (_, raw), share, reward in zip(staked, shares, rewards, strict=True)
    ]
    return (yield from borne_out(match, found)) if match.is_listed("farm") else found


def _kinds(chef: str, pools: Sequence[int]) -> list[Call | MayRefuse]:
    """What is staked in each pool, in both ways: MasterChef's second version says it in a list of its own."""
    return [
        MayRefuse(Call(chef, signature, (at,)))
        for at in pools
        for signature in ("lpToken(uint256)(address)", "poolInfo(uint256)(address)")
    ]


def _shares(chef: str, pools: Sequence[int], told: Sequence[str | None]) -> list[str]:
    """What is staked in each pool, from the answers to `_kinds`."""
    shares = []
    for pool, second, first in zip(pools, told[::2], told[1::2], strict=True):
        share = second or first
        if share is None:
            raise Unread(f"{chef} did not say what is staked in pool {pool}")
        shares.append(share)
    return shares


def _payments(match: ProtocolMatch, pools: Sequence[int]) -> list[Call | MayRefuse]:
    """The token that the farm pays and what it owes the account in each pool, by every name that is known for both."""
    named = "pending" in match.options
    names = [(match.options["pending"], match.options["reward"])] if named else REWARDS
    calls = [
        call
        for pending, reward in names
        for call in (
            Call(match.contract, reward),
            *(Call(match.contract, pending, (at, match.account)) for at in pools),
        )
    ]
    return [*calls] if named else [MayRefuse(call) for call in calls]


def _rewards(pools: Sequence[int], told: Sequence[Any]) -> list[TokenAmount | None]:
    """What the account earned in each pool, from the answers to `_payments`; None where no name is known."""
    width = 1 + len(pools)
    for at in range(0, len(told), width):
        token, *earned = told[at : at + width]
        if token is not None and None not in earned:
            return [TokenAmount(token, raw) for raw in earned]
    return [None] * len(pools)


DEPOSIT = "Deposit(address indexed user, uint256 indexed pid, uint256 amount)"
# Deposits into a `chef` are read from its events; a `farm` is one of hundreds of forks, whose events nobody needs.
FAMILY = Family(
    "masterchef",
    rules=(Counterparty("chef"), Event("chef", DEPOSIT, owner=0, of=(1,)), Counterparty("farm")),
    position=position,
    options=("pending", "reward"),
)
