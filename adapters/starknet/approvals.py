"""What contracts say of approvals at one block: allowances, and operators of collectibles."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from adapters.starknet.accounts import ERC721, asked, halves, number_of
from adapters.starknet.state import Call
from chainfolio.approvals import (
    AllowanceState,
    Approved,
    ApprovedInside,
    ApprovedOperator,
    OperatorState,
    PermissionState,
)
from chainfolio.plans import Plan, Reverted

ERC1155: Final = (0xD9B67A26, 0x6114A8F75559E1B39FCBA08CE02961A1AA082D9256A158DD3E64964E4B1B52)
MAX_IDS: Final = 1_000  # of one collection: who has met more of them is not counted

Ids = Mapping[str, Mapping[str, Collection[int]]]  # of the collectibles that accounts met, by account and collection
Results = Mapping[Call, Any]


class Approvals:
    """The methods behind `Capability.APPROVALS`. Nothing like Permit2 is known here."""

    edition_standards = frozenset(["erc1155"])

    def permission_filters(self, contracts: Collection[str]) -> tuple[str, ...]:
        """None."""
        return ()

    def permission_of(self, row: Mapping[str, Any]) -> tuple[str, str] | None:
        """None."""
        return None

    def permissions(self, permissions: Sequence[ApprovedInside]) -> Plan[Call, Any, Sequence[PermissionState]]:
        """Nothing is known of any."""
        yield from ()
        return [PermissionState(None, None, None, None) for _ in permissions]

    def allowances(self, approvals: Sequence[Approved]) -> Plan[Call, Any, Sequence[AllowanceState]]:
        """What is left of approvals, in their order."""
        results = yield from _distinct([call for each in approvals for call in _allowance_calls(each)])
        return [AllowanceState(*(number_of(results[call]) for call in _allowance_calls(each))) for each in approvals]

    def operators(
        self, operators: Sequence[ApprovedOperator], ids: Ids
    ) -> Plan[Call, Any, Sequence[OperatorState | None]]:
        """What operators may move, in their order; None where the contract says that one may no more. `ids` are those
        of editions (ERC-1155) that owners met, by owner and collection."""
        calls = [call for each in operators for call in _operator_calls(each)]
        calls += [call for each in operators if each.token_id is None for call in _edition_calls(each, ids)]
        results = yield from _distinct(calls)
        return [_operator(each, results, ids) for each in operators]


def _distinct(calls: Sequence[Call]) -> Plan[Call, Any, Results]:
    distinct = list(dict.fromkeys(calls))
    results = yield from asked(distinct)
    return dict(zip(distinct, results, strict=True))


def _allowance_calls(each: Approved) -> tuple[Call, Call, Call]:
    owner, spender = int(each.owner, 16), int(each.spender, 16)
    return (
        Call(each.token, "allowance", (owner, spender)), Call(each.token, "balanceOf", (owner,)),
        Call(each.token, "totalSupply"),
    )  # fmt: skip


def _operator_calls(operator: ApprovedOperator) -> list[Call]:
    token, owner, number = operator.token, int(operator.owner, 16), operator.token_id
    if number is not None:
        return [Call(token, "getApproved", halves(number)), Call(token, "ownerOf", halves(number))]
    standards = [Call(token, "supportsInterface", (each,)) for each in (*ERC721, *ERC1155)]
    allowed = Call(token, "isApprovedForAll", (owner, int(operator.spender, 16)))
    return [allowed, Call(token, "balanceOf", (owner,)), *standards]


def _edition_calls(operator: ApprovedOperator, ids: Ids) -> list[Call]:
    numbers, owner = ids[operator.owner].get(operator.token, ()), int(operator.owner, 16)
    if len(numbers) > MAX_IDS:
        return []
    return [Call(operator.token, "balanceOf", (owner, *halves(number))) for number in sorted(numbers)]


def _operator(operator: ApprovedOperator, results: Results, ids: Ids) -> OperatorState | None:
    if operator.token_id is not None:
        return _single(operator, *(results[call] for call in _operator_calls(operator)))
    allowed, balance, *standards = (results[call] for call in _operator_calls(operator))
    if allowed == (0,):
        return None
    is_721, is_1155 = (1,) in standards[:2], (1,) in standards[2:]
    if is_1155:
        return OperatorState("erc1155", _held_editions(operator, results, ids))
    return OperatorState("erc721" if is_721 else None, number_of(balance))


def _single(operator: ApprovedOperator, approved: Any, owner: Any) -> OperatorState | None:
    """Of one collectible. What could not be read is not known to be gone; a token that was burnt refuses."""
    expected = ((approved, operator.spender), (owner, operator.owner))
    if any(
        isinstance(result, Reverted) or (isinstance(result, tuple) and result != (int(one, 16),))
        for result, one in expected
    ):
        return None
    return OperatorState("erc721", 1 if all(isinstance(result, tuple) for result, _ in expected) else None)


def _held_editions(operator: ApprovedOperator, results: Results, ids: Ids) -> int | None:
    """How many ids are held; None where one of them is not known, or there are too many to ask."""
    if len(ids[operator.owner].get(operator.token, ())) > MAX_IDS:
        return None
    raws = [number_of(results[call]) for call in _edition_calls(operator, ids)]
    return None if None in raws else sum(raw != 0 for raw in raws)
