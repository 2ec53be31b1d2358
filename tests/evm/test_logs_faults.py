"""Logs from nodes that refuse, forget, lag and lie: stored logs are complete, or an error is raised."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from chainfolio.adapters.evm.integrity import Query
from chainfolio.adapters.evm.logs import Logs
from chainfolio.blocks import Span
from chainfolio.errors import BadAnswer, NodeBehind, Reorged, Unavailable
from chainfolio.transport.exchange import HttpResponse
from tests.evm.contracts import RpcRefusal
from tests.evm.fakes import (
    ALICE,
    BOB,
    TOKEN,
    TRANSFERS,
    FakeChain,
    FakeNode,
    Wired,
    errors_of,
    topic_of,
    transfer,
    wired,
)

Change = Callable[[list[dict[str, Any]]], Any]


def heights(logs: Logs) -> list[int]:
    return [int(height) for height in logs.height]


def pool_of(node: FakeNode) -> Wired:
    return wired(node, checked=True)


def changed(chain: FakeChain, change: Change) -> FakeNode:
    """A node that says something else instead of the logs it should give."""
    node = FakeNode(chain)
    plain = node.eth_getLogs
    node.on["eth_getLogs"] = lambda params: change(plain(params))
    return node


def width(params: list[Any]) -> int:
    return int(params[0]["toBlock"], 16) - int(params[0]["fromBlock"], 16) + 1


def capped(chain: FakeChain, limit: int, message: str, code: int = -32000, *, logs: bool = False) -> FakeNode:
    """A node that refuses more blocks, or more logs, than `most`."""
    node = FakeNode(chain)
    plain = node.eth_getLogs

    def limited(params: list[Any]) -> Any:
        entries = plain(params)
        if "toBlock" in params[0] and (len(entries) if logs else width(params)) > limit:
            raise RpcRefusal(code, message)
        return entries

    node.on["eth_getLogs"] = limited
    return node


# --- all is well -----------------------------------------------------------------------------------------------------


async def test_a_span_comes_whole_and_linked() -> None:
    chain = FakeChain(30)
    chunk = await pool_of(FakeNode(chain)).reader().read(Span(1, 30), TRANSFERS, chain.block(0))
    assert heights(chunk.logs) == list(range(1, 31))
    assert [header.hash for header in chunk.headers] == [header["hash"] for header in chain.headers[1:]]
    assert chunk.restored == 0


@pytest.mark.parametrize("integrity", ["off", "bloom"])
async def test_a_span_without_any_log_is_a_fact(integrity: str) -> None:
    chain = FakeChain()
    for _ in range(5):
        chain.mine()
    chunk = await pool_of(FakeNode(chain)).reader(integrity).read(Span(1, 5), TRANSFERS)
    assert len(chunk.logs) == 0


async def test_without_integrity_one_request_is_all() -> None:
    pool = pool_of(FakeNode(FakeChain(30)))
    assert len((await pool.reader("off").read(Span(1, 30), TRANSFERS)).logs) == 30
    assert pool.node.requests == 1


async def test_without_integrity_an_empty_bloom_says_nothing() -> None:
    chain = FakeChain(5)
    for header in chain.headers:
        header["logsBloom"] = "0x" + "00" * 256
    chunk = await pool_of(FakeNode(chain)).reader("off").read(Span(1, 5), TRANSFERS, headers=True)
    assert heights(chunk.logs) == [1, 2, 3, 4, 5]


async def test_only_the_contracts_asked_for_come() -> None:
    chain = FakeChain(3)
    other_token = "0x" + "22" * 20
    chain.mine(transfer(token=other_token), transfer())
    query = Query(TRANSFERS.topics, (other_token,))
    chunk = await pool_of(FakeNode(chain)).reader().read(Span(1, 4), query)
    assert heights(chunk.logs) == [4]


# --- too much --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("limit", "message"), [(50, "block range too large, max range: 50"), (7, "range is too wide")])
async def test_a_limit_of_blocks_is_learnt_for_good(limit: int, message: str) -> None:
    chain = FakeChain(120)
    node = capped(chain, limit, message)
    pool = pool_of(node)
    reader = pool.reader()
    assert heights((await reader.read(Span(1, 120), TRANSFERS)).logs) == list(range(1, 121))
    capabilities = pool.endpoint.capabilities["max_span"]
    assert limit // 2 <= capabilities <= limit
    refusal_count = pool.endpoint.errors.counts["ResponseTooLarge"]
    await reader.read(Span(1, 120), TRANSFERS)
    assert pool.endpoint.errors.counts["ResponseTooLarge"] == refusal_count


async def test_a_limit_that_means_one_less_than_it_says_does_not_stand_still() -> None:
    chain = FakeChain(120)
    pool = pool_of(capped(chain, 49, "eth_getLogs is limited to a 50 range", -32614))
    chunk = await pool.reader().read(Span(1, 120), TRANSFERS)
    assert heights(chunk.logs) == list(range(1, 121))
    assert pool.endpoint.capabilities["max_span"] == 49
    assert pool.endpoint.requests < 15


async def test_a_limit_once_learnt_never_grows() -> None:
    chain = FakeChain(120)
    pool = pool_of(capped(chain, 49, "eth_getLogs is limited to a 50 range", -32614))
    pool.endpoint.capabilities["max_span"] = 20
    await pool.reader().read(Span(1, 120), TRANSFERS)
    assert pool.endpoint.capabilities["max_span"] == 20


@pytest.mark.parametrize("message", ["query returned more than 9 results", "log query timed out", "limit exceeded"])
async def test_a_dense_stretch_is_read_in_pieces_and_forgotten(message: str) -> None:
    chain = FakeChain(40)
    for _ in range(20):
        chain.mine(*(transfer(raw=k) for k in range(6)))
    for _ in range(200):
        chain.mine()
    pool = pool_of(capped(chain, 9, message, -32005, logs=True))
    reader = pool.reader()
    chunk = await reader.read(Span(1, 60), TRANSFERS)
    assert len(chunk.logs) == 40 + 20 * 6
    assert "max_span" not in pool.endpoint.capabilities
    for first in range(61, 251, 10):
        await reader.read(Span(first, first + 9), TRANSFERS)
    calls = pool.endpoint.requests
    await reader.read(Span(61, 80), TRANSFERS)
    assert pool.endpoint.requests - calls <= 3


async def test_a_proposed_range_is_taken_up() -> None:
    chain = FakeChain(64)
    node = capped(chain, 16, "query returned more than 16 results. Try with this block range [0x1, 0x10].", -32005)
    pool = pool_of(node)
    assert len((await pool.reader().read(Span(1, 64), TRANSFERS)).logs) == 64
    assert pool.endpoint.errors.counts["ResponseTooLarge"] == 1


@pytest.mark.parametrize("dense", [True, False])
async def test_a_single_block_that_is_refused_is_an_error_with_a_cure(dense: bool) -> None:
    node = capped(FakeChain(9), 0, "query returned more than 0 results" if dense else "block range too large")
    with pytest.raises(BadAnswer, match="single block") as caught:
        await pool_of(node).reader().read(Span(1, 9), TRANSFERS)
    assert "name the contracts" in caught.value.remedy


async def test_a_body_too_large_for_one_piece_leaves_the_others_alone() -> None:
    """A span cut as 2 and 1 blocks, in a batch whose answer is refused: the single block is not to blame."""
    chain = FakeChain(3)
    node = FakeNode(chain)
    pool = pool_of(node)
    pool.endpoint.capabilities["max_span"] = 2
    node.exchanges = [HttpResponse(413, None, b""), HttpResponse(413, None, b"")]
    chunk = await pool.reader().read(Span(1, 3), TRANSFERS)
    assert heights(chunk.logs) == [1, 2, 3]


async def test_a_rate_limit_does_not_shrink_the_span() -> None:
    chain = FakeChain(60)
    limited = iter(range(2))
    node = FakeNode(chain)
    plain = node.eth_getLogs

    def busy(params: list[Any]) -> Any:
        if next(limited, None) is not None:
            raise RpcRefusal(-32005, "rate limit exceeded")
        return plain(params)

    node.on["eth_getLogs"] = busy
    pool = pool_of(node)
    assert len((await pool.reader().read(Span(1, 60), TRANSFERS)).logs) == 60
    assert pool.endpoint.capabilities == {}
    assert node.count("eth_getLogs") == 3


async def test_a_node_that_takes_no_batches_gives_everything_all_the_same() -> None:
    node = FakeNode(FakeChain(20))
    node.batch_limit = 1
    pool = pool_of(node)
    assert heights((await pool.reader().read(Span(1, 20), TRANSFERS)).logs) == list(range(1, 21))
    assert pool.endpoint.capabilities["max_batch"] == 1


# --- left out --------------------------------------------------------------------------------------------------------


def lagging(chain: FakeChain, missing: set[int], *, by_hash: bool = True) -> FakeNode:
    """A load balancer one of whose backends does not have some blocks yet: no error, only no logs."""
    node = FakeNode(chain)
    plain = node.eth_getLogs

    def partial(params: list[Any]) -> Any:
        if "blockHash" in params[0] and by_hash:
            return plain(params)
        return [log for log in plain(params) if int(log["blockNumber"], 16) not in missing]

    node.on["eth_getLogs"] = partial
    return node


@pytest.mark.parametrize("missing", [{30}, {1}, {4, 5, 20}, set(range(1, 31))])
async def test_what_a_lagging_backend_left_out_is_asked_for_by_hash(missing: set[int]) -> None:
    pool = pool_of(lagging(FakeChain(30), missing))
    chunk = await pool.reader().read(Span(1, 30), TRANSFERS)
    assert heights(chunk.logs) == list(range(1, 31))
    assert chunk.restored == len(missing)
    assert pool.endpoint.errors.counts["OmittedLogs"] == 1


async def test_a_bloom_that_promises_too_much_is_only_a_question() -> None:
    chain = FakeChain(3)
    chain.headers[2]["logsBloom"] = "0x" + "ff" * 256
    chain.mine()
    chain.headers[4]["logsBloom"] = "0x" + "ff" * 256
    pool = pool_of(FakeNode(chain))
    chunk = await pool.reader().read(Span(1, 4), TRANSFERS)
    assert (heights(chunk.logs), chunk.restored) == ([1, 2, 3], 0)
    assert errors_of(pool.node) == {}


async def test_a_node_that_cannot_look_by_hash_leaves_nothing_half_read() -> None:
    chain = FakeChain(5)
    node = lagging(chain, {3})
    partial = node.on["eth_getLogs"]

    def no_hashes(params: list[Any]) -> Any:
        if "blockHash" in params[0]:
            raise RpcRefusal(-32602, "invalid argument 0: unknown field blockHash")
        return partial(params)

    node.on["eth_getLogs"] = no_hashes
    with pytest.raises(Unavailable, match="by its hash"):
        await pool_of(node).reader().read(Span(1, 5), TRANSFERS)


async def test_what_one_endpoint_cannot_complete_another_gives() -> None:
    chain = FakeChain(5)
    bad = FakeNode(chain, eth_getLogs=lambda params: [{"nonsense": True}])
    pool = wired(bad, FakeNode(chain), checked=True)
    assert len((await pool.reader().read(Span(1, 5), TRANSFERS)).logs) == 5
    assert errors_of(pool.node) == {"one.test": {"BadAnswer": 1}}


async def test_a_node_that_is_behind_the_span_says_so() -> None:
    with pytest.raises(NodeBehind):
        await pool_of(FakeNode(FakeChain(5))).reader().read(Span(1, 9), TRANSFERS)


# --- lies ------------------------------------------------------------------------------------------------------------


def with_first(**changes: Any) -> Change:
    return lambda logs: [{**logs[0], **changes}, *logs[1:]] if logs else logs


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (with_first(topics=["0x" + "99" * 32]), "other events"),
        (with_first(topics=[]), "other events"),
        (with_first(address="0x" + "99" * 20), "bloom denies"),
        (with_first(removed=True), "removed"),
        (with_first(logIndex=None), "wrong shape"),
        (with_first(transactionIndex=None), "wrong shape"),
        (with_first(logIndex="0xffffffff"), "out of range"),
        (with_first(blockTimestamp="0x1"), "another time"),
        (with_first(blockNumber="0x0"), "outside the span"),
        (with_first(blockNumber="0x63"), "outside the span"),
        (lambda logs: [*logs, logs[0]], "two logs at one place"),
        (lambda logs: {"logs": logs}, "wrong shape"),
        (lambda logs: None, "wrong shape"),
    ],
)
async def test_a_log_that_cannot_be_true_is_refused(change: Change, message: str) -> None:
    with pytest.raises(BadAnswer, match=message):
        await pool_of(changed(FakeChain(5), change)).reader().read(Span(1, 5), TRANSFERS)


async def test_a_filter_for_contracts_that_is_ignored_is_noticed() -> None:
    node = FakeNode(FakeChain(5))
    plain = node.eth_getLogs
    node.on["eth_getLogs"] = lambda params: plain([{k: v for k, v in params[0].items() if k != "address"}])
    with pytest.raises(BadAnswer, match="other contracts"):
        await pool_of(node).reader().read(Span(1, 5), Query(TRANSFERS.topics, ("0x" + "22" * 20,)))


async def test_a_log_in_a_block_whose_bloom_denies_it_is_refused() -> None:
    chain = FakeChain(5)
    chain.headers[3]["logsBloom"] = "0x" + "00" * 256
    with pytest.raises(BadAnswer, match="bloom denies"):
        await pool_of(FakeNode(chain)).reader().read(Span(1, 5), TRANSFERS)


async def test_a_topic_that_the_bloom_denies_is_refused_though_the_contract_is_there() -> None:
    chain = FakeChain(2)
    chain.mine({"address": TOKEN, "topics": ["0x" + "77" * 32, topic_of(ALICE), topic_of(BOB)], "data": "0x"})
    chain.logs[3] = [{**chain.logs[3][0], **transfer()}]
    with pytest.raises(BadAnswer, match="topic"):
        await pool_of(FakeNode(chain)).reader().read(Span(1, 3), TRANSFERS)


async def test_logs_of_another_block_at_that_height_mean_that_the_chain_moved() -> None:
    chain = FakeChain(5)
    node = changed(chain, with_first(blockHash="0x" + "99" * 32))
    with pytest.raises(Reorged) as caught:
        await pool_of(node).reader().read(Span(1, 5), TRANSFERS)
    assert (caught.value.height, caught.value.block_hash) == (1, chain.headers[1]["hash"])


async def test_hashes_in_upper_case_are_the_same_hashes() -> None:
    def shout(logs: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{**log, "blockHash": "0x" + log["blockHash"][2:].upper()} for log in logs]

    assert len((await pool_of(changed(FakeChain(5), shout)).reader().read(Span(1, 5), TRANSFERS)).logs) == 5


async def test_a_piece_that_brings_logs_of_its_neighbour_is_refused() -> None:
    chain = FakeChain(6)
    node = FakeNode(chain)
    node.on["eth_getLogs"] = lambda params: [log for logs in chain.logs[1:7] for log in logs]
    pool = pool_of(node)
    pool.endpoint.capabilities["max_span"] = 3
    with pytest.raises(BadAnswer, match="outside the span"):
        await pool.reader("off").read(Span(1, 6), TRANSFERS)


# --- links -----------------------------------------------------------------------------------------------------------


async def test_a_span_that_does_not_follow_the_block_before_means_a_reorganisation() -> None:
    chain = FakeChain(9)
    old_block = chain.block(4)
    chain.reorganise(3, "b")
    with pytest.raises(Reorged) as caught:
        await pool_of(FakeNode(chain)).reader().read(Span(5, 9), TRANSFERS, old_block)
    assert (caught.value.height, caught.value.block_hash) == (4, old_block.hash)


async def test_a_chain_broken_inside_the_span_is_refused() -> None:
    chain = FakeChain(9)
    chain.headers[6]["parentHash"] = "0x" + "99" * 32
    with pytest.raises(BadAnswer, match="block 6 does not follow block 5"):
        await pool_of(FakeNode(chain)).reader().read(Span(1, 9), TRANSFERS)
    with pytest.raises(BadAnswer, match="block 6 does not follow block 5"):
        await pool_of(FakeNode(chain)).reader().read_headers(Span(1, 9))
