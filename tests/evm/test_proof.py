"""Proofs of state: what is shown is what is there, and nothing that was touched shows anything else."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainfolio.adapters.evm import rlp
from chainfolio.adapters.evm.proof import EMPTY_CODE, EMPTY_ROOT, AccountState, account_at, walk, word_at
from chainfolio.adapters.evm.roots import header_hash
from chainfolio.errors import BadAnswer
from tests.evm.recorded import FOLDER, lines, needs_recordings
from tests.evm.tries import Trie, compact, keccak, nibbles

ALICE, BOB = "0x" + "aa" * 20, "0x" + "bb" * 20
LOREM = b"Lorem ipsum dolor sit amet, consectetur adipisicing elit"

# --- RLP -------------------------------------------------------------------------------------------------------------

items = st.recursive(st.binary(max_size=80), lambda inner: st.lists(inner, max_size=5), max_leaves=20)


@pytest.mark.parametrize(
    ("item", "encoded"),
    [  # of the yellow paper and of the specification's own page
        (b"dog", "83646f67"),
        ([b"cat", b"dog"], "c88363617483646f67"),
        (b"", "80"),
        ([], "c0"),
        (b"\x00", "00"),
        (b"\x0f", "0f"),
        (b"\x04\x00", "820400"),
        ([[], [[]], [[], [[]]]], "c7c0c1c0c3c0c1c0"),
        (LOREM, "b838" + LOREM.hex()),
    ],
)
def test_rlp_is_written_and_read_as_specified(item: Any, encoded: str) -> None:
    assert rlp.encode(item).hex() == encoded
    assert rlp.decode(bytes.fromhex(encoded)) == item


@given(items)
def test_rlp_there_and_back(item: Any) -> None:
    assert rlp.decode(rlp.encode(item)) == item


@given(st.binary(max_size=40))
def test_what_can_be_read_has_one_spelling(content: bytes) -> None:
    try:
        item = rlp.decode(content)
    except ValueError:
        return
    assert rlp.encode(item) == content


@pytest.mark.parametrize(
    "content",
    ["", "8100", "b801ff", "b90038" + "00" * 56, "83646f", "c883636174", "8080", "c1", "f800", "b8", "c0" * 2],
)
def test_what_is_not_exactly_one_item_is_refused(content: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        rlp.decode(bytes.fromhex(content))


def test_a_bomb_of_lists_is_refused() -> None:
    content = b"\xc0"
    for _ in range(40):
        content = bytes([0xC0 + len(content)]) + content
    with pytest.raises(ValueError, match="deep"):
        rlp.decode(content)


# --- tries -----------------------------------------------------------------------------------------------------------

contents = st.dictionaries(st.binary(min_size=1, max_size=20), st.binary(min_size=1, max_size=70), max_size=60)


@given(contents, st.binary(min_size=1, max_size=20))
def test_a_walk_finds_what_was_put_in_and_proves_that_nothing_else_was(
    entries: dict[bytes, bytes], absent: bytes
) -> None:
    trie = Trie(entries)
    for key in {*entries, absent}:
        assert walk("test", trie.root, key, trie.nodes) == entries.get(key)


@given(contents.filter(bool), st.randoms(use_true_random=False), st.integers(0, 2**30))
def test_nothing_that_was_touched_shows_anything_else(
    entries: dict[bytes, bytes], chance: random.Random, seed: int
) -> None:
    trie, key = Trie(entries), sorted(entries)[seed % len(entries)]
    nodes = [bytearray(node) for node in trie.nodes]
    node = nodes[chance.randrange(len(nodes))]
    node[chance.randrange(len(node))] ^= 1 << chance.randrange(8)
    try:
        value = walk("test", trie.root, key, [bytes(each) for each in nodes])
    except BadAnswer:
        return
    assert value == entries[key]  # it was not on the way


def test_an_empty_trie_holds_nothing() -> None:
    assert Trie({}).root == EMPTY_ROOT
    assert walk("test", EMPTY_ROOT, b"key", []) is None


def test_small_nodes_lie_inside_their_parents() -> None:
    path = nibbles(b"key")
    leaf: rlp.Item = [compact(path[61:], ends=True), b"v"]
    branch: rlp.Item = [*(leaf if nibble == path[60] else b"" for nibble in range(16)), b""]
    assert len(rlp.encode(branch)) < 32
    root = rlp.encode([compact(path[:60], ends=False), branch])
    assert walk("test", keccak(root), b"key", [root]) == b"v"


def test_doubled_and_foreign_nodes_and_any_order_change_nothing() -> None:
    entries = {bytes([k]): b"value" * k for k in range(1, 40)}
    trie, foreign = Trie(entries), Trie({b"other": b"1" * 40})
    assert walk("test", trie.root, b"\x07", [*foreign.nodes, *reversed(trie.nodes), *trie.nodes]) == entries[b"\x07"]


def test_a_proof_that_is_short_of_a_node_or_under_another_root_shows_nothing() -> None:
    trie = Trie({bytes([k]): b"value" * k for k in range(1, 40)})
    for root, nodes in ((trie.root, trie.nodes[:-1]), (trie.root, []), (keccak(b"another"), trie.nodes)):
        with pytest.raises(BadAnswer, match="does not lead"):
            walk("test", root, b"\x07", nodes)


@pytest.mark.parametrize(
    "node",
    [
        [b""] * 16,
        [b""] * 18,
        [],
        [b"", b"v"],
        [b"\x40" + b"\x00" * 31, b"v"],
        [b"\x01" * 32, b"v"],
        b"text",
        [compact(nibbles(b"key"), ends=True), b""],
        [compact(nibbles(b"key"), ends=True), [b"v"]],
        [[b"path"], b"v"],
        [compact((), ends=False), b"\x11" * 32],
    ],
    ids=repr,
)
def test_what_is_no_node_shows_nothing(node: Any) -> None:
    content = rlp.encode(node)
    with pytest.raises(BadAnswer, match="does not lead"):
        walk("test", keccak(content), b"key", [content])


def test_a_leaf_whose_path_is_only_the_beginning_of_the_key_s_is_not_its() -> None:
    leaf = rlp.encode([compact(nibbles(b"key")[:10], ends=True), b"v"])
    assert walk("test", keccak(leaf), b"key", [leaf]) is None


def test_a_branch_below_the_end_of_a_key_shows_nothing() -> None:
    branch = rlp.encode([b"v"] * 17)
    root = rlp.encode([compact(nibbles(b"key"), ends=False), keccak(branch)])
    with pytest.raises(BadAnswer, match="17 parts where 0 nibbles are left"):
        walk("test", keccak(root), b"key", [root, branch])


def test_a_way_that_goes_on_without_using_up_the_key_ends() -> None:
    nodes = [rlp.encode([compact(nibbles(b"key"), ends=True), b"v" * 40])]
    for _ in range(70):
        nodes.append(rlp.encode([compact((), ends=False), keccak(nodes[-1])]))
    with pytest.raises(BadAnswer, match="a way that does not end"):
        walk("test", keccak(nodes[-1]), b"key", nodes)


# --- accounts and words ----------------------------------------------------------------------------------------------


def state(nonce: int, balance: int, storage: bytes = EMPTY_ROOT) -> bytes:
    return rlp.encode([rlp.number(nonce), rlp.number(balance), storage, EMPTY_CODE])


def test_an_account_is_its_state_and_one_that_is_absent_has_nothing() -> None:
    trie = Trie({bytes.fromhex(ALICE[2:]): state(3, 2**255)})
    assert account_at("test", trie.root, ALICE, trie.nodes) == AccountState(3, 2**255, EMPTY_ROOT, EMPTY_CODE)
    assert account_at("test", trie.root, BOB, trie.nodes) == AccountState(0, 0, EMPTY_ROOT, EMPTY_CODE)


@pytest.mark.parametrize(
    "content",
    [
        b"\x01\x02",
        rlp.encode([b""] * 3),
        rlp.encode([b"", b"", b"short", EMPTY_CODE]),
        b"\xc2",
        b"\x80",
        rlp.encode([b"", b"", EMPTY_ROOT, EMPTY_CODE, b""]),
        rlp.encode([b"", b"", EMPTY_ROOT, EMPTY_CODE[:-1]]),
        rlp.encode([b"", b"", EMPTY_ROOT, [EMPTY_CODE]]),
    ],
)
def test_what_is_no_state_of_an_account_is_refused(content: bytes) -> None:
    trie = Trie({bytes.fromhex(ALICE[2:]): content})
    with pytest.raises(BadAnswer, match="state of"):
        account_at("test", trie.root, ALICE, trie.nodes)


def test_a_word_is_a_number_and_one_that_is_absent_is_zero() -> None:
    keys = [bytes(31) + bytes([k]) for k in range(4)]
    trie = Trie({keys[0]: rlp.encode(rlp.number(7)), keys[1]: rlp.encode(b"\xff" * 32)})
    assert [word_at("test", trie.root, key, trie.nodes) for key in keys] == [7, 2**256 - 1, 0, 0]


@pytest.mark.parametrize("content", [rlp.encode(b"\x01" * 33), rlp.encode([b"\x01"]), b"\x80", b"\x81\x01"])
def test_what_is_no_word_is_refused(content: bytes) -> None:
    trie = Trie({b"key": content})
    with pytest.raises(BadAnswer, match="storage value"):
        word_at("test", trie.root, b"key", trie.nodes)


# --- what real chains say --------------------------------------------------------------------------------------------


def headers_in(node: Any) -> Iterator[dict[str, Any]]:
    """Every header in a recorded answer."""
    if isinstance(node, dict):
        if {"stateRoot", "logsBloom", "hash"} <= node.keys():
            yield node
        else:
            for inner in node.values():
                yield from headers_in(inner)
    elif isinstance(node, list):
        for inner in node:
            yield from headers_in(inner)


def recordings() -> list[str]:
    names = (path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*.jsonl.gz"))
    return sorted(name for name in names if not name.startswith(("positions", "token_metadata")))


@needs_recordings
@pytest.mark.parametrize("name", recordings())
def test_every_recorded_header_of_twelve_chains_hashes_to_its_hash(name: str) -> None:
    count = 0
    with gzip.open(FOLDER / name, "rt") as file:
        for line in file:
            for header in headers_in(json.loads(line)) if "stateRoot" in line else ():
                if "mixHash" not in header:
                    assert "signature" in header, "sealed by authorities, before the merge of Gnosis"
                    continue
                assert header_hash(name, header).hex() == header["hash"][2:]
                count += 1
    assert count or not name.startswith(("blocks/", "chain_window/"))


@needs_recordings
def test_a_header_with_any_field_changed_hashes_to_something_else() -> None:
    header = lines("blocks/ethereum_4369999.rpc.jsonl.gz")[0]["result"]
    changed = 0
    for name, value in header.items():
        if name in ("hash", "size", "totalDifficulty", "transactions", "uncles") or value is None:
            continue
        for position in {2, len(value) - 1} if len(value) > 2 else ():
            digit = "1" if value[position] != "1" else "2"
            touched = {**header, name: value[:position] + digit + value[position + 1 :]}
            assert header_hash("test", touched).hex() != header["hash"][2:], name
            changed += 1
    assert changed > 20
    for name in ("stateRoot", "nonce"):
        with pytest.raises(BadAnswer, match=name):
            header_hash("test", {key: value for key, value in header.items() if key != name})
        with pytest.raises(BadAnswer, match=name):
            header_hash("test", {**header, name: 7})


def proofs() -> list[tuple[bytes, dict[str, Any]]]:
    """The conformance suite's proofs, each with the state root of the block that they are of."""
    exchanges = [each for line in lines("conformance/rpc_compat.jsonl.gz") for each in line["exchanges"]]
    blocks = [header for each in exchanges for header in headers_in(each["response"].get("result"))]
    head = max(blocks, key=lambda header: int(header["number"], 16))
    by_hash = {header["hash"]: header for header in blocks}
    results = []
    for each in exchanges:
        if each["request"]["method"] == "eth_getProof":
            at = (each["request"]["params"] + ["latest"] * 3)[2]
            header = by_hash.get(at, head)
            results.append((bytes.fromhex(header["stateRoot"][2:]), each["response"]["result"]))
    return results


def nodes_of(texts: list[str]) -> list[bytes]:
    return [bytes.fromhex(node[2:]) for node in texts]


@needs_recordings
def test_the_proofs_of_the_conformance_suite_hold_and_none_of_their_bytes_can_be_changed() -> None:
    for root, answer in proofs():
        nodes = nodes_of(answer["accountProof"])
        account = account_at("suite", root, answer["address"], nodes)
        assert (account.balance, account.nonce) == (int(answer["balance"], 16), int(answer["nonce"], 16))
        assert account.storage_root.hex() == answer["storageHash"][2:]
        for slot in answer["storageProof"]:
            key = int(slot["key"], 16).to_bytes(32, "big")
            assert word_at("suite", account.storage_root, key, nodes_of(slot["proof"])) == int(slot["value"], 16)
        for k, node in enumerate(nodes):
            for at in range(len(node)):
                touched = node[:at] + bytes([node[at] ^ 1]) + node[at + 1 :]
                with pytest.raises(BadAnswer):
                    account_at("suite", root, answer["address"], [*nodes[:k], touched, *nodes[k + 1 :]])
