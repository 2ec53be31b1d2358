"""What the input of a transaction begins with, by the name of its function.

A contract's function has the selector of its ABI. What the system does has none: there it is the SHA-256 of `tron:` and
the name, cut to as many bytes.
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
    """The first bytes of the input of a function such as `transfer(address,uint256)`, or `tron:freezeBalanceV2()`."""
    if function.startswith(SYSTEM):
        return hashlib.sha256(function.removesuffix("()").encode()).digest()[:SELECTOR_SIZE]
    return bytes(keccak_256(function.encode()).digest()[:SELECTOR_SIZE])
