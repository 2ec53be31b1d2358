"""Inputs and results of reads about approvals: behind `Capability.APPROVALS`."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class TokenApproval(Protocol):
    """An owner's permission for a spender to transfer a token."""

    @property
    def token(self) -> str:
        """The contract of the token, or of the collection."""

    @property
    def owner(self) -> str:
        """The account that approved."""

    @property
    def spender(self) -> str:
        """The account that may transfer."""


class OperatorApproval(TokenApproval, Protocol):
    """An owner's permission to move collectibles: a whole collection, or one item."""

    @property
    def token_id(self) -> int | None:
        """The number of the collectible; None for the whole collection."""


class IndirectApproval(TokenApproval, Protocol):
    """An owner's permission to transfer a token through an approved contract, such as Permit2."""

    @property
    def contract(self) -> str:
        """The contract, such as Permit2."""


class AllowanceState(NamedTuple):
    """The remaining allowance, the owner's balance, and the token's supply; None if it gives none."""

    raw: int | None
    balance: int | None
    supply: int | None


class OperatorState(NamedTuple):
    """The standard of the collection, and the number of items that could be moved now; None if not known."""

    standard: str | None
    movable: int | None


class PermissionState(NamedTuple):
    """A permission, its expiry, the contract's allowance, and the owner's balance; None if not known."""

    raw: int | None
    expires_s: int | None
    allowance: int | None
    balance: int | None
