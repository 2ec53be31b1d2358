"""Lido's withdrawal requests, replayed from its own queue's answers."""

from __future__ import annotations

from typing import Any

import pytest

from chainfolio.adapters.evm.positions.interactions import ContractInteractions
from chainfolio.adapters.evm.positions.outcomes import Outcome
from chainfolio.plans import Reverted
from tests.protocols.published import ETHER, RecordedState, amounts, needs_contracts, positions

pytestmark = needs_contracts
QUEUE = "withdrawal queue"
ASKED, FIRST_TWO, ALL_FINALIZED, FIRST_CLAIMED = 2, 3, 4, 5
STATUS = "getWithdrawalStatus(uint256[])((uint256,uint256,address,uint256,bool,bool)[])"
HINTS = "findCheckpointHints(uint256[],uint256,uint256)(uint256[])"
CLAIMABLE = "getClaimableEther(uint256[],uint256[])(uint256[])"


class Requests:
    """The recorded answers about several requests, as answers about one of them."""

    def __init__(self, state: RecordedState) -> None:
        self.state = state
        owned = state.value(QUEUE, "getWithdrawalRequests(address)(uint256[])", state.roles["alice"])
        self.ids = tuple(sorted(owned))

    def status(self, ids: tuple[int, ...]) -> Any:
        if ids[0] not in self.ids:  # a claimed request
            return ((1, 1, self.state.roles["alice"], 0, True, True),)
        return (self.state.value(QUEUE, STATUS, self.ids)[self.ids.index(ids[0])],)

    def hints(self, ids: tuple[int, ...], first: int, last: int) -> Any:
        return (self.state.value(QUEUE, HINTS, self.ids, first, last)[self.ids.index(ids[0])],)

    def claimable(self, ids: tuple[int, ...], hints: tuple[int, ...]) -> Any:
        last = self.state.value(QUEUE, "getLastCheckpointIndex()(uint256)")
        hint_list = self.state.value(QUEUE, HINTS, self.ids, 1, last)
        assert hint_list[self.ids.index(ids[0])] == hints[0]
        return (self.state.value(QUEUE, CLAIMABLE, self.ids, hint_list)[self.ids.index(ids[0])],)


def requests(index: int, account: str = "alice", **overrides: Any) -> list[Outcome]:
    state = RecordedState("lido", index)
    answers = Requests(state)
    functions = {
        "getWithdrawalStatus": answers.status,
        "findCheckpointHints": answers.hints,
        "getClaimableEther": answers.claimable,
    }
    return state.outcomes(
        "lido_withdrawals",
        {"withdrawals": [QUEUE]},
        account,
        ContractInteractions(ids={state.roles[QUEUE]: frozenset({1, 2, 3})}),
        {(QUEUE, name): value for name, value in {**functions, **overrides}.items()},
    )


@pytest.mark.parametrize(
    ("index", "payouts"),
    [
        (ASKED, [10 * 10**18, 20 * 10**18, 5_250_000_000_000_000_000]),
        (FIRST_TWO, [9_999_999_999_999_999_999, 19_999_999_999_999_999_999, 5_250_000_000_000_000_000]),
        (ALL_FINALIZED, [9_999_999_999_999_999_999, 19_999_999_999_999_999_999, 5_145_000_000_000_000_000]),
        (FIRST_CLAIMED, [19_999_999_999_999_999_999, 5_145_000_000_000_000_000]),
    ],
    ids=["asked", "first-two-finalized", "all-finalized", "first-claimed"],
)
def test_a_request_is_worth_what_its_claim_pays(index: int, payouts: list[int]) -> None:
    withdrawals = positions(requests(index))
    assert [amounts([each], "supplied") for each in withdrawals] == [{ETHER: raw} for raw in payouts]


def test_a_waiting_request_says_that_it_may_pay_less() -> None:
    assert ["at most" in each.remark for each in positions(requests(FIRST_TWO))] == [False, False, True]


def test_a_request_that_was_given_away_is_no_position() -> None:
    assert positions(requests(ALL_FINALIZED, "bob")) == []


def test_a_refusing_queue_is_an_issue_and_not_zero() -> None:
    outcomes = requests(ALL_FINALIZED, getClaimableEther=Reverted())
    assert positions(outcomes) == []
    assert [len(each.issues) for each in outcomes] == [1, 1, 1]
