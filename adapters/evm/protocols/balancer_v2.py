"""Balancer V2: a share of a pool, whose tokens lie in the vault, is what the pool would pay for it in all of them.

Anybody can register a pool, whatever its code says: its shares count for who came by them in an act of their own, and
only if what lies in the vault for the pool pays all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from adapters.evm.positions.rules import Before, DecoderPlan, Family, MayRefuse, ProtocolMatch, Token, Unread, covered
from adapters.evm.positions.settled import Reserves, fair, reserves
from adapters.evm.reads import Call, balance_of
from chainfolio.protocols import Remarked, TokenAmount, Unlisted, Unverified

# The kind of exit that pays a part of each token: in most pools, and in those whose own shares are among the tokens.
TOKENS_OUT, ALL_TOKENS_OUT = 1, 2
ONE = 10**18
NOT_COVERED = "what lies in the vault for the pool does not cover what it promises for all its shares"
POOL_TOKENS = "getPoolTokens(bytes32)(address[],uint256[],uint256)"
QUERY_EXIT = "queryExit(bytes32,address,address,uint256[],uint256,uint256,bytes)(uint256,uint256[])"


def unwrap(match: ProtocolMatch, raw: int) -> DecoderPlan:
    """What leaving the pool with so many shares gives now, once the protocol has taken its fees.

    None where the vault does not know the pool. One that has no such exit (linear and phantom pools) is unknown.
    """
    pool, vault = match.contract, match.answer
    number, collector = yield [
        MayRefuse(Call(pool, "getPoolId()(bytes32)")),
        Call(vault, "getProtocolFeesCollector()(address)"),
    ]
    if number is None:
        return None
    state = [Call(vault, POOL_TOKENS, (number,)), Call(pool, "totalSupply()(uint256)")]
    (registered, _), fee, *lying = yield [
        Call(vault, "getPool(bytes32)(address,uint8)", (number,)),
        Call(collector, "getSwapFeePercentage()(uint256)"),
        *state,
        *map(Before, state),
    ]
    (tokens, balances, changed), supply = lying[:2]
    if registered != pool:
        return None
    kind = ALL_TOKENS_OUT if pool in tokens else TOKENS_OUT
    wish = kind.to_bytes(32, "big") + raw.to_bytes(32, "big")
    asked = (number, match.account, match.account, tuple(balances), changed, fee, wish)
    # Of a vault whose code nobody read, what it has counts, and not what it says.
    real = [balance_of(token, vault) for token in tokens] if match.is_fork else []
    leaving = Call(pool, QUERY_EXIT, asked, alone=True)
    said, *there = yield [MayRefuse(leaving), *map(MayRefuse, real), *map(Before, real)]
    own = dict(zip(tokens, balances, strict=True)).get(pool, 0)  # shares that nobody has yet
    _, paid = said or (yield from _recovered(pool, tokens, balances, supply - own, raw))
    if len(paid) != len(tokens):
        return None
    held = _lying(balances, there[: len(real)])
    given = [each for each in zip(tokens, paid, held, strict=True) if each[0] != pool]
    if not all(covered(out, raw, held, supply - own) for _, out, held in given):
        return Unverified(NOT_COVERED)
    states = [*lying[:2], *there[: len(real)], *lying[2:], *there[len(real) :]]
    fairly = yield from fair([*state, *real], partial(_reserves, pool), states)
    counted, remark = fairly or ((), "")
    if not remark:
        return Unlisted(tuple(TokenAmount(token, out) for token, out, _ in given))
    parts = (
        TokenAmount(token, min(out, held) * before // held)
        for (token, out, held), before in zip(given, counted, strict=True)
    )
    return Remarked(Unlisted(tuple(parts)), remark)


def _lying(balances: Sequence[int], there: Sequence[int | None]) -> Sequence[int]:
    """What lies in the vault, by what it says and, where that was asked, by what it has."""
    return [min(held, has or 0) for held, has in zip(balances, there, strict=True)] if there else balances


def _reserves(
    pool: str, said: tuple[Sequence[str], Sequence[int], int], supply: int, *there: int | None
) -> Reserves | None:  # fmt: skip
    """What lies in the vault for a pool; its own shares there are nobody's yet."""
    tokens, balances, _ = said
    if there and len(there) != len(tokens):  # a pool may change its tokens
        return None
    own = dict(zip(tokens, balances, strict=True)).get(pool, 0)
    held = [pair for pair in zip(tokens, _lying(balances, there), strict=True) if pair[0] != pool]
    return reserves(*(raw for _, raw in held), supply - own, tokens=tuple(token for token, _ in held))


def _recovered(pool: str, tokens: Sequence[str], balances: Sequence[int], supply: int, raw: int) -> DecoderPlan:
    """What a pool that was put into recovery mode pays: a plain part of everything, rounded as the pool does it."""
    (recovering,) = yield [MayRefuse(Call(pool, "inRecoveryMode()(bool)"))]
    if not recovering or supply <= 0:
        raise Unread(f"{pool} has no exit that pays a part of each of its tokens")
    part = raw * ONE // supply
    return raw, [0 if token == pool else held * part // ONE for token, held in zip(tokens, balances, strict=True)]


FAMILY = Family(
    "balancer_v2",
    rules=(Token(role="vault", question="getVault()(address)"),),
    unwrap=unwrap,
    position_type="LIQUIDITYPOOL",
)
