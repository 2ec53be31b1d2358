"""The receipts of blocks, from nodes that give them by the block and from those that do not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from chainfolio.adapters.evm.node import Header
from chainfolio.adapters.evm.receipts import ROUTE, block_receipts
from chainfolio.errors import NodeBehind, UnsupportedMethod
from tests.evm.fakes import (
    FakeChain,
    FakeNode,
    Wired,
    errors_of,
    transfer,
    wired,
)


def receipt(params: list[Any]) -> dict[str, Any]:
    return {"transactionHash": params[0]}


def node(**on: Any) -> Wired:
    chain = FakeChain()
    for count in (2, 0, 3):
        chain.mine(*[transfer(raw=k) for k in range(count)])
    return wired(FakeNode(chain, **on), checked=True)


async def read(pool: Wired) -> tuple[list[Header], list[Any]]:
    headers = await pool.node.headers([1, 2, 3])
    return headers, [json.loads(each) for each in await block_receipts(pool.endpoint, headers)]


async def test_where_a_node_gives_none_by_the_block_they_are_asked_for_one_by_one_in_one_batch() -> None:
    pool = node(eth_getTransactionReceipt=receipt)
    headers, blocks = await read(pool)
    hashes = [[json.loads(bytes(each)) for each in header.transactions] for header in headers]
    assert [[each["transactionHash"] for each in block] for block in blocks] == hashes
    assert [len(block) for block in blocks] == [2, 0, 3]
    before = pool.node.requests
    await block_receipts(pool.endpoint, headers)
    assert pool.node.requests == before + 1


async def test_a_receipt_that_is_not_there_is_a_node_that_is_behind_and_no_shorter_list() -> None:
    pool = node(eth_getTransactionReceipt=lambda params: None)
    with pytest.raises(NodeBehind, match="does not have transaction"):
        await read(pool)


async def test_where_there_are_no_receipts_at_all_that_is_said_and_nothing_is_learnt() -> None:
    pool = node()
    with pytest.raises(UnsupportedMethod):
        await read(pool)
    assert pool.endpoint.capabilities == {}


@pytest.mark.parametrize("answer_kind", ["none", "one less", "another's", "null"])
async def test_a_block_whose_receipts_by_block_are_not_those_of_its_header_is_asked_one_by_one(
    answer_kind: str,
) -> None:
    pool = node(eth_getTransactionReceipt=receipt)
    headers = await pool.node.headers([1, 2, 3])
    hashes = {header.height: [json.loads(bytes(each)) for each in header.transactions] for header in headers}

    def by_block(params: list[Any]) -> Any:
        complete = [{"transactionHash": each} for each in hashes[int(params[0], 16)]]
        if params[0] != "0x3":
            return complete
        return {"none": [], "one less": complete[:-1], "another's": [*complete[:-1], complete[0]], "null": None}[
            answer_kind
        ]

    (fake,) = pool.transport.nodes.values()
    fake.on["eth_getBlockReceipts"] = by_block
    blocks = [json.loads(each) for each in await block_receipts(pool.endpoint, headers)]
    assert [[each["transactionHash"] for each in block] for block in blocks] == list(hashes.values())
    assert [params[0] for method, params in fake.asked if method == "eth_getTransactionReceipt"] == hashes[3]
    assert ROUTE not in pool.endpoint.capabilities
    assert errors_of(pool.node) == {"one.test": {"BadAnswer": 1}}
