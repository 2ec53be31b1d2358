"""Selectors: the first bytes of a transaction's input, by the name of the function.

A contract's function has the selector of its ABI. A system operation has none: we use the SHA-256 of `tron:` and the
name, cut to the same size.
"""

from __future__ import annotations

import hashlib
from functools import cache
from typing import Final

from sha3 import keccak_256

SELECTOR_SIZE: Final = 4
SYSTEM: Final = "tron:"


@cache
def selector(function: str) -> bytes:
    """Return the selector of a function such as `transfer(address,uint256)` or `tron:freezeBalanceV2()`."""
    if function.startswith(SYSTEM):
        return hashlib.sha256(function.removesuffix("()").encode()).digest()[:SELECTOR_SIZE]
    return bytes(keccak_256(function.encode()).digest()[:SELECTOR_SIZE])
