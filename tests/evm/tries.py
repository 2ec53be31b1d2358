"""Merkle-Patricia tries built from their contents, by the yellow paper, appendix D."""

from __future__ import annotations

from collections.abc import Mapping

from sha3 import keccak_256

from chainfolio.adapters.evm import rlp

Path = tuple[int, ...]


def keccak(content: bytes) -> bytes:
    return bytes(keccak_256(content).digest())


def nibbles(key: bytes) -> Path:
    """The way to a key in a secure trie."""
    return tuple(nibble for byte in keccak(key) for nibble in (byte >> 4, byte & 15))


def compact(path: Path, *, ends: bool) -> bytes:
    """Hex-prefix encoding of part of a way."""
    flag = 2 * ends + len(path) % 2
    padded = (flag, *path) if len(path) % 2 else (flag, 0, *path)
    return bytes(16 * high + low for high, low in zip(padded[::2], padded[1::2], strict=True))


class Trie:
    """A trie with these contents: its root, and of each key the nodes on the way to it."""

    def __init__(self, contents: Mapping[bytes, bytes]) -> None:
        self.nodes: list[bytes] = []
        root = self._node({nibbles(key): value for key, value in contents.items()})
        self.nodes.append(rlp.encode(root))
        self.root = keccak(self.nodes[-1])

    def _node(self, contents: Mapping[Path, bytes]) -> rlp.Item:
        if not contents:
            return b""
        if len(contents) == 1:
            ((path, value),) = contents.items()
            return [compact(path, ends=True), value]
        first, shared = min(contents), 0
        while all(path[shared] == first[shared] for path in contents):
            shared += 1
        parts: list[rlp.Item] = []
        for nibble in range(16):
            subtree = {p[shared + 1 :]: value for p, value in contents.items() if p[shared] == nibble}
            parts.append(self._reference(self._node(subtree)))
        branch: rlp.Item = [*parts, b""]
        return [compact(first[:shared], ends=False), self._reference(branch)] if shared else branch

    def _reference(self, node: rlp.Item) -> rlp.Item:
        """Return a node as its parent refers to it: its hash, or the node itself if it is shorter."""
        content = rlp.encode(node)
        if node == b"" or len(content) < 32:
            return node
        self.nodes.append(content)
        return keccak(content)
