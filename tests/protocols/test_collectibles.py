"""Collectibles of an account by their numbers: real collections on a local chain, and hostile ones."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from decimal import Decimal

import pytest
from msgspec import UNSET

from chainfolio.assets import Account, Asset
from chainfolio.contracts import Issue, Snapshot
from chainfolio.engine.nft_gateways import NO_GATEWAY
from chainfolio.engine.service import Engine
from chainfolio.engine.snapshots import collectibles
from chainfolio.engine.snapshots.trust import Trust
from chainfolio.indexer.wiring import System
from chainfolio.interactions import Interactions
from chainfolio.localchain.artifacts import artifact
from chainfolio.localchain.deploy import deploy
from chainfolio.localchain.evm import ZERO, Tx, created_address, tx, words
from chainfolio.localchain.hostile import GOOD, TRANSFER, Answer, Kind, Log, gives, log_tx
from chainfolio.localchain.node import LocalNode
from chainfolio.portfolio.compose import portfolio
from chainfolio.portfolio.document import CollectionDocument, Portfolio, PositionSources
from chainfolio.portfolio.facts import ChainFacts, Options
from chainfolio.portfolio.nft_metadata import NO_URI
from chainfolio.portfolio.nfts import with_nfts
from chainfolio.portfolio.valuation import valuate
from tests.protocols.world import World

LURE = "Visit nft-gift.com to claim"
WITH_METADATA = Options(nfts=True, nft_metadata=True, sources=True, images=True)
TRAITS = {"name": "Seven \u202e<b>", "image": "data:image/svg+xml,<svg onload='alert(1)'/>"} | {
    "attributes": [{"trait_type": "Rarity", "value": "rare"}, {"trait_type": "Power", "value": 1.50}, {"value": {}}]
}


def encoded(document: object) -> str:
    return "data:application/json;base64," + base64.b64encode(json.dumps(document).encode()).decode()


LONG = gives("string", encoded(TRAITS | {"more": "x" * 3_100}))
TOKEN_URIS = {
    "traits": gives("string", encoded(TRAITS)),
    "silent": gives("string", ""),
    "reverting": Answer(Kind.REVERT),
    "endless": Answer(Kind.LOOP),
    "megabyte": gives("string", "https://nft.example/7", size=2**20),
    "long": LONG,
    "own": LONG,  # as long, of a collection that Alice obtained herself
    "cut off": gives("string", "data:application/json;base64,eyJ"),
}
USED_UP = "its contract could not be read: its contract is untrusted and used up 300,000 gas"
FACTS = {"local": ChainFacts("local", "Local", 31337, {"token": "https://explorer.example/token/{address}"})}


@dataclass(frozen=True)
class Holder:
    """Alice's snapshot and portfolio, and the collections by name."""

    snapshot: Snapshot
    account: str
    at: dict[str, str]
    document: Portfolio

    def render(self, options: Options) -> Portfolio:
        valuation = valuate([self.snapshot])
        portfolio_document = portfolio(self.account, valuation, FACTS, updated_ms=0, options=options)
        return with_nfts(portfolio_document, valuation.for_account(self.account).collectibles, FACTS, options)

    def collection(self, name: str) -> CollectionDocument:
        """Return a collection with metadata, as the engine shows it."""
        assert isinstance(self.document.nfts_by_collection, dict)
        return self.document.nfts_by_collection[f"local:{self.at[name]}"]


@pytest.fixture(scope="module")
def holder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Holder]:
    with LocalNode() as node:
        deployment = deploy(node)
        alice, bob, stranger = (deployment.accounts[name] for name in ("grace", "bob", "ivan"))
        at = {name: deployment.contracts[name].lower() for name in ("Collectible", "Edition")}
        mint = "mint(address,uint256)"
        node.settle([tx(alice, at["Collectible"], mint, alice, number) for number in (7, 2**200, 8, 9, 10)])
        node.settle(
            [
                tx(alice, at["Collectible"], "transferFrom(address,address,uint256)", alice, bob, 8),
                tx(alice, at["Collectible"], "transferFrom(address,address,uint256)", alice, bob, 9),
                tx(alice, at["Collectible"], "burn(uint256)", 10),
                tx(alice, at["Edition"], "mint(address,uint256,uint256)", alice, 5, 3),
            ]
        )
        node.settle([tx(bob, at["Collectible"], "transferFrom(address,address,uint256)", bob, alice, 9)])

        def hostile(name: str, answers: dict[str, Answer], numbers: range, sender: str = stranger) -> None:
            at[name] = created_address(stranger, int(node.rpc("eth_getTransactionCount", stranger, "pending"), 16))
            rows = [answer.row(signature) for signature, answer in {**GOOD, **answers}.items()]
            code = artifact("Hostile").creation(words(["(bytes4,uint8,uint256,bytes)[]"], rows))
            node.settle([Tx(stranger, None, code, gas=5_000_000)])
            for number in numbers:
                ends = ["0x" + "00" * 12 + each[2:].lower() for each in (ZERO, alice)]
                node.settle([log_tx(sender, at[name], Log([TRANSFER, *ends, f"0x{number:064x}"]))])
            at[name] = at[name].lower()

        hostile("forged", {"ownerOf(uint256)": gives("address", bob)}, range(3))
        hostile("looping", {"ownerOf(uint256)": Answer(Kind.LOOP)}, range(2))
        lure = {"ownerOf(uint256)": gives("address", alice), "name()": gives("string", LURE)}
        hostile("lure", lure, range(1, 3))
        for name, answer in TOKEN_URIS.items():
            answers = {"ownerOf(uint256)": gives("address", alice), "tokenURI(uint256)": answer}
            hostile(name, answers, range(7, 9), alice if name == "own" else stranger)
        world = World(node, deployment, tmp_path_factory.mktemp("collectibles"))

        async def read_document(system: System) -> Portfolio:
            engine, block = Engine(system), await system.chain("local").block(node.height)
            account = Account("evm", alice.lower())
            (document,) = await engine.at_pinned([account], "local", block, WITH_METADATA, past=False)
            return document

        yield Holder(world.snapshot(alice), alice.lower(), at, world.run(read_document))


def numbers(holder: Holder, collection: str) -> dict[str, int]:
    """By number, how many of a collection are held."""
    return {
        each.token.asset.token_id: each.raw
        for each in holder.snapshot.collectibles
        if each.token.asset.reference == holder.at[collection]
    }


def test_collectibles_are_held_by_number_as_their_contracts_say(holder: Holder) -> None:
    assert numbers(holder, "Collectible") == {"7": 1, str(2**200): 1, "9": 1}  # not what left for good or was burnt
    assert numbers(holder, "Edition") == {"5": 3}
    assert numbers(holder, "forged") == numbers(holder, "looping") == {}


def test_collectibles_are_shown_by_chain_and_collection_where_asked_for(holder: Holder) -> None:
    document = holder.render(Options(nfts=True, explorer_urls=True))
    assert isinstance(document.nfts_by_collection, dict)
    assert isinstance(document.nfts_chains, dict)
    collection_document = document.nfts_by_collection[f"local:{holder.at['Collectible']}"]
    assert (
        collection_document.name,
        collection_document.symbol,
        collection_document.count,
        collection_document.value,
    ) == ("Local Collectible", "LOCAL", "3", "N/A")
    assert [(each.token_id, each.balance) for each in collection_document.items] == [
        ("7", "1"),
        ("9", "1"),
        (str(2**200), "1"),
    ]
    assert collection_document.explorer_url == f"https://explorer.example/token/{holder.at['Collectible']}"
    assert document.nfts_chains["local"].count == str(8 + 2 * len(TOKEN_URIS))
    assert document.nfts_by_collection[f"local:{holder.at['lure']}"].spam
    assert not collection_document.spam


def test_collectibles_change_nothing_else_of_an_answer(holder: Holder) -> None:
    without = replace(holder, snapshot=replace(holder.snapshot, collectibles=()))
    assert holder.render(Options()) == without.render(Options())
    assert holder.render(Options()).completeness == "complete"
    assert Decimal(holder.render(Options()).networth) > 0


@pytest.mark.parametrize("name", ["traits", "own"])
def test_metadata_on_the_chain_give_names_and_attributes(holder: Holder, name: str) -> None:
    first, _ = holder.collection(name).items
    assert (first.token_id, first.name) == ("7", "Seven <b>")
    assert isinstance(first.attributes, tuple)
    assert [(each.name, each.value) for each in first.attributes] == [("Rarity", "rare"), ("Power", "1.5")]
    assert first.omitted_attributes == 1
    assert isinstance(first.img_small, str)
    assert first.img_small.startswith("data:image/svg+xml,%3Csvg")  # our own picture, not that of the metadata
    assert "alert" not in first.img_small


def test_an_item_shows_the_call_that_names_its_owner(holder: Holder) -> None:
    sources = holder.collection("Collectible").items[0].sources
    assert isinstance(sources, PositionSources)
    (call,) = sources.calls
    assert (call.number, call.signature, call.arguments) == ("owner", "ownerOf(uint256)(address)", ("7",))
    assert call.result == (holder.account,)
    assert sources.block_hash == holder.snapshot.block.hash


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("Collectible", NO_GATEWAY),
        ("silent", NO_URI),
        ("Edition", NO_GATEWAY),
        ("reverting", "its contract refuses to name its metadata"),
        ("endless", USED_UP),
        ("megabyte", USED_UP),
        ("long", USED_UP),
        ("cut off", "its metadata are no JSON"),
    ],
)
def test_metadata_that_are_not_known_have_a_reason(holder: Holder, name: str, problem: str) -> None:
    for item in holder.collection(name).items:
        assert (item.name, item.attributes) == (UNSET, UNSET)
        assert isinstance(item.metadata_problem, str)
        assert item.metadata_problem.startswith(problem)
    assert holder.document.completeness == "complete"


def test_collections_are_spam_for_the_reasons_of_tokens(holder: Holder) -> None:
    assert set(holder.collection("lure").spam_reasons or ()) == {"SITE", "LURE", "UNSOLICITED", "NO_PRICE"}
    assert [holder.collection(name).spam for name in ("Collectible", "own", "traits")] == [False] * 3


def test_the_uri_of_an_edition_has_its_number_in_hexadecimal(holder: Holder) -> None:
    (item,) = holder.collection("Edition").items
    assert item.metadata_uri == f"ipfs://edition/{5:064x}.json"


# --- what is asked for of a wallet with more than is asked for ---

ME = "0x" + "11" * 20


def collection(number: int) -> Asset:
    return Asset("eip155:1", "erc721", f"0x{number:040x}")


def select_assets(
    ids: dict[Asset, range], own_collections: tuple[Asset, ...] = (), departed: dict[Asset, range] | None = None
) -> list[Asset]:
    interactions = Interactions(
        received_ids={each: frozenset(numbers) for each, numbers in ids.items()},
        sent_ids={each: frozenset(numbers) for each, numbers in (departed or {}).items()},
    )
    pairs, issues = collectibles.select(ME, interactions, Trust(lambda asset: False, {ME: own_collections}))
    total = sum(map(len, ids.values()))
    assert bool(issues) == (total > len(pairs))
    for issue in issues:
        reason = collectibles.TOO_MANY.format(account=ME, count=total - len(pairs))
        assert issue == Issue("collectibles", ME, reason, makes_partial=False, account=ME)
    return [asset for _, asset in pairs]


def test_own_collections_are_asked_before_any_number_of_strangers_ones() -> None:
    own_collection = collection(10**6)
    flood = {collection(each): range(20) for each in range(1, 500)}
    first = select_assets({**flood, own_collection: range(40)}, own_collections=(own_collection,))
    assert len(first) == collectibles.MAX_READS
    assert {asset.collection for asset in first[:40]} == {own_collection}


def test_a_large_collection_leaves_room_for_others_and_what_left_comes_last() -> None:
    large, small = collection(1), collection(2)
    assets = select_assets({large: range(10**5), small: range(3)}, departed={large: range(10)})
    assert [asset.token_id for asset in assets if asset.collection == small] == ["0", "1", "2"]
    assert not {asset.token_id for asset in assets if asset.collection == large} & {str(each) for each in range(10)}
