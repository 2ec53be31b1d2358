"""Check the Merkle root of a block's transactions, which its witness signed with the header.

A leaf is a whole transaction: signed bytes, signatures, results, and fields that the sender added. A node that omits or
changes something gives another root and is refused, and so is one that does not show all fields. A mismatching block is
accepted once a second endpoint gives the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final

from chainfolio.adapters.tron.forms import FullBlock, Transaction
from chainfolio.adapters.tron.protobuf import MAX_UINT64, encode_bytes_field, encode_field
from chainfolio.errors import BadAnswer

RAW, SIGNATURE, RET = 1, 2, 5  # fields of a transaction
FEE, CODE, RESULT = 1, 2, 3  # fields of a transaction's result
CODES: Final = {"": 0, "FAILED": 1}  # nodes leave out zero, which has no name
RESULTS: Final = {
    name: number
    for number, name in enumerate(
        (
            "",
            "SUCCESS",
            "REVERT",
            "BAD_JUMP_DESTINATION",
            "OUT_OF_MEMORY",
            "PRECOMPILED_CONTRACT",
            "STACK_TOO_SMALL",
            "STACK_TOO_LARGE",
            "ILLEGAL_OPERATION",
            "STACK_OVERFLOW",
            "OUT_OF_ENERGY",
            "OUT_OF_TIME",
            "JVM_STACK_OVER_FLOW",
            "UNKNOWN",
            "TRANSFER_FAILED",
            "INVALID_CODE",
        )
    )
}
MAX_MISMATCHES: Final = 1_000  # stored


def transactions_root(source: str, transactions: Sequence[Transaction]) -> str:
    """Return the Merkle root of transactions that have the usual fields only.

    Raises:
        BadAnswer: The bytes of a transaction are no hexadecimal.
    """
    try:
        return merkle_root([_encode_transaction(each) for each in transactions])
    except ValueError:
        raise BadAnswer(source, "a transaction of its block is no hexadecimal") from None


def merkle_root(leaves: Iterable[bytes]) -> str:
    """Return the Merkle root of leaves, 32 zero bytes if there are none. An odd node moves up unchanged."""
    level = [hashlib.sha256(leaf).digest() for leaf in leaves]
    while len(level) > 1:
        pairs = zip(level[::2], level[1::2], strict=False)
        level = [hashlib.sha256(first + second).digest() for first, second in pairs] + level[len(level) & ~1 :]
    return level[0].hex() if level else "00" * 32


def _encode_transaction(transaction: Transaction) -> bytes:
    """Return a transaction as encoded in its block."""
    signatures = (encode_bytes_field(SIGNATURE, bytes.fromhex(each)) for each in transaction.signature)
    results = (_encode_result(each.fee, each.ret, each.contractRet) for each in transaction.ret)
    return b"".join((encode_field(RAW, bytes.fromhex(transaction.raw_data_hex)), *signatures, *results))


@lru_cache(1_000)
def _encode_result(fee: int, code: str, result: str) -> bytes:
    """Encode the result of a transaction as protocol buffers do; a negative fee has 64 bits."""
    fields = (
        encode_field(FEE, fee & MAX_UINT64),
        _encode_enum(CODE, CODES, code),
        _encode_enum(RESULT, RESULTS, result),
    )
    return encode_bytes_field(RET, b"".join(fields))


def _encode_enum(number: int, names: Mapping[str, int], name: str) -> bytes:
    """Encode an enum by its name. An unknown name becomes a field 0, so that no root matches."""
    return encode_field(number, names[name]) if name in names else encode_bytes_field(0, name.encode())


class RootCheck:
    """Checks the transaction roots of blocks, and stores which endpoint gave a mismatching block."""

    def __init__(self) -> None:
        self._mismatches: dict[tuple[str, str], str] = {}  # endpoint by block id and root

    def check(self, source: str, block: FullBlock, root: str) -> None:
        """Check that `root`, computed from a block's transactions, is the one in its header.

        A mismatch is stored; a second endpoint that gives the same one is right.

        Raises:
            BadAnswer: It is not, and no other endpoint gave the same transactions.
        """
        if root == block.block_header.raw_data.txTrieRoot:
            return
        if self._mismatches.setdefault((block.blockID, root), source) != source:
            return
        while len(self._mismatches) > MAX_MISMATCHES:
            del self._mismatches[next(iter(self._mismatches))]
        height = block.block_header.raw_data.number
        raise BadAnswer(
            source,
            f"the {len(block.transactions)} transactions of block {height} are not those of its header",
            remedy="add another endpoint: a block that two endpoints give alike is accepted",
        )
