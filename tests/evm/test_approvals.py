"""Approvals read from contracts that answer from a dictionary: revoked, remaining and unknown ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from chainfolio.adapters.evm.approvals import ALLOWANCE, FUNCTIONS, PERMIT2_ALLOWANCE, Approvals
from chainfolio.adapters.evm.reads import BALANCE_OF, BALANCE_OF_ID, OWNER, Call, Read
from chainfolio.approvals import AllowanceState, OperatorState, PermissionState
from chainfolio.contract_approvals import MAX_IDS
from chainfolio.engine.results import Approval, EventPosition, Operator, Permit2Allowance
from chainfolio.plans import Reverted, Unknown, run_offline

SUPPLY, APPROVED, FOR_ALL, SUPPORTS = (
    FUNCTIONS[each] for each in ("totalSupply", "getApproved", "isApprovedForAll", "supportsInterface")
)
TOKEN, ALICE, SPENDER, INSIDE = ("0x" + pair * 20 for pair in ("70", "aa", "5e", "22"))
PLACE = EventPosition(1, 0, "0x01")
APPROVAL = Approval(PLACE, 0, TOKEN, ALICE, SPENDER, 5)
ALL = Operator(position=PLACE, time_us=0, token=TOKEN, owner=ALICE, spender=SPENDER)
ONE = Operator(position=PLACE, time_us=0, token=TOKEN, owner=ALICE, spender=SPENDER, token_id=9)
PERMITTED = Permit2Allowance(PLACE, 0, INSIDE, TOKEN, ALICE, SPENDER)
UNKNOWN = Unknown("out of gas")


def says(by_function: Mapping[str, Any], by_call: Mapping[tuple[str, tuple[Any, ...]], Any] | None = None) -> Any:
    """A chain that says this of every contract; what is not among it is Unknown."""

    def answer(read: Read) -> Any:
        assert isinstance(read, Call)
        override = (by_call or {}).get((read.signature, read.args))
        return by_function.get(read.signature, UNKNOWN) if override is None else override

    return answer


def operator(approval: Operator, answer: Any, ids: Mapping[str, set[int]] | None = None) -> OperatorState | None:
    (state,) = run_offline(Approvals().operators([approval], {ALICE: ids or {}}), answer)
    return state


@pytest.mark.parametrize(
    ("allowed", "state"), [(False, None), (True, OperatorState("erc721", 3)), (UNKNOWN, OperatorState("erc721", 3))]
)
def test_who_may_no_longer_move_a_collection_is_left_out_and_who_is_not_known_to_is_not(
    allowed: Any, state: OperatorState | None
) -> None:
    answer = says({FOR_ALL: allowed, BALANCE_OF: 3}, {(SUPPORTS, Approvals.erc721): True})
    assert operator(ALL, answer) == state


def test_of_editions_each_id_that_was_met_is_counted_where_some_is_held() -> None:
    answer = says(
        {FOR_ALL: True},
        {(SUPPORTS, Approvals.erc1155): True} | {(BALANCE_OF_ID, (ALICE, n)): raw for n, raw in ((1, 5), (2, 0))},
    )
    assert operator(ALL, answer, {TOKEN: {1, 2}}) == OperatorState("erc1155", 1)
    assert operator(ALL, answer, {TOKEN: {1, 2, 3}}) == OperatorState("erc1155", None)
    assert operator(ALL, answer, {TOKEN: set(range(MAX_IDS + 1))}) == OperatorState("erc1155", None)


@pytest.mark.parametrize(
    ("approved", "owner", "state"),
    [
        (SPENDER, ALICE, OperatorState("erc721", 1)),
        (INSIDE, ALICE, None),
        (SPENDER, INSIDE, None),
        (Reverted(), Reverted(), None),
        (UNKNOWN, ALICE, OperatorState("erc721", None)),
    ],
)
def test_one_collectible_may_be_moved_by_whom_its_contract_names_while_its_owner_has_it(
    approved: Any, owner: Any, state: OperatorState | None
) -> None:
    assert operator(ONE, says({APPROVED: approved, OWNER: owner})) == state


def test_what_a_contract_does_not_say_of_an_allowance_is_none_and_not_zero() -> None:
    answer = says({ALLOWANCE: 4, BALANCE_OF: Reverted(), SUPPLY: True})
    assert list(run_offline(Approvals().allowances([APPROVAL]), answer)) == [AllowanceState(4, None, None)]


@pytest.mark.parametrize(
    ("allowance", "state"), [((4, 90, 0), PermissionState(4, 90, 7, 8)), (UNKNOWN, PermissionState(None, None, 7, 8))]
)
def test_a_permission_is_what_is_left_of_it_and_what_limits_it(allowance: Any, state: PermissionState) -> None:
    answer = says({PERMIT2_ALLOWANCE: allowance, BALANCE_OF: 8}, {(ALLOWANCE, (ALICE, INSIDE)): 7})
    assert list(run_offline(Approvals().permissions([PERMITTED]), answer)) == [state]
