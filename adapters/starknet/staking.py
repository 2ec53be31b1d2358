"""STRK and other coins that an account delegated to validators of Starknet, as positions.

Delegated coins are in a pool of the validator, and only the pool knows their owner. An account sent coins to its pools,
so the contracts in its transfers are called. Anybody can deploy a contract that answers like a pool: a position counts
only if the staking contract of the chain lists the pool for the pool's validator.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from chainfolio.adapters.starknet.facts import Facts
from chainfolio.adapters.starknet.felts import U128, format_felt
from chainfolio.adapters.starknet.state import Call, Result
from chainfolio.contracts import Issue
from chainfolio.interactions import Interactions
from chainfolio.plans import Plan, Unknown, read_all
from chainfolio.positions import OpenPosition
from chainfolio.reads import ReadResult

PROTOCOL: Final = "starknet-stake"
MAX_CONTRACTS: Final = 500  # called per account
SHOWN_DIGITS: Final = 6  # of a validator's address, at either end
OPTION_SOME: Final = 0  # the felt before a value of type Option that is present; 1 if it is absent
MAX_TIME_S: Final = 2**40
NOT_LISTED: Final = "the staking contract of the chain does not name this pool"
NOT_READ: Final = "the staking contract of the chain could not be read"
ListedPools: TypeAlias = frozenset[tuple[int, int]] | Unknown  # contracts of a validator's pools with their tokens


@dataclass(frozen=True, slots=True)
class PoolMember:
    """An account's record in a pool. The amount `leaving` can be withdrawn at `unlock_s` (0: not leaving)."""

    raw: int
    rewards: int
    leaving: int
    unlock_s: int


@dataclass(frozen=True, slots=True)
class Pool:
    """The validator and the token of a pool, as its contract gives them."""

    contract: str
    validator: int
    token: int


def delegated_positions(
    facts: Facts, account: str, interactions: Interactions
) -> Plan[tuple[tuple[OpenPosition, ...], tuple[Issue, ...]]]:
    """Return positions in pools among the first MAX_CONTRACTS contracts that an account sent to.

    The issues name contracts that were not read, and count those beyond the maximum. Both are empty if the chain has no
    staking contract.
    """
    contracts = sorted(interactions.sent_to) if facts.staking else []
    called, owner = contracts[:MAX_CONTRACTS], int(account, 16)
    if not called:
        return (), ()
    calls = [Call(each, "get_pool_member_info_v1", (owner,)) for each in called]
    results = dict(zip(called, (yield from read_all(calls)), strict=True))
    reads = {call.contract: ReadResult(call, results[call.contract]) for call in calls}
    members = {each: member for each, result in results.items() if (member := decode_member(result)) is not None}
    pools, errors = yield from _read_pools(sorted(members))
    listed_pools = yield from _read_listed_pools(facts, {pool.validator for pool in pools})
    positions = tuple(
        _position(facts, account, pool, members[pool.contract], listed_pools[pool.validator], reads[pool.contract])
        for pool in pools
    )
    unread = {at: each.reason for at, each in results.items() if isinstance(each, Unknown) and each.cause == "read"}
    return positions, tuple(_issues(account, unread | errors, len(contracts)))


def decode_member(result: Result) -> PoolMember | None:
    """Return an account's record in a pool; None if the contract is no pool, or the account no member."""
    match result:
        case (0, _, raw, rewards, _, leaving, *time) if max(raw, rewards, leaving) < U128:
            unlock_s = _decode_time(time)
            return None if unlock_s is None else PoolMember(raw, rewards, leaving, unlock_s)
    return None


def _decode_time(felts: Sequence[int]) -> int | None:
    """Return an optional time in seconds: 0 if it is absent, None if the felts are no time."""
    match felts:
        case [0, seconds] if seconds < MAX_TIME_S:
            return seconds
        case [1]:
            return 0
    return None


def _read_pools(contracts: Sequence[str]) -> Plan[tuple[list[Pool], dict[str, str]]]:
    """Return pools, and by contract the reasons why some could not be read.

    Contracts that answer in another form or revert are left out.
    """
    results = yield from read_all([Call(each, "contract_parameters_v1") for each in contracts])
    pools, errors = list[Pool](), dict[str, str]()
    for contract, result in zip(contracts, results, strict=True):
        match result:
            case (validator, _, _, token, _):
                pools.append(Pool(contract, validator, token))
            case Unknown(reason):
                errors[contract] = reason
    return pools, errors


def _read_listed_pools(facts: Facts, validators: set[int]) -> Plan[Mapping[int, ListedPools]]:
    """Return by validator the pools that the staking contract lists; Unknown if they could not be read."""
    ordered = sorted(validators)
    results = yield from read_all([Call(facts.staking, "staker_pool_info", (each,)) for each in ordered])
    return {validator: _decode_listed_pools(result) for validator, result in zip(ordered, results, strict=True)}


def _decode_listed_pools(result: Result) -> ListedPools:
    """Decode an optional commission, a count, and three felts per pool, into the set of (contract, token).

    The commission and the third felt are dropped. Return an empty set if the call reverted or returned nothing, Unknown
    if it was not read or has another form.
    """
    if isinstance(result, Unknown):
        return result
    if not isinstance(result, tuple) or not result:
        return frozenset()
    pools = result[2:] if result[0] == OPTION_SOME else result[1:]
    if not pools or len(pools) != 1 + 3 * pools[0]:
        return Unknown("the staking contract answers what is no list of pools", "contract")
    return frozenset(zip(pools[1::3], pools[2::3], strict=True))


def _position(
    facts: Facts, account: str, pool: Pool, member: PoolMember, listed_pools: ListedPools, read: ReadResult
) -> OpenPosition:
    """Return a delegation with its rewards; unverified if the staking contract does not list the pool."""
    token, validator = format_felt(pool.token), format_felt(pool.validator)
    asset = facts.native_asset if token == facts.coin else facts.token_asset(token)
    if isinstance(listed_pools, Unknown):
        unverified = NOT_READ
    else:
        unverified = "" if (int(pool.contract, 16), pool.token) in listed_pools else NOT_LISTED
    return OpenPosition(
        account,
        PROTOCOL,
        "STAKED",
        f"Delegated to {validator[: 2 + SHOWN_DIGITS]}…{validator[-SHOWN_DIGITS:]}",
        {asset: member.raw + member.leaving},
        {},
        {facts.native_asset: member.rewards},
        unlock_s=member.unlock_s,
        pool=pool.contract,
        has_trusted_assets=True,
        calls=(read,),
        unverified=unverified,
    )


def _issues(account: str, unread: Mapping[str, str], contract_count: int) -> Iterator[Issue]:
    """Yield an issue per unread contract, and one for contracts beyond MAX_CONTRACTS; all make it partial."""
    for contract, reason in unread.items():
        yield Issue(PROTOCOL, contract, reason, makes_partial=True, account=account)
    if contract_count > MAX_CONTRACTS:
        reason = f"{contract_count - MAX_CONTRACTS} contracts were not asked whether something is delegated to them"
        yield Issue(PROTOCOL, account, reason, makes_partial=True, account=account)
