"""Compressed NFTs count as held only if their tree on the chain proves them at the slot."""

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
    compressed_nfts,
    grove,
    ids,
    item,
    refusing,
    sample_grove,
    serving,
    state,
)
from tests.solana.conftest import Run
from tests.solana.sdk import run_jobs
from tests.solana.test_interfaces import later

# --- what vendors say -------------------------------------------------------------------------------------------------


def test_programs_and_addresses_are_those_of_the_vendors() -> None:
    programs, owner = run_jobs([("addresses", {}), ("authority", {"tree": TREE})], APART)
    assert programs == [*PROGRAMS, BUBBLEGUM]
    grove = sample_grove()
    assert tree_of(grove.content, grove.program).authority == owner
    assert [asset_address(TREE, index) for index in range(4)] == ids(grove, 0, 1, 2, 3)


def leaves_of(grove: Grove, age: int = 0) -> list[Leaf]:
    """Return the leaves of a tree with their proofs from `age` changes ago."""
    proofs = grove.proofs[len(grove.proofs) - 1 - age]
    return [
        Leaf(
            each["id"],
            grove.tree,
            index,
            key_bytes(each["compression"]["asset_hash"]),
            tuple(map(key_bytes, proofs[index])),
        )
        for index, each in enumerate(grove.items)
    ]


@pytest.mark.parametrize("size", [8, 4])
def test_a_proof_is_carried_forward_through_every_change_since_as_far_as_the_ring_reaches(size: int) -> None:
    count = 7
    nft_grove = grove(*(Planted(OWNER, f"Monke #{each}") for each in range(count)), size=size)
    tree = tree_of(nft_grove.content, nft_grove.program)
    for age in range(count):
        planted = count - age  # leaves that were there when the proofs were made
        for index, leaf in enumerate(leaves_of(nft_grove, age)):
            # A proof made just before its leaf was planted leads to the root just after.
            is_provable = age < size if index < planted else index == planted and age - 1 < size
            assert fault(leaf, tree, count) == (
                "" if is_provable else "its proof leads to no root that its tree has at this slot"
            )


def test_a_leaf_that_changed_hands_since_its_proof_is_not_held() -> None:
    before = grove(Planted(OWNER), Planted(OTHER))
    tree = tree_of(before.content, before.program)
    [leaf, _] = leaves_of(before)
    last = tree.changes[-1]._replace(leaf_index=0, nodes=bytes(32) + tree.changes[-1].nodes[32:], root=b"\7" * 32)
    assert fault(leaf, tree, 2) == ""
    assert "changed" in fault(leaf, tree._replace(changes=(*tree.changes, last)), 2)


@pytest.mark.parametrize(
    ("corrupt", "message"),
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
def test_what_is_no_tree_is_refused(corrupt: Callable[[bytes], bytes], message: str) -> None:
    with pytest.raises(BadLayout, match=message):
        tree_of(corrupt(sample_grove().content), PROGRAMS[0])


def test_a_tree_of_another_program_is_none() -> None:
    with pytest.raises(BadLayout, match="belongs to the program"):
        ring_end(sample_grove().content, SYSTEM)


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


@pytest.mark.slow("takes seconds, and faster tests take its branches")
@pytest.mark.node
def test_compressed_nfts_are_in_a_portfolio_by_their_trees_and_spam_among_them_is_spam(
    node: SolanaNode, running: Callable[..., Run]
) -> None:
    wallet, tree = Keypair().pubkey(), str(Keypair().pubkey())
    send_coins(node, wallet, 10**9)
    lure = "Claim 2 SOL at https://claim.test"
    nft_grove = grove(
        Planted(str(wallet), "Monke \u202e#1"), Planted(OTHER), Planted(str(wallet), lure, 2), tree=tree, canopy=2
    )
    with indexed(node, nft_grove) as url:
        run = running(node.rpc("getGenesisHash"), url)
        run("watch", str(wallet))
        [portfolio] = run("portfolio", str(wallet))
    positions = portfolio["assetByProtocols"]["bubblegum"]["chains"]["solana"]["protocolPositions"]["WALLET"]
    nfts = {each["name"]: each for each in positions["protocolPositions"]}
    assert {each["poolAddress"] for each in nfts.values()} == {tree}
    [plain], [spam] = nfts["Leaf 0"]["supplyAssets"], nfts["Leaf 2"]["supplyAssets"]
    assert (plain["contract"], plain["balance"], plain["name"]) == (*ids(nft_grove, 0), "1", "monke #1")
    assert plain.get("spam") is None
    assert "LINK" in spam["spam"]["reasons"]
    assert (len(nfts), portfolio["spamAssets"], portfolio["completeness"]) == (2, 1, "complete")
    assert not [each for each in portfolio["issues"] if "compressed" in each["reason"]]


@pytest.mark.node
async def test_a_node_without_an_index_is_asked_for_it_once_and_the_answer_says_that_they_are_not_seen(
    node: SolanaNode, chain: SolanaChain
) -> None:
    block = (await chain.heads()).latest
    for _ in range(2):
        [leaf_list] = await chain.answer([LeavesRead(OWNER)], block)
        assert leaf_list == das.NO_INDEX
    [endpoint] = chain.node.endpoints
    assert (endpoint.calls["getAssetsByOwner"], endpoint.capabilities[das.INDEX_CAPABILITY]) == (1, 0)
    assert "NoIndex" not in endpoint.errors.counts


# --- what an index says -----------------------------------------------------------------------------------------------


async def test_what_the_tree_proves_is_held_of_both_versions_and_with_a_delegate() -> None:
    grove = sample_grove()
    account_state = await state(serving(grove)[0])
    assert compressed_nfts(account_state) == {
        id: (TREE, f"Leaf {index}") for index, id in zip((0, 2, 3), ids(grove, 0, 2, 3), strict=True)
    }
    assert account_state.issues == ()


@pytest.mark.parametrize("age", [1, 3])
async def test_an_index_that_is_behind_its_tree_is_no_obstacle(age: int) -> None:
    grove = sample_grove()
    node, _ = serving(grove, index=Index([grove], age=age))
    assert set(compressed_nfts(await state(node))) >= set(ids(grove, 0))


async def test_many_trees_are_read_at_the_slot_of_the_wallet_in_few_requests() -> None:
    groves = [grove(Planted(OWNER), tree=str(Keypair().pubkey())) for _ in range(3)]
    node, _ = serving(*groves, grove(Planted(OWNER, version=2), tree=SECOND, depth=5, size=8))
    node.moves = 0
    assert len(compressed_nfts(await state(node))) == 4
    wallet = ["getMultipleAccounts", "getTokenAccountsByOwner", "getTokenAccountsByOwner", "getProgramAccounts"]
    trees = ["getMultipleAccounts"] * 3  # of two sizes, and what Bubblegum says of all
    lists = ["getAssetsByOwner", "getAssetProofs", "getMultipleAccounts"]
    assert sorted(node.asked) == sorted([*wallet * 2, *trees, *lists])


async def test_whose_one_is_is_no_balance() -> None:
    chain = serving(sample_grove())[0].chain()
    block = (await chain.heads()).latest
    asset = Asset(chain.caip2, COMPRESSED, ids(sample_grove(), 0)[0])
    reports = await run_batched({"": chain.balances([(OWNER, asset)])}, lambda reads: chain.answer(reads, block))
    assert reports[""].result is not None
    assert isinstance(reports[""].result[0], Unknown)
    await chain.close()


@pytest.mark.parametrize(
    ("changed", "message"),
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
async def test_an_asset_that_is_not_what_its_tree_has_is_not_held(changed: Mapping[str, Any], message: str) -> None:
    grove = sample_grove()
    wrong, right = item(grove, **changed), grove.items[2]
    node, _ = serving(grove)
    node.answers = {**node.answers, "getAssetsByOwner": lambda params: {"items": [wrong, right]}}
    account_state = await state(node)
    assert list(compressed_nfts(account_state)) == ids(grove, 2)
    [issue] = account_state.issues
    assert not Trust(lambda asset: False).resolve_issues([issue])[0].makes_partial
    assert message in issue.reason


async def test_what_is_somebody_elses_is_not_held_though_the_list_says_so() -> None:
    grove = sample_grove()
    theirs = {**grove.items[1], "ownership": {"owner": OWNER, "delegate": None}}
    node, _ = serving(grove)
    node.answers = {**node.answers, "getAssetsByOwner": lambda params: {"items": [theirs]}}
    account_state = await state(node)
    assert compressed_nfts(account_state) == {}
    assert ["no root" in each.reason and each.makes_partial for each in account_state.issues] == [True]


def test_a_leaf_beyond_its_tree_lies_in_none() -> None:
    grove = sample_grove()
    leaf, tree = leaves_of(grove)[0], tree_of(grove.content, grove.program)
    assert "no such leaf" in fault(leaf._replace(leaf_index=8), tree, 9)
    assert "no such leaf" not in fault(leaf._replace(leaf_index=4), tree, 4)


@pytest.mark.parametrize("content", [None, 7, [], {"metadata": 7}, {"metadata": {"name": 7}}, {"metadata": None}])
async def test_what_it_is_called_cannot_keep_it_from_being_held(content: Any) -> None:
    grove = sample_grove()
    node, _ = serving(grove)
    node.answers = {**node.answers, "getAssetsByOwner": lambda params: {"items": [item(grove, content=content)]}}
    account_state = await state(node)
    assert (list(compressed_nfts(account_state)), account_state.issues) == (ids(grove, 0), ())


@pytest.mark.parametrize(
    "fields",
    [
        {"burnt": True},
        {"compressed": False},
        {"compression": None},
        {"compressed": False, "leaf_id": "x", "tree": 7},
    ],
)
async def test_what_is_burnt_or_not_compressed_is_left_out(fields: Mapping[str, Any]) -> None:
    grove = sample_grove()
    node, _ = serving(grove)
    node.answers = {**node.answers, "getAssetsByOwner": lambda params: {"items": [item(grove, **fields)]}}
    account_state = await state(node)
    assert (compressed_nfts(account_state), account_state.issues) == ({}, ())


@pytest.mark.parametrize(
    ("proof", "message"),
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
async def test_a_proof_that_leads_elsewhere_proves_nothing(proof: Callable[[Any], Any], message: str) -> None:
    grove = sample_grove()
    node, _ = serving(grove)
    mine_only = {"items": [grove.items[0]]}
    proofs = {each: {"proof": proof(list(grove.proofs[-1][0]))} for each in ids(grove, 0)}
    node.answers = {
        **node.answers,
        "getAssetsByOwner": lambda params: mine_only,
        "getAssetProofs": lambda params: proofs,
    }
    account_state = await state(node)
    assert compressed_nfts(account_state) == {}
    assert [message in each.reason and each.makes_partial for each in account_state.issues] == [True]


@pytest.mark.parametrize("proofs", [{}, {"another": {"proof": []}}, dict.fromkeys(("x",), None)])
async def test_an_asset_without_a_proof_is_not_held(proofs: Any) -> None:
    node, _ = serving(sample_grove())
    node.answers = {**node.answers, "getAssetProofs": lambda params: proofs}
    account_state = await state(node)
    assert compressed_nfts(account_state) == {}
    assert ["proof cannot be read" in each.reason for each in account_state.issues] == [True]


async def test_a_proof_of_another_leaf_proves_nothing() -> None:
    grove = sample_grove()
    node, index = serving(grove)
    [other_id] = ids(grove, 1)

    def swapped(params: Any) -> Any:
        return dict.fromkeys(params["ids"], index.proofs({"ids": [other_id]})[other_id])

    node.answers = {**node.answers, "getAssetProofs": swapped}
    assert compressed_nfts(await state(node)) == {}


@pytest.mark.parametrize("name", ["getAssetProofBatch", "getAssetProof"])
async def test_proofs_come_by_whatever_method_an_endpoint_has_which_is_remembered(name: str) -> None:
    grove = sample_grove()
    node, index = serving(grove)
    single = name == "getAssetProof"
    answer_proofs = (lambda params: index.proofs({"ids": [params["id"]]})[params["id"]]) if single else index.proofs
    node.answers = {**node.answers, "getAssetProofs": refusing(-32601), name: answer_proofs}
    chain = node.chain()
    block = (await chain.heads()).latest
    for _ in range(2):
        [leaf_list] = await chain.answer([LeavesRead(OWNER)], block)
        assert isinstance(leaf_list, LeafList)
        assert len(leaf_list.leaves) == 3
    assert node.asked.count("getAssetProofs") == 1
    await chain.close()


async def test_a_tree_that_bubblegum_did_not_plant_proves_nothing() -> None:
    nft_grove = grove(Planted(OWNER), authority=OTHER)
    account_state = await state(serving(nft_grove)[0])
    assert compressed_nfts(account_state) == {}
    assert ["not Bubblegum's" in each.reason and each.makes_partial for each in account_state.issues] == [True]


@pytest.mark.parametrize(
    "config", [None, (SYSTEM, b"\0" * 96), (BUBBLEGUM, b""), (BUBBLEGUM, b"\1" * 96), (OTHER, None)]
)
async def test_a_tree_that_was_given_to_bubblegum_after_leaves_were_written_into_it_proves_nothing(
    config: tuple[str, bytes | None] | None,
) -> None:
    grove = sample_grove()
    node, _ = serving(grove)
    at, content = grove.config
    if config is None:
        del node.ledger.accounts[at]
    else:
        node.ledger.put(at, config[0], content if config[1] is None else config[1])
    account_state = await state(node)
    assert compressed_nfts(account_state) == {}
    assert ["not Bubblegum's" in each.reason and each.makes_partial for each in account_state.issues] == [True]


async def test_a_leaf_that_bubblegum_did_not_put_into_its_tree_is_not_held() -> None:
    nft_grove, two = sample_grove(), grove(Planted(OWNER), Planted(OTHER))
    node, _ = serving(nft_grove)
    node.ledger.put(nft_grove.config[0], BUBBLEGUM, two.config[1])  # it knows of two
    account_state = await state(node)
    assert list(compressed_nfts(account_state)) == ids(nft_grove, 0)
    assert ["not Bubblegum's" in each.reason and each.makes_partial for each in account_state.issues] == [True]


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
    grove = sample_grove()
    node, _ = serving(grove)
    if account is None:
        del node.ledger.accounts[TREE]
    else:
        node.ledger.put(TREE, *account)
    account_state = await state(node)
    assert compressed_nfts(account_state) == {}
    assert [each.makes_partial for each in account_state.issues] == [True]


async def test_a_tree_that_breaks_off_between_its_header_and_the_snapshot_proves_nothing() -> None:
    grove = sample_grove()
    node, _ = serving(grove)
    read_accounts = node.answers["getMultipleAccounts"]

    def read_truncated(params: Any) -> Any:
        header = params[1].get("dataSlice", {}).get("length") == HEADER_SIZE
        node.ledger.put(TREE, grove.program, grove.content if header else grove.content[:300])
        return read_accounts(params)

    node.answers = {**node.answers, "getMultipleAccounts": read_truncated}
    account_state = await state(node)
    assert compressed_nfts(account_state) == {}
    assert ["breaks off" in each.reason for each in account_state.issues] == [True]


async def test_another_endpoint_with_an_index_is_asked_where_one_has_none() -> None:
    grove = sample_grove()
    node, index = serving(grove)
    calls = iter([False, True])

    def first_none(params: Any) -> Any:
        return index.assets(params) if next(calls) else refusing(-32601)(params)

    node.answers = {**node.answers, "getAssetsByOwner": first_none}
    chain = node.chain("http://one.test", "http://two.test")
    [leaf_list] = await chain.answer([LeavesRead(OWNER)], (await chain.heads()).latest)
    assert not isinstance(leaf_list, Unknown)
    assert len(leaf_list.leaves) == 3
    await chain.close()


def test_the_program_of_the_second_version_has_the_same_trees() -> None:
    grove = replace(sample_grove(), program=PROGRAMS[1])
    assert tree_of(grove.content, grove.program) == tree_of(grove.content, PROGRAMS[0])
