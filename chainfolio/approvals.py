"""What is asked of a chain about approvals, and what it says: behind `Capability.APPROVALS`."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Approved(Protocol):
    """Whom an owner allowed to take a token."""

    @property
    def token(self) -> str:
        """The contract of the token, or of the collection."""

    @property
    def owner(self) -> str:
        """Who allowed it."""

    @property
    def spender(self) -> str:
        """Who may take it."""


class ApprovedOperator(Approved, Protocol):
    """Who may move collectibles: all of a collection, or one of them."""

    @property
    def token_id(self) -> int | None:
        """The one; None for all."""


class ApprovedInside(Approved, Protocol):
    """Whom an owner allowed to take a token through a contract, such as Permit2, that he allowed himself."""

    @property
    def contract(self) -> str:
        """That contract."""


class AllowanceState(NamedTuple):
    """What is left of an approval, what its owner holds, and the supply of the token; None where the contract does not
    say."""

    raw: int | None
    balance: int | None
    supply: int | None


class OperatorState(NamedTuple):
    """The standard of the collection, and how many of it could be moved now; None is not known."""

    standard: str | None
    held: int | None


class PermissionState(NamedTuple):
    """What is left of a permission, and until when, in Unix seconds; what its contract itself may take, and what the
    owner holds. None is not known."""

    raw: int | None
    expires_s: int | None
    allowance: int | None
    balance: int | None
