"""Compressed NFTs whose leaves, trees and proofs Metaplex and SPL make, and an index of them as endpoints have it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

import base58

from adapters.solana.trees import PROGRAMS
from tests.solana.sdk import Small, done

APART: Final = "bubblegum"
TREE: Final = "9cnHhwQ1YRBMvLLNqAsRmAHfT2NbrNJSc86F8ttCdV4f"


@dataclass(frozen=True, slots=True)
class Planted:
    """A leaf: whose it is, what it is called, and its version."""

    owner: str
    name: str = "Monke"
    version: int = 1
    delegate: str | None = None


@dataclass(frozen=True, slots=True)
class Grove:
    """A tree after its leaves were planted one by one: its account, what an index says of each, and the proofs of all
    after each of them."""

    tree: str
    content: bytes
    items: tuple[Mapping[str, Any], ...]
    proofs: tuple[tuple[tuple[str, ...], ...], ...]
    program: str = PROGRAMS[0]


@lru_cache
def grove(
    *leaves: Planted, tree: str = TREE, depth: int = 3, size: int = 8, canopy: int = 1, authority: str = ""
) -> Grove:
    """A tree with these leaves, from the left."""
    of = {"tree": tree}
    jobs = [
        ("leaf", {**of, "index": Small(place), "owner": each.owner, "name": each.name, "delegate": each.delegate,
                  "version": Small(each.version), "flags": Small(0)})
        for place, each in enumerate(leaves)
    ]  # fmt: skip
    own, *made = done([("authority", of), *jobs], APART)
    changes = [[Small(place), hashes[1]] for place, hashes in enumerate(made)]
    sizes = {"depth": Small(depth), "size": Small(size), "canopy": Small(canopy)}
    [(content, proofs)] = done([("tree", {**sizes, "authority": authority or own, "changes": changes})], APART)
    items = tuple(_item(tree, place, *both) for place, both in enumerate(zip(leaves, made, strict=True)))
    return Grove(tree, content, items, tuple(tuple(map(tuple, each)) for each in proofs))


def _item(tree: str, place: int, leaf: Planted, made: Sequence[Any]) -> dict[str, Any]:
    id, hashed, data, creators, *second = made
    shown = [base58.b58encode(each).decode() for each in (hashed, data, creators, *second)]
    more = {"collection_hash": shown[3], "asset_data_hash": shown[4], "flags": 0} if second else {}
    return {
        "interface": "MplBubblegumV2" if second else "V1_NFT", "id": id,
        "content": {
            "$schema": "https://schema.metaplex.com/nft1.0.json", "json_uri": "https://one.test/7.json", "files": [],
            "metadata": {"name": leaf.name, "symbol": "LEAF", "token_standard": "NonFungible"}, "links": {},
        },
        "compression": {
            "eligible": False, "compressed": True, "data_hash": shown[1], "creator_hash": shown[2],
            "asset_hash": shown[0], "tree": tree, "seq": place + 1, "leaf_id": place, **more,
        },
        "ownership": {
            "frozen": False, "delegated": leaf.delegate is not None, "delegate": leaf.delegate,
            "ownership_model": "single", "owner": leaf.owner,
        },
        "royalty": {"basis_points": 500, "percent": 0.05}, "mutable": True, "burnt": False,
    }  # fmt: skip


@dataclass(slots=True)
class Index:
    """An index of compressed NFTs as an endpoint has it. `age` is how many changes its proofs are behind."""

    groves: Sequence[Grove]
    age: int = 0
    also: Sequence[Mapping[str, Any]] = ()
    asked: list[str] = field(default_factory=list)

    def assets(self, params: Any) -> Any:
        """`getAssetsByOwner`."""
        assert set(params) == {"ownerAddress", "sortBy", "limit", "page"}
        self.asked.append("getAssetsByOwner")
        several = [each for one in self.groves for each in one.items] + list(self.also)
        own = [each for each in several if each["ownership"]["owner"] == params["ownerAddress"]]
        own.sort(key=lambda each: str(each["id"]))
        first = params["limit"] * (params["page"] - 1)
        items = own[first : first + params["limit"]]
        return {"total": len(items), "limit": params["limit"], "page": params["page"], "items": items}

    def proofs(self, params: Any) -> Any:
        """`getAssetProofs`."""
        self.asked.append("getAssetProofs")
        return {id: self._proof(id) for id in params["ids"]}

    def _proof(self, id: str) -> Any:
        for one in self.groves:
            for place, each in enumerate(one.items):
                if each["id"] == id:
                    proof = one.proofs[max(0, len(one.proofs) - 1 - self.age)][place]
                    return {
                        "root": "not looked at", "proof": list(proof), "node_index": 2 ** len(proof) + place,
                        "leaf": each["compression"]["asset_hash"], "tree_id": one.tree,
                    }  # fmt: skip
        return None

    @property
    def methods(self) -> dict[str, Callable[[Any], Any]]:
        """What it answers."""
        return {"getAssetsByOwner": self.assets, "getAssetProofs": self.proofs}
