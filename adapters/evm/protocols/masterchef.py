"""Sushi's MasterChef and its forks: shares that are staked in numbered pools and earn a token."""

from __future__ import annotations

from chainfolio.calls import Call
from chainfolio.protocols import Counterparty, Decoding, Event, Family, Found, Met, Part

MOST_POOLS = 5_000


def position(met: Met) -> Decoding:
    """One position for each pool of the farm in which the account has something.

    The pools of its deposits are read, where all of those are indexed; else every pool, and so for somebody who met
    the farm and is in no event of it: a fork may write other ones. What else differs from fork to fork is in the
    protocol's file: `pending` and `reward`, as signatures of calls.
    """
    chef, account = met.contract, met.account
    count, reward = yield [Call(chef, "poolLength()(uint256)"), Call(chef, met.options["reward"])]
    known = [pool for (pool,) in met.values if pool < count] if met.covered else []
    pools = known or range(min(count, MOST_POOLS))
    users = yield [Call(chef, "userInfo(uint256,address)(uint256,uint256)", (at, account)) for at in pools]
    staked = [(at, raw) for at, (raw, _) in zip(pools, users, strict=True) if raw]
    told = yield [
        *(Call(chef, "poolInfo(uint256)(address)", (at,)) for at, _ in staked),
        *(Call(chef, met.options["pending"], (at, account)) for at, _ in staked),
    ]
    shares, pending = told[: len(staked)], told[len(staked) :]
    return [
        Found("FARMING", supplied=(Part(share, raw),), rewards=(Part(reward, earned),), pool=chef)
        for (_, raw), share, earned in zip(staked, shares, pending, strict=True)
    ]


DEPOSIT = "Deposit(address indexed user, uint256 indexed pid, uint256 amount)"
FAMILY = Family("masterchef", rules=(Counterparty("chef"), Event("chef", DEPOSIT, owner=0, of=(1,))), position=position)
