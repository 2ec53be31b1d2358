"""What Aave's releases have in common: a market of tokens whose balances are what was supplied, and what is owed."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from chainfolio import amounts
from chainfolio.assets import ZERO_ADDRESS
from chainfolio.calls import Call
from chainfolio.protocols import DecodedPosition, DecoderPlan, MayRefuse, ProtocolMatch, Token, TokenAmount, Unread

UNDERLYING = "UNDERLYING_ASSET_ADDRESS()(address)"
ACCOUNT = "getUserAccountData(address)(uint256,uint256,uint256,uint256,uint256,uint256)"
REWARDS = "getAllUserRewards(address[],address)(address[],uint256[])"
NO_DEBT = (1 << 256) - 1
WAD_DECIMALS = 18
RULE = Token(role="pool", question="POOL()(address)", together=True)


@dataclass(frozen=True, slots=True)
class Release:
    """What differs: `reserve` reads a market's struct up to the addresses of its three tokens, of which the supplied
    one is at `first`, with both kinds of debt behind it."""

    reserve: str
    first: int


def position(match: ProtocolMatch, release: Release) -> DecoderPlan:
    """What an account has in one market: balances grow by the second and are in units of what was supplied."""
    pool, account = match.contract, match.account
    standing, *told = yield [
        Call(pool, ACCOUNT, (account,)),
        *(
            MayRefuse(ask)  # whoever only claims to be of this market may refuse them all
            for token in match.tokens
            for ask in (
                Call(token, UNDERLYING),
                Call(token, "balanceOf(address)(uint256)", (account,)),
                Call(token, "getIncentivesController()(address)"),
            )
        ),
    ]
    said = {token: told[3 * at : 3 * at + 3] for at, token in enumerate(match.tokens) if told[3 * at] is not None}
    reserves = yield [Call(pool, release.reserve, (asset,)) for asset, _, _ in said.values()]
    supplied: list[TokenAmount] = []
    borrowed: list[TokenAmount] = []
    genuine: dict[str, str] = {}  # token -> who pays what it earns beside interest
    for (token, (asset, held, incentives)), reserve in zip(said.items(), reserves, strict=True):
        share, *debts = reserve[release.first : release.first + 3]
        side = supplied if token == share else borrowed if token in debts else None
        if side is not None:
            if held is None:
                raise Unread(f"{token} did not say balanceOf")
            side.append(TokenAmount(asset, held))
            genuine[token] = incentives or ZERO_ADDRESS
    payers = sorted({*genuine.values()} - {ZERO_ADDRESS})
    earned = (yield [MayRefuse(Call(payer, REWARDS, (tuple(genuine), account))) for payer in payers]) if payers else []
    return DecodedPosition(
        "LENDING",
        supplied=tuple(supplied),
        borrowed=tuple(borrowed),
        rewards=tuple(TokenAmount(token, raw) for each in earned if each for token, raw in zip(*each, strict=True)),
        unknown="what it earned beside interest" if None in earned else "",
        name="Lending market",
        health=_health(standing[5]),
        pool=pool,
        replaces=tuple(genuine),
    )


def _health(raw: int) -> Decimal | None:
    return None if raw == NO_DEBT else amounts.amount(raw, WAD_DECIMALS)


def unwrap(match: ProtocolMatch, raw: int, release: Release) -> DecoderPlan:
    """An interest-bearing token is its own amount of what was supplied."""
    (asset,) = yield [Call(match.contract, UNDERLYING)]
    (reserve,) = yield [Call(match.answer, release.reserve, (asset,))]
    return (TokenAmount(asset, raw),) if reserve[release.first] == match.contract else None
