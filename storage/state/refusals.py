"""What a tenant may not do, as one typed error: a stable code for programs, a sentence for people, the facts beside it.

Which code is which HTTP status stands in `api.errors.CODES`.
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
    """Nothing was changed. `extras` are the fields that the code's answer has beside its message."""

    exit_code = 2

    def __init__(self, code: Code, message: str, *, remedy: str = "", **extras: Any) -> None:
        super().__init__(message, remedy=remedy)
        self.code: Code = code
        self.extras = extras
