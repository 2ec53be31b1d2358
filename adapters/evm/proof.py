"""Proofs of state against a block's hash: header to state root, state root to account, account to storage.

Nothing here trusts who gave the proof. A header counts when its own fields hash to the block's hash; a node of a trie
counts when it hashes to what its parent, in the end the root, says. That something is absent is proven in the same way.
The rules: Ethereum's yellow paper, appendices B (RLP) and D (tries); EIP-1186 for the shape of `eth_getProof`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sha3 import keccak_256

from adapters.evm import rlp
from chainfolio.errors import BadAnswer

_MAX_DEPTH: Final = 65  # a key has 64 nibbles, and a leaf without any may follow the last

EMPTY_ROOT: Final = bytes(keccak_256(b"\x80").digest())
EMPTY_CODE: Final = bytes(keccak_256(b"").digest())


@dataclass(frozen=True, slots=True)
class AccountState:
    """What a state trie holds of one account; that of an account that is absent has nothing in it."""

    nonce: int = 0
    balance: int = 0
    storage_root: bytes = EMPTY_ROOT
    code_hash: bytes = EMPTY_CODE


def account_at(source: str, root: bytes, account: str, proof: Sequence[bytes]) -> AccountState:
    """An account's state under a state root; BadAnswer where the proof does not show it."""
    found = walk(source, root, bytes.fromhex(account[2:]), proof)
    if found is None:
        return AccountState()
    try:
        fields = rlp.decode(found)
    except ValueError as error:
        raise BadAnswer(source, f"the state of {account} is not one: {error}") from None
    if not isinstance(fields, list) or len(fields) != 4:
        raise BadAnswer(source, f"the state of {account} does not have four fields")
    nonce, balance, storage_root, code_hash = (field if isinstance(field, bytes) else b"" for field in fields)
    if len(storage_root) != 32 or len(code_hash) != 32:
        raise BadAnswer(source, f"the state of {account} has a root or hash of the wrong size")
    return AccountState(int.from_bytes(nonce, "big"), int.from_bytes(balance, "big"), storage_root, code_hash)


def word_at(source: str, root: bytes, key: bytes, proof: Sequence[bytes]) -> int:
    """The word at a storage key under a contract's storage root, zero where it is absent; BadAnswer as above."""
    found = walk(source, root, key, proof)
    if found is None:
        return 0
    try:
        word = rlp.decode(found)
    except ValueError as error:
        raise BadAnswer(source, f"a storage value that is not one: {error}") from None
    if not isinstance(word, bytes) or not 0 < len(word) <= 32:
        raise BadAnswer(source, "a storage value that is no word")
    return int.from_bytes(word, "big")


def walk(source: str, root: bytes, key: bytes, proof: Sequence[bytes]) -> bytes | None:
    """What a secure trie holds at a key, None where the proof shows that it holds nothing.

    BadAnswer where a node on the way is missing, is not a node, or is not what its parent's hash says. Nodes beside the
    way are passed over.
    """
    if root == EMPTY_ROOT:
        return None
    known = {bytes(keccak_256(node).digest()): node for node in proof}
    path = [nibble for byte in keccak_256(key).digest() for nibble in (byte >> 4, byte & 15)]
    at: rlp.Item = root
    for _ in range(_MAX_DEPTH):
        node = at if isinstance(at, list) else _node(source, known, at)
        if len(node) == 17 and path:
            at, path = node[path[0]], path[1:]
        elif len(node) == 2 and isinstance(node[0], bytes) and node[0]:
            ends, part = _compact(source, node[0])
            if path[: len(part)] != part or (ends and len(part) != len(path)):
                return None  # the only node here leads elsewhere: there is nothing at this key
            at, path = node[1], path[len(part) :]
            if ends:
                return _value(source, at)
        else:
            raise _broken(source, f"a node of {len(node)} parts where {len(path)} nibbles are left")
        if at == b"":
            return None
    raise _broken(source, "a way that does not end")


def _value(source: str, value: rlp.Item) -> bytes:
    if not isinstance(value, bytes) or not value:
        raise _broken(source, "a leaf without a value")
    return value


def _node(source: str, known: Mapping[bytes, bytes], name: bytes) -> list[rlp.Item]:
    if name not in known:
        raise _broken(source, f"the node with hash 0x{name.hex()[:64]} is not in it")
    try:
        node = rlp.decode(known[name])
    except ValueError as error:
        raise _broken(source, f"a node that is not one: {error}") from None
    if not isinstance(node, list):
        raise _broken(source, "a node that is not a list")
    return node


def _compact(source: str, written: bytes) -> tuple[bool, list[int]]:
    """Hex-prefix encoding: whether the node is a leaf, and the nibbles it stands for."""
    flag, nibbles = written[0] >> 4, [nibble for byte in written for nibble in (byte >> 4, byte & 15)]
    if flag > 3 or (flag % 2 == 0 and nibbles[1] != 0):
        raise _broken(source, "a node whose path is not written as it has to be")
    return flag >= 2, nibbles[1 if flag % 2 else 2 :]


def _broken(source: str, what: str) -> BadAnswer:
    return BadAnswer(source, f"the proof does not lead from its root to the key: {what}")
