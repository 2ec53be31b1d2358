"""Verify proofs of state against a block's hash: header, state root, account, storage.

The source of a proof is not trusted. A header counts if its own fields hash to the block's hash; a node of a trie
counts if it hashes to what its parent, in the end the root, says. Absence is proven in the same way. Source: Ethereum's
yellow paper, appendices B (RLP) and D (tries); EIP-1186 for the shape of `eth_getProof`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sha3 import keccak_256

from chainfolio.adapters.evm import rlp
from chainfolio.errors import BadAnswer

_MAX_DEPTH: Final = 65  # a key has 64 nibbles, and a leaf without nibbles may follow

EMPTY_ROOT: Final = bytes(keccak_256(b"\x80").digest())
EMPTY_CODE: Final = bytes(keccak_256(b"").digest())


@dataclass(frozen=True, slots=True)
class AccountState:
    """The record of an account in a state trie; an absent account has the defaults."""

    nonce: int = 0
    balance: int = 0
    storage_root: bytes = EMPTY_ROOT
    code_hash: bytes = EMPTY_CODE


def account_at(source: str, root: bytes, account: str, proof: Sequence[bytes]) -> AccountState:
    """Return an account's state under a state root, an empty one if the proof shows that there is none.

    Raises:
        BadAnswer: The proof does not show it.
    """
    value = walk(source, root, bytes.fromhex(account[2:]), proof)
    if value is None:
        return AccountState()
    try:
        fields = rlp.decode(value)
    except ValueError as error:
        raise BadAnswer(source, f"the state of {account} is not one: {error}") from None
    if not isinstance(fields, list) or len(fields) != 4:
        raise BadAnswer(source, f"the state of {account} does not have four fields")
    nonce, balance, storage_root, code_hash = (field if isinstance(field, bytes) else b"" for field in fields)
    if len(storage_root) != 32 or len(code_hash) != 32:
        raise BadAnswer(source, f"the state of {account} has a root or hash of the wrong size")
    return AccountState(int.from_bytes(nonce, "big"), int.from_bytes(balance, "big"), storage_root, code_hash)


def word_at(source: str, root: bytes, key: bytes, proof: Sequence[bytes]) -> int:
    """Return the word at a storage key under a contract's storage root; zero if it is absent.

    Raises:
        BadAnswer: The proof does not show it.
    """
    value = walk(source, root, key, proof)
    if value is None:
        return 0
    try:
        value_bytes = rlp.decode(value)
    except ValueError as error:
        raise BadAnswer(source, f"a storage value that is not one: {error}") from None
    if not isinstance(value_bytes, bytes) or not 0 < len(value_bytes) <= 32:
        raise BadAnswer(source, "a storage value that is no word")
    return int.from_bytes(value_bytes, "big")


def walk(source: str, root: bytes, key: bytes, proof: Sequence[bytes]) -> bytes | None:
    """Return the value of a secure trie at a key; None if the proof shows that there is none.

    The key is hashed here. Nodes that are not on the path are ignored.

    Raises:
        BadAnswer: A node on the path is missing, malformed, or does not have its parent's hash.
    """
    if root == EMPTY_ROOT:
        return None
    nodes_by_hash = {bytes(keccak_256(node).digest()): node for node in proof}
    path = [nibble for byte in keccak_256(key).digest() for nibble in (byte >> 4, byte & 15)]
    current: rlp.Item = root
    for _ in range(_MAX_DEPTH):
        node = current if isinstance(current, list) else _node(source, nodes_by_hash, current)
        if len(node) == 17 and path:
            current, path = node[path[0]], path[1:]
        elif len(node) == 2 and isinstance(node[0], bytes) and node[0]:
            is_leaf, part = _compact(source, node[0])
            if path[: len(part)] != part or (is_leaf and len(part) != len(path)):
                return None  # the only node here has another path: the key is absent
            current, path = node[1], path[len(part) :]
            if is_leaf:
                return _value(source, current)
        else:
            raise _broken(source, f"a node of {len(node)} parts where {len(path)} nibbles are left")
        if current == b"":
            return None
    raise _broken(source, "a way that does not end")


def _value(source: str, value: rlp.Item) -> bytes:
    if not isinstance(value, bytes) or not value:
        raise _broken(source, "a leaf without a value")
    return value


def _node(source: str, nodes_by_hash: Mapping[bytes, bytes], node_hash: bytes) -> list[rlp.Item]:
    """Return the decoded node of a trie proof; raise the proof's error if it is missing or malformed."""
    if node_hash not in nodes_by_hash:
        raise _broken(source, f"the node with hash 0x{node_hash.hex()[:64]} is not in it")
    try:
        node = rlp.decode(nodes_by_hash[node_hash])
    except ValueError as error:
        raise _broken(source, f"a node that is not one: {error}") from None
    if not isinstance(node, list):
        raise _broken(source, "a node that is not a list")
    return node


def _compact(source: str, encoded: bytes) -> tuple[bool, list[int]]:
    """Decode hex-prefix encoding: True for a leaf, and the nibbles of the path."""
    flag, nibbles = encoded[0] >> 4, [nibble for byte in encoded for nibble in (byte >> 4, byte & 15)]
    if flag > 3 or (flag % 2 == 0 and nibbles[1] != 0):
        raise _broken(source, "a node whose path is not written as it has to be")
    return flag >= 2, nibbles[1 if flag % 2 else 2 :]


def _broken(source: str, problem: str) -> BadAnswer:
    return BadAnswer(source, f"the proof does not lead from its root to the key: {problem}")
