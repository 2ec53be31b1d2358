"""Compressed NFTs: what an index lists is held where its tree on the chain proves it at the slot; nothing else is."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from solders.keypair import Keypair
from solders.pubkey import Pubkey

from chainfolio.adapters.solana import das
from chainfolio.adapters.solana.chain import SolanaChain
from chainfolio.adapters.solana.facts import COMPRESSED
from chainfolio.adapters.solana.layouts import SYSTEM, BadLayout
from chainfolio.adapters.solana.parsing import key_bytes
from chainfolio.adapters.solana.reads import LeafList, LeavesRead
from chainfolio.adapters.solana.trees import BUBBLEGUM, HEADER_SIZE, PROGRAMS, Leaf, asset_address, fault, ring_end
from chainfolio.adapters.solana.trees import read as tree_of
from chainfolio.assets import Asset
from chainfolio.engine.snapshots.trust import Trust
from chainfolio.localchain.solana.dated import dated
from chainfolio.localchain.solana.node import SolanaNode
from chainfolio.localchain.solana.programs import send_coins
from chainfolio.plans import Unknown, run_batched
from tests.solana.bubblegum import (
    APART,
    OTHER,
    OWNER,
    SECOND,
    TREE,
    Grove,
    Index,
    Planted,
    grove,
    held,
    ids,
    item,
    mine,
    refusing,
    serving,
    state,
)
from tests.solana.conftest import Run
from tests.solana.sdk import done
from tests.solana.test_interfaces import later

# --- what vendors say -------------------------------------------------------------------------------------------------


def test_programs_and_addresses_are_those_of_the_vendors() -> None:
    programs, owner = done([("addresses", {}), ("authority", {"tree": TREE})], APART)
    assert programs == [*PROGRAMS, BUBBLEGUM]
    one = mine()
    assert tree_of(one.content, one.program).authority == owner
    assert [asset_address(TREE, place) for place in range(4)] == ids(one, 0, 1, 2, 3)


def leaves_of(one: Grove, age: int = 0) -> list[Leaf]:
    """The leaves of a tree as they are, with the proofs of some changes ago."""
    proofs = one.proofs[len(one.proofs) - 1 - age]
    return [
        Leaf(
            each["id"],
            one.tree,
            place,
            key_bytes(each["compression"]["asset_hash"]),
            tuple(map(key_bytes, proofs[place])),
        )
        for place, each in enumerate(one.items)
    ]


@pytest.mark.parametrize("size", [8, 4])
def test_a_proof_is_carried_forward_through_every_change_since_as_far_as_the_ring_reaches(size: int) -> None:
    count = 7
    one = grove(*(Planted(OWNER, f"Monke #{each}") for each in range(count)), size=size)
    tree = tree_of(one.content, one.program)
    for age in range(count):
        planted = count - age  # leaves that were there when the proofs were made
        for place, leaf in enumerate(leaves_of(one, age)):
            # A proof made just before its leaf was planted leads to the root just after.
            reached = age < size if place < planted else place == planted and age - 1 < size
            assert fault(leaf, tree, count) == (
                "" if reached else "its proof leads to no root that its tree has at this slot"
            )


def test_a_leaf_that_changed_hands_since_its_proof_is_not_held() -> None:
    before = grove(Planted(OWNER), Planted(OTHER))
    tree = tree_of(before.content, before.program)
    [mine, _] = leaves_of(before)
    last = tree.changes[-1]._replace(leaf_index=0, nodes=bytes(32) + tree.changes[-1].nodes[32:], root=b"\7" * 32)
    assert fault(mine, tree, 2) == ""
    assert "changed" in fault(mine, tree._replace(changes=(*tree.changes, last)), 2)


@pytest.mark.parametrize(
    ("spoilt", "said"),
    [
        (lambda c: b"", "breaks off"),
        (lambda c: c[:55], "breaks off"),
        (lambda c: c[:200], "breaks off"),
        (lambda c: b"\0" + c[1:], "another kind"),
        (lambda c: c[:1] + b"\1" + c[2:], "another kind"),
        (lambda c: c[:6] + struct.pack("<I", 31) + c[10:], "31 deep"),
        (lambda c: c[:6] + bytes(4) + c[10:], "0 deep"),
        (lambda c: c[:2] + struct.pack("<I", 2**31) + c[6:], "changes"),
        (lambda c: c[:2] + bytes(4) + c[6:], "0 changes"),
        (lambda c: c[:64] + struct.pack("<Q", 8) + c[72:], "ring"),
        (lambda c: c[:72] + bytes(8) + c[80:], "ring"),
        (lambda c: c[:72] + struct.pack("<Q", 9) + c[80:], "ring"),
        (lambda c: c[: 80 + 128] + struct.pack("<I", 8) + c[80 + 132 :], "leaf that it does not have"),
    ],
)
def test_what_is_no_tree_is_refused(spoilt: Callable[[bytes], bytes], said: str) -> None:
    with pytest.raises(BadLayout, match=said):
        tree_of(spoilt(mine().content), PROGRAMS[0])


def test_a_tree_of_another_program_is_none() -> None:
    with pytest.raises(BadLayout, match="belongs to the program"):
        ring_end(mine().content, SYSTEM)


# --- on a real node ---------------------------------------------------------------------------------------------------


@contextmanager
def indexed(node: SolanaNode, *groves: Grove) -> Iterator[str]:
    """A node with these trees that has an index of them."""
    for each in groves:
        node.put(Pubkey.from_string(each.tree), each.program, each.content, 10**9)
        node.put(Pubkey.from_string(each.config[0]), BUBBLEGUM, each.config[1], 10**9)
    later(node)
    with dated(node, overrides=Index(groves).methods) as url:
        yield url


@pytest.mark.node
def test_compressed_nfts_are_in_a_portfolio_by_their_trees_and_spam_among_them_is_spam(
    node: SolanaNode, running: Callable[..., Run]
) -> None:
    wallet, tree = Keypair().pubkey(), str(Keypair().pubkey())
    send_coins(node, wallet, 10**9)
    lure = "Claim 2 SOL at https://claim.test"
    one = grove(
        Planted(str(wallet), "Monke \u202e#1"), Planted(OTHER), Planted(str(wallet), lure, 2), tree=tree, canopy=2
    )
    with indexed(node, one) as url:
        run = running(node.rpc("getGenesisHash"), url)
        run("watch", str(wallet))
        [portfolio] = run("portfolio", str(wallet))
    there = portfolio["assetByProtocols"]["bubblegum"]["chains"]["solana"]["protocolPositions"]["WALLET"]
    found = {each["name"]: each for each in there["protocolPositions"]}
    assert {each["poolAddress"] for each in found.values()} == {tree}
    [plain], [spam] = found["Leaf 0"]["supplyAssets"], found["Leaf 2"]["supplyAssets"]
    assert (plain["contract"], plain["balance"], plain["name"]) == (*ids(one, 0), "1", "monke #1")
    assert plain.get("spam") is None
    assert "LINK" in spam["spam"]["reasons"]
    assert (len(found), portfolio["spamAssets"], portfolio["completeness"]) == (2, 1, "complete")
    assert not [each for each in portfolio["issues"] if "compressed" in each["reason"]]


@pytest.mark.node
async def test_a_node_without_an_index_is_asked_for_it_once_and_the_answer_says_that_they_are_not_seen(
    node: SolanaNode, chain: SolanaChain
) -> None:
    block = (await chain.heads()).latest
    for _ in range(2):
        [told] = await chain.answer([LeavesRead(OWNER)], block)
        assert told == das.NO_INDEX
    [endpoint] = chain.node.endpoints
    assert (endpoint.calls["getAssetsByOwner"], endpoint.capabilities[das.INDEX_CAPABILITY]) == (1, 0)
    assert "NoIndex" not in endpoint.errors.counts


# --- what an index says -----------------------------------------------------------------------------------------------


async def test_what_the_tree_proves_is_held_of_both_versions_and_with_a_delegate() -> None:
    one = mine()
    found = await state(serving(one)[0])
    assert held(found) == {id: (TREE, f"Leaf {place}") for place, id in zip((0, 2, 3), ids(one, 0, 2, 3), strict=True)}
    assert found.issues == ()


@pytest.mark.parametrize("age", [1, 3])
async def test_an_index_that_is_behind_its_tree_is_no_obstacle(age: int) -> None:
    one = mine()
    node, _ = serving(one, index=Index([one], age=age))
    assert set(held(await state(node))) >= set(ids(one, 0))


async def test_many_trees_are_read_at_the_slot_of_the_wallet_in_few_requests() -> None:
    several = [grove(Planted(OWNER), tree=str(Keypair().pubkey())) for _ in range(3)]
    node, _ = serving(*several, grove(Planted(OWNER, version=2), tree=SECOND, depth=5, size=8))
    node.moves = 0
    assert len(held(await state(node))) == 4
    wallet = ["getMultipleAccounts", "getTokenAccountsByOwner", "getTokenAccountsByOwner", "getProgramAccounts"]
    trees = ["getMultipleAccounts"] * 3  # of two sizes, and what Bubblegum says of all
    lists = ["getAssetsByOwner", "getAssetProofs", "getMultipleAccounts"]
    assert sorted(node.asked) == sorted([*wallet * 2, *trees, *lists])


async def test_whose_one_is_is_no_balance() -> None:
    chain = serving(mine())[0].chain()
    block = (await chain.heads()).latest
    asset = Asset(chain.caip2, COMPRESSED, ids(mine(), 0)[0])
    reports = await run_batched({"": chain.balances([(OWNER, asset)])}, lambda reads: chain.answer(reads, block))
    assert reports[""].result is not None
    assert isinstance(reports[""].result[0], Unknown)
    await chain.close()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"leaf_id": 8}, "called otherwise"),
        ({"leaf_id": 2**40}, "no tree has"),
        ({"leaf_id": None}, "no tree has"),
        ({"leaf_id": "0"}, "cannot be read"),
        ({"leaf_id": -1}, "cannot be read"),
        ({"leaf_id": 0.5}, "cannot be read"),
        ({"tree": SECOND}, "called otherwise"),
        ({"tree": "nowhere"}, "made of"),
        ({"data_hash": ""}, "made of"),
        ({"data_hash": 7}, "cannot be read"),
        ({"creator_hash": OTHER}, "no root"),
        ({"data_hash": OTHER}, "no root"),
        ({"flags": 0}, "version"),
        ({"flags": 256}, "cannot be read"),
        ({"collection_hash": OTHER}, "version"),
        ({"flags": 0, "collection_hash": OTHER, "asset_data_hash": OTHER}, "no root"),
        ({"id": 7}, "cannot be read"),
        ({"id": "\x1b[2J" + "x" * 36}, "cannot be read"),
        ({"id": OTHER}, "called otherwise"),
        ({"compressed": "yes"}, "cannot be read"),
        ({"ownership": {"owner": OWNER, "delegate": OTHER}}, "no root"),
        ({"ownership": {"owner": OWNER, "delegate": "x"}}, "made of"),
        ({"ownership": "mine"}, "cannot be read"),
    ],
)
async def test_an_asset_that_is_not_what_its_tree_has_is_not_held(changed: Mapping[str, Any], said: str) -> None:
    one = mine()
    wrong, right = item(one, **changed), one.items[2]
    node, _ = serving(one)
    node.answers = {**node.answers, "getAssetsByOwner": lambda params: {"items": [wrong, right]}}
    found = await state(node)
    assert list(held(found)) == ids(one, 2)
    [issue] = found.issues
    assert not Trust(lambda asset: False).resolve_issues([issue])[0].makes_partial
    assert said in issue.reason


async def test_what_is_somebody_elses_is_not_held_though_the_list_says_so() -> None:
    one = mine()
    theirs = {**one.items[1], "ownership": {"owner": OWNER, "delegate": None}}
    node, _ = serving(one)
    node.answers = {**node.answers, "getAssetsByOwner": lambda params: {"items": [theirs]}}
    found = await state(node)
    assert held(found) == {}
    assert ["no root" in each.reason and each.makes_partial for each in found.issues] == [True]


def test_a_leaf_beyond_its_tree_lies_in_none() -> None:
    one = mine()
    leaf, tree = leaves_of(one)[0], tree_of(one.content, one.program)
    assert "no such leaf" in fault(leaf._replace(leaf_index=8), tree, 9)
    assert "no such leaf" not in fault(leaf._replace(leaf_index=4), tree, 4)


@pytest.mark.parametrize("content", [None, 7, [], {"metadata": 7}, {"metadata": {"name": 7}}, {"metadata": None}])
async def test_what_it_is_called_cannot_keep_it_from_being_held(content: Any) -> None:
    one = mine()
    node, _ = serving(one)
    node.answers = {**node.answers, "getAssetsByOwner": lambda params: {"items": [item(one, content=content)]}}
    found = await state(node)
    assert (list(held(found)), found.issues) == (ids(one, 0), ())


@pytest.mark.parametrize(
    "left",
    [
        {"burnt": True},
        {"compressed": False},
        {"compression": None},
        {"compressed": False, "leaf_id": "x", "tree": 7},
    ],
)
async def test_what_is_burnt_or_not_compressed_is_left_out(left: Mapping[str, Any]) -> None:
    one = mine()
    node, _ = serving(one)
    node.answers = {**node.answers, "getAssetsByOwner": lambda params: {"items": [item(one, **left)]}}
    found = await state(node)
    assert (held(found), found.issues) == ({}, ())


@pytest.mark.parametrize(
    ("proof", "said"),
    [
        (lambda proof: proof[:-1], "2 long"),
        (lambda proof: [*proof, OTHER], "4 long"),
        (lambda proof: [], "0 long"),
        (lambda proof: proof[::-1], "no root"),
        (lambda proof: [OTHER] * 31, "cannot be read"),
        (lambda proof: ["x" * 40] * 3, "cannot be read"),
        (lambda proof: "none", "cannot be read"),
        (lambda proof: [1, 2, 3], "cannot be read"),
    ],
)
async def test_a_proof_that_leads_elsewhere_proves_nothing(proof: Callable[[Any], Any], said: str) -> None:
    one = mine()
    node, _ = serving(one)
    mine_only = {"items": [one.items[0]]}
    proofs = {each: {"proof": proof(list(one.proofs[-1][0]))} for each in ids(one, 0)}
    node.answers = {
        **node.answers,
        "getAssetsByOwner": lambda params: mine_only,
        "getAssetProofs": lambda params: proofs,
    }
    found = await state(node)
    assert held(found) == {}
    assert [said in each.reason and each.makes_partial for each in found.issues] == [True]


@pytest.mark.parametrize("proofs", [{}, {"another": {"proof": []}}, dict.fromkeys(("x",), None)])
async def test_an_asset_without_a_proof_is_not_held(proofs: Any) -> None:
    node, _ = serving(mine())
    node.answers = {**node.answers, "getAssetProofs": lambda params: proofs}
    found = await state(node)
    assert held(found) == {}
    assert ["proof cannot be read" in each.reason for each in found.issues] == [True]


async def test_a_proof_of_another_leaf_proves_nothing() -> None:
    one = mine()
    node, index = serving(one)
    [other] = ids(one, 1)

    def swapped(params: Any) -> Any:
        return dict.fromkeys(params["ids"], index.proofs({"ids": [other]})[other])

    node.answers = {**node.answers, "getAssetProofs": swapped}
    assert held(await state(node)) == {}


@pytest.mark.parametrize("name", ["getAssetProofBatch", "getAssetProof"])
async def test_proofs_come_by_whatever_method_an_endpoint_has_which_is_remembered(name: str) -> None:
    one = mine()
    node, index = serving(one)
    single = name == "getAssetProof"
    given = (lambda params: index.proofs({"ids": [params["id"]]})[params["id"]]) if single else index.proofs
    node.answers = {**node.answers, "getAssetProofs": refusing(-32601), name: given}
    chain = node.chain()
    block = (await chain.heads()).latest
    for _ in range(2):
        [told] = await chain.answer([LeavesRead(OWNER)], block)
        assert isinstance(told, LeafList)
        assert len(told.leaves) == 3
    assert node.asked.count("getAssetProofs") == 1
    await chain.close()


async def test_a_tree_that_bubblegum_did_not_plant_proves_nothing() -> None:
    one = grove(Planted(OWNER), authority=OTHER)
    found = await state(serving(one)[0])
    assert held(found) == {}
    assert ["not Bubblegum's" in each.reason and each.makes_partial for each in found.issues] == [True]


@pytest.mark.parametrize(
    "config", [None, (SYSTEM, b"\0" * 96), (BUBBLEGUM, b""), (BUBBLEGUM, b"\1" * 96), (OTHER, None)]
)
async def test_a_tree_that_was_given_to_bubblegum_after_leaves_were_written_into_it_proves_nothing(
    config: tuple[str, bytes | None] | None,
) -> None:
    one = mine()
    node, _ = serving(one)
    at, content = one.config
    if config is None:
        del node.ledger.accounts[at]
    else:
        node.ledger.put(at, config[0], content if config[1] is None else config[1])
    found = await state(node)
    assert held(found) == {}
    assert ["not Bubblegum's" in each.reason and each.makes_partial for each in found.issues] == [True]


async def test_a_leaf_that_bubblegum_did_not_put_into_its_tree_is_not_held() -> None:
    one, two = mine(), grove(Planted(OWNER), Planted(OTHER))
    node, _ = serving(one)
    node.ledger.put(one.config[0], BUBBLEGUM, two.config[1])  # it knows of two
    found = await state(node)
    assert list(held(found)) == ids(one, 0)
    assert ["not Bubblegum's" in each.reason and each.makes_partial for each in found.issues] == [True]


@pytest.mark.parametrize(
    "account",
    [
        None,
        (SYSTEM, b""),
        (SYSTEM, b"\1" * 1368),
        (PROGRAMS[0], b""),
        (PROGRAMS[0], b"\1\0" + bytes(60)),
    ],
)
async def test_an_index_of_another_chain_proves_nothing(account: tuple[str, bytes] | None) -> None:
    one = mine()
    node, _ = serving(one)
    if account is None:
        del node.ledger.accounts[TREE]
    else:
        node.ledger.put(TREE, *account)
    found = await state(node)
    assert held(found) == {}
    assert [each.makes_partial for each in found.issues] == [True]


async def test_a_tree_that_breaks_off_between_its_header_and_the_snapshot_proves_nothing() -> None:
    one = mine()
    node, _ = serving(one)
    whole = node.answers["getMultipleAccounts"]

    def told(params: Any) -> Any:
        header = params[1].get("dataSlice", {}).get("length") == HEADER_SIZE
        node.ledger.put(TREE, one.program, one.content if header else one.content[:300])
        return whole(params)

    node.answers = {**node.answers, "getMultipleAccounts": told}
    found = await state(node)
    assert held(found) == {}
    assert ["breaks off" in each.reason for each in found.issues] == [True]


async def test_another_endpoint_with_an_index_is_asked_where_one_has_none() -> None:
    one = mine()
    node, index = serving(one)
    calls = iter([False, True])

    def first_none(params: Any) -> Any:
        return index.assets(params) if next(calls) else refusing(-32601)(params)

    node.answers = {**node.answers, "getAssetsByOwner": first_none}
    chain = node.chain("http://one.test", "http://two.test")
    [told] = await chain.answer([LeavesRead(OWNER)], (await chain.heads()).latest)
    assert not isinstance(told, Unknown)
    assert len(told.leaves) == 3
    await chain.close()


def test_the_program_of_the_second_version_has_the_same_trees() -> None:
    one = replace(mine(), program=PROGRAMS[1])
    assert tree_of(one.content, one.program) == tree_of(one.content, PROGRAMS[0])
