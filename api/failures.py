"""What can go wrong on the routes that read chains, in the words of the interface description."""

from __future__ import annotations

from typing import Final

READING: Final = {
    502: "A node or price source gave an answer that cannot be used.",
    503: "Not now: a node is down, the chain is not indexed yet or has halted. `Retry-After` says when to ask again.",
}
