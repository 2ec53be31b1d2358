"""Lido's withdrawal requests, replayed from its own queue's answers."""

from __future__ import annotations

from typing import Any

import pytest

from chainfolio.adapters.evm.positions.interactions import ContractInteractions
from chainfolio.adapters.evm.positions.outcomes import Outcome
from chainfolio.plans import Reverted
from tests.protocols.published import ETHER, Moment, amounts, needs_contracts, positions

pytestmark = needs_contracts
QUEUE = "withdrawal queue"
ASKED, FIRST_TWO, ALL_FINALIZED, FIRST_CLAIMED = 2, 3, 4, 5
STATUS = "getWithdrawalStatus(uint256[])((uint256,uint256,address,uint256,bool,bool)[])"
HINTS = "findCheckpointHints(uint256[],uint256,uint256)(uint256[])"
CLAIMABLE = "getClaimableEther(uint256[],uint256[])(uint256[])"


class Requests:
    """The recorded answers about several requests, as answers about one of them."""

    def __init__(self, moment: Moment) -> None:
        self.moment = moment
        owned = moment.value(QUEUE, "getWithdrawalRequests(address)(uint256[])", moment.roles["alice"])
        self.ids = tuple(sorted(owned))

    def status(self, ids: tuple[int, ...]) -> Any:
        if ids[0] not in self.ids:  # a claimed request
            return ((1, 1, self.moment.roles["alice"], 0, True, True),)
        return (self.moment.value(QUEUE, STATUS, self.ids)[self.ids.index(ids[0])],)

    def hints(self, ids: tuple[int, ...], first: int, last: int) -> Any:
        return (self.moment.value(QUEUE, HINTS, self.ids, first, last)[self.ids.index(ids[0])],)

    def claimable(self, ids: tuple[int, ...], hints: tuple[int, ...]) -> Any:
        last = self.moment.value(QUEUE, "getLastCheckpointIndex()(uint256)")
        hint_list = self.moment.value(QUEUE, HINTS, self.ids, 1, last)
        assert hint_list[self.ids.index(ids[0])] == hints[0]
        return (self.moment.value(QUEUE, CLAIMABLE, self.ids, hint_list)[self.ids.index(ids[0])],)


def requests(index: int, account: str = "alice", **overrides: Any) -> list[Outcome]:
    moment = Moment("lido", index)
    answers = Requests(moment)
    functions = {
        "getWithdrawalStatus": answers.status,
        "findCheckpointHints": answers.hints,
        "getClaimableEther": answers.claimable,
    }
    return moment.outcomes(
        "lido_withdrawals",
        {"withdrawals": [QUEUE]},
        account,
        ContractInteractions(ids={moment.roles[QUEUE]: frozenset({1, 2, 3})}),
        {(QUEUE, name): value for name, value in {**functions, **overrides}.items()},
    )


@pytest.mark.parametrize(
    ("index", "paid"),
    [
        (ASKED, [10 * 10**18, 20 * 10**18, 5_250_000_000_000_000_000]),
        (FIRST_TWO, [9_999_999_999_999_999_999, 19_999_999_999_999_999_999, 5_250_000_000_000_000_000]),
        (ALL_FINALIZED, [9_999_999_999_999_999_999, 19_999_999_999_999_999_999, 5_145_000_000_000_000_000]),
        (FIRST_CLAIMED, [19_999_999_999_999_999_999, 5_145_000_000_000_000_000]),
    ],
    ids=["asked", "first-two-finalized", "all-finalized", "first-claimed"],
)
def test_a_request_is_worth_what_its_claim_pays(index: int, paid: list[int]) -> None:
    found = positions(requests(index))
    assert [amounts([each], "supplied") for each in found] == [{ETHER: raw} for raw in paid]


def test_a_waiting_request_says_that_it_may_pay_less() -> None:
    assert ["at most" in each.remark for each in positions(requests(FIRST_TWO))] == [False, False, True]


def test_a_request_that_was_given_away_is_no_position() -> None:
    assert positions(requests(ALL_FINALIZED, "bob")) == []


def test_a_refusing_queue_is_an_issue_and_not_zero() -> None:
    found = requests(ALL_FINALIZED, getClaimableEther=Reverted())
    assert positions(found) == []
    assert [len(each.issues) for each in found] == [1, 1, 1]
