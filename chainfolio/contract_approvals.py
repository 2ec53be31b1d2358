"""Reads of approvals by the functions of Ethereum's token standards: behind `Capability.APPROVALS`.

A kind of chain defines how a call is made and its result decoded.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final, Literal

from chainfolio.approvals import (
    AllowanceState,
    IndirectApproval,
    OperatorApproval,
    OperatorState,
    PermissionState,
    TokenApproval,
)
from chainfolio.interactions import EventRow
from chainfolio.plans import Plan, Reverted, read_all
from chainfolio.reads import Read

MAX_IDS: Final = 1_000  # of one collection: who has met more of them is not counted
Ids = Mapping[str, Mapping[str, Collection[int]]]  # of the collectibles that accounts met, by account and collection
Results = Mapping[Read[object], object]
Argument = str | int | bytes
Function = Literal[
    "allowance",
    "balanceOf",
    "balanceOfEdition",
    "totalSupply",
    "getApproved",
    "ownerOf",
    "isApprovedForAll",
    "supportsInterface",
]


class ContractApprovals(ABC):
    """The methods behind `Capability.APPROVALS`, for chains without contracts such as Permit2.

    `erc721` and `erc1155` are the interface ids of these standards.
    """

    edition_standards: ClassVar[Collection[str]] = frozenset(["erc1155"])
    erc721: ClassVar[Sequence[Argument]]
    erc1155: ClassVar[Sequence[Argument]]

    @abstractmethod
    def question(self, contract: str, function: Function, *args: Any) -> Read[object]:
        """Return the read of a function; arguments are accounts, collectible numbers, or an interface id."""

    @abstractmethod
    def number(self, answer: object) -> int | None:
        """Return the result as an amount; None if it is none."""

    def yes(self, answer: object) -> bool | None:
        """Return the result as a bool: 0 is False, 1 is True, anything else None."""
        return {0: False, 1: True, None: None}.get(self.number(answer))

    @abstractmethod
    def is_account(self, answer: object, account: str) -> bool | None:
        """Return True if the result is this account; None if it is no account."""

    def put_questions(self, questions: Sequence[Read[object]]) -> Plan[Sequence[object]]:
        """Read the results, in order."""
        return (yield from read_all(questions))

    def permission_filters(self, contracts: Collection[str]) -> tuple[str, ...]:
        """Return no filters: events of such contracts are not indexed."""
        return ()

    def permission_of(self, row: EventRow) -> tuple[str, str] | None:
        """Return None: no row is of such a contract."""
        return None

    def permissions(self, permissions: Sequence[IndirectApproval]) -> Plan[Sequence[PermissionState]]:
        """Return unknown states, because such contracts are not indexed."""
        yield from ()
        return [PermissionState(None, None, None, None) for _ in permissions]

    def allowances(self, approvals: Sequence[TokenApproval]) -> Plan[Sequence[AllowanceState]]:
        """Read the remaining amounts of approvals, in order and in one round."""
        results = yield from self.distinct(each for approval in approvals for each in self._allowance(approval))
        return [
            AllowanceState(*(self.number(results[each]) for each in self._allowance(approval)))
            for approval in approvals
        ]

    def operators(self, operators: Sequence[OperatorApproval], ids: Ids) -> Plan[Sequence[OperatorState | None]]:
        """Read what operators may move, in order and in one round; None if no longer approved.

        `ids` are the edition ids (ERC-1155) that owners received, by owner and collection.
        """
        questions = [each for operator in operators for each in self._operator_reads(operator)]
        questions += [
            each for operator in operators if operator.token_id is None for each in self._editions(operator, ids)
        ]
        results = yield from self.distinct(questions)
        return [self._operator(operator, results, ids) for operator in operators]

    def distinct(self, questions: Iterable[Read[object]]) -> Plan[Results]:
        """Return results by read; each distinct read is sent once."""
        distinct = list(dict.fromkeys(questions))
        results = yield from self.put_questions(distinct)
        return dict(zip(distinct, results, strict=True))

    def _allowance(self, approval: TokenApproval) -> Sequence[Read[object]]:
        """Return the reads of an approval: allowance, balance of the owner, and total supply."""
        allowance = self.question(approval.token, "allowance", approval.owner, approval.spender)
        return (
            allowance,
            self.question(approval.token, "balanceOf", approval.owner),
            self.question(approval.token, "totalSupply"),
        )

    def _operator_reads(self, operator: OperatorApproval) -> Sequence[Read[object]]:
        """Return the reads about one collectible, else about the collection."""
        if operator.token_id is not None:
            return [self.question(operator.token, name, operator.token_id) for name in ("getApproved", "ownerOf")]
        standards = [self.question(operator.token, "supportsInterface", each) for each in (*self.erc721, *self.erc1155)]
        allowed = self.question(operator.token, "isApprovedForAll", operator.owner, operator.spender)
        return [allowed, self.question(operator.token, "balanceOf", operator.owner), *standards]

    def _editions(self, operator: OperatorApproval, ids: Ids) -> Sequence[Read[object]]:
        numbers = ids[operator.owner].get(operator.token, ())
        if len(numbers) > MAX_IDS:
            return []
        return [self.question(operator.token, "balanceOfEdition", operator.owner, number) for number in sorted(numbers)]

    def _operator(self, operator: OperatorApproval, results: Results, ids: Ids) -> OperatorState | None:
        """Return the state of an operator's approval; None if it was revoked.

        The standard is None if the collection confirms none.
        """
        answers = [results[each] for each in self._operator_reads(operator)]
        if operator.token_id is not None:
            return self._single(operator, *answers)
        allowed, balance, *standards = answers
        if self.yes(allowed) is False:
            return None
        is_of = [self.yes(each) for each in standards]
        if True in is_of[len(self.erc721) :]:
            return OperatorState("erc1155", self._held_count(operator, results, ids))
        return OperatorState("erc721" if True in is_of else None, self.number(balance))

    def _single(self, operator: OperatorApproval, approved: object, owner: object) -> OperatorState | None:
        """Return the state of one collectible; None if it is no longer approved, or burnt (calls revert)."""
        matches = [self.is_account(approved, operator.spender), self.is_account(owner, operator.owner)]
        if isinstance(approved, Reverted) or isinstance(owner, Reverted) or False in matches:
            return None
        return OperatorState("erc721", 1 if all(matches) else None)

    def _held_count(self, operator: OperatorApproval, results: Results, ids: Ids) -> int | None:
        """Return the number of ids with a balance; None if one is unknown, or there are too many to read."""
        if len(ids[operator.owner].get(operator.token, ())) > MAX_IDS:
            return None
        raws = [self.number(results[each]) for each in self._editions(operator, ids)]
        return None if None in raws else sum(raw != 0 for raw in raws)
