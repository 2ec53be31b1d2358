"""Uniswap V2 and its forks: a share of a pair is its part of both reserves."""

from __future__ import annotations

from math import isqrt

from chainfolio.assets import ZERO_ADDRESS
from chainfolio.calls import Call
from chainfolio.protocols import Decoding, Family, Met, Part, Token

BALANCE_OF = "balanceOf(address)(uint256)"


def unwrap(met: Met, raw: int) -> Decoding:
    """What burning so many shares gives: the part of what the pair holds, once the protocol has taken its fee.

    None where the factory does not know the pair: anybody can write a token that claims to be one.
    """
    pair, factory = met.contract, met.answer
    token0, token1 = met.facts
    genuine, fee_to, held0, held1, supply, k_last, (reserve0, reserve1) = yield [
        Call(factory, "getPair(address,address)(address)", (token0, token1)),
        Call(factory, "feeTo()(address)"),
        Call(token0, BALANCE_OF, (pair,)),
        Call(token1, BALANCE_OF, (pair,)),
        Call(pair, "totalSupply()(uint256)"),
        Call(pair, "kLast()(uint256)"),
        Call(pair, "getReserves()(uint112,uint112)"),
    ]
    if genuine != pair:
        return None
    if fee_to != ZERO_ADDRESS:
        supply += protocol_fee(supply, reserve0, reserve1, k_last)
    return Part(token0, raw * held0 // supply), Part(token1, raw * held1 // supply)


def protocol_fee(supply: int, reserve0: int, reserve1: int, k_last: int) -> int:
    """The shares that the pair gives to the protocol before it pays anybody out: a sixth of what it grew by."""
    root, root_last = isqrt(reserve0 * reserve1), isqrt(k_last)
    return supply * (root - root_last) // (root * 5 + root_last) if root > root_last > 0 else 0


FAMILY = Family(
    "uniswap_v2",
    rules=(Token(role="factory", question="factory()(address)", facts=("token0()(address)", "token1()(address)")),),
    unwrap=unwrap,
    kind="LIQUIDITYPOOL",
)
