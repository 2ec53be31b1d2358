"""Search methods and simulations of nodes in memory, whose answers are correct but unusual."""

from __future__ import annotations

from typing import Any

from chainfolio.adapters.evm.accounts.trace_filter import TraceFilter
from chainfolio.blocks import Span
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
