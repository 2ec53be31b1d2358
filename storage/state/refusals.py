"""The error for changes that a tenant may not make.

`code` is stable, for programs; the message is for people. api/errors.py maps each code to an HTTP status.
"""

from __future__ import annotations

from typing import Any, Literal

from chainfolio.errors import ChainfolioError

Code = Literal[
    "VALIDATION_ERROR",
    "ADDRESSBOOK_ENTRY_NOT_FOUND",
    "BUNDLE_NOT_FOUND",
    "DELEGATE_NOT_FOUND",
    "ADDRESSBOOK_ENTRY_NOT_DELETABLE",
    "BUNDLE_NAME_TAKEN",
    "BUNDLE_MEMBERS_ALREADY_BUNDLED",
    "ALREADY_SUBSCRIBED",
    "ADDRESSBOOK_QUOTA_REACHED",
    "BUNDLE_QUOTA_REACHED",
    "BUNDLE_SIZE_LIMIT_EXCEEDED",
    "BUNDLE_EMPTY",
    "BUNDLE_ADDRESS_NOT_IN_ADDRESS_BOOK",
    "FORBIDDEN",
]


class Refusal(ChainfolioError):
    """A change was refused, and nothing was changed. `extras` are further fields of the response."""

    exit_code = 2

    def __init__(self, code: Code, message: str, *, remedy: str = "", **extras: Any) -> None:
        super().__init__(message, remedy=remedy)
        self.code: Code = code
        self.extras = extras
