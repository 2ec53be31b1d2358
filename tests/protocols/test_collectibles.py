"""Collectibles that an account holds, by their numbers: real collections on a real chain, and those of strangers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from decimal import Decimal

import pytest

from chainfolio.assets import Asset
from chainfolio.contracts import Issue, Snapshot
from chainfolio.engine.snapshots import collectibles
from chainfolio.engine.snapshots.trust import Trust
from chainfolio.interactions import Interactions
from chainfolio.localchain.artifacts import artifact
from chainfolio.localchain.deploy import deploy
from chainfolio.localchain.evm import ZERO, Tx, created_address, tx, words
from chainfolio.localchain.hostile import GOOD, TRANSFER, Answer, Kind, Log, gives, log_tx
from chainfolio.localchain.node import LocalNode
from chainfolio.portfolio.compose import portfolio
from chainfolio.portfolio.document import Portfolio
from chainfolio.portfolio.facts import ChainFacts, Options
from chainfolio.portfolio.nfts import with_nfts
from chainfolio.portfolio.valuation import valuate
from tests.protocols.world import World

LURE = "Visit nft-gift.com to claim"
FACTS = {"local": ChainFacts("local", "Local", 31337, {"token": "https://explorer.example/token/{address}"})}


@dataclass(frozen=True)
class Held:
    """What Alice holds, and the collections by name."""

    snapshot: Snapshot
    account: str
    at: dict[str, str]

    def shown(self, options: Options) -> Portfolio:
        valuation = valuate([self.snapshot])
        document = portfolio(self.account, valuation, FACTS, updated_ms=0, options=options)
        return with_nfts(document, valuation.for_account(self.account).collectibles, FACTS, options)


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Held]:
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

        def hostile(name: str, answers: dict[str, Answer], numbers: range) -> None:
            at[name] = created_address(stranger, int(node.rpc("eth_getTransactionCount", stranger, "pending"), 16))
            rows = [answer.row(signature) for signature, answer in {**GOOD, **answers}.items()]
            code = artifact("Hostile").creation(words(["(bytes4,uint8,uint256,bytes)[]"], rows))
            node.settle([Tx(stranger, None, code, gas=5_000_000)])
            for number in numbers:
                ends = ["0x" + "00" * 12 + each[2:].lower() for each in (ZERO, alice)]
                node.settle([log_tx(stranger, at[name], Log([TRANSFER, *ends, f"0x{number:064x}"]))])
            at[name] = at[name].lower()

        hostile("forged", {"ownerOf(uint256)": gives("address", bob)}, range(3))
        hostile("looping", {"ownerOf(uint256)": Answer(Kind.LOOP)}, range(2))
        lure = {"ownerOf(uint256)": gives("address", alice), "name()": gives("string", LURE)}
        hostile("lure", lure, range(1, 3))
        world = World(node, deployment, tmp_path_factory.mktemp("collectibles"))
        yield Held(world.snapshot(alice), alice.lower(), at)


def numbers(held: Held, collection: str) -> dict[str, int]:
    """By number, how many of a collection are held."""
    return {
        each.token.asset.token_id: each.raw
        for each in held.snapshot.collectibles
        if each.token.asset.reference == held.at[collection]
    }


def test_collectibles_are_held_by_number_as_their_contracts_say(held: Held) -> None:
    assert numbers(held, "Collectible") == {"7": 1, str(2**200): 1, "9": 1}  # not what left for good or was burnt
    assert numbers(held, "Edition") == {"5": 3}
    assert numbers(held, "forged") == numbers(held, "looping") == {}


def test_collectibles_are_shown_by_chain_and_collection_where_asked_for(held: Held) -> None:
    shown = held.shown(Options(nfts=True, explorer_urls=True))
    assert isinstance(shown.nfts_by_collection, dict)
    assert isinstance(shown.nfts_chains, dict)
    one = shown.nfts_by_collection[f"local:{held.at['Collectible']}"]
    assert (one.name, one.symbol, one.count, one.value) == ("Local Collectible", "LOCAL", "3", "N/A")
    assert [(each.token_id, each.balance) for each in one.items] == [("7", "1"), ("9", "1"), (str(2**200), "1")]
    assert one.explorer_url == f"https://explorer.example/token/{held.at['Collectible']}"
    assert shown.nfts_chains["local"].count == "8"
    assert shown.nfts_by_collection[f"local:{held.at['lure']}"].spam
    assert not one.spam


def test_collectibles_change_nothing_else_of_an_answer(held: Held) -> None:
    without = replace(held, snapshot=replace(held.snapshot, collectibles=()))
    assert held.shown(Options()) == without.shown(Options())
    assert held.shown(Options()).completeness == "complete"
    assert Decimal(held.shown(Options()).networth) > 0


# --- what is asked for of a wallet with more than is asked for ---

ME = "0x" + "11" * 20


def collection(number: int) -> Asset:
    return Asset("eip155:1", "erc721", f"0x{number:040x}")


def asked(ids: dict[Asset, range], own: tuple[Asset, ...] = (), left: dict[Asset, range] | None = None) -> list[Asset]:
    met = Interactions(
        received_ids={each: frozenset(some) for each, some in ids.items()},
        sent_ids={each: frozenset(some) for each, some in (left or {}).items()},
    )
    pairs, issues = collectibles.select(ME, met, Trust(lambda asset: False, {ME: own}))
    total = sum(map(len, ids.values()))
    assert bool(issues) == (total > len(pairs))
    for issue in issues:
        reason = collectibles.TOO_MANY.format(account=ME, count=total - len(pairs))
        assert issue == Issue("collectibles", ME, reason, makes_partial=False, account=ME)
    return [asset for _, asset in pairs]


def test_own_collections_are_asked_before_any_number_of_strangers_ones() -> None:
    own = collection(10**6)
    flood = {collection(each): range(20) for each in range(1, 500)}
    first = asked({**flood, own: range(40)}, own=(own,))
    assert len(first) == collectibles.MAX_READS
    assert {asset.collection for asset in first[:40]} == {own}


def test_a_large_collection_leaves_room_for_others_and_what_left_comes_last() -> None:
    large, small = collection(1), collection(2)
    found = asked({large: range(10**5), small: range(3)}, left={large: range(10)})
    assert [asset.token_id for asset in found if asset.collection == small] == ["0", "1", "2"]
    assert not {asset.token_id for asset in found if asset.collection == large} & {str(each) for each in range(10)}
