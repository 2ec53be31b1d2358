"""Proofs of a block: the root of its transactions, and their signers."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from coincurve import PrivateKey
from sha3 import keccak_256

from bench.tron_blocks import ORDER
from chainfolio.adapters.tron.addresses import ZERO, encode_address, hex_address, parse_address
from chainfolio.adapters.tron.chain import TronChain
from chainfolio.adapters.tron.events import APPROVAL
from chainfolio.adapters.tron.forms import Header, RawHeader, SignedHeader, Transaction, TransactionResult
from chainfolio.adapters.tron.roots import transactions_root
from chainfolio.adapters.tron.settings import TronSettings
from chainfolio.adapters.tron.signers import recover_all, recover_signers
from chainfolio.blocks import Span
from chainfolio.errors import BadAnswer, UnsupportedMethod
from chainfolio.localchain.tron.node import TronNode
from chainfolio.localchain.tron.wallet import Person
from chainfolio.transport.exchange import HttpResponse
from tests.tron import chains
from tests.tron.fakes import ALICE, BOB, CAROL, TRANSFER, USDT, FakeNode, event, make_transaction, make_transfer

# Block 46929239 of the test chain Nile, as clients of Tron have it in their tests: each transaction with its signature.
BLOCK = """
0a02154222089d620d0dc8f981be40809a8ff097325a66080112620a2d747970652e676f6f676c65617069732e636f6d2f70726f746f636f6c2e547
2616e73666572436f6e747261637412310a1541382b835dd735c2d634646138ff8ef333d9ab050212154137a9511e294f1757678f366ad3b6102d35
ebd4dc18e8077093cd8bf09732
e921a2fdbcc51449a331c5cd5b7586dbbf168cfee1d614516c704675cdcc7765334f2b5e33fcd22bd0f2ed143e5c19c8bac54066bf1acc748fb9253
82484bd4f01

0a02154222089d620d0dc8f981be40809a8ff097325a66080112620a2d747970652e676f6f676c65617069732e636f6d2f70726f746f636f6c2e547
2616e73666572436f6e747261637412310a1541382b835dd735c2d634646138ff8ef333d9ab050212154137a9511e294f1757678f366ad3b6102d35
ebd4dc18e8077092cd8bf09732
ad89e79778b21e78a32aed29f162e55f98393e4518de463a2888a4608171c62c1e0cf0e00572c3a04e7f3fabfceb09c30aaa56a2e1c13f50404c1f5
90989090c00

0a021544220859381cdb45f1147840809a8ff097325a66080112620a2d747970652e676f6f676c65617069732e636f6d2f70726f746f636f6c2e547
2616e73666572436f6e747261637412310a1541382b835dd735c2d634646138ff8ef333d9ab050212154137a9511e294f1757678f366ad3b6102d35
ebd4dc18e8077083cf8bf09732
4a7737a2ba6de1c864a4daa6aaa3666ac496b8c3ebaf2da54a4e8a13ca8b995f5d825647ed5aa7ab302742b7210b03a8ab56ff6ea4f1423ef808ec7
913af0e1600

0a021543220853af20522d28465740c8828ff097325aae01081f12a9010a31747970652e676f6f676c65617069732e636f6d2f70726f746f636f6c2
e54726967676572536d617274436f6e747261637412740a15417edc1887cbb12c5a3eee51ec1a4882fd1d48e40012154142a1e39aefa49290f2b3f9
ed688d7cecf86cd6e02244a9059cbb00000000000000000000000083e99c951715215d63b36d8d126a2b81ad1b2c2d0000000000000000000000000
000000000000000000000000000000011e1a30070b4bd8bf0973290018094ebdc03
f5468fa750386595535d8e6fa9be5f509a5daf8208de8de9a15734d8e8af9ab86d6a04eaa48966647f2873b9bad2934bd798c8834e7155b74c44eb3
bb667e9d21b

0a0215562208fbed6c734d1bff1140809a8ff097325a67080112630a2d747970652e676f6f676c65617069732e636f6d2f70726f746f636f6c2e547
2616e73666572436f6e747261637412320a1541bc649db213a41a11aac2d3186e832fa9fc84c0301215414206ac4a5fe33602dc557b1352675d2ff1
45622218a08d0670a0c58bf09732
15318100246b2a01f1f2dc641b1b50dc75e0e6f10e97349fecdba78827e003f228ba6825384251be5acbdb136c70586280d703ac29e3e611333f659
b0ff86ba11b
"""
ROOT = "a68786f79e81cd50754c111440e5e2701abe7a7c157efd3de5e699b9e52aa0fd"
ID = "0000000002cc15576e3142f7d82e5dddaa21d6c19c798bdbda2085dbb24e7fb1"
PARENT = "0000000002cc1556fbed6c734d1bff1154cec46dd572ad0d4a3142a373a1a829"
WITNESS = "41d0668c49826f2ca13e3848b5eb3414fb059b7cc0"
DATASETS = ("blocks", "transactions", "native")
Change = Callable[[Any], Any]


def real() -> list[Transaction]:
    """The transactions of that block."""
    transactions = []
    for entry in BLOCK.strip().split("\n\n"):
        text = entry.replace("\n", "")
        body = {"raw_data_hex": text[:-130], "signature": [text[-130:]], "ret": [{"contractRet": "SUCCESS"}]}
        name = hashlib.sha256(bytes.fromhex(text[:-130])).hexdigest()
        transactions.append(msgspec.convert({"txID": name, **body}, Transaction))
    return transactions


def test_the_root_of_a_real_block_is_that_of_its_header() -> None:
    header = RawHeader(PARENT, ROOT, WITNESS, 46_929_239, 1_724_396_007_000, version=30)
    assert Header(ID, SignedHeader(header)).block("node").hash == ID, "the header has this root"
    assert transactions_root("node", real()) == ROOT


@pytest.mark.parametrize("number", range(5))
def test_no_transaction_of_a_real_block_can_be_left_out_or_changed(number: int) -> None:
    every = real()
    before, transaction, after = every[:number], every[number], every[number + 1 :]
    ends: tuple[list[TransactionResult], ...] = (
        [],
        [TransactionResult()],
        [TransactionResult(contractRet="REVERT")],
        [TransactionResult(contractRet="of no kind")],
        [TransactionResult(contractRet="SUCCESS")] * 2,
        [TransactionResult(fee=1, contractRet="SUCCESS")],
        [TransactionResult(ret="FAILED", contractRet="SUCCESS")],
    )
    variants = [msgspec.structs.replace(transaction, ret=each) for each in ends]
    variants += [
        msgspec.structs.replace(transaction, signature=each) for each in ([], transaction.signature * 2, ["00" * 65])
    ]
    assert ROOT not in {transactions_root("node", [*before, each, *after]) for each in variants}
    orders = [[*before, *after], [*every, transaction], [*after, transaction, *before], [*before, *after, transaction]]
    assert ROOT not in {transactions_root("node", each) for each in orders if each != every}


def test_a_block_without_transactions_has_the_root_of_none() -> None:
    assert transactions_root("node", []) == "00" * 32


# --- a node that lies ------------------------------------------------------------------------------------------------


class Liar(FakeNode):
    """Changes the block at 50 where one of its endpoints is asked for it."""

    def __init__(self, change: Change, *where: str) -> None:
        super().__init__()
        self.change, self.where = change, where
        self.transactions[50] = [make_transfer(ALICE, BOB, each) for each in (5, 6, 7)]

    async def post(self, source: str, url: str, body: bytes, timeout_s: float) -> HttpResponse:
        """One request."""
        posted = await super().post(source, url, body, timeout_s)
        if not url.startswith(self.where) or "50" not in body.decode() or not url.endswith("num"):
            return posted
        return HttpResponse(200, None, msgspec.json.encode(self.change(msgspec.json.decode(posted.body))))


def without_the_last(answer: Any) -> Any:
    """Neither the transaction nor its receipt."""
    return answer[:-1] if isinstance(answer, list) else {**answer, "transactions": answer["transactions"][:-1]}


def reverse_transactions(answer: Any) -> Any:
    """Return the answer with its transactions in reverse order."""
    return answer if isinstance(answer, list) else {**answer, "transactions": answer["transactions"][::-1]}


def failed(answer: Any) -> Any:
    """Return the answer with a failed first transaction."""
    if isinstance(answer, list):
        return answer
    first, *remaining = answer["transactions"]
    return {**answer, "transactions": [{**first, "ret": [{"contractRet": "REVERT"}]}, *remaining]}


def signed_by_another(answer: Any) -> Any:
    """Return the answer with the second transaction's signature at the first."""
    if isinstance(answer, list):
        return answer
    first, second, *remaining = answer["transactions"]
    return {**answer, "transactions": [{**first, "signature": second["signature"]}, second, *remaining]}


CHANGES = (without_the_last, reverse_transactions, failed, signed_by_another)


async def rows(chain: TronChain) -> list[int]:
    """Return the raw amounts of the transactions in block 50."""
    collected = await chain.collect(Span(50, 50), DATASETS)
    return [int.from_bytes(row["raw"], "big") for row in collected.tables["transactions"].to_pylist()]


@pytest.mark.parametrize("change", CHANGES)
async def test_a_block_that_is_not_that_of_its_header_is_refused(change: Change) -> None:
    chain = Liar(change, "http://one.test").chain()
    for _ in range(2):  # two answers of one endpoint are not two endpoints
        with pytest.raises(BadAnswer, match="block 50 are not those of its header") as caught:
            await rows(chain)
        assert "another endpoint" in (caught.value.remedy or "")


@pytest.mark.parametrize("change", CHANGES)
async def test_another_endpoint_is_asked_for_a_block_that_is_refused(change: Change) -> None:
    assert await rows(Liar(change, "http://one.test").chain("http://one.test", "http://two.test")) == [5, 6, 7]


async def test_bytes_that_nodes_do_not_show_stop_nobody_who_asks_two() -> None:
    """A sender may write bytes that JSON does not show; then no node's answer has the header's root."""
    urls = ("http://one.test", "http://two.test")
    node = Liar(lambda answer: answer, *urls)
    node.root = lambda height: "ab" * 32 if height == 50 else "00" * 32  # type: ignore[method-assign]
    assert await rows(node.chain(*urls)) == [5, 6, 7]
    with pytest.raises(BadAnswer, match="not those of its header"):
        await rows(node.chain())


async def test_two_who_tell_different_blocks_are_both_refused() -> None:
    node = Liar(without_the_last, "http://two.test")
    node.root = lambda height: "ab" * 32 if height == 50 else "00" * 32  # type: ignore[method-assign]
    with pytest.raises(BadAnswer, match="not those of its header"):
        await rows(node.chain("http://one.test", "http://two.test"))


async def test_an_end_that_is_longer_than_any_is_refused() -> None:
    node = FakeNode()
    node.transactions[50] = [make_transaction(1, (1, ALICE), (2, BOB), (3, 5))]
    block = node.full_block(50)
    block["transactions"][0]["ret"] = [{"contractRet": "SUCCESS" * 1_000_000}]
    node = FakeNode(wallet__getblockbynum=lambda body: block)
    with pytest.raises(BadAnswer, match="wrong shape"):
        await rows(node.chain())


async def test_a_signature_that_is_no_hexadecimal_is_refused() -> None:
    node = Liar(lambda answer: answer, "http://one.test")
    node.transactions[50][1]["signature"] = ["zz"]
    with pytest.raises(BadAnswer, match="no hexadecimal"):
        await rows(node.chain())


# --- who signed ------------------------------------------------------------------------------------------------------


def test_who_signed_the_transactions_of_a_real_block() -> None:
    owners = ["41382b835dd735c2d634646138ff8ef333d9ab0502"] * 3
    owners += ["417edc1887cbb12c5a3eee51ec1a4882fd1d48e400", "41bc649db213a41a11aac2d3186e832fa9fc84c030"]
    assert [recover_signers(each) for each in real()] == [(parse_address("", owner),) for owner in owners]


@pytest.mark.parametrize("offset", [0, 27, 31, 4])
def test_the_last_byte_of_a_signature_has_four_spellings(offset: int) -> None:
    transaction = real()[0]
    (signature,) = transaction.signature
    spelling = f"{signature[:-2]}{int(signature[-2:], 16) + offset:02x}"
    assert (
        recover_signers(msgspec.structs.replace(transaction, signature=[spelling, spelling + "00"]))
        == recover_signers(transaction) * 2
    )


@pytest.mark.parametrize(
    "signature",
    ["", "00" * 64, "00" * 65, "ff" * 65, "11" * 64 + "08", "11" * 64 + "1a", "11" * 64 + "23", "ff" * 32 + "11" * 33],
)
async def test_a_signature_of_which_no_key_comes_is_told_and_stops_nothing(signature: str) -> None:
    node = FakeNode()
    node.transactions[50] = [{**make_transfer(ALICE, BOB, 5), "signature": [signature]}]
    collected = await node.chain().collect(Span(50, 50), DATASETS)
    assert len(collected.tables["transactions"]) == 1
    assert [(each.account, each.height, each.amount) for each in collected.unexplained] == [(ALICE, 50, 0)]
    assert "has a signature of which no key comes" in collected.unexplained[0].reason
    assert "/wallet/getaccount" not in node.paths, "no account can name who that is"


def signing_permission(*accounts: str) -> dict[str, Any]:
    """Return the permission of an account for which others may sign."""
    keys = [{"address": hex_address(each), "weight": 1} for each in accounts]
    return {"active_permission": [{"id": 2, "keys": keys, "threshold": 1}]}


async def unexplained(chain: TronChain, first: int, last: int) -> list[tuple[str, int]]:
    """Return the accounts and heights of unexplained transactions."""
    collected = await chain.collect(Span(first, last), DATASETS)
    return [(each.account, each.height) for each in collected.unexplained]


async def test_an_account_is_asked_once_whom_it_names_and_again_of_a_newer_block() -> None:
    node = FakeNode()
    for height in range(50, 60):
        node.transactions[height] = [
            make_transaction(1, (1, ALICE), (2, BOB), (3, height), by=[CAROL]),
            make_transaction(1, (1, ALICE), (2, BOB), (3, 7), by=[ALICE]),
            make_transaction(1, (1, ALICE), (2, BOB), (3, 9), by=[CAROL, ALICE]),
        ]
    node.give(ALICE, **signing_permission(ALICE, CAROL))
    chain = node.chain()
    assert await unexplained(chain, 50, 54) == [] == await unexplained(chain, 55, 59)
    assert node.paths.count("/wallet/getaccount") == 1
    node.give(ALICE, **signing_permission(ALICE))  # a word that was given stays good for the blocks before it
    assert await unexplained(chain, 50, 59) == []
    node.transactions[61] = [make_transaction(1, (1, ALICE), (2, BOB), (3, 5), by=[BOB])]
    node.transactions[62] = [make_transaction(1, (1, ALICE), (2, BOB), (3, 6), by=[BOB])]
    assert await unexplained(chain, 61, 62) == [(ALICE, 61), (ALICE, 62)]
    assert node.paths.count("/wallet/getaccount") == 2
    assert await unexplained(chain, 61, 62) == [(ALICE, 61), (ALICE, 62)]
    assert node.paths.count("/wallet/getaccount") == 2
    node.transactions[63] = [make_transaction(1, (1, ALICE), (2, BOB), (3, 5), by=[BOB])]
    node.give(ALICE, **signing_permission(BOB))
    assert await unexplained(chain, 63, 63) == []
    assert node.paths.count("/wallet/getaccount") == 3


async def test_others_have_their_turn_while_signers_of_many_transactions_are_recovered() -> None:
    transaction, turns, ended = real()[0], 0, False

    async def count_turns() -> None:
        nonlocal turns
        while not ended:
            turns += 1
            await asyncio.sleep(0)

    waiting = asyncio.create_task(count_turns())
    signers = await recover_all([transaction] * 1_001)
    before, many_signatures = turns, msgspec.structs.replace(transaction, signature=transaction.signature * 100)
    signers += await recover_all([many_signatures] * 11)
    ended = True
    await waiting
    assert signers == [recover_signers(transaction)] * 1_001 + [recover_signers(many_signatures)] * 11
    assert before >= 2
    assert turns - before >= 2, "as many signatures in fewer transactions take as long"


@pytest.mark.parametrize(
    "excess",
    [
        {"signature": ["00"] * 101},
        {"signature": ["00" * 4_000_001]},
        {"raw_data_hex": "00" * 4_000_001},
    ],
)
async def test_a_block_larger_than_any_costs_no_signature(excess: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A forged header can cover any content, so impossible blocks are refused before they are checked."""
    node = FakeNode()
    node.transactions[50] = [make_transfer(ALICE, BOB, 5), {**make_transfer(ALICE, BOB, 6), **excess}]
    monkeypatch.setattr("chainfolio.adapters.tron.spans.recover_all", None)
    with pytest.raises(BadAnswer, match="larger than any"):
        await node.chain().collect(Span(50, 50), DATASETS)


async def test_an_answer_longer_than_any_block_is_not_even_read(monkeypatch: pytest.MonkeyPatch) -> None:
    node = FakeNode()
    monkeypatch.setattr("chainfolio.adapters.tron.spans.MAX_JSON", len(msgspec.json.encode(node.full_block(50))) - 1)
    with pytest.raises(BadAnswer, match="larger than any"):
        await node.chain().collect(Span(50, 50), DATASETS)


async def test_five_keys_sign_for_one_account_and_a_sixth_is_told() -> None:
    """Both spellings of a signature, by either half of the curve, are of one key."""
    node, keys = FakeNode(), [PrivateKey.from_int(number) for number in range(11, 17)]
    people = [encode_address(keccak_256(key.public_key.format(compressed=False)[1:]).digest()[12:]) for key in keys]
    node.give(ALICE, **signing_permission(*people[:5]))
    for height, signers in ((50, keys[:5]), (51, keys)):
        payment = make_transfer(ALICE, BOB, height)
        both = [key.sign_recoverable(bytes.fromhex(payment["txID"]), hasher=None) for key in signers]
        both = [spelling for each in both for spelling in (each, other_half(each))]
        node.transactions[height] = [{**payment, "signature": [each.hex() for each in both]}]
    collected = await node.chain().collect(Span(50, 51), DATASETS)
    assert [(each.account, each.height) for each in collected.unexplained] == [(ALICE, 51)]
    assert people[5] in collected.unexplained[0].reason


def other_half(signature: bytes) -> bytes:
    """Return the same signature with the complement of its second number."""
    complement = (ORDER - int.from_bytes(signature[32:64], "big")).to_bytes(32, "big")
    return signature[:32] + complement + bytes([signature[64] ^ 1])


async def test_what_nobody_signed_is_told_unless_it_is_of_nobody() -> None:
    node = FakeNode()
    node.transactions[50] = [{**make_transfer(ALICE, BOB, 5), "signature": []}, make_transaction(51, (3, b"shielded"))]
    collected = await node.chain().collect(Span(50, 50), DATASETS)
    assert [each.account for each in collected.unexplained] == [ZERO, ALICE], "and what was shielded, nobody knows"
    assert "was signed by no key" in collected.unexplained[1].reason


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ({"address": hex_address(BOB)}, BadAnswer),
        ({"owner_permission": {"keys": [{"address": "41"}]}}, BadAnswer),
        ({"active_permission": 3}, BadAnswer),
        ({"Error": "class java.lang.Exception : not supported"}, UnsupportedMethod),
    ],
)
async def test_an_account_that_tells_what_cannot_be_is_an_error(answer: Any, error: type[Exception]) -> None:
    node = FakeNode(wallet__getaccount=lambda body: answer)
    node.transactions[50] = [make_transaction(1, (1, ALICE), (2, BOB), (3, 5), by=[CAROL])]
    with pytest.raises(error):
        await node.chain().collect(Span(50, 50), DATASETS)


async def test_who_may_sign_for_an_account_of_the_node(
    node: TronNode, people: tuple[Person, Person, Person], tmp_path: Path
) -> None:
    """The owner has two keys, payments a third person's key; the official client signs all."""
    alice, bob, carol = people
    keys = [{"address": each.hex, "weight": 1} for each in (alice, carol)]
    owner = {"type": 0, "permission_name": "owner", "threshold": 2, "keys": keys}
    active = {
        "type": 2,
        "permission_name": "daily",
        "threshold": 1,
        "operations": "02" + "00" * 31,
        "keys": [{"address": carol.hex, "weight": 1}],
    }
    alice.send("updateAccountPermissions", alice.hex, owner, None, [active])
    node.advance()
    both = alice.pay(bob.hex, 6, more=[carol.key])
    node.advance()
    chain = chains.chain(node, tmp_path)
    collected = await chain.collect(Span(0, node.head.height), DATASETS)
    assert both in collected.tables["transactions"].column("hash").to_pylist()
    assert not collected.unexplained
    owner_alone = {**owner, "threshold": 1, "keys": keys[:1]}
    alice.send(
        "updateAccountPermissions", alice.hex, owner_alone, None, [{**active, "keys": keys[:1]}], more=[carol.key]
    )
    node.advance()
    assert not (await chain.collect(Span(0, node.head.height), DATASETS)).unexplained
    await chain.close()
    later = chains.chain(node, tmp_path)  # it never heard that carol was named
    issues = (await later.collect(Span(0, node.head.height), DATASETS)).unexplained
    await later.close()
    assert {each.account for each in issues} == {alice.address}
    assert carol.address in issues[0].reason


# --- which transactions are checked ----------------------------------------------------------------------------------


def forged(count: int) -> FakeNode:
    """Return a node whose block 50 has payments from ALICE to BOB that CAROL signed."""
    node = FakeNode()
    node.transactions[50] = [
        make_transaction(1, (1, ALICE), (2, BOB), (3, raw), by=[CAROL]) for raw in range(1, count + 1)
    ]
    return node


async def reasons(chain: TronChain) -> set[str]:
    """Return why transactions of block 50 are not explained."""
    return {each.reason for each in (await chain.collect(Span(50, 50), DATASETS)).unexplained}


@pytest.mark.parametrize(("signatures", "checked"), [("all", 30), ("off", 0)])
async def test_signatures_of_all_or_of_no_transactions_are_checked(signatures: str, checked: int) -> None:
    assert len(await reasons(forged(30).chain(signatures=signatures))) == checked


async def test_one_percent_of_signatures_is_checked_by_default_at_random() -> None:
    assert TronSettings(adapter="tron", rpc=["http://one.test"]).signatures == "sample"
    chain = forged(2_000).chain(signatures="sample")
    first, second = await reasons(chain), await reasons(chain)
    assert 5 <= len(first) <= 50
    assert first != second, "a node cannot foresee which transactions are checked"


@pytest.mark.parametrize("watched", [ALICE, BOB])
async def test_every_transaction_of_a_watched_account_is_checked(watched: str) -> None:
    node = forged(3)
    node.transactions[50] += [make_transfer(CAROL, USDT, raw) for raw in range(1, 10)]
    (block,) = await node.chain(signatures="sample").reader.collect_blocks([50], [watched])
    assert len(block.unexplained) == 3
    collected = await node.chain(signatures="sample").collect_accounts(Span(50, 50), [watched], DATASETS)
    assert len(collected.unexplained) == (3 if watched == ALICE else 0), "a fault of the sender is the sender's"


async def test_transactions_of_a_watched_account_are_those_that_move_or_approve_its_tokens() -> None:
    node = FakeNode()
    logs = [event(TRANSFER, ALICE, BOB, data=f"{5:064x}")], [event(APPROVAL, BOB, USDT, data=f"{5:064x}")]
    node.transactions[50] = [
        make_transaction(31, (1, CAROL), (2, USDT), (7, raw), log=log) for raw, log in enumerate(logs)
    ]
    (block,) = await node.chain().reader.collect_blocks([50])
    transfer, approved = (row[3] for row in block.transactions)
    assert block.transactions_of([ALICE]) == {transfer}
    assert block.transactions_of([BOB]) == {transfer, approved}
    assert block.transactions_of([CAROL]) == {transfer, approved}
    assert block.transactions_of([]) == set()
