"""Faults of nodes, chains and providers: a typed error or the truth, never a wrong number."""

from __future__ import annotations

from typing import Any

import pytest

from chainfolio.adapters.starknet.accounts import balances, describe
from chainfolio.adapters.starknet.refusals import NoContract, NoFunction, error_from
from chainfolio.adapters.starknet.state import Call, is_missing_function
from chainfolio.assets import Asset
from chainfolio.blocks import Span
from chainfolio.chain_results import IndexedTransaction
from chainfolio.errors import (
    BadAnswer,
    HistoryUnavailable,
    NodeBehind,
    Reorged,
    ResponseTooLarge,
    SourceError,
    Unavailable,
    UnsupportedMethod,
    WrongChain,
)
from chainfolio.plans import Reverted, Unknown, run_batched
from chainfolio.transport.exchange import RateLimited
from chainfolio.transport.wire import RpcError
from tests.json_rpc import Refuse
from tests.starknet.fakes import COIN, TOKEN, WALLET, FakeNode, event, invoked
from tests.starknet.recorded import FACTS

MINE = f"0x{int(WALLET, 16):064x}"
ALL = ("blocks", "transactions", "native", "transfers")


async def movements(node: FakeNode, *transactions: Any) -> list[dict[str, Any]]:
    """The rows of movements of one block with these transactions."""
    node.transactions[5] = list(transactions)
    result = await node.chain().collect(Span(5, 5), ALL)
    rows: list[dict[str, Any]] = result.tables["transfers"].to_pylist()
    return rows


def amount(row: dict[str, Any]) -> int:
    """Return the amount of a row."""
    return int.from_bytes(row["raw"], "big")


@pytest.mark.parametrize(
    ("code", "message", "kind"),
    [
        (20, "Contract not found", NoContract),
        (21, "no such function", NoFunction),
        (24, "no block", NodeBehind),
        (29, "Transaction hash not found", BadAnswer),
        (31, "Requested page size is too big", ResponseTooLarge),
        (32, "There are no blocks", NodeBehind),
        (33, "invalid continuation token", BadAnswer),
        (40, "Contract error", BadAnswer),
        (42, "no state for the block", HistoryUnavailable),
        (-32601, "Method not found", UnsupportedMethod),
        (-32603, "Internal error", Unavailable),
    ],
)
def test_every_code_of_the_specification_is_a_typed_error(code: int, message: str, kind: type[SourceError]) -> None:
    assert isinstance(error_from("node", "starknet_call", RpcError(code, message), 7), kind)


@pytest.mark.parametrize(
    "message",
    [
        "rate limit exceeded",
        "Too Many Requests",
        "compute units per second",
        "daily quota reached",
        "slow down",
        "project ID request rate exceeded",
    ],
)
def test_rate_limits_are_understood_in_each_providers_spelling(message: str) -> None:
    assert type(error_from("node", "starknet_call", RpcError(-32005, message))) is RateLimited


async def test_a_node_of_another_network_is_refused() -> None:
    node = FakeNode(starknet_chainId=lambda params: "0x534e5f5345504f4c4941")
    with pytest.raises(WrongChain, match="SN_SEPOLIA"):
        await node.chain().heads()


async def test_a_block_that_is_only_being_made_is_none() -> None:
    node = FakeNode()
    node.answers = {
        **node.answers,
        "starknet_getBlockWithTxHashes": lambda params: {"timestamp": 1, "transactions": []},
    }
    with pytest.raises(BadAnswer, match="wrong shape"):
        await node.chain().heads()


async def test_what_is_final_is_found_without_a_name_for_it_in_few_requests() -> None:
    node = FakeNode()
    node.head, node.final = 5_000, 1_234

    def header(params: Any) -> Any:
        if params[0] == "l1_accepted":
            raise Refuse(-32602, "Invalid block id")
        return node.header(node.height(params[0]))

    node.answers = {**node.answers, "starknet_getBlockWithTxHashes": header}
    chain = node.chain()
    assert (await chain.heads()).finalized == 1_234
    assert len(node.asked) < 40
    node.asked.clear()
    node.head, node.final = 5_001, 1_236
    assert (await chain.heads()).finalized == 1_236
    assert len(node.asked) < 40


async def test_nothing_is_final_while_ethereum_has_accepted_nothing() -> None:
    node = FakeNode()
    node.final = -1
    chain = node.chain()
    assert (await chain.heads()).finalized == -1
    assert not chain.is_final(0)


async def test_a_block_that_does_not_follow_the_one_before_is_a_reorganisation() -> None:
    node = FakeNode()
    chain = node.chain()
    before = await chain.block(95)
    node.forks = {95: 1, 96: 1, 97: 1}
    with pytest.raises(Reorged):
        await chain.collect(Span(96, 97), ALL, before=before)


async def test_a_block_that_is_gone_from_under_a_read_is_a_reorganisation() -> None:
    node = FakeNode()
    chain = node.chain()
    await chain.heads()
    block = await chain.block(95)
    node.forks = {95: 1}

    def raise_not_found(params: Any) -> Any:
        raise Refuse(24, "Block not found")

    node.answers = {**node.answers, "starknet_call": raise_not_found}
    with pytest.raises(Reorged):
        await chain.answer([Call(FACTS.coin, "decimals")], block)


async def test_both_layouts_of_a_transfer_and_both_widths_of_amounts_are_read() -> None:
    node = FakeNode()
    rows = await movements(
        node,
        invoked(1, event("0xa", "0xb", "0x5", "0x1"), event("0xa", "0xb", "0x5", "0x1", keys=3)),
        invoked(2, event("0xa", "0xb", hex(2**200)), event("0xa", "0xb", hex(2**200), keys=3)),
    )
    assert [amount(each) for each in rows] == [2**128 + 5] * 2 + [2**200] * 2
    assert {each["standard"] for each in rows} == {"erc20"}
    assert [each["log_index"] for each in rows] == [0, 1, 2, 3]


async def test_a_half_of_an_amount_above_its_width_is_no_amount() -> None:
    assert await movements(FakeNode(), invoked(1, event("0xa", "0xb", hex(2**128), "0x0"))) == []


async def test_an_old_collection_that_speaks_like_a_token_is_asked_what_it_is() -> None:
    def called(params: Any) -> Any:
        from chainfolio.adapters.starknet.felts import selector

        if params[0]["entry_point_selector"] == hex(selector("decimals")):
            raise Refuse(40, "Contract error", {"revert_error": "Entry point 0x1 not found in contract."})
        return ["0xb"]

    (row,) = await movements(FakeNode(starknet_call=called), invoked(1, event("0xa", "0xb", "0x9", "0x0")))
    assert (row["standard"], amount(row), int.from_bytes(row["token_id"], "big")) == ("erc721", 1, 9)


async def test_a_fee_of_the_native_coin_is_said_once() -> None:
    fee_event = event(WALLET, "0x1176", "0x64", "0x0", keys=3, token=COIN)
    transfer_event = event(WALLET, "0x1176", "0x64", "0x0", keys=3, token=COIN)
    node = FakeNode()
    node.transactions[5] = [
        invoked(1, transfer_event, fee_event, fee={"amount": "0x64", "unit": "FRI"}, status="REVERTED")
    ]
    tables = (await node.chain().collect(Span(5, 5), ALL)).tables
    (transaction,) = tables["transactions"].to_pylist()
    (transfer,) = tables["transfers"].to_pylist()  # what was sent to the sequencer beside the fee stays
    assert (int.from_bytes(transaction["fee"], "big"), transaction["status"]) == (100, 0)
    assert (transfer["standard"], transfer["token"], transfer["log_index"], transfer["sender"]) == (
        "native",
        None,
        0,
        MINE,
    )


def in_parts(block_hash: str | None) -> FakeNode:
    """Return a node without blocks with receipts, whose receipt of block 5 names a block."""
    node = FakeNode()
    each = invoked(1, event("0xa", "0xb", "0x5", "0x1", keys=3))
    node.answers = {
        **{name: answer for name, answer in node.answers.items() if name != "starknet_getBlockWithReceipts"},
        "starknet_getBlockWithTxs": lambda params: {
            **node.header(5),
            "transactions": [{**each["transaction"], "transaction_hash": "0x1"}],
        },
        "starknet_getTransactionReceipt": lambda params: {**each["receipt"], "block_hash": block_hash},
    }
    return node


async def test_receipts_are_asked_one_by_one_where_a_node_has_no_blocks_with_them() -> None:
    tables = (await in_parts(FakeNode().hash(5)).chain().collect(Span(5, 5), ALL)).tables
    assert [amount(row) for row in tables["transfers"].to_pylist()] == [2**128 + 5]


@pytest.mark.parametrize("block_hash", ["0x99", None], ids=["another block", "no block yet"])
async def test_receipts_of_another_block_than_its_transactions_are_a_reorg(block_hash: str | None) -> None:
    with pytest.raises(Reorged):
        await in_parts(block_hash).chain().collect(Span(5, 5), ALL)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": hex(2**128 + 1)}, "only tried"),
        ({"type": "STRANGE"}, "unknown type"),
        ({"sender_address": None}, "without a signature"),
        ({"transaction_hash": "0x2"}, "another one"),
    ],
)
async def test_a_transaction_that_cannot_be_is_refused(change: dict[str, Any], message: str) -> None:
    node = FakeNode()
    node.transactions[5] = [invoked(1, **change)]
    with pytest.raises(BadAnswer, match=message):
        await node.chain().collect(Span(5, 5), ALL)


async def test_a_transaction_twice_in_a_block_or_with_an_end_that_nobody_knows_is_refused() -> None:
    node = FakeNode()
    node.transactions[5] = [invoked(1), invoked(2), {**invoked(3), "receipt": invoked(1)["receipt"]}]
    with pytest.raises(BadAnswer, match="a transaction twice"):
        await node.chain().collect(Span(5, 5), ALL)
    node.transactions[5] = [invoked(1, status="REJECTED")]
    with pytest.raises(BadAnswer, match="wrong shape"):
        await node.chain().collect(Span(5, 5), ALL)


@pytest.mark.parametrize(
    ("header_counts", "message"),
    [
        ({"event_count": 3}, "2 events, and its header counts 3"),
        ({"event_count": 1}, "2 events, and its header counts 1"),
        ({"transaction_count": 3, "event_count": 2}, "2 transactions, and its header counts 3"),
        ({"transaction_count": 2, "event_count": 2}, ""),
        ({"transaction_count": 0, "event_count": 0}, ""),  # blocks that were never counted
        ({"transaction_count": None, "event_count": None}, ""),
    ],
)
async def test_a_block_of_which_a_node_leaves_out_what_its_header_counts_is_refused(
    header_counts: dict[str, Any], message: str
) -> None:
    node = FakeNode()
    node.transactions[50] = [invoked(each, event("0x7", "0x8", "0x5", "0x0")) for each in (1, 2)]
    node.answers = {**node.answers, "starknet_getBlockWithReceipts": lambda params: {**node.whole(50), **header_counts}}
    work = node.chain().collect(Span(50, 50), ("transactions", "native"))
    if not message:
        assert len((await work).tables["transactions"]) == 2
        return
    with pytest.raises(BadAnswer, match=message):
        await work


async def test_a_fee_in_an_unknown_unit_is_refused() -> None:
    node = FakeNode()
    node.transactions[5] = [invoked(1, fee={"amount": "0x1", "unit": "GWEI"})]
    with pytest.raises(BadAnswer, match="GWEI"):
        await node.chain().collect(Span(5, 5), ALL)


async def test_a_token_is_asked_in_both_spellings_and_one_that_is_not_there_is_never_zero() -> None:
    from chainfolio.adapters.starknet.felts import selector

    def called(params: Any) -> Any:
        call = params[0]
        if call["contract_address"] == "0xdead":
            raise Refuse(20, "Contract not found")
        if call["entry_point_selector"] == hex(selector("balanceOf")):
            raise Refuse(21, "Requested entrypoint does not exist in the contract")
        if call["contract_address"] == "0xbad":
            return ["0x1", "0x2", "0x3"]
        return [hex(2**130)] if call["contract_address"] == TOKEN else ["0x7", "0x1"]

    chain = FakeNode(starknet_call=called).chain()
    block = (await chain.heads()).latest
    tokens = [chain.info.token_asset(f"0x{int(each, 16):064x}") for each in (TOKEN, "0x1", "0xdead", "0xbad")]
    report = await run_batched(
        {"all": balances(FACTS, [(MINE, each) for each in tokens])}, lambda reads: chain.answer(list(reads), block)
    )
    felt, wide, absent, wrong = report["all"].result or []
    assert (felt, wide) == (2**130, 2**128 + 7)
    assert isinstance(absent, Unknown)
    assert absent.cause == "absent"
    assert isinstance(wrong, Unknown)
    assert wrong.cause == "contract"


async def test_a_token_without_decimals_or_with_too_many_has_none() -> None:
    from chainfolio.adapters.starknet.felts import encode_short_string, selector

    answers = {
        selector("symbol"): [hex(encode_short_string("USDC"))],
        selector("name"): ["0x0", hex(encode_short_string("USD Coin")), "0x8"],
    }

    def called(params: Any) -> Any:
        function = int(params[0]["entry_point_selector"], 16)
        if function not in answers and params[0]["contract_address"] == TOKEN:
            raise Refuse(40, "Contract error", {"revert_error": "assert failed"})
        return answers.get(function, [hex(256)])

    chain = FakeNode(starknet_call=called).chain()
    block = (await chain.heads()).latest
    assets = [chain.info.token_asset(f"0x{int(each, 16):064x}") for each in (TOKEN, "0x1")]
    report = await run_batched({"all": describe(FACTS, assets)}, lambda reads: chain.answer(list(reads), block))
    described = report["all"].result or {}
    assert [(each.symbol, each.name, each.decimals) for each in described.values()] == [("USDC", "USD Coin", None)] * 2


async def test_state_that_a_node_no_longer_has_is_never_zero() -> None:
    def pruned(params: Any) -> Any:
        raise Refuse(42, "the state of that block was pruned")

    chain = FakeNode(starknet_call=pruned).chain()
    with pytest.raises(HistoryUnavailable):
        await chain.answer([Call(FACTS.coin, "decimals")], (await chain.heads()).latest)


async def test_what_a_contract_refuses_is_told_from_what_it_has_not() -> None:
    def refuse(params: Any) -> Any:
        raise Refuse(40, "Contract error", {"revert_error": "u256_sub Overflow"})

    chain = FakeNode(starknet_call=refuse).chain()
    (result,) = await chain.answer([Call(FACTS.coin, "decimals")], (await chain.heads()).latest)
    assert isinstance(result, Reverted)
    assert not is_missing_function(result)


@pytest.mark.parametrize(("height", "number"), [(6, "0x1"), (5, "0x2")])
async def test_a_transaction_elsewhere_than_in_the_index_is_refused(height: int, number: str) -> None:
    each = invoked(1)
    node = FakeNode(
        starknet_getTransactionByHash=lambda params: each["transaction"],
        starknet_getTransactionReceipt=lambda params: {
            **each["receipt"],
            "block_number": height,
            "transaction_hash": number,
        },
    )
    indexed = IndexedTransaction(f"0x{1:064x}", 5, 0, 1_700_000_020, None, True)
    with pytest.raises(BadAnswer, match="elsewhere"):
        await node.chain().look_up([indexed])


def test_a_collectible_is_named_by_its_standard() -> None:
    asset = FACTS.info.asset("erc721", f"0x{9:064x}", 7)
    assert asset == Asset("starknet:SN_MAIN", "erc721", f"0x{9:064x}", "7")


async def test_a_collection_is_asked_how_many_an_account_has_and_one_of_it_who_owns_it() -> None:
    from chainfolio.adapters.starknet.felts import selector

    def called(params: Any) -> Any:
        function, argument_count = int(params[0]["entry_point_selector"], 16), len(params[0]["calldata"])
        if (function, argument_count) == (selector("ownerOf"), 2):
            return [hex(int(MINE, 16))]
        if (function, argument_count) == (selector("balanceOf"), 1):
            return ["0x3", "0x0"]
        raise Refuse(40, "Contract error", {"revert_error": "Input too short for arguments"})

    chain = FakeNode(starknet_call=called).chain()
    block = (await chain.heads()).latest
    assets = [Asset("starknet:SN_MAIN", "erc721", f"0x{9:064x}", number) for number in ("7", "")]
    plan = balances(FACTS, [(MINE, each) for each in assets])
    report = await run_batched({"all": plan}, lambda reads: chain.answer(list(reads), block))
    assert report["all"].result == [1, 3]
