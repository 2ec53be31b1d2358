"""What contracts say of approvals at one block: allowances, operators, and permissions inside Permit2."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from adapters.evm.reads import BALANCE_OF_ID, OWNER, Call, Read, balance_of
from chainfolio.approvals import (
    AllowanceState,
    Approved,
    ApprovedInside,
    ApprovedOperator,
    OperatorState,
    PermissionState,
)
from chainfolio.plans import Plan, Reverted

ALLOWANCE: Final = "allowance(address,address)(uint256)"
SUPPLY: Final = "totalSupply()(uint256)"
FOR_ALL: Final = "isApprovedForAll(address,address)(bool)"
SUPPORTS: Final = "supportsInterface(bytes4)(bool)"
APPROVED: Final = "getApproved(uint256)(address)"
PERMIT2_ALLOWANCE: Final = "allowance(address,address,address)(uint160,uint48,uint48)"
ERC721, ERC1155 = bytes.fromhex("80ac58cd"), bytes.fromhex("d9b67a26")
MAX_IDS: Final = 1_000  # of one collection: who has met more of them is not counted

Ids = Mapping[str, Mapping[str, Collection[int]]]  # of the collectibles that accounts met, by account and collection
Results = Mapping[Call, Any]


class Approvals:
    """The methods behind `Capability.APPROVALS`."""

    edition_standards = frozenset(["erc1155"])

    def permission_filters(self, contracts: Collection[str]) -> tuple[str, ...]:
        """The filters of the dataset `events` for these Permit2 contracts."""
        from adapters.evm.permit2 import filters

        return filters(contracts)

    def permission_of(self, row: Mapping[str, Any]) -> tuple[str, str] | None:
        """The token and the spender of a permission; None where a row of `account_events` names no owner of one."""
        from adapters.evm.permit2 import token_and_spender

        return token_and_spender(row)

    def allowances(self, approvals: Sequence[Approved]) -> Plan[Read, Any, Sequence[AllowanceState]]:
        """What is left of approvals, in their order and in one round."""
        results = yield from _distinct(call for each in approvals for call in _allowance_calls(each))
        return [AllowanceState(*(_number(results[call]) for call in _allowance_calls(each))) for each in approvals]

    def operators(
        self, operators: Sequence[ApprovedOperator], ids: Ids
    ) -> Plan[Read, Any, Sequence[OperatorState | None]]:
        """What operators may move, in their order and in one round; None where the contract says that one may no more.
        `ids` are those of editions (ERC-1155) that owners met, by owner and collection."""
        calls = [call for each in operators for call in _operator_calls(each)]
        calls += [call for each in operators if each.token_id is None for call in _edition_calls(each, ids)]
        results = yield from _distinct(calls)
        return [_operator(each, results, ids) for each in operators]

    def permissions(self, permissions: Sequence[ApprovedInside]) -> Plan[Read, Any, Sequence[PermissionState]]:
        """What is left of permissions, in their order and in one round."""
        results = yield from _distinct(call for each in permissions for call in _permission_calls(each))
        return [_permission(*(results[call] for call in _permission_calls(each))) for each in permissions]


def _distinct(calls: Iterable[Call]) -> Plan[Read, Any, Results]:
    distinct = list(dict.fromkeys(calls))
    results = yield list(distinct)
    return dict(zip(distinct, results, strict=True))


def _number(result: object) -> int | None:
    return result if isinstance(result, int) and not isinstance(result, bool) else None


def _allowance_calls(each: Approved) -> tuple[Call, Call, Call]:
    allowance = Call(each.token, ALLOWANCE, (each.owner, each.spender))
    return allowance, balance_of(each.token, each.owner), Call(each.token, SUPPLY)


def _permission_calls(each: ApprovedInside) -> tuple[Call, Call, Call]:
    left = Call(each.contract, PERMIT2_ALLOWANCE, (each.owner, each.token, each.spender))
    return left, Call(each.token, ALLOWANCE, (each.owner, each.contract)), balance_of(each.token, each.owner)


def _permission(left: Any, allowance: Any, balance: Any) -> PermissionState:
    raw, expires_s = left[:2] if isinstance(left, tuple) else (None, None)
    return PermissionState(raw, expires_s, _number(allowance), _number(balance))


def _operator_calls(operator: ApprovedOperator) -> list[Call]:
    token, owner, number = operator.token, operator.owner, operator.token_id
    if number is not None:
        return [Call(token, APPROVED, (number,)), Call(token, OWNER, (number,))]
    standards = [Call(token, SUPPORTS, (standard,)) for standard in (ERC721, ERC1155)]
    return [Call(token, FOR_ALL, (owner, operator.spender)), *standards, balance_of(token, owner)]


def _edition_calls(operator: ApprovedOperator, ids: Ids) -> list[Call]:
    numbers = ids[operator.owner].get(operator.token, ())
    if len(numbers) > MAX_IDS:
        return []
    return [Call(operator.token, BALANCE_OF_ID, (operator.owner, number)) for number in sorted(numbers)]


def _operator(operator: ApprovedOperator, results: Results, ids: Ids) -> OperatorState | None:
    if operator.token_id is not None:
        return _single(operator, *(results[call] for call in _operator_calls(operator)))
    allowed, is_721, is_1155, balance = (results[call] for call in _operator_calls(operator))
    if allowed is False:
        return None
    if is_1155 is True:
        return OperatorState("erc1155", _held_editions(operator, results, ids))
    return OperatorState("erc721" if is_721 is True else None, _number(balance))


def _single(operator: ApprovedOperator, approved: Any, owner: Any) -> OperatorState | None:
    """Of one collectible. What could not be read is not known to be gone; a token that was burnt refuses."""
    expected = ((approved, operator.spender), (owner, operator.owner))
    if any(isinstance(result, Reverted) or (isinstance(result, str) and result != one) for result, one in expected):
        return None
    return OperatorState("erc721", 1 if all(isinstance(result, str) for result, _ in expected) else None)


def _held_editions(operator: ApprovedOperator, results: Results, ids: Ids) -> int | None:
    """How many ids are held; None where one of them is not known, or there are too many to ask."""
    if len(ids[operator.owner].get(operator.token, ())) > MAX_IDS:
        return None
    raws = [_number(results[call]) for call in _edition_calls(operator, ids)]
    return None if None in raws else sum(raw != 0 for raw in raws)
