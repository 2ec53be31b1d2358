"""What contracts say of approvals, by functions that are the same wherever Ethereum's standards of tokens are: behind
`Capability.APPROVALS`. A kind of chain says how it writes a question and what an answer is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final, Literal

from chainfolio.approvals import (
    AllowanceState,
    Approved,
    ApprovedInside,
    ApprovedOperator,
    OperatorState,
    PermissionState,
)
from chainfolio.plans import Plan, Reverted

MAX_IDS: Final = 1_000  # of one collection: who has met more of them is not counted
Ids = Mapping[str, Mapping[str, Collection[int]]]  # of the collectibles that accounts met, by account and collection
Results = Mapping[Any, Any]
Function = Literal[
    "allowance", "balanceOf", "balanceOfEdition", "totalSupply", "getApproved", "ownerOf", "isApprovedForAll",
    "supportsInterface",
]  # fmt: skip


class ContractApprovals(ABC):
    """The methods behind `Capability.APPROVALS`, of a chain without contracts such as Permit2. `erc721` and `erc1155`
    are the numbers by which collections name these standards."""

    edition_standards: ClassVar[Collection[str]] = frozenset(["erc1155"])
    erc721: ClassVar[Sequence[Any]]
    erc1155: ClassVar[Sequence[Any]]

    @abstractmethod
    def question(self, contract: str, function: Function, *args: Any) -> Any:
        """The read of a function; arguments are accounts, numbers of collectibles, or that of a standard."""

    @abstractmethod
    def number(self, answer: Any) -> int | None:
        """The amount that was answered; None where it is none."""

    def yes(self, answer: Any) -> bool | None:
        """Whether yes or no was answered; None where neither was."""
        return {0: False, 1: True, None: None}.get(self.number(answer))

    @abstractmethod
    def is_account(self, answer: Any, account: str) -> bool | None:
        """Whether this account was answered; None where no account was."""

    def put_questions(self, questions: Sequence[Any]) -> Plan[Any, Any, Sequence[Any]]:
        """The answers, in order."""
        answers: Sequence[Any] = yield questions
        return answers

    def permission_filters(self, contracts: Collection[str]) -> tuple[str, ...]:
        """None: events of such contracts are not indexed."""
        return ()

    def permission_of(self, row: Mapping[str, Any]) -> tuple[str, str] | None:
        """None: no row is of such a contract."""
        return None

    def permissions(self, permissions: Sequence[ApprovedInside]) -> Plan[Any, Any, Sequence[PermissionState]]:
        """Nothing is known of what nobody indexes."""
        yield from ()
        return [PermissionState(None, None, None, None) for _ in permissions]

    def allowances(self, approvals: Sequence[Approved]) -> Plan[Any, Any, Sequence[AllowanceState]]:
        """What is left of approvals, in their order and in one round."""
        results = yield from self.distinct(each for one in approvals for each in self._allowance(one))
        return [AllowanceState(*(self.number(results[each]) for each in self._allowance(one))) for one in approvals]

    def operators(
        self, operators: Sequence[ApprovedOperator], ids: Ids
    ) -> Plan[Any, Any, Sequence[OperatorState | None]]:
        """What operators may move, in their order and in one round; None where the contract says that one may no more.
        `ids` are those of editions (ERC-1155) that owners met, by owner and collection."""
        asked = [each for one in operators for each in self._about(one)]
        asked += [each for one in operators if one.token_id is None for each in self._editions(one, ids)]
        results = yield from self.distinct(asked)
        return [self._operator(one, results, ids) for one in operators]

    def distinct(self, questions: Iterable[Any]) -> Plan[Any, Any, Results]:
        """The answers by their questions, each of which is asked once."""
        distinct = list(dict.fromkeys(questions))
        results = yield from self.put_questions(distinct)
        return dict(zip(distinct, results, strict=True))

    def _allowance(self, one: Approved) -> Sequence[Any]:
        left = self.question(one.token, "allowance", one.owner, one.spender)
        return left, self.question(one.token, "balanceOf", one.owner), self.question(one.token, "totalSupply")

    def _about(self, one: ApprovedOperator) -> Sequence[Any]:
        """About one collectible; else about the collection."""
        if one.token_id is not None:
            return [self.question(one.token, name, one.token_id) for name in ("getApproved", "ownerOf")]
        standards = [self.question(one.token, "supportsInterface", each) for each in (*self.erc721, *self.erc1155)]
        allowed = self.question(one.token, "isApprovedForAll", one.owner, one.spender)
        return [allowed, self.question(one.token, "balanceOf", one.owner), *standards]

    def _editions(self, one: ApprovedOperator, ids: Ids) -> Sequence[Any]:
        numbers = ids[one.owner].get(one.token, ())
        if len(numbers) > MAX_IDS:
            return []
        return [self.question(one.token, "balanceOfEdition", one.owner, number) for number in sorted(numbers)]

    def _operator(self, one: ApprovedOperator, results: Results, ids: Ids) -> OperatorState | None:
        said = [results[each] for each in self._about(one)]
        if one.token_id is not None:
            return self._single(one, *said)
        allowed, balance, *standards = said
        if self.yes(allowed) is False:
            return None
        is_of = [self.yes(each) for each in standards]
        if True in is_of[len(self.erc721) :]:
            return OperatorState("erc1155", self._held(one, results, ids))
        return OperatorState("erc721" if True in is_of else None, self.number(balance))

    def _single(self, one: ApprovedOperator, approved: Any, owner: Any) -> OperatorState | None:
        """Of one collectible. What could not be read is not known to be gone; a token that was burnt refuses."""
        told = [self.is_account(approved, one.spender), self.is_account(owner, one.owner)]
        if isinstance(approved, Reverted) or isinstance(owner, Reverted) or False in told:
            return None
        return OperatorState("erc721", 1 if all(told) else None)

    def _held(self, one: ApprovedOperator, results: Results, ids: Ids) -> int | None:
        """How many ids are held; None where one of them is not known, or there are too many to ask."""
        if len(ids[one.owner].get(one.token, ())) > MAX_IDS:
            return None
        raws = [self.number(results[each]) for each in self._editions(one, ids)]
        return None if None in raws else sum(raw != 0 for raw in raws)
