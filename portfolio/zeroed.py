"""Answers for clients that compute with every number: what is not known is `0` there, and counted all the same.

Profits, losses and cost bases stay `N/A`, which clients of the service know; so do the gains, returns and growth of a
performance, where `0` would be a result like any other. What a spender may take (`amount`, `takeable`, `held`) stays
`N/A`: `0` would say that it was taken back. `unpricedAssets`, `completeness` and
`issues` are made before and stay as they are: they, and not the number, say what is not known.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

import msgspec

from chainfolio.portfolio.document import UNKNOWN

T = TypeVar("T")
NUMBERS: Final = frozenset(
    {
        "price",
        "value",
        "balance",
        "decimal",
        "percentage",
        "value_fiat",
        "fees",
        "fees_fiat",
        "cash_balance",
        "daily_income",
        "daily_expense",
        "value_at_risk",
        "start_value",
        "end_value",
        "net_flows",
        "flow",
        "share",
    }
)


def zero_unknown(document: T) -> T:
    """The same document with `0` for each number that is not known."""
    result: Any = document
    if isinstance(document, msgspec.Struct):
        fields = ((name, getattr(document, name)) for name in document.__struct_fields__)
        new = {name: "0" if name in NUMBERS and value == UNKNOWN else zero_unknown(value) for name, value in fields}
        result = msgspec.structs.replace(document, **new)
    elif isinstance(document, dict):
        result = {key: zero_unknown(value) for key, value in document.items()}
    elif isinstance(document, (list, tuple)):
        result = type(document)(zero_unknown(each) for each in document)
    return result  # type: ignore[no-any-return]
