"""The root of a block's transactions: its header was signed with it, so what a node leaves out or changes shows.

A leaf is a whole transaction: what was signed, the signatures, how it ended, and what its sender wrote beside that.
Where a node does not show all of it, no root comes of it. So a node alone is refused, and what two give alike is
believed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final

from adapters.tron.forms import Transaction, Whole
from adapters.tron.protobuf import MOST, there, written
from chainfolio.errors import BadAnswer

RAW, SIGNATURE, RET = 1, 2, 5  # fields of a transaction
FEE, CODE, RESULT = 1, 2, 3  # fields of how it ended
CODES: Final = {"": 0, "FAILED": 1}  # what is zero has no name: nodes leave it out
RESULTS: Final = {
    name: number
    for number, name in enumerate((
        "", "SUCCESS", "REVERT", "BAD_JUMP_DESTINATION", "OUT_OF_MEMORY", "PRECOMPILED_CONTRACT",
        "STACK_TOO_SMALL", "STACK_TOO_LARGE", "ILLEGAL_OPERATION", "STACK_OVERFLOW", "OUT_OF_ENERGY", "OUT_OF_TIME",
        "JVM_STACK_OVER_FLOW", "UNKNOWN", "TRANSFER_FAILED", "INVALID_CODE",
    ))
}  # fmt: skip
DOUBTS: Final = 1_000  # doubtful blocks that are remembered


def root(source: str, done: Sequence[Transaction]) -> str:
    """The root of some transactions; BadAnswer where their bytes are no hexadecimal."""
    try:
        return tree([_packed(each) for each in done])
    except ValueError:
        raise BadAnswer(source, "a transaction of its block is no hexadecimal") from None


def tree(leaves: Iterable[bytes]) -> str:
    """The root of some leaves, of which one without a neighbour goes up alone."""
    level = [hashlib.sha256(each).digest() for each in leaves]
    while len(level) > 1:
        pairs = zip(level[::2], level[1::2], strict=False)
        level = [hashlib.sha256(one + other).digest() for one, other in pairs] + level[len(level) & ~1 :]
    return level[0].hex() if level else "00" * 32


def _packed(done: Transaction) -> bytes:
    """A transaction as it lies in its block."""
    signatures = (there(SIGNATURE, bytes.fromhex(each)) for each in done.signature)
    ends = (_ended(each.fee, each.ret, each.contractRet) for each in done.ret)
    return b"".join((written(RAW, bytes.fromhex(done.raw_data_hex)), *signatures, *ends))


@lru_cache(1_000)
def _ended(fee: int, code: str, result: str) -> bytes:
    """How it ended."""
    return there(RET, written(FEE, fee & MOST) + _word(CODE, CODES, code) + _word(RESULT, RESULTS, result))


def _word(key: int, names: Mapping[str, int], word: str) -> bytes:
    """A word that nobody knows is written where no field can be: it fits no root."""
    return written(key, names[word]) if word in names else there(0, word.encode())


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
        while len(self._doubtful) > DOUBTS:
            del self._doubtful[next(iter(self._doubtful))]
        height = whole.block_header.raw_data.number
        raise BadAnswer(
            source, f"the {len(whole.transactions)} transactions of block {height} are not those of its header",
            remedy="add another endpoint: what two give alike is believed",
        )  # fmt: skip
