"""What contracts say of approvals now: allowances, and operators of collections."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from adapters.tron.addresses import raw
from adapters.tron.reads import Call, uint
from chainfolio.approvals import (
    AllowanceState,
    Approved,
    ApprovedInside,
    ApprovedOperator,
    OperatorState,
    PermissionState,
)
from chainfolio.plans import Plan, Reverted

# The numbers of interfaces, as words that begin with them.
ERC721, ERC1155 = (int(each, 16) << 224 for each in ("80ac58cd", "d9b67a26"))
MAX_IDS: Final = 1_000  # of one collection: who has met more of them is not counted
Ids = Mapping[str, Mapping[str, Collection[int]]]  # of the collectibles that accounts met, by account and collection
Results = Mapping[Call, Any]


class Approvals:
    """The methods behind `Capability.APPROVALS`. No contract keeps permissions inside, as Permit2 does."""

    edition_standards = frozenset(["trc1155"])

    def permission_filters(self, contracts: Collection[str]) -> tuple[str, ...]:
        """None: events of such contracts are not indexed."""
        return ()

    def permission_of(self, row: Mapping[str, Any]) -> tuple[str, str] | None:
        """None: no row is of such a contract."""
        return None

    def permissions(self, permissions: Sequence[ApprovedInside]) -> Plan[Any, Any, Sequence[PermissionState]]:
        """Nothing is known of what nobody indexes."""
        yield []
        return [PermissionState(None, None, None, None) for _ in permissions]

    def allowances(self, approvals: Sequence[Approved]) -> Plan[Any, Any, Sequence[AllowanceState]]:
        """What is left of approvals, in their order and in one round."""
        results = yield from _distinct(call for each in approvals for call in _allowance(each))
        return [AllowanceState(*(_number(results[call]) for call in _allowance(each))) for each in approvals]

    def operators(
        self, operators: Sequence[ApprovedOperator], ids: Ids
    ) -> Plan[Any, Any, Sequence[OperatorState | None]]:
        """What operators may move, in their order and in one round; None where one may no more."""
        calls = [call for each in operators for call in _operator_calls(each)]
        calls += [call for each in operators if each.token_id is None for call in _editions(each, ids)]
        results = yield from _distinct(calls)
        return [_operator(each, results, ids) for each in operators]


def _distinct(calls: Iterable[Call]) -> Plan[Any, Any, Results]:
    distinct = list(dict.fromkeys(calls))
    results = yield list(distinct)
    return dict(zip(distinct, results, strict=True))


def _number(answer: Any) -> int | None:
    return uint(answer) if isinstance(answer, bytes) else None


def _allowance(each: Approved) -> tuple[Call, Call, Call]:
    left = Call(each.token, "allowance(address,address)", (each.owner, each.spender))
    return left, Call(each.token, "balanceOf(address)", (each.owner,)), Call(each.token, "totalSupply()")


def _operator_calls(each: ApprovedOperator) -> list[Call]:
    if each.token_id is not None:
        return [Call(each.token, name, (each.token_id,)) for name in ("getApproved(uint256)", "ownerOf(uint256)")]
    allowed = Call(each.token, "isApprovedForAll(address,address)", (each.owner, each.spender))
    kinds = [Call(each.token, "supportsInterface(bytes4)", (kind,)) for kind in (ERC721, ERC1155)]
    return [allowed, *kinds, Call(each.token, "balanceOf(address)", (each.owner,))]


def _editions(each: ApprovedOperator, ids: Ids) -> list[Call]:
    numbers = ids[each.owner].get(each.token, ())
    if len(numbers) > MAX_IDS:
        return []
    return [Call(each.token, "balanceOf(address,uint256)", (each.owner, number)) for number in sorted(numbers)]


def _operator(each: ApprovedOperator, results: Results, ids: Ids) -> OperatorState | None:
    said = [results[call] for call in _operator_calls(each)]
    if each.token_id is not None:
        return _single(each, *said)
    allowed, is_721, is_1155, balance = map(_number, said)
    if allowed == 0:
        return None
    if is_1155 == 1:
        return OperatorState("erc1155", _held(each, results, ids))
    return OperatorState("erc721" if is_721 == 1 else None, balance)


def _single(each: ApprovedOperator, approved: Any, owner: Any) -> OperatorState | None:
    """Of one collectible. What could not be read is not known to be gone; a token that was burnt refuses."""
    told = [(approved, raw(each.spender)), (owner, raw(each.owner))]
    if any(isinstance(said, Reverted) or (isinstance(said, bytes) and said[12:32] != one) for said, one in told):
        return None
    return OperatorState("erc721", 1 if all(isinstance(said, bytes) for said, _ in told) else None)


def _held(each: ApprovedOperator, results: Results, ids: Ids) -> int | None:
    """How many editions are held; None where one of them is not known, or there are too many to ask."""
    if len(ids[each.owner].get(each.token, ())) > MAX_IDS:
        return None
    raws = [_number(results[call]) for call in _editions(each, ids)]
    return None if None in raws else sum(number != 0 for number in raws)
