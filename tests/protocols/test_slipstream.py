"""Slipstream's positions, replayed from recorded answers of its pool and position manager."""

from __future__ import annotations

from typing import Any

import pytest

from chainfolio.adapters.evm.positions.interactions import ContractInteractions
from chainfolio.adapters.evm.positions.outcomes import Outcome
from chainfolio.indexer.families import families
from chainfolio.plans import Reverted
from tests.protocols.published import Overrides, RecordedState, amounts, needs_contracts, positions

pytestmark = needs_contracts
MANAGER = "position manager"
OPENED, TRADED, CLOSED = 0, 1, 2
MAX_UINT128 = 2**128 - 1
GAUGE = "0x" + "6a" * 20
COLLECT = "collect((uint256,address,uint128,uint128))(uint256,uint256)"
DECREASE = "decreaseLiquidity((uint256,uint128,uint256,uint256,uint256))(uint256,uint256)"
RECORD = "positions(uint256)(uint96,address,address,address,int24,int24,int24,uint128,uint256,uint256,uint128,uint128)"


def liquidity(index: int, account: str, *ids: int, overrides: Overrides | None = None) -> list[Outcome]:
    state = RecordedState("slipstream", index)
    return state.outcomes(
        "slipstream",
        {"position_manager": [MANAGER]},
        account,
        ContractInteractions(ids={state.roles[MANAGER]: frozenset(ids)}),
        overrides,
    )


@pytest.mark.parametrize(
    ("index", "account", "number"),
    [
        (OPENED, "alice", 1),
        (OPENED, "alice", 2),
        (OPENED, "bob", 3),
        (TRADED, "alice", 1),
        (TRADED, "alice", 2),
        (TRADED, "bob", 3),
        (CLOSED, "bob", 3),
    ],
)
def test_a_position_is_what_closing_it_paid(index: int, account: str, number: int) -> None:
    state = RecordedState("slipstream", index)
    roles = state.roles
    record = state.value(MANAGER, RECORD, number)
    deadline = 2_795_318_704
    amounts_out = state.value(MANAGER, DECREASE, (number, record[7], 0, 0, deadline))
    fees = state.value(MANAGER, COLLECT, (number, roles[account], MAX_UINT128, MAX_UINT128))
    (position,) = positions(liquidity(index, account, number))
    tokens = roles["token0"], roles["token1"]
    assert [amounts([position], "supplied").get(token, 0) for token in tokens] == list(amounts_out)
    assert [amounts([position], "rewards").get(token, 0) for token in tokens] == list(fees)


def test_a_closed_position_and_one_of_another_account_are_nothing() -> None:
    assert positions(liquidity(CLOSED, "alice", 1)) == []
    assert positions(liquidity(OPENED, "bob", 1)) == []


def staked(**overrides: Any) -> list[Outcome]:
    state = RecordedState("slipstream", TRADED)
    answers = {"stakedContains": True, "rewardToken": state.roles["WETH"], "earned": 77, **overrides}
    return liquidity(
        TRADED,
        "alice",
        1,
        overrides={
            (MANAGER, "ownerOf"): GAUGE,
            ("pool", "gauge"): GAUGE,
            **{(GAUGE, name): value for name, value in answers.items()},
        },
    )


def test_a_staked_position_earns_the_gauge_s_reward_and_no_fees() -> None:
    (farm,), (unstaked,) = positions(staked()), positions(liquidity(TRADED, "alice", 1))
    assert farm.supplied == unstaked.supplied
    assert farm.position_type == "FARMING"
    assert amounts([farm], "rewards") == {RecordedState("slipstream", TRADED).roles["WETH"]: 77}


def test_a_position_in_a_contract_that_is_not_the_pool_s_gauge_is_nobody_s() -> None:
    assert positions(liquidity(TRADED, "alice", 1, overrides={(MANAGER, "ownerOf"): GAUGE})) == []
    assert positions(staked(stakedContains=False)) == []


def test_a_refused_reward_is_unknown_and_a_refusing_pool_an_issue() -> None:
    assert "gauge" in positions(staked(earned=Reverted()))[0].unknown
    (outcome,) = liquidity(TRADED, "alice", 1, overrides={("pool", "slot0"): Reverted()})
    assert not outcome.positions
    assert len(outcome.issues) == 1


def test_changes_of_positions_are_read_by_one_family_only() -> None:
    assert families()["slipstream"].changes is None
    assert families()["uniswap_v3"].changes is not None
