"""Balancer V2: a share of a pool, whose tokens lie in the vault, is what the pool would pay for it in all of them."""

from __future__ import annotations

from chainfolio.calls import Call
from chainfolio.protocols import Decoding, Family, Maybe, Met, Part, Token, Unread

# The kind of exit that pays a part of each token: in most pools, and in those whose own shares are among the tokens.
TOKENS_OUT, ALL_TOKENS_OUT = 1, 2
ONE = 10**18
QUERY_EXIT = "queryExit(bytes32,address,address,uint256[],uint256,uint256,bytes)(uint256,uint256[])"


def unwrap(met: Met, raw: int) -> Decoding:
    """What leaving the pool with so many shares gives now, once the protocol has taken its fees.

    None where the vault does not know the pool, or where the pool promises more than lies in the vault for it:
    anybody can register a pool. One that has no such exit (linear and phantom pools) is unknown.
    """
    pool, vault = met.contract, met.answer
    number, collector = yield [
        Maybe(Call(pool, "getPoolId()(bytes32)")),
        Call(vault, "getProtocolFeesCollector()(address)"),
    ]
    if number is None:
        return None
    (registered, _), (tokens, balances, changed), fee = yield [
        Call(vault, "getPool(bytes32)(address,uint8)", (number,)),
        Call(vault, "getPoolTokens(bytes32)(address[],uint256[],uint256)", (number,)),
        Call(collector, "getSwapFeePercentage()(uint256)"),
    ]
    if registered != pool:
        return None
    kind = ALL_TOKENS_OUT if pool in tokens else TOKENS_OUT
    wish = kind.to_bytes(32, "big") + raw.to_bytes(32, "big")
    asked = (number, met.account, met.account, tuple(balances), changed, fee, wish)
    (said,) = yield [Maybe(Call(pool, QUERY_EXIT, asked, alone=True))]
    _, paid = said or (yield from _recovered(pool, dict(zip(tokens, balances, strict=True)), raw))
    if len(paid) != len(tokens) or any(out > there for out, there in zip(paid, balances, strict=True)):
        return None
    return tuple(Part(token, out) for token, out in zip(tokens, paid, strict=True) if token != pool)


def _recovered(pool: str, balances: dict[str, int], raw: int) -> Decoding:
    """What a pool that was put into recovery mode pays: a plain part of everything, rounded as the pool does it."""
    recovering, supply = yield [
        Maybe(Call(pool, "inRecoveryMode()(bool)")),
        Call(pool, "totalSupply()(uint256)"),
    ]
    if not recovering:
        raise Unread(f"{pool} has no exit that pays a part of each of its tokens")
    part = raw * ONE // (supply - balances.get(pool, 0))
    return raw, [0 if token == pool else held * part // ONE for token, held in balances.items()]


FAMILY = Family(
    "balancer_v2",
    rules=(Token(role="vault", question="getVault()(address)"),),
    unwrap=unwrap,
    kind="LIQUIDITYPOOL",
)
