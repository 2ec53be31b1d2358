"""Single transactions by hash: exact fees, and nothing that lies elsewhere than the index says."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from chainfolio.adapters.evm.lookup import look_up
from chainfolio.chain_results import IndexedTransaction
from chainfolio.errors import BadAnswer, NodeBehind, Reorged, SourceError
from chainfolio.transport.wire import Request

HASH, BLOCK = "0x" + "5c" * 32, "0x" + "b1" * 32
SENT: dict[str, Any] = {
    "hash": HASH,
    "from": "0x" + "a1" * 20,
    "to": "0x" + "b2" * 20,
    "value": "0x7",
    "nonce": "0x1",
    "input": "0xa9059cbb00",
    "type": "0x2",
    "gasPrice": "0x5",
    "transactionIndex": "0x3",
    "blockHash": BLOCK,
    "blockNumber": "0x64",
}
RECEIPT: dict[str, Any] = {
    "transactionHash": HASH,
    "transactionIndex": "0x3",
    "blockHash": BLOCK,
    "blockNumber": "0x64",
    "gasUsed": "0x5208",
    "status": "0x1",
    "effectiveGasPrice": "0x3",
}
KNOWN = IndexedTransaction(HASH, 100, 3, 1_700_000_000, BLOCK, True)


class Answers:
    """A node that has these answers."""

    def __init__(self, tx: object, receipt: object) -> None:
        self.name = "node.test"
        self.content = [msgspec.json.encode(tx), msgspec.json.encode(receipt)]
        self.asked: list[Request] = []

    async def agreed(self, read: Any, **told: Any) -> Any:
        return await read(self)

    async def ask(self, reads: list[Request]) -> list[bytes]:
        self.asked += reads
        return self.content


async def look(tx: object = SENT, receipt: object = RECEIPT, indexed: IndexedTransaction = KNOWN) -> Any:
    node: Any = Answers(tx, receipt)
    (result,) = await look_up(node, [indexed])
    assert [ask.params for ask in node.asked] == [(HASH,), (HASH,)]
    return result


@pytest.mark.parametrize(
    ("fee_fields", "fee"),
    [
        ({}, 21_000 * 3),
        ({"l1Fee": "0xde0b6b3a7640000"}, 21_000 * 3 + 10**18),
        (
            {"l1Fee": "0x1", "operatorFeeConstant": "0x2", "blobGasUsed": "0x20000", "blobGasPrice": "0x7"},
            21_000 * 3 + 3 + 131_072 * 7,
        ),
        ({"operatorFeeScalar": "0x5dc", "operatorFeeConstant": "0x2"}, 21_000 * 3 + 31 + 2),
        (
            {
                "operatorFeeScalar": "0x3",
                "operatorFeeConstant": "0x2",
                "daFootprintGasScalar": "0x190",
                "blobGasUsed": "0x7d0",
            },
            21_000 * 3 + 21_000 * 300 + 2,
        ),
        ({"effectiveGasPrice": None}, 21_000 * 5),
    ],
)
async def test_a_fee_has_all_its_parts(fee_fields: dict[str, Any], fee: int) -> None:
    result = await look(receipt=RECEIPT | fee_fields)
    assert (result.fee, result.status, result.height, result.index) == (fee, 1, 100, 3)


async def test_a_gas_price_that_a_node_leaves_out_is_not_stored_as_zero() -> None:
    receipt = {name: value for name, value in RECEIPT.items() if name != "effectiveGasPrice"}
    with pytest.raises(BadAnswer, match=r"node.test: neither transaction 0x5c.* nor its receipt names its gas price"):
        await look(SENT | {"gasPrice": None}, receipt)
    assert (await look(SENT | {"gasPrice": "0x0"}, receipt)).fee == 0


@pytest.mark.parametrize("tx_type", ["0x64", "0x6a", "0x7e", "0x7f"])
async def test_transactions_of_the_protocol_need_no_gas_price(tx_type: str) -> None:
    result = await look(SENT | {"gasPrice": None, "type": tx_type}, RECEIPT | {"effectiveGasPrice": None})
    assert (result.gas_price, result.fee) == (0, 0)


@pytest.mark.parametrize(
    ("tx", "receipt"),
    [
        ({"blockHash": "0x" + "b3" * 32}, {"blockHash": "0x" + "b3" * 32}),
        ({"blockNumber": "0x65"}, {"blockNumber": "0x65"}),
        ({"transactionIndex": "0x4"}, {"transactionIndex": "0x4"}),
        ({"blockHash": "0x" + "b3" * 32}, {}),
        ({}, {"blockNumber": "0x65"}),
        ({}, {"transactionIndex": "0x2"}),
    ],
)
async def test_what_lies_elsewhere_than_in_the_index_is_refused(tx: dict[str, Any], receipt: dict[str, Any]) -> None:
    with pytest.raises(BadAnswer, match="elsewhere"):
        await look(SENT | tx, RECEIPT | receipt)
    fresh = IndexedTransaction(HASH, 100, 3, 1_700_000_000, BLOCK, False)
    with pytest.raises(Reorged):
        await look(SENT | tx, RECEIPT | receipt, fresh)


async def test_without_a_kept_header_the_node_must_still_agree_with_itself() -> None:
    indexed = IndexedTransaction(HASH, 100, 3, 1_700_000_000, None, True)
    assert (await look(indexed=indexed)).fee == 63_000
    with pytest.raises(BadAnswer):
        await look(SENT | {"blockHash": "0x" + "b3" * 32}, indexed=indexed)


@pytest.mark.parametrize(
    ("tx", "receipt", "error"),
    [
        (None, RECEIPT, NodeBehind),
        (SENT, None, NodeBehind),
        (SENT | {"blockHash": None, "blockNumber": None, "transactionIndex": None}, RECEIPT, Reorged),
        (SENT | {"hash": "0x" + "11" * 32}, RECEIPT, BadAnswer),
        (SENT, RECEIPT | {"transactionHash": "0x" + "11" * 32}, BadAnswer),
        (SENT | {"hash": "0x" + "11" * 32}, RECEIPT | {"transactionHash": "0x" + "11" * 32}, BadAnswer),
        (SENT | {"value": 7}, RECEIPT, BadAnswer),
        (SENT | {"value": "0x-7"}, RECEIPT, BadAnswer),
        (SENT | {"input": "0xzz"}, RECEIPT, BadAnswer),
        (SENT, RECEIPT | {"gasUsed": "21000"}, BadAnswer),
        ([], RECEIPT, BadAnswer),
    ],
)
async def test_an_answer_that_cannot_be_meant_is_refused(tx: object, receipt: object, error: type[SourceError]) -> None:
    with pytest.raises(error):
        await look(tx, receipt)
