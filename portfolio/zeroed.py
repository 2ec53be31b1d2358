"""Answers for clients that compute with every number: unknown numbers are `0`.

Profits, losses and cost bases stay `N/A`, which clients of the service know; so do the gains, returns and growth of a
performance, where `0` would look like a result. Amounts that a spender may take (`amount`, `takeable`, `held`) stay
`N/A`: `0` would mean a revoked approval. `unpricedAssets`, `completeness` and `issues` are computed before and do not
change: they show what is not known.
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
    """Return a copy of the document with "0" for unknown numbers, at any depth.

    Only fields of `NUMBERS` are changed.
    """
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
