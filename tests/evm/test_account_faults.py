"""Nodes that refuse, cut off or leave out the logs of accounts."""

from __future__ import annotations

import random
from typing import Any

import pytest

from chainfolio.adapters.evm.accounts.logs import ANY_EVENT, INCOMPLETE, AccountLogs
from chainfolio.adapters.evm.datasets.registry import DATASET_TOPICS
from chainfolio.adapters.evm.spans import Chunk
from chainfolio.blocks import Span
from chainfolio.errors import BadAnswer, HistoryUnavailable, Reorged
from tests.evm.contracts import RpcRefusal
from tests.evm.fakes import ALICE, BOB, FakeChain, FakeNode, Wired, hash_of, topic_of, transfer, wired

CAROL = "0x" + "cc" * 20
BLOCKS = 240


def chain_of_events(blocks: int = BLOCKS, each: int = 1) -> FakeChain:
    """Return a chain with logs of Alice and Bob in every third block, and of others in between."""
    chain = FakeChain()
    for height in range(1, blocks + 1):
        parties = (ALICE, BOB) if height % 3 == 0 else (CAROL, "0x" + "dd" * 20)
        chain.mine(*(transfer(*parties, raw=height * 1_000 + k) for k in range(each)))
    return chain


async def all_chunks(over: Wired, accounts: list[str], last: int, *, integrity: str = "bloom") -> list[Chunk]:
    """Return the chunks of all final blocks."""
    reader, first, chunks = AccountLogs(over.node, sorted(DATASET_TOPICS), integrity=integrity), 0, []
    over.node.finalized = last
    while first <= last:
        chunks.append(await reader.read(Span(first, last), accounts))
        assert chunks[-1].span.first == first
        first = chunks[-1].span.last + 1
    return chunks


def heights(chunks: list[Chunk]) -> list[int]:
    return [height for chunk in chunks for height in chunk.logs.height.tolist()]


async def test_a_node_without_limits_is_asked_three_questions_for_all_accounts_together() -> None:
    chain = chain_of_events()
    node = FakeNode(chain)
    over = wired(node, checked=True)
    accounts = [ALICE, BOB, *(f"0x{k:040x}" for k in range(1, 99))]
    (chunk,) = await all_chunks(over, accounts, BLOCKS)
    assert heights([chunk]) == list(range(3, BLOCKS + 1, 3)), "a log that names two of them is there once"
    for_many = over.node.requests
    single = wired(FakeNode(chain), checked=True)
    assert heights(await all_chunks(single, [ALICE], BLOCKS)) == heights([chunk])
    assert for_many <= 1.5 * single.node.requests
    assert for_many <= 30


async def test_spans_that_a_node_limits_cost_no_more_than_three_requests_each() -> None:
    node = FakeNode(chain_of_events())

    def limited(params: list[Any]) -> Any:
        if "fromBlock" in params[0] and int(params[0]["toBlock"], 16) - int(params[0]["fromBlock"], 16) >= 10:
            raise RpcRefusal(-32602, "eth_getLogs is limited to a 10 block range")
        return FakeNode.eth_getLogs(node, params)

    node.on["eth_getLogs"] = limited
    over = wired(node, checked=True)
    assert heights(await all_chunks(over, [ALICE], BLOCKS)) == list(range(3, BLOCKS + 1, 3))
    assert over.endpoint.capabilities["max_span"] == 10
    assert over.node.requests <= 3 * (BLOCKS // 10) * 1.1


async def test_answers_that_a_silent_limit_cut_off_are_divided_until_they_are_whole() -> None:
    chain = chain_of_events(90, each=101)
    node = FakeNode(chain)
    node.on["eth_getLogs"] = lambda params: FakeNode.eth_getLogs(node, params)[:1_000]
    over = wired(node, checked=True)
    block_heights = heights(await all_chunks(over, [ALICE], 90))
    assert len(block_heights) == 30 * 101
    assert over.endpoint.errors.counts["ResponseTooLarge"] > 0


async def test_answers_of_the_same_size_twice_are_divided_though_the_size_is_not_round() -> None:
    chain = chain_of_events(90, each=101)
    node = FakeNode(chain)
    node.on["eth_getLogs"] = lambda params: FakeNode.eth_getLogs(node, params)[:1_234]
    over = wired(node, checked=True)
    reader = AccountLogs(over.node, sorted(DATASET_TOPICS))
    over.node.finalized = 90
    over.endpoint.learn("max_span", 45)
    first = await reader.read(Span(0, 90), [ALICE])
    assert first.span.last < 90, "the second half had as many logs as the first, which was cut off like it"
    assert over.endpoint.errors.counts["ResponseTooLarge"] == 1


async def test_a_node_that_leaves_logs_out_is_left_to_another_one() -> None:
    chain = chain_of_events()
    short, complete = FakeNode(chain), FakeNode(chain)
    chance = random.Random(5)

    def cut(params: list[Any]) -> Any:
        logs = FakeNode.eth_getLogs(short, params)
        lacks = logs and chance.random() < 0.3
        return [log for log in logs if log["blockNumber"] != logs[-1]["blockNumber"]] if lacks else logs

    short.on["eth_getLogs"] = cut
    over = wired(short, complete, checked=True)
    assert heights(await all_chunks(over, [ALICE], BLOCKS)) == list(range(3, BLOCKS + 1, 3))
    assert over.endpoint.capabilities[INCOMPLETE] == 1
    assert over.endpoint.errors.counts["OmittedLogs"] == 1


@pytest.mark.parametrize("seed", range(8))
async def test_the_only_node_is_asked_again_until_nothing_new_comes_where_a_third_of_its_answers_is_short(
    seed: int,
) -> None:
    node = FakeNode(chain_of_events())
    chance = random.Random(seed)

    def cut(params: list[Any]) -> Any:
        logs = FakeNode.eth_getLogs(node, params)
        lacks = logs and chance.random() < 0.3
        return [log for log in logs if log["blockNumber"] != logs[-1]["blockNumber"]] if lacks else logs

    node.on["eth_getLogs"] = cut
    over = wired(node, checked=True)
    chunks = await all_chunks(over, [ALICE], BLOCKS)
    assert heights(chunks) == list(range(3, BLOCKS + 1, 3))
    assert over.endpoint.capabilities[INCOMPLETE] == 1


async def test_a_node_that_refuses_open_topics_is_asked_for_known_events() -> None:
    chain = chain_of_events(30)
    chain.mine({"address": CAROL, "topics": [hash_of("Ping"), topic_of(ALICE)], "data": "0x"})
    node = FakeNode(chain)

    def closed(params: list[Any]) -> Any:
        if "topics" not in params[0] or params[0]["topics"][0] is None:
            raise RpcRefusal(-32602, "invalid argument 0: topic 0 must be specified")
        return FakeNode.eth_getLogs(node, params)

    node.on["eth_getLogs"] = closed
    over = wired(node, checked=True)
    assert heights(await all_chunks(over, [ALICE], 31)) == list(range(3, 31, 3))
    assert over.endpoint.capabilities[ANY_EVENT] == 0


async def test_logs_that_a_node_has_pruned_are_read_from_another_one_or_are_an_error() -> None:
    def pruned(params: list[Any]) -> Any:
        raise RpcRefusal(-32000, "pruned history unavailable")

    chain = chain_of_events(30)
    alone = wired(FakeNode(chain, eth_getLogs=pruned), checked=True)
    with pytest.raises(HistoryUnavailable, match="archive node"):
        await all_chunks(alone, [ALICE], 30)
    two = wired(FakeNode(chain, eth_getLogs=pruned), FakeNode(chain), checked=True)
    assert heights(await all_chunks(two, [ALICE], 30)) == list(range(3, 31, 3))


def forgetful(chain: FakeChain, below: int) -> FakeNode:
    """A node that has deleted its oldest logs, and does not say so."""
    node = FakeNode(chain)

    def recent_logs(params: list[Any]) -> Any:
        return [log for log in FakeNode.eth_getLogs(node, params) if int(log["blockNumber"], 16) >= below]

    node.on["eth_getLogs"] = recent_logs
    return node


@pytest.mark.parametrize("below", [40, 100, BLOCKS + 1])
@pytest.mark.parametrize("accounts", [[ALICE], ["0x" + "77" * 20]], ids=["with logs", "without logs"])
async def test_logs_that_a_node_has_pruned_without_a_word_are_read_from_another_one_or_are_an_error(
    below: int, accounts: list[str]
) -> None:
    """Their blocks' blooms promise logs; the accounts themselves may have none."""
    chain = chain_of_events()
    with pytest.raises(HistoryUnavailable, match="no logs of old blocks, though their headers promise some"):
        await all_chunks(wired(forgetful(chain, below), checked=True), accounts, BLOCKS)
    two = wired(forgetful(chain, below), FakeNode(chain), checked=True)
    assert heights(await all_chunks(two, accounts, BLOCKS)) == (
        list(range(3, BLOCKS + 1, 3)) if accounts == [ALICE] else []
    )


async def test_looking_for_pruned_logs_costs_one_request_for_all_windows_with_logs_and_accuses_nobody_else() -> None:
    chain = chain_of_events()
    for gap in (0, 3):  # quiet blocks before and between
        for _ in range(gap):
            chain.mine()
    node = FakeNode(chain)
    over = wired(node, checked=True)
    over.endpoint.learn("max_span", 2)
    await all_chunks(over, [ALICE], BLOCKS)
    open_ = [params for name, params in node.asked if name == "eth_getLogs" and "topics" not in params[0]]
    assert 0 < len(open_) <= 4, "of the first window that has logs alone"


async def test_a_chain_whose_blooms_promise_logs_that_no_receipt_has_is_believed() -> None:
    chain = FakeChain()
    for _ in range(BLOCKS):
        chain.mine()
        chain.headers[-1]["logsBloom"] = "0x" + "ff" * 256
    node = FakeNode(chain)
    node.on["eth_getBlockReceipts"] = lambda params: []
    assert heights(await all_chunks(wired(node, checked=True), [ALICE], BLOCKS)) == []
    node.on["eth_getBlockReceipts"] = lambda params: None
    with pytest.raises(HistoryUnavailable):
        await all_chunks(wired(node, checked=True), [ALICE], BLOCKS)


async def test_logs_that_a_node_has_and_left_out_of_a_span_are_read_from_another_one_or_are_an_error() -> None:
    """The node omits the first logs of a filtered query, but not of a query for all logs of a block."""
    chain = chain_of_events()
    node = FakeNode(chain)

    def without_first(params: list[Any]) -> Any:
        logs = FakeNode.eth_getLogs(node, params)
        return [log for log in logs if "topics" not in params[0] or int(log["blockNumber"], 16) > 12]

    node.on["eth_getLogs"] = without_first
    with pytest.raises(BadAnswer, match="leaves out logs of blocks 0"):
        await all_chunks(wired(node, checked=True), [ALICE], BLOCKS)
    two = wired(node, FakeNode(chain), checked=True)
    assert heights(await all_chunks(two, [ALICE], BLOCKS)) == list(range(3, BLOCKS + 1, 3))


async def test_logs_of_a_fork_are_an_error_and_read_from_another_node() -> None:
    chain, fork = chain_of_events(30), chain_of_events(30)
    fork.reorganise(20, "b")
    strange = FakeNode(chain, eth_getLogs=lambda params: FakeNode.eth_getLogs(FakeNode(fork), params))
    with pytest.raises(BadAnswer, match="a log of another block 21 than the one on its chain"):
        await all_chunks(wired(strange, checked=True), [ALICE], 30)
    two = wired(strange, FakeNode(chain), checked=True)
    assert heights(await all_chunks(two, [ALICE], 30)) == list(range(3, 31, 3))


async def test_logs_of_others_are_refused_for_a_node_that_ignores_a_filter_hides_what_it_leaves_out() -> None:
    chain = chain_of_events(30)
    node = FakeNode(chain)
    node.on["eth_getLogs"] = lambda params: FakeNode.eth_getLogs(node, [{**params[0], "topics": []}])
    with pytest.raises(BadAnswer, match="ignores the filter"):
        await all_chunks(wired(node, checked=True), [ALICE], 30)


async def test_a_block_that_does_not_name_the_accounts_costs_nothing_more_than_its_header() -> None:
    chain = chain_of_events(30)
    node = FakeNode(chain)
    over = wired(node, checked=True)
    reader = AccountLogs(over.node, sorted(DATASET_TOPICS))
    quiet = await reader.read_linked(Span(25, 26), [ALICE], chain.block(24))
    assert (len(quiet.logs), node.count("eth_getLogs"), over.node.requests) == (0, 0, 1)
    loud = await reader.read_linked(Span(26, 27), [ALICE], chain.block(25))
    assert loud.logs.height.tolist() == [27]
    assert {params[0]["blockHash"] for name, params in node.asked if name == "eth_getLogs"} == {chain.block(27).hash}
    headers = loud.headers
    before = over.node.requests
    await reader.read_linked(Span(25, 26), [ALICE], chain.block(24), quiet.headers)
    assert over.node.requests == before, "headers that were just read are not read again"
    assert [header.height for header in headers] == [26, 27]


async def test_a_block_that_does_not_follow_the_newest_one_of_the_scope_is_a_reorg() -> None:
    chain = chain_of_events(30)
    before = chain.block(24)
    chain.reorganise(20, "b")
    reader = AccountLogs(wired(FakeNode(chain), checked=True).node, sorted(DATASET_TOPICS))
    with pytest.raises(Reorged):
        await reader.read_linked(Span(25, 30), [ALICE], before)


def payments() -> FakeChain:
    """Return a chain with four payments of Alice in every third block, each to another address."""
    chain = FakeChain()
    for height in range(1, 31):
        chain.mine(*(transfer(ALICE if height % 3 == 0 else CAROL, f"0x{100 * height + k:040x}") for k in range(4)))
    return chain


@pytest.mark.parametrize("seed", range(8))
async def test_at_the_head_logs_that_are_left_out_of_a_block_are_noticed_by_its_bloom(seed: int) -> None:
    chain = payments()
    node, chance = FakeNode(chain), random.Random(seed)

    def cut(params: list[Any]) -> Any:
        logs = FakeNode.eth_getLogs(node, params)
        return logs[: len(logs) // 2] if chance.random() < 0.3 else logs

    node.on["eth_getLogs"] = cut
    over = wired(node, checked=True)
    reader, before, block_heights = AccountLogs(over.node, sorted(DATASET_TOPICS)), chain.block(0), list[int]()
    for first in range(1, 31, 6):
        chunk = await reader.read_linked(Span(first, first + 5), [ALICE], before)
        block_heights, before = block_heights + chunk.logs.height.tolist(), chain.block(first + 5)
    assert block_heights == [height for height in range(3, 31, 3) for _ in range(4)]
    assert over.endpoint.capabilities[INCOMPLETE] == 1


async def test_at_the_head_a_node_that_always_leaves_logs_out_is_left_to_another_one() -> None:
    chain = payments()
    short, complete = FakeNode(chain), FakeNode(chain)
    short.on["eth_getLogs"] = lambda params: FakeNode.eth_getLogs(short, params)[:-1]
    over = wired(short, complete, checked=True)
    chunk = await AccountLogs(over.node, sorted(DATASET_TOPICS)).read_linked(Span(1, 30), [ALICE], chain.block(0))
    assert chunk.logs.height.tolist() == [height for height in range(3, 31, 3) for _ in range(4)]


@pytest.mark.parametrize("seed", range(4))
async def test_short_answers_of_a_node_that_takes_batches_of_ten_at_most_are_noticed_too(seed: int) -> None:
    """The node is asked again for few parts, since each part would be a request."""
    node = FakeNode(chain_of_events())
    node.batch_limit, chance = 10, random.Random(seed)

    def cut(params: list[Any]) -> Any:
        logs = FakeNode.eth_getLogs(node, params)
        lacks = logs and chance.random() < 0.3
        return [log for log in logs if log["blockNumber"] != logs[-1]["blockNumber"]] if lacks else logs

    node.on["eth_getLogs"] = cut
    block_heights = heights(await all_chunks(wired(node, checked=True), [ALICE], BLOCKS))
    assert block_heights == list(range(3, BLOCKS + 1, 3))


async def test_windows_without_logs_are_read_from_a_node_that_takes_batches_of_ten_at_most() -> None:
    node = FakeNode(chain_of_events())
    node.batch_limit = 10
    over = wired(node, checked=True)
    assert heights(await all_chunks(over, [CAROL, BOB], BLOCKS))  # learns the limit
    assert heights(await all_chunks(over, ["0x" + "ee" * 20], BLOCKS)) == []
    assert over.endpoint.capabilities["max_batch"] <= 10


async def test_a_node_that_is_behind_the_window_is_left_to_one_that_is_not_though_it_gives_what_it_has() -> None:
    """Two nodes of one provider at different heights; the lower one silently cuts a span at its head."""
    chain = chain_of_events()
    lagging, complete = FakeNode(chain_of_events(BLOCKS - 60)), FakeNode(chain)
    over = wired(lagging, complete, checked=True)
    assert heights(await all_chunks(over, [ALICE], BLOCKS)) == list(range(3, BLOCKS + 1, 3))
    assert over.endpoint.errors.counts["NodeBehind"] > 0
    assert complete.count("eth_getLogs") > 0
