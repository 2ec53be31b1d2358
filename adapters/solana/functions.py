"""Selectors: the first bytes of an instruction's data, by the name of its function.

Programs of Anchor use the SHA-256 of `global:` and the name; the stake program numbers its instructions.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

SELECTOR_SIZE: Final = 4  # bytes; the program compares eight
STAKE_PROGRAM: Final = {
    "initializeStake": 0,
    "delegateStake": 2,
    "splitStake": 3,
    "withdrawStake": 4,
    "deactivateStake": 5,
}


def selector(function: str) -> bytes:
    """Return the first `SELECTOR_SIZE` bytes of the data of instructions that call a function.

    Functions of the stake program have a number, such as `solana:splitStake()`. Others have Anchor's hash of the name
    in snake case. A function of another kind of chain, without the prefix, has a hash that matches no instruction.
    """
    kind, _, name = function.removesuffix("()").partition(":")
    if kind == "solana" and name in STAKE_PROGRAM:
        return STAKE_PROGRAM[name].to_bytes(SELECTOR_SIZE, "little")
    snake = re.sub("(?<!^)(?=[A-Z])", "_", name).lower()
    preimage = f"global:{snake}" if kind == "solana" else function
    return hashlib.sha256(preimage.encode()).digest()[:SELECTOR_SIZE]
