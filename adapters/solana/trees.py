"""Compressed NFTs: leaves of trees, of which the chain keeps the roots alone. What makes a leaf, how the account of a
tree is read, and whether a leaf lies in it. No I/O.

The account of a tree keeps a ring of its last changes: the root after each, and the nodes that it changed. A proof
that leads to any root of the ring is carried forward through the changes since, as the program does it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from sha3 import keccak_256

from adapters.solana.account_fields import KEY_SIZE, address
from adapters.solana.account_reads import derived
from adapters.solana.layouts import BadLayout

BUBBLEGUM: Final = "BGUMAp9Gq7iTEuizy4pqaxsTyUCBK68MDfK752saRPUY"
PROGRAMS: Final = (
    "cmtDvXumGCrqC1Age74AVPhSRVXJMd8PJS91L8KbNCK",  # of SPL
    "mcmt6YrQEMKw8Mw43FmpRLmf7BqRnFMKmAcbxE3xkAW",  # of Metaplex, for the second version
)
HEADER_SIZE: Final = 56
RING_AT: Final = 80  # behind the header, the number of changes, the newest in the ring, and how many are in it
TREE, FIRST_VERSION = 1, 0  # the kind of account, and the version of its header
MOST_DEPTH: Final = 30
MOST_CHANGES: Final = 2_048
U32: Final = 4


class Leaf(NamedTuple):
    """What is said to be a leaf: a compressed NFT, the tree and its place there, the hash that it has if it is the
    account's, and the nodes beside its way up."""

    id: str
    tree: str
    place: int
    hash: bytes
    proof: tuple[bytes, ...]


class Change(NamedTuple):
    """One change of a tree: the root after it, the nodes that it changed from the leaf upwards, and of which leaf."""

    root: bytes
    nodes: bytes
    place: int


class Tree(NamedTuple):
    """The account of a tree: who may change it, how deep it is, and its last changes, the newest last."""

    authority: str
    depth: int
    changes: tuple[Change, ...]


def keccak(*parts: bytes) -> bytes:
    """The hash of some bytes."""
    return bytes(keccak_256(b"".join(parts)).digest())


def first_leaf(asset: bytes, owner: bytes, delegate: bytes, nonce: int, data: bytes, creators: bytes) -> bytes:
    """A leaf of the first version."""
    return keccak(b"\1", asset, owner, delegate, struct.pack("<Q", nonce), data, creators)


def second_leaf(
    asset: bytes, owner: bytes, delegate: bytes, nonce: int, data: bytes, creators: bytes,
    collection: bytes, asset_data: bytes, flags: int,
) -> bytes:  # fmt: skip
    """A leaf of the second version, which has more to hash."""
    number, own = struct.pack("<Q", nonce), (data, creators, collection, asset_data, bytes([flags]))
    return keccak(b"\2", asset, owner, delegate, number, *own)


def asset_address(tree: str, nonce: int) -> str:
    """What the leaf of a tree is called."""
    return derived(BUBBLEGUM, (b"asset", tree, struct.pack("<Q", nonce)))


def ring_end(header: bytes, owner: str) -> int:
    """Where the ring of a tree ends, by its header; BadLayout where it is no tree."""
    depth, changes = _sizes(header, owner)
    return RING_AT + changes * _change_size(depth)


def read(content: bytes, owner: str) -> Tree:
    """A tree, of which there are bytes up to the end of its ring at least; BadLayout where it is none."""
    depth, most = _sizes(content, owner)
    size = _change_size(depth)
    if len(content) < RING_AT + most * size:
        raise BadLayout("it breaks off")
    newest, count = struct.unpack_from("<QQ", content, HEADER_SIZE + 8)
    if newest >= most or not 0 < count <= most:
        raise BadLayout("its newest change is not in its ring")
    places = (RING_AT + (newest - back) % most * size for back in reversed(range(count)))
    changes = tuple(_change(content[place : place + size], depth) for place in places)
    return Tree(address(content[10 : 10 + KEY_SIZE]), depth, changes)


def _sizes(header: bytes, owner: str) -> tuple[int, int]:
    """How deep a tree is, and how many changes its ring holds."""
    if owner not in PROGRAMS:
        raise BadLayout(f"it belongs to the program {owner}")
    if len(header) < HEADER_SIZE:
        raise BadLayout("it breaks off")
    kind, version, changes, depth = struct.unpack_from("<BBII", header)
    if (kind, version) != (TREE, FIRST_VERSION):
        raise BadLayout("it is another kind of account, or of a version that nobody knows here")
    if not 0 < depth <= MOST_DEPTH or not 0 < changes <= MOST_CHANGES:
        raise BadLayout(f"no tree is {depth} deep with {changes} changes")
    return depth, changes


def _change_size(depth: int) -> int:
    return KEY_SIZE * (depth + 1) + 2 * U32


def _change(content: bytes, depth: int) -> Change:
    index = int.from_bytes(content[-2 * U32 : -U32], "little")
    if index >> depth:
        raise BadLayout("it has changed a leaf that it does not have")
    return Change(content[:KEY_SIZE], content[KEY_SIZE : -2 * U32], index)


def fault(leaf: Leaf, tree: Tree, minted: int) -> str:
    """Why a leaf is not proven to lie in its tree, of which Bubblegum has minted so many; empty where it is."""
    if tree.authority != derived(BUBBLEGUM, (leaf.tree,)) or leaf.place >= minted:
        return "its tree is not Bubblegum's, so that anything may have been written into it"
    if leaf.place >> tree.depth:
        return f"its tree is {tree.depth} deep, and has no such leaf"
    if len(leaf.proof) != tree.depth:
        return f"its proof is {len(leaf.proof)} long, and its tree {tree.depth} deep"
    root = _root(leaf.hash, leaf.place, leaf.proof)
    roots = [change.root for change in tree.changes]
    if root not in roots:
        return "its proof leads to no root that its tree has at this slot"
    since = tree.changes[len(roots) - roots[::-1].index(root) :]
    if _root(leaf.hash, leaf.place, _carried(leaf, since)) != roots[-1]:
        return "it was changed after its proof was made"
    return ""


def _carried(leaf: Leaf, since: Sequence[Change]) -> list[bytes]:
    """The proof of a leaf after some changes of other leaves: of each, the node beside its way up is another one."""
    proof = list(leaf.proof)
    for change in since:
        if change.place != leaf.place:
            level = (change.place ^ leaf.place).bit_length() - 1
            proof[level] = change.nodes[KEY_SIZE * level : KEY_SIZE * (level + 1)]
    return proof


def _root(leaf: bytes, index: int, proof: Sequence[bytes]) -> bytes:
    """Where a proof leads."""
    node = leaf
    for level, beside in enumerate(proof):
        node = keccak(beside, node) if index >> level & 1 else keccak(node, beside)
    return node
