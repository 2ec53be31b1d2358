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


async def read(found: Wired) -> tuple[list[Header], list[Any]]:
    headers = await found.node.headers([1, 2, 3])
    return headers, [json.loads(each) for each in await block_receipts(found.endpoint, headers)]


async def test_where_a_node_gives_none_by_the_block_they_are_asked_for_one_by_one_in_one_batch() -> None:
    found = node(eth_getTransactionReceipt=receipt)
    headers, given = await read(found)
    hashes = [[json.loads(bytes(each)) for each in header.transactions] for header in headers]
    assert [[each["transactionHash"] for each in block] for block in given] == hashes
    assert [len(block) for block in given] == [2, 0, 3]
    before = found.node.requests
    await block_receipts(found.endpoint, headers)
    assert found.node.requests == before + 1


async def test_a_receipt_that_is_not_there_is_a_node_that_is_behind_and_no_shorter_list() -> None:
    found = node(eth_getTransactionReceipt=lambda params: None)
    with pytest.raises(NodeBehind, match="does not have transaction"):
        await read(found)


async def test_where_there_are_no_receipts_at_all_that_is_said_and_nothing_is_learnt() -> None:
    found = node()
    with pytest.raises(UnsupportedMethod):
        await read(found)
    assert found.endpoint.capabilities == {}


@pytest.mark.parametrize("given", ["none", "one less", "another's", "null"])
async def test_a_block_whose_receipts_by_block_are_not_those_of_its_header_is_asked_one_by_one(given: str) -> None:
    found = node(eth_getTransactionReceipt=receipt)
    headers = await found.node.headers([1, 2, 3])
    hashes = {header.height: [json.loads(bytes(each)) for each in header.transactions] for header in headers}

    def by_block(params: list[Any]) -> Any:
        whole = [{"transactionHash": each} for each in hashes[int(params[0], 16)]]
        if params[0] != "0x3":
            return whole
        return {"none": [], "one less": whole[:-1], "another's": [*whole[:-1], whole[0]], "null": None}[given]

    (fake,) = found.transport.nodes.values()
    fake.on["eth_getBlockReceipts"] = by_block
    blocks = [json.loads(each) for each in await block_receipts(found.endpoint, headers)]
    assert [[each["transactionHash"] for each in block] for block in blocks] == list(hashes.values())
    assert [params[0] for method, params in fake.asked if method == "eth_getTransactionReceipt"] == hashes[3]
    assert ROUTE not in found.endpoint.capabilities
    assert errors_of(found.node) == {"one.test": {"BadAnswer": 1}}
