"""Balancer V3: a share of a pool stands for its part of all tokens that the vault keeps for the pool."""

from __future__ import annotations

from chainfolio.adapters.evm.positions.price_guard import Reserves, guard_reserves, reserves
from chainfolio.adapters.evm.positions.rules import AtEarlierBlock, DecoderPlan, Family, MayRefuse, ProtocolMatch, Token
from chainfolio.adapters.evm.reads import AbiValue, Call
from chainfolio.protocols import AnnotatedShare, TokenAmount, TypedCalls, UnlistedShare

POOL = "getPoolTokenInfo(address)(address[],(uint8,address,bool)[],uint256[],uint256[])"


def unwrap(match: ProtocolMatch, raw: int) -> DecoderPlan:
    """Return what a proportional exit pays for `raw` shares, at balances that the block did not move.

    None if the vault of the file does not know the pool, or `raw` is zero or more than the supply. An UnlistedShare,
    since anybody can register a pool; an AnnotatedShare of it if the balances of the parent block count.
    """
    pool, vault = match.contract, match.answer
    state = [Call(vault, POOL, (pool,)), Call(vault, "totalSupply(address)(uint256)", (pool,))]
    info, supply, *parent = yield [*map(MayRefuse, state), *map(AtEarlierBlock, state)]
    if info is None or supply is None or not 0 < raw <= supply:
        return None
    tokens, _, balances, _ = info
    counted, remark = (yield from guard_reserves(state, _reserves, [info, supply, *parent])) or (balances, "")
    parts = (TokenAmount(token, raw * balance // supply) for token, balance in zip(tokens, counted, strict=True))
    share = UnlistedShare(tuple(parts))
    return AnnotatedShare(share, remark) if remark else share


def _reserves(info: tuple[AbiValue, ...], supply: int) -> Reserves | None:
    """Return the state of a pool; None if it is empty."""
    return reserves(*info[2], supply, tokens=tuple(info[0]))


FAMILY = Family(
    "balancer_v3",
    rules=(Token("vault", "getVault()(address)"),),
    unwrap=unwrap,
    position_type="LIQUIDITYPOOL",
    # The vault takes and pays the tokens, the pool is its own share, and a router is called.
    calls=(
        TypedCalls("ADDLIQUIDITY", "issued", (), ("vault",)),
        TypedCalls("REMOVELIQUIDITY", "redeemed", (), ("vault",)),
    ),
    is_proven=False,
)
