"""Payments of contracts inside transactions: with them, balances equal the sums of transfers exactly."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from chainfolio.adapters.evm.chain import EvmChain
from chainfolio.adapters.evm.datasets.internal import TracedBlock, of_frames, of_traces
from chainfolio.adapters.evm.endpoint import EvmEndpoint
from chainfolio.adapters.evm.facts import load
from chainfolio.adapters.evm.node import Node
from chainfolio.adapters.evm.settings import EvmSettings
from chainfolio.adapters.evm.traces import ROUTE, ROUTES, internal_transfers, traceable_blocks
from chainfolio.blocks import Span
from chainfolio.environment import Environment
from chainfolio.errors import BadAnswer, UnsupportedMethod
from chainfolio.localchain.evm import Tx
from chainfolio.localchain.node import LocalNode
from chainfolio.transport.http import HttpTransport
from chainfolio.transport.http_endpoint import EndpointRecord
from tests.evm import programs
from tests.evm.anvil import LOCAL
from tests.evm.fakes import FakeChain, FakeNode, wired
from tests.evm.programs import create, destroy, program, send
from tests.evm.recorded import body

DATASETS = ("transactions", "native", "internal")
ALICE, BOB, CAROL = ("0x" + digit * 20 for digit in ("a1", "b2", "c3"))


# --- on a real node --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def paying_node() -> Iterator[LocalNode]:
    """Yield a chain with programs that pay, create, fail and destroy themselves."""
    with LocalNode() as node:
        sender, recipient = node.accounts[:2]

        def details(*txs: Tx) -> list[str]:
            with node.by_hand():
                hashes = [node.send(each) for each in txs]
                node.mine()
            return [node.rpc("eth_getTransactionReceipt", each)["contractAddress"] for each in hashes]

        def run(code: bytes, value: int = 1000, gas: int = 3_000_000) -> Tx:
            return Tx(sender, None, "0x" + code.hex(), value, gas)

        pays = bytes.fromhex("6000600060006000600173" + ALICE[2:] + "5af15000")
        reverts = bytes.fromhex("6000600060006000600273" + BOB[2:] + "5af15060006000fd")
        destroys = bytes.fromhex("73" + CAROL[2:] + "ff")
        libraries = [each for code in (pays, reverts, destroys) for each in details(run(programs.deployed(code), 100))]
        details(run(program([send(ALICE, 5), send(libraries[1], 7), create(program([send(BOB, 3)]), 11)])))
        details(run(program([create(program([destroy(CAROL)]), 11), create(program([programs.REVERT]), 13)])))
        details(run(program([send(ALICE, 5), programs.REVERT])), Tx(sender, recipient, value=3, gas=21_000))
        details(Tx(sender, libraries[2], value=17, gas=100_000), Tx(sender, libraries[2], value=17, gas=100_000))
        chance = Random(5)
        for _ in range(12):
            codes = [programs.chance_program(chance, [ALICE, BOB, CAROL, recipient], libraries) for _ in range(4)]
            details(*(run(code, chance.randrange(200)) for code in codes))
        node.mine(2)
        yield node


@asynccontextmanager
async def chain_of(node: LocalNode, **capabilities: int) -> Any:
    facts, environment = load(LOCAL), Environment()
    endpoint = EvmEndpoint(node.url, HttpTransport(), environment, record=EndpointRecord(capabilities))
    chain = EvmChain(facts, Node(facts, [endpoint], environment), EvmSettings(rpc=[node.url]))
    try:
        yield chain
    finally:
        await chain.close()


def raw(row: dict[str, Any], name: str = "raw") -> int:
    return int.from_bytes(row[name], "big")


@pytest.mark.node
@pytest.mark.parametrize("route", ROUTES)
async def test_every_balance_at_every_block_is_what_came_less_what_went_and_fees(
    paying_node: LocalNode, route: int
) -> None:
    async with chain_of(paying_node, **{ROUTE: route}) as chain:
        span_tables = await chain.collect(Span(0, paying_node.height), DATASETS)
    transfers, transactions = (span_tables.tables[name].to_pylist() for name in ("transfers", "transactions"))
    assert sum(row["standard"] == "internal" for row in transfers) > 80
    assert {row["status"] for row in transactions} == {0, 1}
    changes: dict[int, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for row in transfers:
        changes[row["height"]][row["sender"]] -= raw(row)
        changes[row["height"]][row["recipient"]] += raw(row)
    for row in transactions:
        block = paying_node.block(row["height"])
        tip = row["gas_used"] * (raw(row, "gas_price") - int(block["baseFeePerGas"], 16))
        changes[row["height"]][row["sender"]] -= raw(row, "fee")
        changes[row["height"]][block["miner"]] += tip
    accounts = sorted({account for change in changes.values() for account in change})
    balances = {account: int(paying_node.rpc("eth_getBalance", account, "0x0"), 16) for account in accounts}
    for height in range(1, paying_node.height + 1):
        for account, change in changes[height].items():
            balances[account] += change
        requests = [("eth_getBalance", [account, hex(height)]) for account in accounts]
        theirs = [int(text, 16) for text in paying_node.batch(requests)]
        assert dict(zip(accounts, theirs, strict=True)) == balances, height


@pytest.mark.node
async def test_rows_are_in_order_and_have_a_key_of_their_own(paying_node: LocalNode) -> None:
    async with chain_of(paying_node) as chain:
        span_tables = await chain.collect(Span(0, paying_node.height), (*DATASETS, "transfers"))
        assert chain.node.endpoints[0].capabilities[ROUTE] == 1
    rows = span_tables.tables["transfers"].to_pylist()
    positions = [(row["height"], row["tx_index"], row["log_index"], row["item"]) for row in rows]
    assert positions == sorted(set(positions))
    hashes = {(row["height"], row["tx_index"]): row["hash"] for row in span_tables.tables["transactions"].to_pylist()}
    assert all(row["tx_hash"] == hashes[row["height"], row["tx_index"]] for row in rows)


# --- what nodes say --------------------------------------------------------------------------------------------------

HASH, TX = "0x" + "ab" * 32, "0x" + "cd" * 32
PLACE = TracedBlock(7, 1, HASH, (TX,))


def call(path: list[int], value: int, **more: Any) -> dict[str, Any]:
    kind = more.pop("callType", "call")
    action = {"from": ALICE, "to": BOB, "value": hex(value), "callType": kind}
    return {
        "type": "call",
        "action": action,
        "traceAddress": path,
        "blockHash": HASH,
        "transactionHash": TX,
        "transactionPosition": 0,
        "result": {"output": "0x"},
    } | more


def test_nothing_below_a_failed_call_has_moved() -> None:
    traces = [
        call([], 9),
        call([0], 1),
        call([1], 2, error="Reverted"),
        call([1, 0], 4),
        call([1, 0, 0], 8),
        call([2], 16),
        call([3], 32, callType="delegatecall"),
        call([4], 64, callType="callcode"),
    ]
    assert [each.raw for each in of_traces("one", body(traces), PLACE)] == [1, 16]
    frame = {"type": "CALL", "from": ALICE, "to": BOB, "value": "0x1"}
    inner = frame | {"value": "0x4"}
    frames = [
        frame,
        frame | {"value": "0x2", "error": "execution reverted", "calls": [inner | {"calls": [inner]}]},
        frame | {"value": "0x10"},
        frame | {"type": "DELEGATECALL"},
        frame | {"type": "STATICCALL", "value": None},
    ]
    assert [each.raw for each in of_frames("one", body([{"result": frame | {"calls": frames}}]), PLACE)] == [1, 16]
    failed = [{"result": frame | {"error": "out of gas", "calls": frames}, "txHash": TX}]
    assert of_frames("one", body(failed), PLACE) == []


def test_a_block_reward_is_no_movement_inside_a_transaction() -> None:
    reward: dict[str, Any] = {
        "type": "reward",
        "action": {"author": ALICE, "rewardType": "block", "value": "0x1"},
        "blockHash": HASH,
        "traceAddress": [],
        "transactionHash": None,
        "transactionPosition": None,
        "result": None,
    }
    assert of_traces("one", body([call([], 9), reward]), PLACE) == []


@pytest.mark.parametrize(
    "traces",
    [
        [],
        [call([], 9, blockHash="0x" + "00" * 32)],
        [call([], 9, transactionHash="0x" + "00" * 32)],
        [call([], 9), call([], 9, transactionPosition=1)],
        [call([0], 9)],
        [call([], 9), call([0, 0], 9)],
        [call([], 9), call([0], 9, transactionPosition=1)],
        [call([], 9), call([0], 9, action={"from": ALICE, "to": "0x12", "value": "0x1", "callType": "call"})],
        [call([], 9), call([0], 9, action={"from": ALICE, "to": BOB, "value": "-1", "callType": "call"})],
    ],
    ids=["none", "block", "transaction", "too many", "no root", "orphan", "stranger", "address", "value"],
)
def test_traces_that_are_not_the_blocks_are_refused(traces: list[Any]) -> None:
    with pytest.raises(BadAnswer):
        of_traces("one", body(traces), PLACE)


@pytest.mark.parametrize("traced", [[], [{"error": "timed out"}], [{"result": {"type": "CALL"}, "txHash": HASH}]])
def test_frames_that_are_not_the_blocks_are_refused(traced: list[Any]) -> None:
    with pytest.raises(BadAnswer):
        of_frames("one", body(traced), PLACE)


def test_calls_nest_as_deep_as_the_machine_allows() -> None:
    depth = 1024
    text = f'{{"type":"CALL","from":"{ALICE}","to":"{BOB}","value":"0x1","calls":['
    deep = text * depth + text[: text.rindex(",")] + "}" + "]}" * depth
    assert len(of_frames("one", f'[{{"result":{deep}}}]'.encode(), PLACE)) == depth


def fake(**on: Any) -> FakeNode:
    chain = FakeChain()
    chain.mine()
    chain.headers[1]["transactions"] = [TX]
    return FakeNode(chain, **on)


async def test_the_way_to_trace_is_learnt_and_another_one_found_when_it_stops() -> None:
    frame = [{"result": {"type": "CALL", "calls": [{"type": "CALL", "from": ALICE, "to": BOB, "value": "0x5"}]}}]
    node = fake(debug_traceBlockByNumber=lambda params: frame)
    pool = wired(node, checked=True)
    blocks = traceable_blocks("one", await pool.node.headers([0, 1]))
    assert [block.height for block in blocks] == [1]
    for _ in range(2):
        assert [each.raw for each in (await internal_transfers(pool.node, blocks))[blocks[0]]] == [5]
    assert (node.count("trace_block"), node.count("debug_traceBlockByNumber")) == (1, 2)
    assert pool.endpoint.capabilities[ROUTE] == 3
    header = node.chain.headers[1]["hash"]
    flat = [call([], 9, blockHash=header), call([0], 6, blockHash=header)]
    node.on = {"trace_block": lambda params: flat}
    assert [each.raw for each in (await internal_transfers(pool.node, blocks))[blocks[0]]] == [6]
    assert pool.endpoint.capabilities[ROUTE] == 1


async def test_where_nobody_traces_that_is_said_with_its_cure() -> None:
    pool = wired(fake(), checked=True)
    with pytest.raises(UnsupportedMethod, match="does not trace blocks") as error:
        await internal_transfers(pool.node, traceable_blocks("one", await pool.node.headers([1])))
    assert "internal" in error.value.remedy
    tracing = fake()
    tracing.on["trace_block"] = lambda params: [call([], 9, blockHash=tracing.chain.headers[1]["hash"])]
    pool = wired(fake(), tracing, checked=True)
    assert list(
        (await internal_transfers(pool.node, traceable_blocks("two", await pool.node.headers([1])))).values()
    ) == [[]]


@pytest.mark.parametrize("answer", [{"gas": "0x0", "structLogs": [], "returnValue": ""}, {"structLogs": [{"pc": 0}]}])
async def test_a_node_that_traces_in_another_way_is_said_not_to_trace(answer: dict[str, Any]) -> None:
    pool = wired(FakeNode(FakeChain(1), debug_traceTransaction=lambda params: answer), checked=True)
    with pytest.raises(UnsupportedMethod, match="does not trace blocks"):
        await internal_transfers(pool.node, [PLACE])
    assert ROUTE not in pool.endpoint.capabilities
