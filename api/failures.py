"""What can go wrong on the routes that read chains, in the words of the interface description."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from chainfolio.contracts import Issue

NO_CHAIN: Final = (
    "No chain for any of the addresses is configured. If there is one for some, the others are in `issues`."
)
READING: Final = {
    501: NO_CHAIN,
    502: "A node or price source gave an answer that cannot be used.",
    503: "Not now: a node is down, the chain is not indexed yet or has halted. `Retry-After` says when to ask again.",
}


def completeness_headers(issues: Iterable[Issue]) -> dict[str, str]:
    """The headers that tell what an answer lacks whose body has no place for it."""
    reasons = [f"{issue.subject}: {issue.reason}" for issue in issues]
    if not reasons:
        return {"X-Completeness": "complete"}
    return {"X-Completeness": "partial", "X-Issues": "; ".join(reasons)}
