"""Compressed NFTs as leaves of Merkle trees: leaf hashes, tree accounts and proofs. No I/O.

The chain stores only the roots of a tree. Its account has a ring of the last changes: the root after each, and the
nodes on its path. A proof of any root in the ring is updated through the later changes, as the program does it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from sha3 import keccak_256

from chainfolio.adapters.solana.account_fields import KEY_SIZE, address
from chainfolio.adapters.solana.account_reads import derived
from chainfolio.adapters.solana.layouts import BadLayout

BUBBLEGUM: Final = "BGUMAp9Gq7iTEuizy4pqaxsTyUCBK68MDfK752saRPUY"
PROGRAMS: Final = (
    "cmtDvXumGCrqC1Age74AVPhSRVXJMd8PJS91L8KbNCK",  # of SPL
    "mcmt6YrQEMKw8Mw43FmpRLmf7BqRnFMKmAcbxE3xkAW",  # of Metaplex, for the second version
)
HEADER_SIZE: Final = 56
RING_AT: Final = 80  # after the header, the sequence number, the index of the newest change, and their count
TREE, FIRST_VERSION = 1, 0  # the kind of account, and the version of its header
MAX_DEPTH: Final = 30
MAX_CHANGES: Final = 2_048
U32: Final = 4


class Leaf(NamedTuple):
    """A listed compressed NFT and its proof.

    Attributes:
        id: The asset id.
        tree: The address of its tree.
        leaf_index: Of the leaf in the tree.
        hash: The hash of the leaf if the NFT belongs to the account.
        proof: The sibling nodes from the leaf to the root.
    """

    id: str
    tree: str
    leaf_index: int
    hash: bytes
    proof: tuple[bytes, ...]


class Change(NamedTuple):
    """A change of a leaf: the root after it, the nodes on its path, and the index of the leaf."""

    root: bytes
    nodes: bytes
    leaf_index: int


class Tree(NamedTuple):
    """The account of a tree: its authority, its depth, and its last changes, the newest last."""

    authority: str
    depth: int
    changes: tuple[Change, ...]


def keccak(*parts: bytes) -> bytes:
    """Return the Keccak-256 hash of the concatenated parts."""
    return bytes(keccak_256(b"".join(parts)).digest())


class LeafFields(NamedTuple):
    """The fields that leaves of both versions commit to; `data` and `creators` are hashes."""

    asset: bytes
    owner: bytes
    delegate: bytes
    nonce: int
    data: bytes
    creators: bytes

    def hash(self, version: int, *more: bytes) -> bytes:
        """Return the hash of a leaf with these fields and those that only its version has."""
        nonce = struct.pack("<Q", self.nonce)
        return keccak(bytes([version]), self.asset, self.owner, self.delegate, nonce, self.data, self.creators, *more)


def first_leaf(fields: LeafFields) -> bytes:
    """Return the hash of a leaf of version 1."""
    return fields.hash(1)


def second_leaf(fields: LeafFields, collection: bytes, asset_data: bytes, flags: int) -> bytes:
    """Return the hash of a leaf of version 2, which has three more fields."""
    return fields.hash(2, collection, asset_data, bytes([flags]))


def asset_address(tree: str, nonce: int) -> str:
    """Return the asset id of a leaf."""
    return derived(BUBBLEGUM, (b"asset", tree, struct.pack("<Q", nonce)))


def ring_end(header: bytes, owner: str) -> int:
    """Return the number of bytes up to the end of a tree's ring of changes, by its header.

    Raises:
        BadLayout: The account is no tree.
    """
    depth, changes = _sizes(header, owner)
    return RING_AT + changes * _change_size(depth)


def read(content: bytes, owner: str) -> Tree:
    """Return the tree in an account, whose bytes reach to the end of the ring at least.

    Raises:
        BadLayout: The account is no tree.
    """
    depth, capacity = _sizes(content, owner)
    size = _change_size(depth)
    if len(content) < RING_AT + capacity * size:
        raise BadLayout("it breaks off")
    newest, count = struct.unpack_from("<QQ", content, HEADER_SIZE + 8)
    if newest >= capacity or not 0 < count <= capacity:
        raise BadLayout("its newest change is not in its ring")
    offsets = (RING_AT + (newest - age) % capacity * size for age in reversed(range(count)))
    changes = tuple(_change(content[offset : offset + size], depth) for offset in offsets)
    return Tree(address(content[10 : 10 + KEY_SIZE]), depth, changes)


def _sizes(header: bytes, owner: str) -> tuple[int, int]:
    """Return the depth of a tree, and the capacity of its ring; raise BadLayout for other accounts."""
    if owner not in PROGRAMS:
        raise BadLayout(f"it belongs to the program {owner}")
    if len(header) < HEADER_SIZE:
        raise BadLayout("it breaks off")
    kind, version, capacity, depth = struct.unpack_from("<BBII", header)
    if (kind, version) != (TREE, FIRST_VERSION):
        raise BadLayout("it is another kind of account, or of an unknown version")
    if not 0 < depth <= MAX_DEPTH or not 0 < capacity <= MAX_CHANGES:
        raise BadLayout(f"no tree is {depth} deep with {capacity} changes")
    return depth, capacity


def _change_size(depth: int) -> int:
    return KEY_SIZE * (depth + 1) + 2 * U32


def _change(content: bytes, depth: int) -> Change:
    index = int.from_bytes(content[-2 * U32 : -U32], "little")
    if index >> depth:
        raise BadLayout("it has changed a leaf that it does not have")
    return Change(content[:KEY_SIZE], content[KEY_SIZE : -2 * U32], index)


def fault(leaf: Leaf, tree: Tree, minted_count: int) -> str:
    """Return the reason why a leaf is not proven; empty if it is.

    Args:
        leaf: The leaf and its proof.
        tree: Its tree.
        minted_count: The number of leaves that Bubblegum minted into the tree; 0 if the tree is not Bubblegum's.
    """
    if tree.authority != derived(BUBBLEGUM, (leaf.tree,)) or leaf.leaf_index >= minted_count:
        return "its tree is not Bubblegum's, so that anything may have been written into it"
    if leaf.leaf_index >> tree.depth:
        return f"its tree is {tree.depth} deep, and has no such leaf"
    if len(leaf.proof) != tree.depth:
        return f"its proof is {len(leaf.proof)} long, and its tree {tree.depth} deep"
    root = _root(leaf.hash, leaf.leaf_index, leaf.proof)
    roots = [change.root for change in tree.changes]
    if root not in roots:
        return "its proof leads to no root that its tree has at this slot"
    later_changes = tree.changes[len(roots) - roots[::-1].index(root) :]
    if _root(leaf.hash, leaf.leaf_index, _updated_proof(leaf, later_changes)) != roots[-1]:
        return "it was changed after its proof was made"
    return ""


def _updated_proof(leaf: Leaf, later_changes: Sequence[Change]) -> list[bytes]:
    """Return the proof of a leaf after later changes of other leaves.

    Each change replaces the sibling at the level where both paths meet.
    """
    proof = list(leaf.proof)
    for change in later_changes:
        if change.leaf_index != leaf.leaf_index:
            level = (change.leaf_index ^ leaf.leaf_index).bit_length() - 1
            proof[level] = change.nodes[KEY_SIZE * level : KEY_SIZE * (level + 1)]
    return proof


def _root(leaf: bytes, index: int, proof: Sequence[bytes]) -> bytes:
    """Return the root that a proof leads to."""
    node = leaf
    for level, sibling in enumerate(proof):
        node = keccak(sibling, node) if index >> level & 1 else keccak(node, sibling)
    return node
