"""Aave's markets, of every release and fork: one position a market.

Releases differ in how an addresses provider names the pool, and in where the pool's result about an asset has the
market's tokens. Both are read from the contracts: lists of forks often name the wrong release, and reading one release
as the other would turn a deposit into a debt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import NamedTuple

from chainfolio import amounts
from chainfolio.adapters.evm.positions.rules import DecoderPlan, Family, MayRefuse, ProtocolMatch, ReadError, Token
from chainfolio.adapters.evm.reads import AbiValue, Call, balance_of
from chainfolio.assets import ZERO_ADDRESS
from chainfolio.protocols import DecodedPosition, TokenAmount, UnlistedShare, UnverifiedShare

UNDERLYING = "UNDERLYING_ASSET_ADDRESS()(address)"
ACCOUNT = "getUserAccountData(address)(uint256,uint256,uint256,uint256,uint256,uint256)"
REWARDS = "getAllUserRewards(address[],address)(address[],uint256[])"
NO_DEBT = (1 << 256) - 1
WAD_DECIMALS = 18
POOL = "POOL()(address)"
NOTHING_SUPPLIED = "the code of this market was not reviewed, and the account supplied nothing for what it owes there"
NOT_SENT = "the code of this market was not reviewed, and the account never sent its tokens what they say it supplied"
NOT_THERE = "the code of this market was not reviewed, and its tokens do not have what they say was supplied"
NOT_EARNED = "the code that says what was earned in this market was not reviewed"


# The addresses provider of V3 has the first, that of V2 the second. Some forks have both, and neither result is
# trusted: the pool's own results decide.
POOL_GETTERS = ("getPool()(address)", "getLendingPool()(address)")
# The words of a reserve up to the last address of a token. V3 has a number of 16 bits before the addresses.
RESERVE = f"getReserveData(address)({'uint256,' * 7}{','.join(['address'] * 4)})"
FIRST_OF_V2, FIRST_OF_V3 = 7, 8
MAX_RESERVE_ID = (1 << 16) - 1
LEADS = {
    "data_provider": "ADDRESSES_PROVIDER()(address)",
    "addresses_provider_registry": "getAddressesProvidersList()(address[])",
}


def tokens_of(reserve: Sequence[AbiValue]) -> tuple[str, tuple[str, str]]:
    """Return the supplied token of a reserve and its two debt tokens, by the pool's result of `RESERVE`.

    They are zero addresses if the market does not list the asset.
    """
    is_v3 = int(reserve[FIRST_OF_V2], 16) <= MAX_RESERVE_ID  # no contract has such an address
    first = FIRST_OF_V3 if is_v3 else FIRST_OF_V2
    share, stable, variable = reserve[first : first + 3]
    return share, (stable, variable)


def position(match: ProtocolMatch) -> DecoderPlan:
    """Decode everything that an account has in one market, in units of the supplied assets, with interest.

    Tokens that refuse to name their asset, or that the pool does not list, are ignored. Rewards in unreviewed code are
    a second, unverified position.

    Raises:
        ReadError: A token of the market does not say the account's balance.
    """
    pool = match.contract
    health, by_token = yield from _tokens(match)
    cash_reads = [MayRefuse(balance_of(asset, token)) for token, (asset, *_) in by_token.items()]
    pool_results = yield [
        *(Call(pool, RESERVE, (asset,)) for asset, _, _ in by_token.values()),
        *(cash_reads if match.is_fork else ()),
    ]
    reserves, cash = pool_results[: len(by_token)], dict(zip(by_token, pool_results[len(by_token) :], strict=False))
    sides = _sides(by_token, reserves)
    rewards, are_known = yield from _rewards(sides.incentives, match.account)
    market = DecodedPosition(
        "LENDING",
        supplied=tuple(sides.supplied.values()),
        borrowed=tuple(sides.borrowed.values()),
        rewards=() if match.is_fork else rewards,
        unknown="" if are_known else "what it earned beside interest",
        name="Lending market",
        health=health,
        pool=pool,
        replaces=tuple(sides.incentives),
        debts=tuple(sides.borrowed),
        unverified=_fork_problem(match, sides.supplied, cash) if match.is_fork else "",
    )
    if not match.is_fork or not rewards:
        return market
    return [
        market,
        DecodedPosition("LENDING", rewards=rewards, name="Lending market", pool=pool, unverified=NOT_EARNED),
    ]


class _TokenState(NamedTuple):
    """A token's asset, the account's balance, and the contract that pays its rewards; None if refused."""

    asset: str
    balance: int | None
    controller: str | None


def _tokens(match: ProtocolMatch) -> DecoderPlan:
    """Return the health of the account, and the state of each token that names its asset, by token.

    Balance and incentives of a state are None if the token refuses them.
    """
    account_data, *results = yield [
        Call(match.contract, ACCOUNT, (match.account,)),
        *(
            MayRefuse(call)  # a token that only claims to belong to the market may refuse all of them
            for token in match.tokens
            for call in (
                Call(token, UNDERLYING),
                balance_of(token, match.account),
                Call(token, "getIncentivesController()(address)"),
            )
        ),
    ]
    states = [_TokenState(*results[first : first + 3]) for first in range(0, len(results), 3)]
    by_token = {token: state for token, state in zip(match.tokens, states, strict=True) if state.asset is not None}
    return _health(account_data[5]), by_token


class _Sides(NamedTuple):
    """Amounts by token, and the contract that pays the rewards of each token."""

    supplied: dict[str, TokenAmount]
    borrowed: dict[str, TokenAmount]
    incentives: dict[str, str]


def _sides(by_token: Mapping[str, _TokenState], reserves: Sequence[Sequence[AbiValue]]) -> _Sides:
    """Return what is supplied and borrowed. Tokens that the pool does not list are left out.

    Raises:
        ReadError: A token of the market does not say the account's balance.
    """
    supplied, borrowed, incentives = dict[str, TokenAmount](), dict[str, TokenAmount](), dict[str, str]()
    for (token, (asset, balance, controller)), reserve in zip(by_token.items(), reserves, strict=True):
        share, debts = tokens_of(reserve)
        side = supplied if token == share else borrowed if token in debts else None
        if side is not None:
            if balance is None:
                raise ReadError(f"{token} did not say balanceOf")
            side[token] = TokenAmount(asset, balance)
            incentives[token] = controller or ZERO_ADDRESS
    return _Sides(supplied, borrowed, incentives)


def _rewards(incentives: Mapping[str, str], account: str) -> DecoderPlan:
    """Return the rewards of tokens, and True if all contracts that pay them say how much."""
    controllers = sorted({*incentives.values()} - {ZERO_ADDRESS})
    reads = [MayRefuse(Call(controller, REWARDS, (tuple(incentives), account))) for controller in controllers]
    results = (yield reads) if reads else []
    rewards = tuple(TokenAmount(*reward) for result in results if result for reward in zip(*result, strict=True))
    return rewards, None not in results


def _fork_problem(match: ProtocolMatch, supplied: Mapping[str, TokenAmount], cash: Mapping[str, int | None]) -> str:
    """Return why a market with unreviewed code, which may list any token, is unverified.

    Empty if it is verified: the account supplied something and sent every supplied asset to its token, and the tokens
    still have these amounts. A market with debts only is unverified.

    Args:
        cash: The asset that each token has; None, which counts as 0, if it could not be read.
    """
    parts = {token: part for token, part in supplied.items() if part.raw}
    if not parts:
        return NOTHING_SUPPLIED
    if any(not replace(match, contract=token).has_deposited(part.token) for token, part in parts.items()):
        return NOT_SENT
    return "" if all(part.raw <= (cash[token] or 0) for token, part in parts.items()) else NOT_THERE


def _health(raw: int) -> Decimal | None:
    return None if raw == NO_DEBT else amounts.amount(raw, WAD_DECIMALS)


def unwrap(match: ProtocolMatch, raw: int) -> DecoderPlan:
    """Return the supplied asset in the same amount as the interest-bearing token.

    None if the pool does not list the token. In unreviewed code an UnlistedShare, or an UnverifiedShare if the token
    has less than `raw` of the asset.
    """
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
    return UnlistedShare((TokenAmount(asset, raw),)) if raw <= cash[0] else UnverifiedShare(NOT_THERE)


RULES = (
    Token(role="pool", question=POOL, together=True),
    *(
        Token(role=role, question=POOL, through=(first, getter))
        for role, first in LEADS.items()
        for getter in POOL_GETTERS
    ),
)

FAMILY = Family("aave", rules=RULES, position=position, unwrap=unwrap)
