"""Descriptions of the failures of routes that read chains, for the interface description."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from chainfolio.contracts import Issue

NO_CHAIN: Final = (
    "No chain is configured for any of the addresses. If only some addresses have no chain, `issues` lists them."
)
READING: Final = {
    501: NO_CHAIN,
    502: "A node or price source gave an unusable answer.",
    503: "Temporarily unavailable: a node is down, or the chain is not indexed yet or has halted. `Retry-After` says "
    "when to retry.",
}


def completeness_headers(issues: Iterable[Issue]) -> dict[str, str]:
    """Return `X-Completeness`, and `X-Issues` if there are any, for bodies that cannot list issues."""
    reasons = [f"{issue.subject}: {issue.reason}" for issue in issues]
    if not reasons:
        return {"X-Completeness": "complete"}
    return {"X-Completeness": "partial", "X-Issues": "; ".join(reasons)}
