"""Search methods and simulations of nodes in memory, whose answers are correct but unusual."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from chainfolio.adapters.evm.accounts.bodies import Body
from chainfolio.adapters.evm.accounts.receipt_comparison import MAX_SAMPLED, sampled_heights
from chainfolio.adapters.evm.accounts.simulate import simulate_transfers
from chainfolio.adapters.evm.accounts.trace_filter import TraceFilter
from chainfolio.adapters.evm.accounts.windows import RECENT_ANSWERS, Windows
from chainfolio.adapters.evm.datasets.transactions import FullBlock, Transaction
from chainfolio.adapters.evm.logs import Logs
from chainfolio.blocks import Span
from chainfolio.errors import Unavailable
from tests.evm.contracts import RpcRefusal
from tests.evm.fakes import ALICE, BOB, FakeChain, FakeNode, hash_of, wired


async def test_a_node_that_writes_addresses_in_capitals_has_the_same_internal_transfers() -> None:
    def traces(params: list[Any]) -> list[dict[str, Any]]:
        action = {"from": BOB, "to": "0x" + ALICE[2:].upper(), "value": "0x7", "callType": "call"}
        place = {"blockNumber": 2, "transactionHash": hash_of(5), "transactionPosition": 0, "traceAddress": [0]}
        return [{"type": "call", "action": action, **place}] if "toAddress" in params[0] else []

    pool = wired(FakeNode(FakeChain(3), trace_filter=traces), checked=True)
    blocks = await TraceFilter().find(pool.endpoint, Span(0, 3), [ALICE])
    assert blocks.heights == (2,)
    assert dict(blocks.traced_hashes) == {2: {hash_of(5)}}


# --- simulations -----------------------------------------------------------------------------------------------------


def refuses_block_2(params: list[Any]) -> Any:
    if params[1] == "0x1":
        raise RpcRefusal(-32000, "transaction type not supported")
    return [{"calls": [{"logs": []}]}]


def simulates(params: list[Any]) -> Any:
    return [{"calls": [{"logs": []}]}]


def bodies_of(*heights: int) -> list[Body]:
    tx = Transaction(hash_of(1), ALICE, "0x0", "0x0", "0x", BOB)
    return [
        Body(FullBlock(hex(height), hash_of(height), "0x0", [tx]), (), Logs.blank(0), (tx.hash,), "one.test")
        for height in heights
    ]


async def test_a_block_that_one_endpoint_does_not_simulate_is_simulated_by_another() -> None:
    chain = FakeChain(3)
    nodes = [FakeNode(chain, eth_simulateV1=each) for each in (refuses_block_2, simulates)]
    assert await simulate_transfers(wired(*nodes, checked=True).node, bodies_of(1, 2, 3)) == [[], [], []]
    assert (nodes[0].count("eth_simulateV1"), nodes[1].count("eth_simulateV1")) == (3, 1)


async def test_a_block_that_no_endpoint_simulates_is_none_and_the_others_are_kept() -> None:
    nodes = [FakeNode(FakeChain(3), eth_simulateV1=refuses_block_2) for _ in range(2)]
    assert await simulate_transfers(wired(*nodes, checked=True).node, bodies_of(1, 2, 3)) == [[], None, []]


async def test_a_block_is_not_called_refused_while_an_endpoint_is_down() -> None:
    nodes = [FakeNode(FakeChain(3), eth_simulateV1=refuses_block_2) for _ in range(2)]
    nodes[1].always = Unavailable("two.test", "is on fire")
    with pytest.raises(Unavailable, match="on fire"):
        await simulate_transfers(wired(*nodes, checked=True).node, bodies_of(1, 2, 3))


# --- sizes of answers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("answer_count", [1, RECENT_ANSWERS - 1, RECENT_ANSWERS, 10 * RECENT_ANSWERS])
async def test_only_an_answer_as_large_as_a_recent_one_may_have_been_cut_off(answer_count: int) -> None:
    endpoint, windows, span = wired(FakeNode(FakeChain(1))).endpoint, Windows[range]("max_span", "logs"), Span(0, 99)
    for size in [1_001 + 2 * k for k in range(answer_count)] + [1_001]:

        async def read(pieces: Sequence[Span], size: int = size) -> list[list[range]]:
            return [[range(size if len(piece) == len(span) else 0)] for piece in pieces]

        window, pieces = await windows.read(endpoint, span, read)
        assert window == span
    assert (len(pieces) == 1) == (answer_count > RECENT_ANSWERS)


# --- samples of blocks -----------------------------------------------------------------------------------------------


class CountingRandom(random.Random):
    """A source that counts its numbers."""

    count = 0

    def random(self) -> float:
        self.count += 1
        return super().random()


@pytest.mark.parametrize(
    ("blocks", "sample", "expected"),
    [(50_000, 10, 5_000), (20_000_000, 100, MAX_SAMPLED), (1_000, 10**9, 0), (20_000_000, 2, MAX_SAMPLED)],
)
def test_a_sample_takes_one_random_number_for_each_block_that_it_selects(
    blocks: int, sample: int, expected: int
) -> None:
    span, source = Span(7, 7 + blocks - 1), CountingRandom(3)
    heights = sampled_heights(span, sample, source)
    assert abs(len(heights) - expected) <= expected / 20
    assert source.count == len(heights) + 1
    assert heights == sorted({*heights}) == sampled_heights(span, sample, random.Random(3))
    assert all(height in span for height in (heights or [span.first]))


@pytest.mark.parametrize("sample", [1, 2, 3])
def test_every_height_is_as_likely_as_any_other_and_a_sample_of_one_has_all(sample: int) -> None:
    source, span, count = random.Random(5), Span(0, 3), 3_000
    drawn = [height for _ in range(count) for height in sampled_heights(span, sample, source)]
    for height in range(4):
        assert drawn.count(height) == pytest.approx(count / sample, rel=0.1)
