"""Compressed NFTs whose leaves, trees and proofs Metaplex and SPL make, and an index of them as endpoints have it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

import base58

from chainfolio.adapters.solana.facts import COMPRESSED
from chainfolio.adapters.solana.trees import BUBBLEGUM, PROGRAMS
from chainfolio.positions import AccountState
from chainfolio.protocols import InstalledProtocols
from tests.json_rpc import Refuse
from tests.solana.fakes import FakeNode
from tests.solana.ledger import Ledger
from tests.solana.ledger_node import LedgerNode, read
from tests.solana.sdk import Small, done

APART: Final = "bubblegum"
OWNER: Final = "4abvSWugzSRhpAk4rpvdSruFAFoNG1D1JTStmzpGt7xA"
OTHER: Final = "D9fuVSy8oRGmztVJZVFsnHzTvowsfCAkY7VoNV8Ls2Jt"
SECOND: Final = "7K8DVxtNJGnMtUY1CQJT5jcs8sFGSZTDiG7kowvFpECh"
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
    """A tree after its leaves were planted one by one: its account, what Bubblegum keeps of it and where, what an index
    says of each, and the proofs of all after each of them."""

    tree: str
    content: bytes
    config: tuple[str, bytes]
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
        (
            "leaf",
            {
                **of,
                "index": Small(place),
                "owner": each.owner,
                "name": each.name,
                "delegate": each.delegate,
                "version": Small(each.version),
                "flags": Small(0),
            },
        )
        for place, each in enumerate(leaves)
    ]
    config, own, *made = done([("config", {"minted": len(leaves)}), ("authority", of), *jobs], APART)
    changes = [[Small(place), hashes[1]] for place, hashes in enumerate(made)]
    sizes = {"depth": Small(depth), "size": Small(size), "canopy": Small(canopy)}
    [(content, proofs)] = done([("tree", {**sizes, "authority": authority or own, "changes": changes})], APART)
    items = tuple(_item(tree, place, *both) for place, both in enumerate(zip(leaves, made, strict=True)))
    return Grove(tree, content, (own, config), items, tuple(tuple(map(tuple, each)) for each in proofs))


def _item(tree: str, place: int, leaf: Planted, made: Sequence[Any]) -> dict[str, Any]:
    id, hashed, data, creators, *second = made
    shown = [base58.b58encode(each).decode() for each in (hashed, data, creators, *second)]
    more = {"collection_hash": shown[3], "asset_data_hash": shown[4], "flags": 0} if second else {}
    return {
        "interface": "MplBubblegumV2" if second else "V1_NFT",
        "id": id,
        "content": {
            "$schema": "https://schema.metaplex.com/nft1.0.json",
            "json_uri": "https://one.test/7.json",
            "files": [],
            "metadata": {"name": leaf.name, "symbol": "LEAF", "token_standard": "NonFungible"},
            "links": {},
        },
        "compression": {
            "eligible": False,
            "compressed": True,
            "data_hash": shown[1],
            "creator_hash": shown[2],
            "asset_hash": shown[0],
            "tree": tree,
            "seq": place + 1,
            "leaf_id": place,
            **more,
        },
        "ownership": {
            "frozen": False,
            "delegated": leaf.delegate is not None,
            "delegate": leaf.delegate,
            "ownership_model": "single",
            "owner": leaf.owner,
        },
        "royalty": {"basis_points": 500, "percent": 0.05},
        "mutable": True,
        "burnt": False,
    }


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
                        "root": "not looked at",
                        "proof": list(proof),
                        "node_index": 2 ** len(proof) + place,
                        "leaf": each["compression"]["asset_hash"],
                        "tree_id": one.tree,
                    }
        return None

    @property
    def methods(self) -> dict[str, Callable[[Any], Any]]:
        """What it answers."""
        return {"getAssetsByOwner": self.assets, "getAssetProofs": self.proofs}


def mine() -> Grove:
    """A tree in which the owner has the first leaf, somebody else the second, and the owner two more."""
    delegated = Planted(OWNER, "Monke #3", delegate=OTHER)
    return grove(Planted(OWNER, "Monke #1"), Planted(OTHER), delegated, Planted(OWNER, "Monke #4", 2))


def ids(one: Grove, *places: int) -> list[str]:
    """What some leaves are called."""
    return [one.items[place]["id"] for place in places]


def serving(*groves: Grove, index: Index | None = None) -> tuple[LedgerNode, Index]:
    """A node that has these trees, and an index of them."""
    ledger, index = Ledger(), index or Index(groves)
    for each in groves:
        ledger.put(each.tree, each.program, each.content)
        ledger.put(each.config[0], BUBBLEGUM, each.config[1])
    node = LedgerNode(ledger, {OWNER: []})
    node.answers = {**node.answers, **index.methods}
    return node, index


async def state(node: FakeNode) -> AccountState:
    """What is read of the owner."""
    return (await read(node, OWNER, installed=InstalledProtocols()))[OWNER]


def held(found: AccountState) -> dict[str, tuple[str, str]]:
    """The compressed NFTs of an account, each with its tree and its leaf."""
    return {
        asset.reference: (each.pool, each.name)
        for each in found.positions
        for asset, raw in each.supplied.items()
        if asset.kind == COMPRESSED and raw == 1
    }


def refusing(code: int, words: str = "Method not found") -> Callable[[Any], Any]:
    """Refuses what it is asked."""

    def refused(params: Any) -> Any:
        raise Refuse(code, words)

    return refused


def item(one: Grove, **changed: Any) -> dict[str, Any]:
    """The owner's first leaf as an index says it, with some fields of `compression` or of its own changed."""
    found = copy.deepcopy(dict(one.items[0]))
    for name, each in changed.items():
        (found if name in found else found["compression"])[name] = each
    return found
