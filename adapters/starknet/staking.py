"""STRK, and other coins, that an account delegated to validators of Starknet.

Delegated coins lie in a pool of the validator, and the pool alone knows whose they are. An account sent coins to its
pools, so those that it sent something to are asked. Anybody can make a contract that answers like a pool: what one says
counts where the staking contract of the chain names it among the pools of the validator that it claims.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from chainfolio.adapters.starknet.facts import Facts
from chainfolio.adapters.starknet.felts import U128, padded
from chainfolio.adapters.starknet.state import Call
from chainfolio.assets import Asset
from chainfolio.contracts import Issue
from chainfolio.interactions import Interactions
from chainfolio.plans import Plan, Unknown
from chainfolio.positions import OpenPosition
from chainfolio.reads import ReadResult

PROTOCOL: Final = "starknet-stake"
MAX_ASKED: Final = 500  # contracts of one account
SHOWN: Final = 6  # characters of a validator's address
SOME: Final = 0  # what is in front of a value that is there
MAX_TIME_S: Final = 2**40
NOT_NAMED: Final = "the staking contract of the chain does not name this pool"
NOT_READ: Final = "the staking contract of the chain could not be read"


@dataclass(frozen=True, slots=True)
class Member:
    """What a pool says of an account: what is delegated, what it has earned, what is on its way out and until when."""

    raw: int
    rewards: int
    leaving: int
    unlock_s: int


@dataclass(frozen=True, slots=True)
class Pool:
    """What a pool says of itself."""

    validator: int
    token: int


Found = tuple[tuple[OpenPosition, ...], tuple[Issue, ...]]


def delegated(facts: Facts, account: str, interactions: Interactions) -> Plan[Any, Any, Found]:
    """The positions of an account in pools, and what could not be read of them."""
    contracts = sorted(interactions.sent_to) if facts.staking else []
    asked, owner = contracts[:MAX_ASKED], int(account, 16)
    if not asked:
        return (), ()
    calls = {each: Call(each, "get_pool_member_info_v1", (owner,)) for each in asked}
    said = dict(zip(asked, (yield list(calls.values())), strict=True))
    members = {each: found for each, answer in said.items() if (found := member(answer)) is not None}
    pools, unread = yield from _pools(sorted(members))
    named = yield from _named(facts, {each.validator for each in pools.values()})
    positions = tuple(
        _position(facts, account, at, members[at], pool, named, ReadResult(calls[at], said[at]))
        for at, pool in pools.items()
    )
    lost = {at: answer.reason for at, answer in said.items() if isinstance(answer, Unknown) and answer.cause == "read"}
    return positions, tuple(_issues(account, lost | unread, len(contracts)))


def member(answer: Any) -> Member | None:
    """What a pool says of an account; None where it is no pool, or the account no member."""
    match answer:
        case (0, _, raw, rewards, _, leaving, *time) if max(raw, rewards, leaving) < U128:
            unlock_s = _time(time)
            return None if unlock_s is None else Member(raw, rewards, leaving, unlock_s)
    return None


def _time(said: Sequence[int]) -> int | None:
    """A moment that may be there: 0 where it is not, None where it is no moment."""
    match said:
        case [0, seconds] if seconds < MAX_TIME_S:
            return seconds
        case [1]:
            return 0
    return None


def _pools(contracts: Sequence[str]) -> Plan[Any, Any, tuple[dict[str, Pool], dict[str, str]]]:
    """What pools say of themselves, and why some could not be read. What answers otherwise is no pool."""
    answers = (yield [Call(each, "contract_parameters_v1") for each in contracts]) if contracts else []
    found, unread = {}, {}
    for contract, answer in zip(contracts, answers, strict=True):
        match answer:
            case (validator, _, _, token, _):
                found[contract] = Pool(validator, token)
            case Unknown(reason):
                unread[contract] = reason
    return found, unread


def _named(facts: Facts, validators: set[int]) -> Plan[Any, Any, Mapping[int, Any]]:
    """The pools of validators and their tokens, as the staking contract names them; what came where it named none."""
    asked = sorted(validators)
    answers = (yield [Call(facts.staking, "staker_pool_info", (each,)) for each in asked]) if asked else []
    return {validator: _pairs(answer) for validator, answer in zip(asked, answers, strict=True)}


def _pairs(answer: Any) -> Any:
    """Pools with their tokens: behind a commission that may be there, a count, and three felts for each pool."""
    if not isinstance(answer, tuple) or not answer:
        return answer
    rest = answer[2:] if answer[0] == SOME else answer[1:]
    if not rest or len(rest) != 1 + 3 * rest[0]:
        return Unknown("the staking contract answers what is no list of pools", "contract")
    return frozenset(zip(rest[1::3], rest[2::3], strict=True))


def _position(
    facts: Facts, account: str, at: str, found: Member, pool: Pool, named: Mapping[int, Any], call: ReadResult
) -> OpenPosition:
    asset, validator = _asset(facts, pool.token), padded(pool.validator)
    pools = named[pool.validator]
    is_named = isinstance(pools, frozenset) and (int(at, 16), pool.token) in pools
    doubt = NOT_READ if isinstance(pools, Unknown) else "" if is_named else NOT_NAMED
    name = f"Delegated to {validator[: 2 + SHOWN]}…{validator[-SHOWN:]}"
    return OpenPosition(
        account,
        PROTOCOL,
        "STAKED",
        name,
        {asset: found.raw + found.leaving},
        {},
        {facts.native_asset: found.rewards},
        unlock_s=found.unlock_s,
        pool=at,
        has_trusted_assets=True,
        calls=(call,),
        unverified=doubt,
    )


def _asset(facts: Facts, token: int) -> Asset:
    contract = padded(token)
    return facts.native_asset if contract == facts.coin else facts.token_asset(contract)


def _issues(account: str, lost: Mapping[str, str], contracts: int) -> Iterator[Issue]:
    for contract, reason in lost.items():
        yield Issue(PROTOCOL, contract, reason, makes_partial=True, account=account)
    if contracts > MAX_ASKED:
        reason = f"{contracts - MAX_ASKED} contracts were not asked whether something is delegated to them"
        yield Issue(PROTOCOL, account, reason, makes_partial=True, account=account)
