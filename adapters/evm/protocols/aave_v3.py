"""Aave V3 and its forks: one position a market, with all that was supplied and borrowed there."""

from __future__ import annotations

from chainfolio import amounts
from chainfolio.assets import ZERO_ADDRESS
from chainfolio.calls import Call
from chainfolio.protocols import Decoding, Family, Found, Maybe, Met, Part, Token

UNDERLYING = "UNDERLYING_ASSET_ADDRESS()(address)"
# Of the whole struct up to the addresses of the three tokens: what comes behind differs from release to release.
RESERVE = (
    "getReserveData(address)(uint256,uint128,uint128,uint128,uint128,uint128,uint40,uint16,address,address,address)"
)
ACCOUNT = "getUserAccountData(address)(uint256,uint256,uint256,uint256,uint256,uint256)"
REWARDS = "getAllUserRewards(address[],address)(address[],uint256[])"
NO_DEBT = (1 << 256) - 1
WAD_DECIMALS = 18


def position(met: Met) -> Decoding:
    """What an account has in one market: balances grow by the second and are in units of what was supplied."""
    pool, account = met.contract, met.account
    standing, *told = yield [
        Call(pool, ACCOUNT, (account,)),
        *(Call(token, UNDERLYING) for token in met.tokens),
        *(Call(token, "balanceOf(address)(uint256)", (account,)) for token in met.tokens),
    ]
    below, held = told[: len(met.tokens)], dict(zip(met.tokens, told[len(met.tokens) :], strict=True))
    *reserves, incentives = yield [
        *(Call(pool, RESERVE, (asset,)) for asset in below),
        Maybe(Call(met.tokens[0], "getIncentivesController()(address)")),
    ]
    supplied: list[Part] = []
    borrowed: list[Part] = []
    genuine: list[str] = []
    for token, asset, reserve in zip(met.tokens, below, reserves, strict=True):
        side = {reserve[8]: supplied, reserve[9]: borrowed, reserve[10]: borrowed}.get(token)
        if side is not None:  # else it only says that it belongs to this market
            side.append(Part(asset, held[token]))
            genuine.append(token)
    earned: tuple[tuple[str, ...], tuple[int, ...]] | None = ((), ())
    if genuine and incentives not in (None, ZERO_ADDRESS):
        (earned,) = yield [Maybe(Call(incentives, REWARDS, (tuple(genuine), account)))]
    health = standing[5]
    return Found(
        "LENDING",
        supplied=tuple(supplied),
        borrowed=tuple(borrowed),
        rewards=tuple(Part(token, raw) for token, raw in zip(*(earned or ((), ())), strict=True)),
        unknown="" if earned else "what it earned beside interest",
        name="Lending market",
        health=None if health == NO_DEBT else amounts.amount(health, WAD_DECIMALS),
        pool=pool,
        instead=tuple(genuine),
    )


def unwrap(met: Met, raw: int) -> Decoding:
    """An interest-bearing token is its own amount of what was supplied."""
    (asset,) = yield [Call(met.contract, UNDERLYING)]
    (reserve,) = yield [Call(met.answer, RESERVE, (asset,))]
    return (Part(asset, raw),) if reserve[8] == met.contract else None


FAMILY = Family(
    "aave_v3",
    rules=(Token(role="pool", question="POOL()(address)", together=True),),
    position=position,
    unwrap=unwrap,
)
