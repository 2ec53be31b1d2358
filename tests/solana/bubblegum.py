"""Compressed NFTs in trees written by Metaplex's and SPL's code, and a DAS index that serves them."""

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
from tests.solana.sdk import Small, run_jobs

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
    """A tree after its leaves were added one by one.

    `content` is its account, `config` the address and content of Bubblegum's account of it, `items` the assets
    as an index lists them, `proofs[n]` the proofs of all leaves after n + 1 additions.
    """

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
                "index": Small(index),
                "owner": each.owner,
                "name": each.name,
                "delegate": each.delegate,
                "version": Small(each.version),
                "flags": Small(0),
            },
        )
        for index, each in enumerate(leaves)
    ]
    config, authority_address, *leaf_hashes = run_jobs(
        [("config", {"minted": len(leaves)}), ("authority", of), *jobs], APART
    )
    changes = [[Small(index), hashes[1]] for index, hashes in enumerate(leaf_hashes)]
    sizes = {"depth": Small(depth), "size": Small(size), "canopy": Small(canopy)}
    [(content, proofs)] = run_jobs(
        [("tree", {**sizes, "authority": authority or authority_address, "changes": changes})], APART
    )
    items = tuple(_item(tree, index, *both) for index, both in enumerate(zip(leaves, leaf_hashes, strict=True)))
    return Grove(tree, content, (authority_address, config), items, tuple(tuple(map(tuple, each)) for each in proofs))


def _item(tree: str, index: int, leaf: Planted, hashes: Sequence[Any]) -> dict[str, Any]:
    id, hashed, data, creators, *second = hashes
    encoded = [base58.b58encode(each).decode() for each in (hashed, data, creators, *second)]
    extra_fields = {"collection_hash": encoded[3], "asset_data_hash": encoded[4], "flags": 0} if second else {}
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
            "data_hash": encoded[1],
            "creator_hash": encoded[2],
            "asset_hash": encoded[0],
            "tree": tree,
            "seq": index + 1,
            "leaf_id": index,
            **extra_fields,
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
    """A DAS index of compressed NFTs. `age` is the number of changes by which its proofs lag."""

    groves: Sequence[Grove]
    age: int = 0
    also: Sequence[Mapping[str, Any]] = ()
    requests: list[str] = field(default_factory=list)

    def assets(self, params: Any) -> Any:
        """`getAssetsByOwner`."""
        assert set(params) == {"ownerAddress", "sortBy", "limit", "page"}
        self.requests.append("getAssetsByOwner")
        all_items = [each for grove in self.groves for each in grove.items] + list(self.also)
        owned_items = [each for each in all_items if each["ownership"]["owner"] == params["ownerAddress"]]
        owned_items.sort(key=lambda each: str(each["id"]))
        first = params["limit"] * (params["page"] - 1)
        items = owned_items[first : first + params["limit"]]
        return {"total": len(items), "limit": params["limit"], "page": params["page"], "items": items}

    def proofs(self, params: Any) -> Any:
        """`getAssetProofs`."""
        self.requests.append("getAssetProofs")
        return {id: self._proof(id) for id in params["ids"]}

    def _proof(self, id: str) -> Any:
        for grove in self.groves:
            for index, each in enumerate(grove.items):
                if each["id"] == id:
                    proof = grove.proofs[max(0, len(grove.proofs) - 1 - self.age)][index]
                    return {
                        "root": "not looked at",
                        "proof": list(proof),
                        "node_index": 2 ** len(proof) + index,
                        "leaf": each["compression"]["asset_hash"],
                        "tree_id": grove.tree,
                    }
        return None

    @property
    def methods(self) -> dict[str, Callable[[Any], Any]]:
        """Return the methods that the index serves, by name."""
        return {"getAssetsByOwner": self.assets, "getAssetProofs": self.proofs}


def sample_grove() -> Grove:
    """Return a tree with three leaves of the owner (the first, third and fourth) and one of another owner."""
    delegated = Planted(OWNER, "Monke #3", delegate=OTHER)
    return grove(Planted(OWNER, "Monke #1"), Planted(OTHER), delegated, Planted(OWNER, "Monke #4", 2))


def ids(grove: Grove, *indexes: int) -> list[str]:
    """Return the asset ids of leaves of a tree, by leaf index."""
    return [grove.items[index]["id"] for index in indexes]


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
    """Read the state of the owner's account."""
    return (await read(node, OWNER, installed=InstalledProtocols()))[OWNER]


def compressed_nfts(account: AccountState) -> dict[str, tuple[str, str]]:
    """The compressed NFTs of an account, each with its tree and its leaf."""
    return {
        asset.reference: (each.pool, each.name)
        for each in account.positions
        for asset, raw in each.supplied.items()
        if asset.kind == COMPRESSED and raw == 1
    }


def refusing(code: int, message: str = "Method not found") -> Callable[[Any], Any]:
    """Return an answer that refuses every request with an error code and a message."""

    def refuse(params: Any) -> Any:
        raise Refuse(code, message)

    return refuse


def item(grove: Grove, **changed: Any) -> dict[str, Any]:
    """Return the owner's first leaf as listed, with fields of it or of its `compression` replaced."""
    asset = copy.deepcopy(dict(grove.items[0]))
    for name, each in changed.items():
        (asset if name in asset else asset["compression"])[name] = each
    return asset
