"""Compressed NFTs: what an index lists is held where its tree on the chain proves it at the slot; nothing else is."""

from __future__ import annotations

import copy
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from solders.keypair import Keypair
from solders.pubkey import Pubkey

from adapters.solana import das
from adapters.solana.accounts import describe
from adapters.solana.chain import SolanaChain
from adapters.solana.compressed import UNSEEN
from adapters.solana.facts import COMPRESSED
from adapters.solana.layouts import SYSTEM, BadLayout
from adapters.solana.parsing import key_bytes
from adapters.solana.reads import LeavesRead
from adapters.solana.trees import BUBBLEGUM, HEADER_SIZE, PROGRAMS, Leaf, asset_address, fault, ring_end
from adapters.solana.trees import read as tree_of
from chainfolio.assets import Asset
from chainfolio.plans import Unknown, run_batched
from chainfolio.positions import AccountState
from chainfolio.protocols import InstalledProtocols
from localchain.solana.dated import dated
from localchain.solana.node import SolanaNode
from localchain.solana.programs import coins
from tests.solana.bubblegum import APART, TREE, Grove, Index, Planted, grove
from tests.solana.conftest import Run
from tests.solana.fakes import FakeNode, Refuse
from tests.solana.ledger import Ledger
from tests.solana.ledger_node import LedgerNode, read
from tests.solana.sdk import done
from tests.solana.test_interfaces import later

OWNER = "4abvSWugzSRhpAk4rpvdSruFAFoNG1D1JTStmzpGt7xA"
OTHER = "D9fuVSy8oRGmztVJZVFsnHzTvowsfCAkY7VoNV8Ls2Jt"
SECOND = "7K8DVxtNJGnMtUY1CQJT5jcs8sFGSZTDiG7kowvFpECh"
NONE = InstalledProtocols()


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
    node = LedgerNode(ledger, {OWNER: []})
    node.answers = {**node.answers, **index.methods}
    return node, index


async def state(node: FakeNode) -> AccountState:
    """What is read of the owner."""
    return (await read(node, OWNER, installed=NONE))[OWNER]


def held(found: AccountState) -> dict[str, tuple[str, str]]:
    """The compressed NFTs of an account, each with its tree and its leaf."""
    return {
        asset.reference: (each.pool, each.name)
        for each in found.positions
        for asset, raw in each.supplied.items()
        if asset.kind == COMPRESSED and raw == 1
    }


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
        Leaf(each["id"], one.tree, place, key_bytes(each["compression"]["asset_hash"]),
             tuple(map(key_bytes, proofs[place])))
        for place, each in enumerate(one.items)
    ]  # fmt: skip


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
            assert fault(leaf, tree) == ("" if reached else "its proof leads to no root that its tree has at this slot")


def test_a_leaf_that_changed_hands_since_its_proof_is_not_held() -> None:
    before = grove(Planted(OWNER), Planted(OTHER))
    tree = tree_of(before.content, before.program)
    [mine, _] = leaves_of(before)
    last = tree.changes[-1]._replace(place=0, nodes=bytes(32) + tree.changes[-1].nodes[32:], root=b"\7" * 32)
    assert fault(mine, tree) == ""
    assert "changed" in fault(mine, tree._replace(changes=(*tree.changes, last)))


@pytest.mark.parametrize(("spoilt", "said"), [
    (lambda c: b"", "breaks off"), (lambda c: c[:55], "breaks off"), (lambda c: c[:200], "breaks off"),
    (lambda c: b"\0" + c[1:], "another kind"), (lambda c: c[:1] + b"\1" + c[2:], "another kind"),
    (lambda c: c[:6] + struct.pack("<I", 31) + c[10:], "31 deep"), (lambda c: c[:6] + bytes(4) + c[10:], "0 deep"),
    (lambda c: c[:2] + struct.pack("<I", 2**31) + c[6:], "changes"), (lambda c: c[:2] + bytes(4) + c[6:], "0 changes"),
    (lambda c: c[:64] + struct.pack("<Q", 8) + c[72:], "ring"), (lambda c: c[:72] + bytes(8) + c[80:], "ring"),
    (lambda c: c[:72] + struct.pack("<Q", 9) + c[80:], "ring"),
    (lambda c: c[:80 + 128] + struct.pack("<I", 8) + c[80 + 132:], "leaf that it does not have"),
])  # fmt: skip
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
    later(node)
    with dated(node, beside=Index(groves).methods) as url:
        yield url


@pytest.mark.node
def test_compressed_nfts_are_in_a_portfolio_by_their_trees_and_spam_among_them_is_spam(
    node: SolanaNode, running: Callable[..., Run]
) -> None:
    wallet, tree = Keypair().pubkey(), str(Keypair().pubkey())
    coins(node, wallet, 10**9)
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
        assert told == das.UNSERVED
    [endpoint] = chain.node.endpoints
    assert (endpoint.calls["getAssetsByOwner"], endpoint.capabilities[das.SERVED]) == (1, 0)
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
    trees = ["getMultipleAccounts"] * 2  # of two sizes
    lists = ["getAssetsByOwner", "getAssetProofs", "getMultipleAccounts"]
    assert sorted(node.asked) == sorted([*wallet * 2, *trees, *lists])


async def test_names_are_those_of_the_list_and_a_leaf_that_nobody_listed_has_none() -> None:
    one = mine()
    chain = serving(one)[0].chain()
    block = (await chain.heads()).latest
    await chain.answer([LeavesRead(OWNER)], block)
    assets = [Asset(chain.caip2, COMPRESSED, id) for id in ids(one, 0, 1)]
    reports = await run_batched({"": describe(assets)}, lambda reads: chain.answer(reads, block))
    assert reports[""].result is not None
    told = [reports[""].result[asset] for asset in assets]
    assert [(each.symbol, each.name, each.decimals) for each in told] == [("LEAF", "Monke #1", 0), ("", "", 0)]
    await chain.close()


async def test_whose_one_is_is_no_balance() -> None:
    chain = serving(mine())[0].chain()
    block = (await chain.heads()).latest
    asset = Asset(chain.caip2, COMPRESSED, ids(mine(), 0)[0])
    reports = await run_batched({"": chain.balances([(OWNER, asset)])}, lambda reads: chain.answer(reads, block))
    assert reports[""].result is not None
    assert isinstance(reports[""].result[0], Unknown)
    await chain.close()


@pytest.mark.parametrize("code", [-32601, -32600, -32602])
async def test_an_endpoint_without_an_index_is_not_asked_again(code: int) -> None:
    node = FakeNode(getAssetsByOwner=refusing(code))
    chain = node.chain()
    block = (await chain.heads()).latest
    for _ in range(3):
        [told] = await chain.answer([LeavesRead(OWNER)], block)
        assert told == das.UNSERVED
    assert node.asked.count("getAssetsByOwner") == 1
    await chain.close()


def refusing(code: int, words: str = "Method not found") -> Callable[[Any], Any]:
    """Refuses what it is asked."""

    def refused(params: Any) -> Any:
        raise Refuse(code, words)

    return refused


async def test_doctor_asks_anew_whether_an_endpoint_has_an_index() -> None:
    node, index = serving(mine())
    node.moves = 0
    chain = node.chain()
    [endpoint] = chain.node.endpoints
    for said, shown in ((refusing(-32601), False), (refusing(-32000, "down"), None), (index.assets, True)):
        node.answers = {**node.answers, "getAssetsByOwner": said}
        [row] = await chain.examine()
        assert row["compressedNfts"] is shown
        assert endpoint.capabilities[das.SERVED] == (shown is True)
    await chain.close()


async def test_that_nobody_has_an_index_is_said_and_takes_nothing_from_an_answer() -> None:
    node = LedgerNode(Ledger(), {OWNER: []})
    node.answers = {**node.answers, "getAssetsByOwner": refusing(-32601)}
    found = await state(node)
    assert [(each.subject, each.reason, each.makes_partial) for each in found.issues] == [(OWNER, UNSEEN, False)]


@pytest.mark.parametrize("said", [
    refusing(-32000, "database is down"), lambda params: {"items": "none"}, lambda params: [], lambda params: None,
    lambda params: {"items": [], "limit": 0}, lambda params: {"items": [{}] * (das.PAGE + 1)},
])  # fmt: skip
async def test_an_index_that_fails_is_not_an_empty_one(said: Callable[[Any], Any]) -> None:
    node, _ = serving(mine())
    node.answers = {**node.answers, "getAssetsByOwner": said}
    found = await state(node)
    assert held(found) == {}
    [issue] = found.issues
    assert issue.makes_partial
    assert issue.reason.startswith("compressed NFTs could not be read")


async def test_pages_that_repeat_are_refused() -> None:
    one = mine()
    node, _ = serving(one)
    page = {"items": [one.items[0]], "limit": 1}
    node.answers = {**node.answers, "getAssetsByOwner": lambda params: page}
    [issue] = (await state(node)).issues
    assert (issue.makes_partial, "twice" in issue.reason) == (True, True)


async def test_pages_are_as_long_as_the_endpoint_likes() -> None:
    one = mine()
    node, index = serving(one)
    node.answers = {
        **node.answers, "getAssetsByOwner": lambda params: index.assets({**params, "limit": min(params["limit"], 1)})
    }  # fmt: skip
    assert len(held(await state(node))) == 3


async def test_a_list_without_an_end_is_bounded_and_what_was_not_looked_at_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(das, "PAGES", 3)
    node, _ = serving(mine())
    plain = [{"id": str(Keypair().pubkey()), "interface": "V1_NFT"} for _ in range(3)]
    node.answers = {
        **node.answers, "getAssetsByOwner": lambda params: {"items": [plain[params["page"] - 1]], "limit": 1}
    }  # fmt: skip
    [issue] = (await state(node)).issues
    assert (issue.makes_partial, "were not looked at" in issue.reason) == (True, True)


async def test_more_than_are_looked_at_and_trees_that_are_too_large_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    one = mine()
    monkeypatch.setattr(das, "MOST", 2)
    found = await state(serving(one)[0])
    assert len(held(found)) == 2
    assert ["1 more than 2" in each.reason for each in found.issues if each.makes_partial] == [True]
    monkeypatch.setattr(das, "MOST_BYTES", 100)
    found = await state(serving(one)[0])
    assert held(found) == {}
    assert any("MiB" in each.reason for each in found.issues)


def item(one: Grove, **changed: Any) -> dict[str, Any]:
    """The owner's first leaf as an index says it, with some fields of `compression` or of its own changed."""
    found = copy.deepcopy(dict(one.items[0]))
    for name, each in changed.items():
        (found if name in found else found["compression"])[name] = each
    return found


@pytest.mark.parametrize(("changed", "said"), [
    ({"leaf_id": 8}, "called otherwise"), ({"leaf_id": 2**40}, "no tree has"), ({"leaf_id": None}, "no tree has"),
    ({"leaf_id": "0"}, "cannot be read"), ({"leaf_id": -1}, "cannot be read"), ({"leaf_id": 0.5}, "cannot be read"),
    ({"tree": SECOND}, "called otherwise"), ({"tree": "nowhere"}, "made of"), ({"data_hash": ""}, "made of"),
    ({"data_hash": 7}, "cannot be read"), ({"creator_hash": OTHER}, "no root"), ({"data_hash": OTHER}, "no root"),
    ({"flags": 0}, "version"), ({"flags": 256}, "cannot be read"), ({"collection_hash": OTHER}, "version"),
    ({"flags": 0, "collection_hash": OTHER, "asset_data_hash": OTHER}, "no root"), ({"id": 7}, "cannot be read"),
    ({"id": "\x1b[2J" + "x" * 36}, "cannot be read"),
    ({"id": OTHER}, "called otherwise"), ({"compressed": "yes"}, "cannot be read"),
    ({"ownership": {"owner": OWNER, "delegate": OTHER}}, "no root"),
    ({"ownership": {"owner": OWNER, "delegate": "x"}}, "made of"),
    ({"ownership": "mine"}, "cannot be read"),
])  # fmt: skip
async def test_an_asset_that_is_not_what_its_tree_has_is_not_held(changed: Mapping[str, Any], said: str) -> None:
    one = mine()
    wrong, right = item(one, **changed), one.items[2]
    node, _ = serving(one)
    node.answers = {**node.answers, "getAssetsByOwner": lambda params: {"items": [wrong, right]}}
    found = await state(node)
    assert list(held(found)) == ids(one, 2)
    [issue] = found.issues
    assert issue.makes_partial
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
    assert "no such leaf" in fault(leaf._replace(place=8), tree)


@pytest.mark.parametrize("content", [None, 7, [], {"metadata": 7}, {"metadata": {"name": 7}}, {"metadata": None}])
async def test_what_it_is_called_cannot_keep_it_from_being_held(content: Any) -> None:
    one = mine()
    node, _ = serving(one)
    node.answers = {**node.answers, "getAssetsByOwner": lambda params: {"items": [item(one, content=content)]}}
    found = await state(node)
    assert (list(held(found)), found.issues) == (ids(one, 0), ())


@pytest.mark.parametrize("left", [
    {"burnt": True}, {"compressed": False}, {"compression": None}, {"compressed": False, "leaf_id": "x", "tree": 7},
])  # fmt: skip
async def test_what_is_burnt_or_not_compressed_is_left_out(left: Mapping[str, Any]) -> None:
    one = mine()
    node, _ = serving(one)
    node.answers = {**node.answers, "getAssetsByOwner": lambda params: {"items": [item(one, **left)]}}
    found = await state(node)
    assert (held(found), found.issues) == ({}, ())


@pytest.mark.parametrize(("proof", "said"), [
    (lambda proof: proof[:-1], "2 long"), (lambda proof: [*proof, OTHER], "4 long"), (lambda proof: [], "0 long"),
    (lambda proof: proof[::-1], "no root"), (lambda proof: [OTHER] * 31, "cannot be read"),
    (lambda proof: ["x" * 40] * 3, "cannot be read"), (lambda proof: "none", "cannot be read"),
    (lambda proof: [1, 2, 3], "cannot be read"),
])  # fmt: skip
async def test_a_proof_that_leads_elsewhere_proves_nothing(proof: Callable[[Any], Any], said: str) -> None:
    one = mine()
    node, _ = serving(one)
    mine_only = {"items": [one.items[0]]}
    proofs = {each: {"proof": proof(list(one.proofs[-1][0]))} for each in ids(one, 0)}
    node.answers = {
        **node.answers, "getAssetsByOwner": lambda params: mine_only, "getAssetProofs": lambda params: proofs
    }  # fmt: skip
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
        assert len(told.found) == 3
    assert node.asked.count("getAssetProofs") == 1
    await chain.close()


async def test_a_tree_that_bubblegum_did_not_plant_proves_nothing() -> None:
    one = grove(Planted(OWNER), authority=OTHER)
    found = await state(serving(one)[0])
    assert held(found) == {}
    assert ["not Bubblegum's" in each.reason and each.makes_partial for each in found.issues] == [True]


@pytest.mark.parametrize("account", [
    None, (SYSTEM, b""), (SYSTEM, b"\1" * 1368), (PROGRAMS[0], b""), (PROGRAMS[0], b"\1\0" + bytes(60)),
])  # fmt: skip
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
    assert len(told.found) == 3
    await chain.close()


def test_the_program_of_the_second_version_has_the_same_trees() -> None:
    one = replace(mine(), program=PROGRAMS[1])
    assert tree_of(one.content, one.program) == tree_of(one.content, PROGRAMS[0])
