"""Unknown fields in transactions: nodes show them by number, and the root covers them.

Examples of the main chain: an empty field 4 in a result of block 1,102,553, a second result in block 18,214,173.
"""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from chainfolio.adapters.tron.chain import TronChain
from chainfolio.adapters.tron.leaves import encode_transactions
from chainfolio.adapters.tron.roots import merkle_root
from chainfolio.blocks import Span
from chainfolio.errors import BadAnswer
from chainfolio.localchain.tron.codec import encode
from chainfolio.localchain.tron.node import TronNode
from chainfolio.localchain.tron.wallet import Person
from tests.tron import chains
from tests.tron.fakes import ALICE, BOB, FakeNode, make_transfer

DATASETS = ("blocks", "transactions", "native")
RAW, SIGNATURE = "0a03aabbcc", "1202ddee"
DONE = {"raw_data_hex": "aabbcc", "signature": ["ddee"]}
# What nodes show of a transaction, and its bytes behind those of what was signed and of the signature.
WRITTEN: tuple[tuple[dict[str, Any], str], ...] = (
    ({"ret": [{"4": [""]}]}, "2a02" + "2200"),
    ({"ret": [{"contractRet": "SUCCESS"}, {"unfreeze_amount": 1_000_000_000}]}, "2a021801" + "2a07" + "80018094ebdc03"),
    ({"ret": [{}, {}]}, "2a00" * 2),
    ({"ret": [{"fee": -1, "contractRet": "REVERT"}]}, "2a0d" + "08ffffffffffffffffff01" + "1802"),
    ({"ret": [{"ret": "FAILED", "contractRet": "SUCCESS"}]}, "2a04" + "1001" + "1801"),
    ({"ret": [{"ret": "UNKNOWN_ENUM_VALUE_code_7"}]}, "2a02" + "1007"),
    ({"ret": [{"contractRet": "UNKNOWN_ENUM_VALUE_contractResult_-1"}]}, "2a0b" + "18ffffffffffffffffff01"),
    ({"ret": [{"assetIssueID": "1é", "exchange_id": 5}]}, "2a08" + "720331c3a9" + "a80105"),
    (
        {"ret": [{"orderId": "00", "orderDetails": [{"makerOrderId": "01", "fillBuyQuantity": 2}, {}]}]},
        "2a0f" + "ca010100" + "d201050a01012002" + "d20100",
    ),
    ({"ret": [{"cancel_unfreezeV2_amount": [{"key": "", "value": 0}]}]}, "2a07" + "e201040a001000"),
    ({"ret": [{"contractRet": "SUCCESS", "3": ["aa"], "2": [""]}]}, "2a07" + "1801" + "1200" + "1a01aa"),
    (
        {"ret": [], "5": [7], "9": [1, 18_446_744_073_709_551_615, "ff", {"1": [3], "2": [{}]}], "visible": True},
        "2807" + "4801" + "48ffffffffffffffffff01" + "4a01ff" + "4b" + "0803" + "1314" + "4c",
    ),
    ({"signature": ["ddee", ""]}, "1200"),
)


def content(*transactions: dict[str, Any]) -> bytes:
    """A block as a node shows it."""
    return json.dumps({"transactions": transactions}).encode()


@pytest.mark.parametrize(("fields", "suffix"), WRITTEN)
def test_what_is_shown_comes_to_the_bytes_of_the_block(fields: dict[str, Any], suffix: str) -> None:
    assert [each.hex() for each in encode_transactions(content({**DONE, **fields}))] == [RAW + SIGNATURE + suffix]


def block(fields: dict[str, Any], *, real: dict[str, Any] | None = None) -> FakeNode:
    """Return a node that shows a transaction of block 50 with `fields`; its header covers `real`."""
    node = FakeNode()
    node.transactions[50] = [{**make_transfer(ALICE, BOB, 5), **fields}]
    body = {**make_transfer(ALICE, BOB, 5), **(fields if real is None else real)}
    root = merkle_root(encode_transactions(content({name: each for name, each in body.items() if name != "info"})))
    node.root = lambda height: root if height == 50 else "00" * 32  # type: ignore[method-assign]
    return node


async def statuses(chain: TronChain) -> list[int]:
    """Return the statuses of the transactions in block 50."""
    collected = await chain.collect(Span(50, 50), DATASETS)
    return [each["status"] for each in collected.tables["transactions"].to_pylist()]


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"ret": [{"4": [""]}]}, 1),
        ({"ret": [{"contractRet": "SUCCESS"}, {"unfreeze_amount": 7}]}, 1),
        ({"ret": [{}, {"contractRet": "REVERT"}]}, 1),
        ({"ret": [{"contractRet": "REVERT"}, {}]}, 0),
        ({"ret": [{"fee": -(2**63), "contractRet": "SUCCESS"}]}, 1),
        ({"15": ["00"]}, 1),
        ({"5": [1]}, 1),
        ({"ret": [{"ret": "FAILED", "contractRet": "SUCCESS"}]}, 1),
    ],
)
async def test_a_single_endpoint_is_believed_where_it_shows_all_that_a_sender_wrote(
    fields: dict[str, Any], status: int
) -> None:
    assert await statuses(block(fields).chain()) == [status]


@pytest.mark.parametrize(
    ("fields", "real"),
    [
        ({"ret": [], "5": ["1802"]}, {"ret": [{"contractRet": "REVERT"}]}),
        ({"ret": [{"3": [2]}]}, {"ret": [{"contractRet": "REVERT"}]}),
        ({"ret": [{"contractRet": "DEFAULT"}]}, {"ret": [{}]}),
        ({"ret": [{"contractRet": "UNKNOWN_ENUM_VALUE_contractResult_0"}]}, {"ret": [{}]}),
        ({"ret": [{"contractRet": "UNKNOWN_ENUM_VALUE_contractResult_1"}]}, {"ret": [{"contractRet": "SUCCESS"}]}),
        ({"ret": [{"contractRet": "aa"}]}, {"ret": [{"3": ["6161"]}]}),
        ({"ret": [{"contractRet": "SUCCESS"}]}, {"ret": [{"contractRet": "SUCCESS", "9": [1]}]}),
    ],
)
async def test_nobody_can_write_how_a_transaction_ended_in_another_way(
    fields: dict[str, Any], real: dict[str, Any]
) -> None:
    with pytest.raises(BadAnswer, match="not those of its header"):
        await statuses(block(fields, real=real).chain())


@pytest.mark.parametrize(
    "values",
    [5, None, "aa", {}, [1.5], [True], [None], [-1], [2**64], ["zz"], ["a"], [[1]], [{"a": 1, "1": 2}], [{"1": [[]]}]],
)
@pytest.mark.parametrize("name", ["4", "0", "04", "536870912", "9" * 5_000, "٤"])
async def test_what_lies_in_no_transaction_is_refused(name: str, values: Any) -> None:
    node = block({"ret": [{name: values}]}, real={"ret": []})
    with pytest.raises(BadAnswer, match="not those of its header"):
        await statuses(node.chain())


async def test_groups_without_end_are_refused() -> None:
    node = FakeNode()
    node.transactions[50] = [make_transfer(ALICE, BOB, 5)]
    deep = json.dumps(node.full_block(50)).replace(
        '"ret"', '"9": [' + '{"1": [' * 100_000 + "]}" * 100_000 + '], "ret"'
    )
    node = FakeNode(wallet__getblockbynum=lambda body: deep.encode())
    with pytest.raises(BadAnswer):
        await statuses(node.chain())


def broadcast(node: TronNode, signed: dict[str, Any], extra: str) -> str:
    """Send a signed transaction with extra bytes to `broadcasthex` and return its hash."""
    transaction_hex = (
        encode("Transaction", {"raw_data": signed["raw_data_hex"], "signature": signed["signature"]}).hex() + extra
    )
    request = urllib.request.Request(
        node.url + "/wallet/broadcasthex",
        json.dumps({"transaction": transaction_hex}).encode(),
        {"content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as reply:
        answer: dict[str, Any] = json.load(reply)
    assert answer["result"], answer
    return str(answer["txid"])


async def test_what_was_written_into_a_transaction_of_the_official_client_stops_nobody(
    node: TronNode, people: tuple[Person, Person, Person], tmp_path: Path
) -> None:
    """In a block with others, read from one endpoint alone."""
    alice, bob, carol = people
    hashes = [alice.pay(bob.hex, 6)]
    for number, extra in enumerate(("4a03616263", "2a022200", "2a021001" + "2a03800107", "5805", "78ff01" + "7a0161")):
        hashes.append(broadcast(node, alice.sign("sendTrx", carol.hex, 10 + number, alice.hex), extra))
    node.advance()
    chain = chains.chain(node, tmp_path)
    collected = await chain.collect(Span(0, node.head.height), DATASETS)
    await chain.close()
    rows = {each["hash"]: each["status"] for each in collected.tables["transactions"].to_pylist()}
    assert [rows[each] for each in hashes] == [1] * 6
    assert not collected.unexplained
