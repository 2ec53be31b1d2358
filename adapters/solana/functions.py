"""What the data of an instruction begins with, by the name of its function.

Programs made with Anchor begin with the SHA-256 of `global:` and the name; the stake program counts its instructions.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

SELECTOR_SIZE: Final = 4  # bytes that are compared, of eight
STAKE_PROGRAM: Final = {
    "initializeStake": 0, "delegateStake": 2, "splitStake": 3, "withdrawStake": 4, "deactivateStake": 5,
}  # fmt: skip


def selector(function: str) -> bytes:
    """The first bytes of the data of a function such as `solana:sharedAccountsRoute()`. Without that mark it is a
    function of another kind of chain, and none of these."""
    kind, _, name = function.removesuffix("()").partition(":")
    if name in STAKE_PROGRAM:
        return STAKE_PROGRAM[name].to_bytes(SELECTOR_SIZE, "little")
    snake = re.sub("(?<!^)(?=[A-Z])", "_", name).lower()
    written = f"global:{snake}" if kind == "solana" else function
    return hashlib.sha256(written.encode()).digest()[:SELECTOR_SIZE]
