"""Aave's markets, of every release and fork: one position a market, with all that was supplied and owed there.

The releases differ in how a provider of addresses names the pool, and in where the pool's answer about an asset has the
market's tokens. Both are read from the contracts: lists of forks often name the wrong release, and a token of one
release at the place of the other is a deposit that looks like a debt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

from adapters.evm.positions.rules import DecoderPlan, Family, MayRefuse, ProtocolMatch, Token, Unread
from adapters.evm.reads import Call, balance_of
from chainfolio import amounts
from chainfolio.assets import ZERO_ADDRESS
from chainfolio.protocols import DecodedPosition, TokenAmount, Unlisted, Unverified

UNDERLYING = "UNDERLYING_ASSET_ADDRESS()(address)"
ACCOUNT = "getUserAccountData(address)(uint256,uint256,uint256,uint256,uint256,uint256)"
REWARDS = "getAllUserRewards(address[],address)(address[],uint256[])"
NO_DEBT = (1 << 256) - 1
WAD_DECIMALS = 18
POOL = "POOL()(address)"
NOTHING_SUPPLIED = "nobody read the code of this market, and the account supplied nothing for what it owes there"
NOT_SENT = "nobody read the code of this market, and the account never sent its tokens what they say it supplied"
NOT_THERE = "nobody read the code of this market, and its tokens do not have what they say was supplied"
NOT_EARNED = "nobody read the code that says what was earned in this market"


# A provider of addresses of V3 answers the first, one of V2 the second. Some forks' answer both, and none is believed:
# what the pool itself answers decides.
POOL_GETTERS = ("getPool()(address)", "getLendingPool()(address)")
# The words of a reserve up to the last address of a token. V3 has a number of 16 bits before the addresses.
RESERVE = f"getReserveData(address)({'uint256,' * 7}{','.join(['address'] * 4)})"
FIRST_OF_V2, FIRST_OF_V3 = 7, 8
MAX_RESERVE_ID = (1 << 16) - 1
LEADS = {
    "data_provider": "ADDRESSES_PROVIDER()(address)",
    "addresses_provider_registry": "getAddressesProvidersList()(address[])",
}


def tokens_of(reserve: Sequence[Any]) -> tuple[str, tuple[str, str]]:
    """Return the supplied token of a reserve and its two debt tokens, by the pool's answer to `RESERVE`; zero addresses
    for an asset that the market does not list."""
    is_v3 = int(reserve[FIRST_OF_V2], 16) <= MAX_RESERVE_ID  # no contract has such an address
    first = FIRST_OF_V3 if is_v3 else FIRST_OF_V2
    share, stable, variable = reserve[first : first + 3]
    return share, (stable, variable)


def position(match: ProtocolMatch) -> DecoderPlan:
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
    cash = [MayRefuse(balance_of(asset, token)) for token, (asset, *_) in said.items()] if match.is_fork else []
    state = yield [*(Call(pool, RESERVE, (asset,)) for asset, _, _ in said.values()), *cash]
    reserves, there = state[: len(said)], dict(zip(said, state[len(said) :], strict=False))
    supplied: dict[str, TokenAmount] = {}  # by token
    borrowed: dict[str, TokenAmount] = {}
    genuine: dict[str, str] = {}  # token -> who pays what it earns beside interest
    for (token, (asset, held, incentives)), reserve in zip(said.items(), reserves, strict=True):
        share, debts = tokens_of(reserve)
        side = supplied if token == share else borrowed if token in debts else None
        if side is not None:
            if held is None:
                raise Unread(f"{token} did not say balanceOf")
            side[token] = TokenAmount(asset, held)
            genuine[token] = incentives or ZERO_ADDRESS
    payers = sorted({*genuine.values()} - {ZERO_ADDRESS})
    earned = (yield [MayRefuse(Call(payer, REWARDS, (tuple(genuine), account))) for payer in payers]) if payers else []
    rewards = tuple(TokenAmount(token, raw) for each in earned if each for token, raw in zip(*each, strict=True))
    found = DecodedPosition(
        "LENDING",
        supplied=tuple(supplied.values()),
        borrowed=tuple(borrowed.values()),
        rewards=() if match.is_fork else rewards,
        unknown="what it earned beside interest" if None in earned else "",
        name="Lending market",
        health=_health(standing[5]),
        pool=pool,
        replaces=tuple(genuine),
        unverified=_doubt(match, supplied, there) if match.is_fork else "",
    )
    if not match.is_fork or not rewards:
        return found
    return [found, DecodedPosition("LENDING", rewards=rewards, name="Lending market", pool=pool, unverified=NOT_EARNED)]


def _doubt(match: ProtocolMatch, supplied: Mapping[str, TokenAmount], there: Mapping[str, int | None]) -> str:
    """Why nobody can rely on a market whose code nobody read, and which may list any token: empty where all that was
    supplied is there, and the account sent it to each of its tokens."""
    held = {token: part for token, part in supplied.items() if part.raw}
    if not held:
        return NOTHING_SUPPLIED
    if any(not replace(match, contract=token).deposited(part.token) for token, part in held.items()):
        return NOT_SENT
    return "" if all(part.raw <= (there[token] or 0) for token, part in held.items()) else NOT_THERE


def _health(raw: int) -> Decimal | None:
    return None if raw == NO_DEBT else amounts.amount(raw, WAD_DECIMALS)


def unwrap(match: ProtocolMatch, raw: int) -> DecoderPlan:
    """An interest-bearing token is its own amount of what was supplied."""
    (asset,) = yield [Call(match.contract, UNDERLYING)]
    reserve, *cash = yield [
        Call(match.answer, RESERVE, (asset,)),
        *([balance_of(asset, match.contract)] if match.is_fork else []),
    ]
    share, _ = tokens_of(reserve)
    if share != match.contract:
        return None
    if not match.is_fork:
        return (TokenAmount(asset, raw),)
    return Unlisted((TokenAmount(asset, raw),)) if raw <= cash[0] else Unverified(NOT_THERE)


RULES = (
    Token(role="pool", question=POOL, together=True),
    *(
        Token(role=role, question=POOL, through=(first, getter))
        for role, first in LEADS.items()
        for getter in POOL_GETTERS
    ),
)

FAMILY = Family("aave", rules=RULES, position=position, unwrap=unwrap)
