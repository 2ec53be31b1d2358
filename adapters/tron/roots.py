"""The root of a block's transactions: its header was signed with it, so what a node leaves out or changes shows.

A leaf is a whole transaction: what was signed, the signatures, how it ended. What somebody else wrote beside that into
the same bytes nodes do not show, and no root comes of it. So a node alone is refused, and what two give alike is
believed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from adapters.tron.forms import Transaction, Whole
from adapters.tron.protobuf import BYTES, written
from chainfolio.errors import BadAnswer

RAW, SIGNATURE, RET = 1, 2, 5  # fields of a transaction
FEE, CODE, RESULT = 1, 2, 3  # fields of how it ended
CODES: Final = {"": 0, "FAILED": 1}  # nodes leave out what is zero
RESULTS: Final = {
    name: number
    for number, name in enumerate((
        "DEFAULT", "SUCCESS", "REVERT", "BAD_JUMP_DESTINATION", "OUT_OF_MEMORY", "PRECOMPILED_CONTRACT",
        "STACK_TOO_SMALL", "STACK_TOO_LARGE", "ILLEGAL_OPERATION", "STACK_OVERFLOW", "OUT_OF_ENERGY", "OUT_OF_TIME",
        "JVM_STACK_OVER_FLOW", "UNKNOWN", "TRANSFER_FAILED", "INVALID_CODE",
    ))
}  # fmt: skip
MOST: Final = 1_000  # doubtful blocks that are remembered


def root(source: str, done: Sequence[Transaction]) -> str:
    """The root of some transactions, of which one without a neighbour goes up alone; BadAnswer where their bytes are no
    hexadecimal."""
    try:
        level = [hashlib.sha256(_packed(each)).digest() for each in done]
    except ValueError:
        raise BadAnswer(source, "a transaction is signed with what is no hexadecimal") from None
    while len(level) > 1:
        pairs = zip(level[::2], level[1::2], strict=False)
        level = [hashlib.sha256(one + other).digest() for one, other in pairs] + level[len(level) & ~1 :]
    return level[0].hex() if level else "00" * 32


def _packed(done: Transaction) -> bytes:
    """A transaction as it lies in its block."""
    signatures = (written(SIGNATURE, bytes.fromhex(each)) for each in done.signature)
    ends = (_ended(each.fee, each.ret, each.contractRet) for each in done.ret)
    return b"".join((written(RAW, bytes.fromhex(done.raw_data_hex)), *signatures, *ends))


@lru_cache(1_000)
def _ended(fee: int, code: str, result: str) -> bytes:
    """How it ended, as a field that is there even where it is empty. A word that nobody knows is taken as it is: it
    fits no root."""
    known = written(CODE, CODES.get(code, code.encode())), written(RESULT, RESULTS.get(result, result.encode()))
    return written(RET, b"".join((written(FEE, fee), *known))) or bytes([RET << 3 | BYTES, 0])


class Roots:
    """Whether blocks have the transactions of their headers; who gave those that have not."""

    def __init__(self) -> None:
        self._doubtful: dict[tuple[str, str], str] = {}

    def check(self, source: str, whole: Whole, found: str) -> None:
        """Whether a block's transactions, which come to this root, are believed. BadAnswer where they are not."""
        if found == whole.block_header.raw_data.txTrieRoot:
            return
        if self._doubtful.setdefault((whole.blockID, found), source) != source:
            return
        while len(self._doubtful) > MOST:
            del self._doubtful[next(iter(self._doubtful))]
        height = whole.block_header.raw_data.number
        raise BadAnswer(
            source, f"the {len(whole.transactions)} transactions of block {height} are not those of its header",
            remedy="add another endpoint: what two give alike is believed",
        )  # fmt: skip
