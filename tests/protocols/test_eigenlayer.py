"""EigenLayer, replayed from recorded answers of its contracts."""

from __future__ import annotations

from typing import Any

import pytest

from chainfolio.adapters.evm.positions.interactions import ContractInteractions, NamedEvent
from chainfolio.adapters.evm.positions.matching import Protocols
from chainfolio.adapters.evm.positions.outcomes import Outcome
from chainfolio.indexer.families import families
from chainfolio.localchain.evm import topic_of
from chainfolio.plans import Reverted
from chainfolio.protocols import InstalledProtocol
from tests.protocols.published import ETHER, Overrides, RecordedState, amounts, exchanged, needs_contracts, positions

pytestmark = needs_contracts
LST, LST2 = "strategy of LST", "strategy of LST2"
CONTRACTS = {"strategy": [LST, LST2], "delegation": ["delegation manager"]}
RESTAKED, REBASED, DELEGATED, QUEUED, DELAY_OVER, COMPLETED = range(6)
ALL_SHARES = "getWithdrawableShares(address,address[])(uint256[],uint256[])"
VIRTUAL = 1000  # a strategy begins with this many virtual shares and units


def shares_of(state: RecordedState) -> Any:
    """The recorded answer about both strategies, as one about some of them."""
    both = tuple(state.roles[strategy] for strategy in (LST, LST2))

    def answer(account: str, strategies: tuple[str, ...]) -> Any:
        recorded = state.value("delegation manager", ALL_SHARES, account, both)
        return tuple(tuple(part[both.index(strategy)] for strategy in strategies) for part in recorded)

    return answer


def underlying(state: RecordedState, strategy: str) -> Any:
    """The strategy's own formula, with the balance that its recorded answers imply."""
    total = state.value(strategy, "totalShares()(uint256)")
    balance = {RESTAKED: 100, QUEUED: 110, COMPLETED: 66}
    rate = state.value(strategy, "sharesToUnderlyingView(uint256)(uint256)", 10**18)
    underlying_total = total if rate == 10**18 else balance[QUEUED] * 10**18 * total // (100 * 10**18)
    return lambda raw: raw * (underlying_total + VIRTUAL) // (total + VIRTUAL)


def restaked(index: int, *strategies: str, overrides: Overrides | None = None, **contracts: Any) -> list[Outcome]:
    state = RecordedState("eigenlayer", index)
    answers = {
        ("delegation manager", "getWithdrawableShares"): shares_of(state),
        **{(each, "sharesToUnderlyingView"): underlying(state, each) for each in (LST, LST2)},
        **(overrides or {}),
    }
    parties = exchanged(*(state.roles[strategy] for strategy in strategies))
    return state.outcomes("eigenlayer", {**CONTRACTS, **contracts}, "alice", parties, answers)


@pytest.mark.parametrize("index", [RESTAKED, REBASED, DELEGATED], ids=["restaked", "rebased", "delegated"])
def test_a_strategy_is_worth_what_it_says_of_the_account(index: int) -> None:
    state = RecordedState("eigenlayer", index)
    for strategy, token in ((LST, "LST"), (LST2, "LST2")):
        expected = state.value(strategy, "userUnderlyingView(address)(uint256)", state.roles["alice"])
        assert amounts(positions(restaked(index, strategy)), "supplied") == {state.roles[token]: expected}


@pytest.mark.parametrize("index", [QUEUED, DELAY_OVER], ids=["queued", "delay-over"])
def test_a_queued_withdrawal_is_shown_apart_until_it_is_completed(index: int) -> None:
    staked, queued = positions(restaked(index, LST))
    token = RecordedState("eigenlayer", index).roles["LST"]
    assert (staked.position_type, amounts([staked], "supplied")) == ("STAKED", {token: 65_999_999_999_999_999_940})
    assert (queued.position_type, amounts([queued], "supplied")) == ("LOCKED", {token: 43_999_999_999_999_999_960})
    assert queued.name == "Withdrawal queued at block 27"


def test_a_completed_withdrawal_is_gone() -> None:
    assert [each.position_type for each in positions(restaked(COMPLETED, LST))] == ["STAKED"]


def test_each_strategy_is_shown_once_for_an_account_that_used_several_and_delegated() -> None:
    state = RecordedState("eigenlayer", DELEGATED)
    row = InstalledProtocol(
        "published", families()["eigenlayer"], {"delegation": (state.roles["delegation manager"],)}, {}
    )
    (delegated,) = Protocols([row]).events
    event = NamedEvent(1, (topic_of(state.roles["alice"]), topic_of(state.roles["bob"])), b"")
    answers = {
        ("delegation manager", "getWithdrawableShares"): shares_of(state),
        **{(each, "sharesToUnderlyingView"): underlying(state, each) for each in (LST, LST2)},
    }
    exchanges = exchanged(state.roles[LST])
    interactions = ContractInteractions(exchanged=exchanges.exchanged, events={delegated: (event,)})
    outcomes = state.outcomes("eigenlayer", {**CONTRACTS, "strategy": [LST]}, "alice", interactions, answers)
    assert sorted(each.pool for each in positions(outcomes)) == sorted(state.roles[each] for each in (LST, LST2))


def test_a_refusing_strategy_is_unknown_and_hides_no_other() -> None:
    overrides = {(LST, "sharesToUnderlyingView"): Reverted()}
    first, second = positions(restaked(RESTAKED, LST, LST2, overrides=overrides))
    by_unknown = {each.pool: each.unknown for each in (first, second)}
    roles = RecordedState("eigenlayer", RESTAKED).roles
    assert "shares of the strategy" in by_unknown[roles[LST]]
    assert not by_unknown[roles[LST2]]


def test_restaked_ether_counts_in_wei_and_says_where_it_lies() -> None:
    state, pod = RecordedState("eigenlayer", RESTAKED), "0x" + "9d" * 20
    row = InstalledProtocol("published", families()["eigenlayer"], {"pod_manager": (pod,)}, {})
    (deployed,) = Protocols([row]).events
    event = NamedEvent(2, (topic_of("0x" + "01" * 20), topic_of(state.roles["alice"])), b"")
    ether = "0xbeac0eeeeeeeeeeeeeeeeeeeeeeeeeeeeeebeac0"
    answers = {
        ("delegation manager", "getDepositedShares"): ((ether,), (32 * 10**18,)),
        ("delegation manager", "getWithdrawableShares"): ((31 * 10**18,), (32 * 10**18,)),
    }
    interactions = ContractInteractions(events={deployed: (event,)})
    contracts = {**CONTRACTS, "pod_manager": [pod]}
    (position,) = positions(state.outcomes("eigenlayer", contracts, "alice", interactions, answers))
    assert amounts([position], "supplied") == {ETHER: 31 * 10**18}
    assert "validators" in position.remark
