"""Deposits in one contract: refusals are unknown, zero is no position, grants to others are left out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from chainfolio.adapters.evm.positions.rules import ProtocolMatch
from chainfolio.adapters.evm.protocols import (
    crvusd,
    extrafi,
    joe_farm,
    masterchef,
    staked_balance,
    venus_vault,
    vesting_escrow,
    voting_escrow,
)
from chainfolio.plans import Report, Reverted, Unknown
from chainfolio.protocols import TokenAmount
from tests.protocols.scripted import decode, read

ME, OTHER = "0x" + "11" * 20, "0x" + "22" * 20
IT, TOKEN, SECOND = "0x" + "aa" * 20, "0x" + "bb" * 20, "0x" + "cc" * 20
STAKE = {"amount": "staked(address)(uint256)", "kind": "STAKED"}


def lock(**contracts: tuple[str, ...]) -> ProtocolMatch:
    return ProtocolMatch(ME, IT, contracts=contracts)


def grant(**changed: Any) -> Report[Any]:
    """Decode a grant of 1000 from second 100 to 200 with 300 claimed."""
    fields = {
        "recipient": ME,
        "total_locked": 1000,
        "total_claimed": 300,
        "start_time": 100,
        "end_time": 200,
        "cliff_length": 10,
        "disabled_at": 0,
        "token": TOKEN,
    }
    answers = {(IT, name): value for name, value in (fields | changed).items()}
    return read(vesting_escrow.position, lock(), says=answers)


def test_an_escrow_whose_token_no_file_names_says_it_itself() -> None:
    answers = {(IT, "locked"): (5, 99), (IT, "token"): TOKEN}
    it = decode(voting_escrow.position, lock(), says=answers)
    assert (it.supplied, it.unlock_s) == ((TokenAmount(TOKEN, 5),), 99)


@pytest.mark.parametrize(
    ("position", "match"),
    [
        (voting_escrow.position, lock()),
        (staked_balance.position, ProtocolMatch(ME, IT, contracts={"staked_token": (TOKEN,)}, options=STAKE)),
        (crvusd.position, lock(lend_controller=(IT,))),
        (vesting_escrow.position, lock()),
        (extrafi.position, ProtocolMatch(ME, IT, options={"positions": "1/2"})),
    ],
)
@pytest.mark.parametrize("answer", [Reverted(), Unknown("the node is gone")])
def test_a_contract_that_refuses_makes_the_position_unknown(position: Any, match: ProtocolMatch, answer: Any) -> None:
    names = ("locked", "staked", "user_state", "recipient", "getVaultPosition")
    report = read(position, match, says={(IT, name): answer for name in names})
    assert report.status == "failed"
    assert "did not say" in report.reason


@pytest.mark.parametrize("stake", [0, 7])
def test_a_stake_is_what_the_file_says_how_to_ask(stake: int) -> None:
    match = ProtocolMatch(ME, IT, contracts={"staked_token": (TOKEN,)}, options=STAKE)
    it = decode(staked_balance.position, match, says={(IT, "staked"): stake})
    assert (it.position_type, it.supplied, it.replaces) == ("STAKED", (TokenAmount(TOKEN, stake),), ())


def test_collateral_that_was_sold_on_the_way_down_is_supplied_in_what_was_borrowed() -> None:
    answers = {(IT, "user_state"): (40, 60, 90, 10), (IT, "collateral_token"): TOKEN, (IT, "borrowed_token"): SECOND}
    it = decode(crvusd.position, lock(lend_controller=(IT,)), says=answers)
    assert it.supplied == (TokenAmount(TOKEN, 40), TokenAmount(SECOND, 60))
    assert it.borrowed == (TokenAmount(SECOND, 90),)


@pytest.mark.parametrize(
    ("changed", "raw", "unlock_s"),
    [
        ({}, 700, 200),
        ({"disabled_at": 200}, 700, 200),  # older escrows, if the grant was not ended
        ({"disabled_at": 150}, 200, 150),
        ({"disabled_at": 120}, 0, 120),  # less had vested than was paid: nothing is owed, and nothing is due
        ({"disabled_at": 109}, 0, 109),  # before the cliff
        ({"total_claimed": 1000}, 0, 200),
    ],
)
def test_a_grant_is_what_will_have_vested_less_what_was_claimed(
    changed: dict[str, int], raw: int, unlock_s: int
) -> None:
    report = grant(**changed)
    assert report.result is not None
    assert (report.result.supplied, report.result.unlock_s) == ((TokenAmount(TOKEN, raw),), unlock_s)


def test_a_grant_to_somebody_else_is_none_of_mine() -> None:
    report = grant(recipient=OTHER)
    assert (report.status, report.result) == ("ok", None)


CHEF = {"reward": "sushi()(address)", "pending": "pendingSushi(uint256,address)(uint256)"}


@pytest.mark.parametrize(
    ("events", "pool_numbers"),
    [
        ({"values": ((2,), (9,)), "has_all_events": True}, {2}),  # there is no tenth pool
        ({"values": ((2,),), "has_all_events": False}, {0, 1, 2}),  # there may be other deposits
        ({"values": (), "has_all_events": True}, {0, 1, 2}),  # it met the farm, which writes other events
    ],
)
def test_the_pools_of_its_deposits_are_read_where_all_of_those_are_known(events: Any, pool_numbers: set[int]) -> None:
    answers: dict[tuple[Any, ...], Any] = {(IT, "poolLength"): 3, (IT, "sushi"): SECOND, (IT, "poolInfo"): TOKEN}
    answers |= {(IT, "pendingSushi"): 4} | {(IT, "userInfo", at, ME): (10 + at, 0) for at in range(3)}
    positions = decode(masterchef.position, ProtocolMatch(ME, IT, options=CHEF, **events), says=answers)
    assert [each.supplied for each in positions] == [(TokenAmount(TOKEN, 10 + at),) for at in sorted(pool_numbers)]


@pytest.mark.parametrize(
    ("names", "rewards"),
    [
        ({"cake": SECOND, "pendingCake": 4}, (TokenAmount(SECOND, 4),)),
        ({"sushi": SECOND, "pendingCake": 4}, ()),  # the name of one fork's token beside another's reward
        ({}, ()),
    ],
)
def test_a_fork_of_a_farm_pays_by_a_known_name_or_says_that_its_reward_is_unknown(names: Any, rewards: Any) -> None:
    answers: dict[tuple[Any, ...], Any] = {(IT, "poolLength"): 1, (IT, "poolInfo"): TOKEN, (IT, "userInfo"): (10, 0)}
    answers |= {(IT, name): value for name, value in names.items()}
    (position,) = decode(masterchef.position, ProtocolMatch(ME, IT), says=answers)
    assert (position.supplied, position.rewards) == ((TokenAmount(TOKEN, 10),), rewards)
    assert bool(position.unknown) is not bool(rewards)


def test_what_is_staked_in_the_second_version_is_read_where_it_says_so() -> None:
    answers: dict[tuple[Any, ...], Any] = {(IT, "poolLength"): 1, (IT, "userInfo"): (10, 0)}
    answers |= {(IT, "poolInfo"): OTHER, (IT, "lpToken"): TOKEN}  # its `poolInfo` begins with a number
    (position,) = decode(masterchef.position, ProtocolMatch(ME, IT), says=answers)
    assert position.supplied == (TokenAmount(TOKEN, 10),)


def test_a_farm_in_which_nothing_is_staked_is_asked_no_more() -> None:
    answers: dict[tuple[Any, ...], Any] = {(IT, "poolLength"): 2, (IT, "userInfo"): (0, 0)}
    assert decode(masterchef.position, ProtocolMatch(ME, IT), says=answers) == []


def farm_match(**changes: Any) -> ProtocolMatch:
    return replace(ProtocolMatch(ME, IT, values=((3,),)), **changes)


@pytest.mark.parametrize("family", [masterchef, joe_farm], ids=["masterchef", "joe-farm"])
@pytest.mark.parametrize(
    ("match", "is_marked"),
    [
        (farm_match(), True),
        (farm_match(has_all_events=True, values=()), True),
        (farm_match(has_all_events=True), False),
        (farm_match(is_confirmed=False), False),
        (farm_match(is_confirmed=False, sent={IT: frozenset({TOKEN})}), True),
        (farm_match(is_fork=True), False),
        (farm_match(contracts={"farm": (IT,)}), False),
        (farm_match(is_fork=True, sent={IT: frozenset({TOKEN})}), True),
    ],
    ids=["no-events", "no-deposits", "all-events", "forged", "sent", "fork", "farm", "fork-sent"],
)
def test_pools_of_a_farm_that_are_not_read_are_unknown(
    family: Any, match: ProtocolMatch, is_marked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(family, "MAX_POOLS", 3)
    answers: dict[tuple[Any, ...], Any] = {(IT, "poolLength"): 4, (IT, "userInfo"): (0, 0)}
    unread = ["what it has in pools beyond the first 3 of 4"] if is_marked else []
    assert [each.unknown for each in decode(family.position, match, says=answers)] == unread
    answers |= {(IT, "userInfo"): (10, 0), (IT, "poolInfo"): TOKEN, (IT, "lpToken"): TOKEN, (TOKEN, "balanceOf"): 99}
    positions = decode(family.position, match, says=answers)
    assert [each.unknown for each in positions if not each.supplied] == unread
    assert len(positions) == (1 if match.has_all_events and match.values else 3) + is_marked
    monkeypatch.setattr(family, "MAX_POOLS", 4)
    assert all(each.supplied for each in decode(family.position, match, says=answers))


@pytest.mark.parametrize("has_all_events", [False, True])
def test_pools_of_a_venus_vault_that_are_not_read_are_unknown(has_all_events: bool) -> None:
    answers: dict[tuple[Any, ...], Any] = {(IT, "xvsAddress"): TOKEN, (IT, "poolLength"): venus_vault.MAX_POOLS + 2}
    answers |= {(IT, "pendingRewardTransfers"): 0, (IT, "poolInfos"): TOKEN, (IT, "getUserInfo"): (10, 0, 0)}
    answers |= {(IT, "pendingReward"): 1, (IT, "getWithdrawalRequests"): ()}
    positions = decode(venus_vault.position, ProtocolMatch(ME, IT, has_all_events=has_all_events), says=answers)
    marked = [each.unknown for each in positions if each.unknown]
    assert marked == ([] if has_all_events else ["what it has in pools beyond the first 32 of 34"])


@pytest.mark.parametrize(
    ("balance", "sent_token", "counts"), [(10, TOKEN, True), (9, TOKEN, False), (10, OTHER, False)]
)
def test_a_fork_of_a_farm_that_does_not_have_what_the_account_sent_it_is_not_relied_on(
    balance: int, sent_token: str, counts: bool
) -> None:
    answers: dict[tuple[Any, ...], Any] = {(IT, "poolLength"): 1, (IT, "poolInfo"): TOKEN, (IT, "userInfo"): (10, 0)}
    answers |= {(TOKEN, "balanceOf", IT): balance}
    match = ProtocolMatch(ME, IT, contracts={"farm": (IT,)}, sent={IT: frozenset({sent_token})})
    (position,) = decode(masterchef.position, match, says=answers)
    assert (position.supplied, bool(position.unverified)) == ((TokenAmount(TOKEN, 10),), not counts)


@pytest.mark.parametrize(("balance", "counts"), [(14, True), (13, False)])
def test_what_was_earned_in_a_fork_of_a_farm_counts_where_it_is_there_beside_what_is_staked(
    balance: int, counts: bool
) -> None:
    answers: dict[tuple[Any, ...], Any] = {(IT, "poolLength"): 1, (IT, "poolInfo"): TOKEN, (IT, "userInfo"): (10, 0)}
    answers |= {(TOKEN, "balanceOf", IT): balance, (IT, "cake"): TOKEN, (IT, "pendingCake"): 4}
    match = ProtocolMatch(ME, IT, contracts={"farm": (IT,)}, sent={IT: frozenset({TOKEN})})
    positions = decode(masterchef.position, match, says=answers)
    assert [(each.supplied, each.rewards, bool(each.unverified)) for each in positions] == (
        [((TokenAmount(TOKEN, 10),), (TokenAmount(TOKEN, 4),), False)]
        if counts
        else [((TokenAmount(TOKEN, 10),), (), False), ((), (TokenAmount(TOKEN, 4),), True)]
    )


FEES = {"locked_token": (TOKEN,), "fee_distributor": (OTHER,)}
LOCK: dict[tuple[Any, ...], Any] = {(IT, "locked"): (5, 99), (OTHER, "token"): SECOND, (OTHER, "claim", ME): 7}


def test_the_fees_of_a_lock_are_what_claiming_would_pay() -> None:
    it = decode(voting_escrow.position, lock(**FEES), says=LOCK)
    assert (it.supplied, it.rewards, it.unknown) == ((TokenAmount(TOKEN, 5),), (TokenAmount(SECOND, 7),), "")


@pytest.mark.parametrize(
    ("locked", "options", "contracts", "unknown"),
    [
        (5, {}, {"locked_token": (TOKEN,)}, True),
        (5, {"fees": "none"}, {"locked_token": (TOKEN,)}, False),
        (0, {}, {"locked_token": (TOKEN,)}, False),
        (5, {}, {**FEES, "fee_distributor": (OTHER, SECOND)}, True),
    ],
    ids=["nobody known pays them", "it earns none", "nothing is locked", "one of two does not answer"],
)
def test_fees_of_a_lock_that_cannot_be_read_are_said_to_be_unknown(
    locked: int, options: dict[str, str], contracts: dict[str, tuple[str, ...]], unknown: bool
) -> None:
    match = ProtocolMatch(ME, IT, contracts=contracts, options=options)
    it = decode(voting_escrow.position, match, says=LOCK | {(IT, "locked"): (locked, 99)})
    assert ("fees" in it.unknown) is unknown
