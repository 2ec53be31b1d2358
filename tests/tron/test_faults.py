"""Wrong answers of Tron nodes end as typed errors, and other forms of an answer as the same rows."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import msgspec
import pytest

from chainfolio.adapters.tron.accounts import describe
from chainfolio.adapters.tron.addresses import ZERO, decode_address, encode_address, hex_address, parse_address
from chainfolio.adapters.tron.approvals import Approvals
from chainfolio.adapters.tron.chain import build
from chainfolio.adapters.tron.events import APPROVAL, BATCH, FOR_ALL, SINGLE
from chainfolio.adapters.tron.reads import WalletRead
from chainfolio.adapters.tron.settings import TronSettings
from chainfolio.addresses import TRON
from chainfolio.assets import Asset, account
from chainfolio.blocks import Block, Span
from chainfolio.chain_results import IndexedTransaction
from chainfolio.environment import Environment
from chainfolio.errors import (
    BadAnswer,
    BadRequest,
    NodeBehind,
    Reorged,
    SourceError,
    Unavailable,
    UnsupportedMethod,
    WrongChain,
)
from chainfolio.plans import Plan, Unknown, run_batched
from tests.evm.fakes import FakeClock
from tests.tron.fakes import ALICE, BOB, TRANSFER, USDT, FakeNode, Refuse, event, make_transaction, make_transfer
from tests.tron.recorded import FACTS, ROOT

DATASETS = ("blocks", "transactions", "native", "internal", "transfers", "approvals")
COIN = FACTS.native_asset


async def rows(node: FakeNode, height: int = 50, *datasets: str) -> dict[str, list[dict[str, Any]]]:
    """The rows of one block, by table."""
    collected = await node.chain().collect(Span(height, height), datasets or DATASETS)
    return {name: table.to_pylist() for name, table in collected.tables.items()}


def constant_answer(answer: Any, body: Any) -> Any:
    """Return the same answer to any request."""
    return answer


def movement(row: dict[str, Any]) -> tuple[Any, ...]:
    """Return the standard, token, sender, recipient and raw amount of a row of transfers."""
    return row["standard"], row["token"], row["sender"], row["recipient"], int.from_bytes(row["raw"], "big")


async def run_plan(node: FakeNode, plan: Plan[Any]) -> Any:
    """Run a plan at the head of a node and return its result."""
    chain = node.chain()
    heads = await chain.heads()
    report = (await run_batched({"plan": plan}, lambda reads: chain.answer(reads, heads.latest)))["plan"]
    if report.error is not None:
        raise report.error
    return report.result


# --- addresses -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("address", [ALICE, BOB, USDT, ZERO])
def test_every_spelling_of_an_address_has_one_form(address: str) -> None:
    digits = decode_address(address).hex()
    for spelling in (address, f"41{digits}", f"0x{digits}", f"0X{digits.upper()}", digits):
        assert parse_address("node", spelling.replace("0X", "0x")) == address
    for spelling in (address, f"41{digits}", f"0x{digits}", f"41{digits.upper()}"):
        assert TRON.address(spelling) == address


def test_an_address_with_0x_is_one_of_the_evm_where_no_chain_is_named() -> None:
    assert account(f"0x{decode_address(ALICE).hex()}").kind == "evm"
    assert (account(f"41{decode_address(ALICE).hex()}").kind, account(ALICE).address) == ("tron", ALICE)


@pytest.mark.parametrize(
    "spelling",
    [ALICE[:-1] + "M", ALICE.lower(), ALICE[:5] + "0" + ALICE[6:], "T" + "1" * 33, f"42{decode_address(ALICE).hex()}"],
)
def test_an_address_with_a_wrong_checksum_or_prefix_is_refused(spelling: str) -> None:
    with pytest.raises(BadRequest):
        TRON.address(spelling)


@pytest.mark.parametrize("text", ["", "41", "0x1234", "zz" * 20, "42" + "0" * 40, "41" + "0" * 42])
def test_what_a_node_writes_that_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(BadAnswer, match="no address"):
        parse_address("node", text)


def test_the_zero_address_mints_and_burns() -> None:
    assert TRON.burn_addresses == {ZERO} == {encode_address(bytes(20))}


# --- transactions ----------------------------------------------------------------------------------------------------


async def test_a_transaction_out_of_energy_pays_and_moves_nothing() -> None:
    node = FakeNode()
    log = event(TRANSFER, ALICE, BOB, data=f"{5:064x}")
    node.transactions[50] = [
        make_transaction(
            31,
            (1, ALICE),
            (2, USDT),
            (3, 7),
            ret="OUT_OF_ENERGY",
            fee=9_000,
            result="FAILED",
            receipt={"result": "OUT_OF_ENERGY", "energy_usage_total": 100},
            log=[log],
            internal_transactions=[
                {
                    "caller_address": hex_address(USDT),
                    "transferTo_address": hex_address(BOB),
                    "callValueInfo": [{"callValue": 3}],
                    "note": "63616c6c",
                    "rejected": True,
                }
            ],
        ),
    ]
    tables = await rows(node)
    (transaction,) = tables["transactions"]
    assert (transaction["status"], transaction["sender"], transaction["gas_used"]) == (0, ALICE, 100)
    assert int.from_bytes(transaction["fee"], "big") == 9_000
    assert tables["transfers"] == []


async def test_the_fee_of_an_activation_is_its_senders() -> None:
    node = FakeNode()
    node.transactions[50] = [make_transfer(ALICE, BOB, 5, fee=1_100_000)]
    tables = await rows(node)
    assert [int.from_bytes(each["fee"], "big") for each in tables["transactions"]] == [1_100_000]
    assert [movement(each) for each in tables["transfers"]] == [("native", None, ALICE, BOB, 5)]


async def test_rejected_inner_calls_move_nothing_and_others_do() -> None:
    node = FakeNode()
    call = {"caller_address": hex_address(USDT), "transferTo_address": hex_address(BOB), "note": "63616c6c"}
    node.transactions[50] = [
        make_transaction(
            31,
            (1, ALICE),
            (2, USDT),
            internal_transactions=[
                {**call, "callValueInfo": [{"callValue": 3}], "rejected": True},
                {**call, "callValueInfo": [{"callValue": 4}, {"callValue": 6, "tokenId": "1002000"}, {}]},
                {**call, "callValueInfo": [{"callValue": 9}], "note": b"freezeBalanceV2ForEnergy".hex()},
                {**call, "callValueInfo": [{"callValue": 8}], "note": b"withdrawReward".hex()},
                {**call, "callValueInfo": [{"callValue": 8}], "note": b"delegateResourceOfEnergy".hex()},
            ],
        ),
    ]
    assert [movement(each) for each in (await rows(node))["transfers"]] == [
        ("internal", None, USDT, BOB, 4),
        ("trc10", "1002000", USDT, BOB, 6),
        ("internal", None, USDT, ZERO, 9),
        ("internal", None, ZERO, BOB, 8),
    ]


async def test_an_inner_call_of_an_unknown_kind_is_told_as_not_explained() -> None:
    node = FakeNode()
    call = {"caller_address": hex_address(USDT), "callValueInfo": [{"callValue": 3}], "note": b"teleport".hex()}
    node.transactions[50] = [make_transaction(31, (1, ALICE), (2, USDT), internal_transactions=[call])]
    collected = await node.chain().collect(Span(50, 50), DATASETS)
    assert [(each.account, each.height, each.amount) for each in collected.unexplained] == [(ALICE, 50, 0)]
    assert "teleport" in collected.unexplained[0].reason


async def test_what_the_system_takes_and_gives_moves_to_and_from_the_zero_address() -> None:
    node = FakeNode(
        wallet__getexchangebyid=lambda body: {
            "exchange_id": body["id"],
            "first_token_id": "5f",
            "second_token_id": b"1000001".hex(),
        }
    )
    node.transactions[50] = [
        make_transaction(54, (1, ALICE), (2, 100), (3, 1)),
        make_transaction(55, (1, ALICE), (2, 40), unfreeze_amount=40, withdraw_expire_amount=30),
        make_transaction(13, (1, ALICE), withdraw_amount=7),
        make_transaction(57, (1, ALICE), (2, 1), (3, 60), (4, BOB)),
        make_transaction(44, (1, ALICE), (2, 3), (3, b"_"), (4, 500), exchange_received_amount=9),
        make_transaction(4, (1, ALICE)),
        make_transaction(2, (1, b"1002000"), (2, ALICE), (3, BOB), (4, 11)),
    ]
    tables = await rows(node)
    assert [movement(each) for each in tables["transfers"]] == [
        ("native", None, ALICE, ZERO, 100),
        ("native", None, ZERO, ALICE, 30),
        ("native", None, ZERO, ALICE, 7),
        ("native", None, ALICE, ZERO, 500),
        ("trc10", "1000001", ZERO, ALICE, 9),
        ("trc10", "1002000", ALICE, BOB, 11),
    ]
    assert [each["recipient"] for each in tables["transactions"]] == [ZERO, ZERO, ZERO, BOB, ZERO, ZERO, BOB]
    assert [len(each["input"] or b"") for each in tables["transactions"]] == [4, 4, 4, 4, 4, 4, 0]


async def test_a_token_that_is_named_and_has_no_number_is_told_as_not_explained() -> None:
    node = FakeNode()
    node.transactions[50] = [make_transaction(2, (1, b"SEED"), (2, ALICE), (3, BOB), (4, 11))]
    collected = await node.chain().collect(Span(50, 50), DATASETS)
    assert collected.tables["transfers"].num_rows == 0
    assert [each.account for each in collected.unexplained] == [ALICE]


async def test_a_contract_that_failed_to_be_made_needs_no_address_and_one_that_is_made_does() -> None:
    node = FakeNode()
    node.transactions[50] = [make_transaction(30, (1, ALICE), (2, b""), ret="REVERT", result="FAILED", fee=5)]
    (transaction,) = (await rows(node))["transactions"]
    assert (transaction["status"], transaction["recipient"], transaction["created"]) == (0, None, None)
    node.transactions[50] = [make_transaction(30, (1, ALICE), (2, b""))]
    with pytest.raises(BadAnswer, match="without an address"):
        await rows(node)


async def test_what_came_for_coins_is_not_explained_and_the_coins_are() -> None:
    node = FakeNode()
    node.transactions[50] = [
        make_transaction(9, (1, ALICE), (2, BOB), (3, b"1000001"), (4, 6)),
        make_transaction(51, (3, b"secret")),
    ]
    collected = await node.chain().collect(Span(50, 50), DATASETS)
    assert [movement(each) for each in collected.tables["transfers"].to_pylist()] == [("native", None, ALICE, BOB, 6)]
    assert [each.account for each in collected.unexplained] == [ALICE, ZERO]


async def test_receipts_of_an_empty_block_may_be_nothing() -> None:
    node = FakeNode(wallet__gettransactioninfobyblocknum=lambda body: {})
    assert (await rows(node))["transactions"] == []
    node.transactions[50] = [make_transfer(ALICE, BOB, 5)]
    with pytest.raises(BadAnswer, match="receipts of others"):
        await rows(node)


def broken(**change: Any) -> dict[str, Any]:
    """A transfer, changed."""
    return {**make_transfer(ALICE, BOB, 5), **change}


@pytest.mark.parametrize(
    ("transaction", "reason"),
    [
        (broken(raw_data_hex="00"), "bytes of another"),
        (broken(raw_data_hex="zz"), "no hexadecimal"),
        (broken(txID="00" * 32), "receipts of others"),
        (make_transaction(1, (1, ALICE), (2, BOB), (3, -5 + 2**64)), "an amount of -5"),
        (make_transaction(1, (1, b"\x42" + bytes(20)), (2, BOB), (3, 5)), "is no address"),
        (make_transaction(1, (1, 77), (2, BOB), (3, 5)), "is no address"),
        (make_transaction(1, (1, ALICE), (2, BOB), (0, b"\x1e")), "a field of kind 6"),
        (make_transaction(1, (1, ALICE), (2, BOB), (0, b"\x1b")), "does not end"),
        (make_transaction(1, (1, ALICE), (2, BOB), (0, b"\x1c")), "a field of kind 4"),
        (make_transaction(1, (1, ALICE), (2, BOB), (0, b"\x1b" * 50_000)), "does not end"),
        (make_transaction(1, (1, ALICE), (2, BOB), (0, b"\x22\x05aaaa")), "beyond its message"),
        (make_transaction(1, (1, ALICE), (2, BOB), (0, b"\x19aaaa")), "beyond its message"),
        (make_transaction(99, (1, ALICE)), "unknown type 99"),
        (make_transaction(31, (1, ALICE), (2, USDT), receipt={"result": "REVERT"}), "ended with SUCCESS and REVERT"),
        (
            make_transaction(31, (1, ALICE), (2, USDT), log=[event(TRANSFER, ALICE, "zz", data="00" * 32)]),
            "no hexadecimal",
        ),
        (make_transaction(31, (1, ALICE), (2, USDT), log=[event(TRANSFER, ALICE, "00", data="00" * 32)]), "no word"),
        (
            make_transaction(
                31,
                (1, ALICE),
                (2, USDT),
                internal_transactions=[{"caller_address": "41", "callValueInfo": [{"callValue": 1}]}],
            ),
            "no address",
        ),
        (make_transaction(1, (1, ALICE), (2, BOB), (3, 5), fee=-1), "wrong shape"),
        (make_transaction(1, (1, ALICE), (2, BOB), (3, 5), fee=2**64), "wrong shape"),
    ],
)
async def test_a_transaction_that_cannot_be_is_refused(transaction: dict[str, Any], reason: str) -> None:
    node = FakeNode()
    node.transactions[50] = [transaction]
    with pytest.raises(BadAnswer, match=reason):
        await rows(node)


async def test_a_transaction_twice_in_a_block_is_refused() -> None:
    node = FakeNode()
    node.transactions[50] = [make_transfer(ALICE, BOB, 5)] * 2
    with pytest.raises(BadAnswer, match="twice"):
        await rows(node)


async def test_receipts_of_other_transactions_or_blocks_are_refused() -> None:
    without_receipts = FakeNode(wallet__gettransactioninfobyblocknum=lambda body: [])
    without_receipts.transactions[50] = [make_transfer(ALICE, BOB, 5)]
    with pytest.raises(BadAnswer, match="receipts of others"):
        await rows(without_receipts)
    other_block = FakeNode()
    other_block.transactions[50] = [make_transfer(ALICE, BOB, 5, blockNumber=49)]
    with pytest.raises(BadAnswer, match="receipt of block 49"):
        await rows(other_block)


# --- blocks ----------------------------------------------------------------------------------------------------------


async def test_a_block_whose_id_is_not_that_of_its_header_is_refused() -> None:
    node = FakeNode()
    honest = node.full_block(50)
    raw_data = honest["block_header"]["raw_data"]
    lies: list[dict[str, Any]] = [
        {**honest, "blockID": honest["blockID"][:-1] + "0"},
        {**honest, "block_header": {"raw_data": {**raw_data, "timestamp": raw_data["timestamp"] + 3_000}}},
        {**honest, "block_header": {"raw_data": {**raw_data, "parentHash": "11" * 32}}},
        node.full_block(51),
        {**honest, "block_header": {"raw_data": {**raw_data, "witness_address": "zz"}}},
        {**honest, "blockID": "short"},
        {"blockID": honest["blockID"]},
    ]
    for lie in lies:
        with pytest.raises(BadAnswer):
            await rows(FakeNode(wallet__getblockbynum=partial(constant_answer, lie)))


async def test_a_block_that_is_not_there_is_still_to_come() -> None:
    node = FakeNode()
    empty_answers: list[Any] = [{}, b"{}\n"]
    for answer in empty_answers:
        with pytest.raises(NodeBehind):
            await rows(FakeNode(wallet__getblockbynum=partial(constant_answer, answer)), 50)
    with pytest.raises(NodeBehind):
        await node.chain().block(101)


async def test_a_block_that_does_not_follow_the_one_before_is_a_reorganisation() -> None:
    node = FakeNode()
    before = Block(49, "0" * 64, "", 0)
    with pytest.raises(Reorged):
        await node.chain().collect(Span(50, 51), DATASETS, (), before)


async def test_the_newest_block_that_is_solid_is_final() -> None:
    chain = FakeNode().chain()
    heads = await chain.heads()
    assert (heads.latest.height, heads.finalized) == (100, 90)
    assert (chain.is_final(90), chain.is_final(91)) == (True, False)


async def test_a_node_of_another_chain_is_refused() -> None:
    foreign_genesis = {
        "blockID": "00" * 8 + "11" * 24,
        "block_header": {
            "raw_data": {
                "parentHash": "00" * 32,
                "txTrieRoot": "00" * 32,
                "witness_address": "",
            }
        },
    }
    for answer in (foreign_genesis, {}):
        with pytest.raises(WrongChain):
            await FakeNode(wallet__getblock=partial(constant_answer, answer)).chain().heads()


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "status", "kind"),
    [
        ("class java.lang.IllegalAccessException : lack of computing resources", 200, Unavailable),
        ("The key exceeds the frequency limit(15), and the query server is suspended for 1 s", 403, Unavailable),
        ("request rate exceeded the allowed_rps(3), and the query server is suspended for 5 s", 429, Unavailable),
        ("rate limit reached", 503, Unavailable),
        ("Exceed the user daily usage (100000), the maximum query frequency is 1 time per second", 403, Unavailable),
        ("request too quickly, please retry later; you reached the free tier limit", 403, Unavailable),
        ("Too Many Requests", 400, Unavailable),
        ("class org.tron.core.exception.BadItemException : block num not exist", 200, NodeBehind),
        ("this API is closed because this node is a lite fullnode", 200, UnsupportedMethod),
        ("class java.lang.NullPointerException : null", 200, BadAnswer),
        ("class com.alibaba.fastjson.JSONException : syntax error", 200, BadAnswer),
        ("invalid key", 401, BadAnswer),
        ("gone", 404, SourceError),
    ],
)
async def test_every_spelling_of_a_refusal_is_a_typed_error(reason: str, status: int, kind: type[Exception]) -> None:
    def refuse(body: Any) -> Any:
        raise Refuse(reason, status)

    node = FakeNode(wallet__getblockbynum=refuse)
    with pytest.raises(kind) as caught:
        await rows(node)
    assert "http" not in str(caught.value)


@pytest.mark.parametrize("body", [b"", b"<html>", b"[", b'{"blockID":', b"[]", b"7", b'"x"', b'{"a":' * 500, b"\xff"])
async def test_what_is_no_answer_is_a_typed_error(body: bytes) -> None:
    for path in ("wallet__getblockbynum", "wallet__gettransactioninfobyblocknum", "walletsolidity__getblock"):
        node = FakeNode(**{path: lambda _: body})
        node.transactions[50] = [make_transfer(ALICE, BOB, 5)]
        chain = node.chain()
        with pytest.raises(SourceError):
            await asyncio.gather(chain.heads(), chain.collect(Span(50, 50), DATASETS))


# --- what accounts have ----------------------------------------------------------------------------------------------


async def test_an_account_is_read_at_one_block() -> None:
    node = FakeNode()
    node.give(ALICE, balance=77, assetV2=[{"key": "1002000", "value": 5}])
    node.tokens[f"0x{decode_address(USDT).hex()}", decode_address(ALICE).hex()] = 2**200
    token, trc10 = FACTS.token_asset(USDT), FACTS.token_asset("1002000")
    pairs = [(ALICE, COIN), (ALICE, token), (ALICE, trc10), (BOB, COIN), (BOB, trc10), (ALICE, FACTS.token_asset("7"))]
    assert await run_plan(node, node.chain().balances(pairs)) == [77, 2**200, 5, 0, 0, 0]


async def test_an_account_is_read_again_while_the_chain_goes_on() -> None:
    node = FakeNode()
    node.give(ALICE, balance=77)
    chain, read_count = node.chain(), 0
    honest = node.answers["/wallet/getaccount"]

    def later(body: Any) -> Any:
        nonlocal read_count
        read_count += 1
        if read_count < 3:
            node.head += 1
        return honest(body)

    node.answers = {**node.answers, "/wallet/getaccount": later}
    heads = await chain.heads()
    (state,) = await chain.answer([WalletRead(ALICE)], heads.latest)
    assert (state.block.height, state.wallet.balance, read_count) == (102, 77, 3)


async def test_a_chain_that_never_stands_still_is_an_error_and_no_balance() -> None:
    node = FakeNode()
    chain = node.chain()

    def on(body: Any) -> Any:
        node.head += 1
        return {}

    heads = await chain.heads()
    node.answers = {**node.answers, "/wallet/getaccount": on}
    with pytest.raises(Unavailable, match="faster than it answers"):
        await chain.answer([WalletRead(ALICE)], heads.latest)


@pytest.mark.parametrize(
    "wallet",
    [
        {"address": hex_address(BOB)},
        {"address": "zz"},
        {"balance": -1},
        {"balance": "5"},
        {"balance": 2**64},
        {"assetV2": [{"value": 1}]},
        {"assetV2": 5},
    ],
)
async def test_an_account_that_cannot_be_is_refused(wallet: dict[str, Any]) -> None:
    node = FakeNode()
    node.wallets[hex_address(ALICE)] = wallet
    with pytest.raises(BadAnswer):
        await run_plan(node, node.chain().balances([(ALICE, COIN)]))


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"result": "0x"}, "absent"),
        ({"result": "0x01"}, "contract"),
        ({"error": {"code": -32000, "message": "REVERT opcode executed"}}, "Reverted"),
        ({"error": {"code": -32000, "message": "Smart contract is not exist."}}, "absent"),
        ({"result": "0xzz"}, BadAnswer),
        ({"result": 7}, BadAnswer),
        ({}, BadAnswer),
        ({"error": {"code": -32005, "message": "lack of computing resources"}}, Unavailable),
        ({"error": {"code": -32601, "message": "method not found"}}, UnsupportedMethod),
    ],
)
async def test_a_token_that_does_not_answer_is_never_zero(answer: dict[str, Any], expected: Any) -> None:
    node = FakeNode()
    node.contract = answer
    plan = node.chain().balances([(ALICE, FACTS.token_asset(USDT))])
    if isinstance(expected, type):
        with pytest.raises(expected):
            await run_plan(node, plan)
        return
    (balance,) = await run_plan(node, plan)
    assert (balance.cause if isinstance(balance, Unknown) else type(balance).__name__) == expected


async def test_names_of_tokens_come_in_hexadecimal_or_not_at_all() -> None:
    tokens = {
        "1002000": {"id": "1002000", "name": b"BitTorrent".hex(), "abbr": b"BTT".hex(), "precision": 6},
        "8": {"id": "9"},
    }
    node = FakeNode(wallet__getassetissuebyid=lambda body: tokens.get(body["value"], {}))
    trc10, unknown, contract = (FACTS.token_asset(each) for each in ("1002000", "7", USDT))
    metadata = await run_plan(node, describe([trc10, unknown, contract]))
    assert (metadata[trc10].symbol, metadata[trc10].name, metadata[trc10].decimals) == ("BTT", "BitTorrent", 6)
    assert (metadata[unknown].decimals, metadata[contract].decimals) == (None, None)
    with pytest.raises(BadAnswer, match="gives token 9 for 8"):
        await run_plan(node, describe([FACTS.token_asset("8")]))


# --- tokens of contracts ---------------------------------------------------------------------------------------------


async def test_events_of_every_standard_are_rows_and_others_are_none() -> None:
    to_word = "{:064x}".format
    logs = [
        event(TRANSFER, ALICE, BOB, data=to_word(2**256 - 1)),
        event(TRANSFER, ALICE, BOB, to_word(9)),
        event(SINGLE, ALICE, ALICE, BOB, data=to_word(4) + to_word(5)),
        event(BATCH, ALICE, ALICE, BOB, data="".join(map(to_word, (64, 160, 2, 1, 2, 2, 10, 20)))),
        event(BATCH, ALICE, ALICE, BOB, data="".join(map(to_word, (64, 160, 2**255, 1, 2, 2, 10, 20)))),
        event(TRANSFER, ALICE, BOB, data="00" * 31),
        event(TRANSFER, "f" * 64, BOB, data=to_word(1)),
        event(TRANSFER, f"{'0' * 22}41{decode_address(ALICE).hex()}", BOB, data=to_word(3)),
        event(data=to_word(1)),
        event(
            "7fcf532c15f0a6db0bd6d0e038bea71d30d808c7d98cb3bf7268a95bf5081b65",
            ALICE,
            data=to_word(6),
            token="TNUC9Qb1rRpS5CbWLmNMxXBjyFoydXjWFR",
        ),
    ]
    node = FakeNode()
    node.transactions[50] = [make_transfer(ALICE, BOB, 1), make_transaction(31, (1, ALICE), (2, USDT), log=logs)]
    transfers = (await rows(node))["transfers"][1:]
    assert [(each["standard"], each["log_index"], each["item"]) for each in transfers] == [
        ("trc20", 0, 0),
        ("trc721", 1, 0),
        ("trc1155", 2, 0),
        ("trc1155", 3, 0),
        ("trc1155", 3, 1),
        ("trc20", 7, 0),
        ("unwrap", 9, 0),
    ]
    assert [int.from_bytes(each["raw"], "big") for each in transfers] == [2**256 - 1, 1, 5, 10, 20, 3, 6]
    assert transfers[5]["sender"] == ALICE


async def test_approvals_are_rows_and_contracts_say_what_is_left() -> None:
    to_word = "{:064x}".format
    node = FakeNode()
    node.transactions[50] = [
        make_transaction(
            31,
            (1, ALICE),
            (2, USDT),
            log=[
                event(APPROVAL, ALICE, BOB, data=to_word(2**256 - 1)),
                event(APPROVAL, ALICE, BOB, to_word(7)),
                event(FOR_ALL, ALICE, BOB, data=to_word(1)),
                event(FOR_ALL, ALICE, BOB, data=to_word(2)),
                event(APPROVAL, ALICE, data=to_word(2)),
            ],
        )
    ]
    approvals = (await rows(node))["approvals"]
    assert [(each["standard"], each["owner"], each["spender"], each["approved"]) for each in approvals] == [
        ("erc20", ALICE, BOB, None),
        ("erc721", ALICE, BOB, None),
        ("operator", ALICE, BOB, True),
    ]
    node.tokens[f"0x{decode_address(USDT).hex()}", decode_address(ALICE).hex()] = 50

    class Given:
        token, owner, spender, token_id = USDT, ALICE, BOB, None

    (state,) = await run_plan(node, Approvals().allowances([Given()]))
    assert (state.raw, state.balance, state.supply) == (None, 50, None)
    (operator,) = await run_plan(node, Approvals().operators([Given()], {ALICE: {}}))
    assert (operator.standard, operator.movable) == (None, 50)


# --- look-up and histories -------------------------------------------------------------------------------------------


async def test_a_transaction_that_is_gone_or_elsewhere_is_an_error() -> None:
    node = FakeNode()
    each = make_transfer(ALICE, BOB, 5)
    node.transactions[50] = [each]
    chain = node.chain()

    def indexed(tx_hash: str, height: int = 50, *, final: bool = True) -> IndexedTransaction:
        return IndexedTransaction(tx_hash, height, 0, 0, None, final)

    for transaction, kind in [
        (indexed("11" * 32), NodeBehind),
        (indexed("11" * 32, final=False), Reorged),
        (indexed(each["txID"], 51), BadAnswer),
    ]:
        with pytest.raises(kind):
            await chain.look_up([transaction])


async def test_a_history_is_rows_of_the_blocks_that_are_listed() -> None:
    first, second, third = make_transfer(ALICE, BOB, 5), make_transfer(BOB, ALICE, 6), make_transfer(BOB, BOB, 7)
    pages = {
        "": ([{"txID": first["txID"], "blockNumber": 20, "block_timestamp": 1}], "more"),
        "more": ([{"txID": first["txID"], "blockNumber": 20, "block_timestamp": 1}], ""),
    }

    def page(path: str) -> Any:
        data, mark = pages["more" if "fingerprint=more" in path else ""]
        return {"data": data, "success": True, "meta": {"fingerprint": mark} if mark else {}}

    node = FakeNode(
        **{
            f"v1__accounts__{ALICE}__transactions": page,
            f"v1__accounts__{ALICE}__transactions__trc20": lambda path: {"data": [{"transaction_id": second["txID"]}]},
        }
    )
    node.transactions |= {20: [first, third], 30: [second], 40: [third]}
    chain = node.chain(trongrid=True)
    await chain.heads()
    collected = await chain.collect_accounts(Span(0, 100), [ALICE], DATASETS[1:])
    assert (collected.span, collected.read_methods["native"]) == (Span(0, 90), "lists")
    assert [movement(each)[2:] for each in collected.tables["transfers"].to_pylist()] == [
        (ALICE, BOB, 5),
        (BOB, ALICE, 6),
    ]
    assert "/wallet/getblockbynum" in node.paths
    every = await node.chain().collect_accounts(Span(0, 60), [ALICE], DATASETS[1:])
    assert every.tables["transfers"].to_pylist() == collected.tables["transfers"].to_pylist()
    assert every.read_methods["native"] == "blocks"


@pytest.mark.parametrize(
    "answer",
    [
        {"data": [], "meta": {"fingerprint": "same"}},
        {"data": [], "success": False},
        {"data": [{}]},
        {"data": 5},
        {"data": [{"txID": "11" * 32}]},
    ],
)
async def test_a_list_that_does_not_end_or_lists_what_is_not_is_an_error(answer: Any) -> None:
    lists = {f"v1__accounts__{ALICE}__transactions{each}": lambda _: answer for each in ("", "__trc20")}
    chain = FakeNode(**lists).chain(trongrid=True)
    await chain.heads()
    with pytest.raises(SourceError):
        await chain.collect_accounts(Span(0, 90), [ALICE], DATASETS[1:])


async def test_doctor_says_what_an_endpoint_serves() -> None:
    (row,) = await FakeNode().chain().examine()
    assert (row["head"], row["final"], row["tokens"], row["oldBlocks"]) == (100, 90, True, True)
    (row,) = await FakeNode(jsonrpc=lambda body: {"Error": "this API is closed"}).chain(trongrid=True).examine()
    assert (row["head"], row["tokens"], row["accountLists"]) == (100, False, False)


def test_the_facts_of_the_chain_are_its_first_blocks() -> None:
    assert (FACTS.caip2, str(COIN)) == ("tron:728126428", "tron:728126428/slip44:195")
    assert FACTS.token_asset("1002000") == Asset("tron:728126428", "trc10", "1002000")
    assert FACTS.info.asset("trc10", "1002000") == FACTS.token_asset("1002000")
    assert FACTS.info.asset("trc20", USDT).kind == "trc20"
    assert FACTS.info.asset("trc721", USDT, 7).kind == "trc721"
    for change in ({"chain_id": 1}, {"genesis": "00"}, {"multicall": ALICE[:-1] + "9"}):
        with pytest.raises((AssertionError, BadRequest)):
            assert msgspec.structs.replace(FACTS, **change).fault() == ""


def test_a_key_goes_to_its_provider_alone_and_is_never_shown() -> None:
    urls = ["https://api.trongrid.io", "http://api.trongrid.io", "https://nottrongrid.io", "https://trongrid.io.test"]
    settings = TronSettings(adapter="tron", rpc=urls, api_key="0123-4567-89ab", max_rps=15)
    chain = build("tron", settings, Environment(), configs=ROOT / "configs")
    sent_along = [each._web._headers for each in chain.node.endpoints]  # type: ignore[attr-defined]
    assert sent_along == [{"tron-pro-api-key": "0123-4567-89ab"}, {}, {}, {}]
    assert "0123-4567-89ab" not in repr(settings)


async def test_a_node_that_repeats_the_key_does_not_make_us_show_it() -> None:
    def refuse(body: Any) -> Any:
        raise Refuse("key 0123-4567-89ab is unknown", 400)

    settings = TronSettings(adapter="tron", rpc=["https://api.trongrid.io"], api_key="0123-4567-89ab")
    node = FakeNode(wallet__getblock=refuse)
    chain = build("tron", settings, Environment(clock=FakeClock()), configs=ROOT / "configs", transport=node)
    with pytest.raises(SourceError) as caught:
        await chain.heads()
    assert "0123-4567-89ab" not in str(caught.value)
