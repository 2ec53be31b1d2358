"""The pool of endpoints: handshakes, availability, and failover."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from chainfolio.adapters.evm.chain import build
from chainfolio.adapters.evm.node import Node
from chainfolio.adapters.evm.settings import EvmSettings
from chainfolio.environment import Environment
from chainfolio.errors import (
    BadAnswer,
    HistoryUnavailable,
    NodeBehind,
    SourceError,
    Unavailable,
    UnsupportedMethod,
    WrongChain,
)
from chainfolio.transport.endpoint import Endpoint
from chainfolio.transport.exchange import HttpResponse
from tests.evm.contracts import RpcRefusal
from tests.evm.fakes import (
    FakeChain,
    FakeNode,
    Handler,
    answered,
    errors_of,
    facts_of,
    wired,
)

DOWN = Unavailable("one.test", "cannot be reached", remedy="is the node running, and is the address right?")


def refuses(code: int, message: str) -> Callable[[list[Any]], Any]:
    def refuse(params: list[Any]) -> Any:
        raise RpcRefusal(code, message)

    return refuse


def dead(chain: FakeChain) -> FakeNode:
    node = FakeNode(chain)
    node.always = DOWN
    return node


# --- who it is -------------------------------------------------------------------------------------------------------


async def test_heads_are_one_request() -> None:
    pool = wired(FakeNode(FakeChain(9)))
    heads = await pool.node.connect()
    assert (heads.latest.height, heads.finalized, pool.node.requests) == (9, 7, 1)


async def test_another_chain_is_refused_with_both_numbers() -> None:
    pool = wired(FakeNode(FakeChain(), eth_chainId=lambda params: "0x1"))
    with pytest.raises(WrongChain, match="serves chain 1, not 31337") as caught:
        await pool.node.connect()
    assert "endpoint of the right chain" in caught.value.remedy
    assert not pool.endpoint.checked


async def test_another_genesis_is_refused_though_the_number_is_right() -> None:
    chain, theirs = FakeChain(2), FakeNode(FakeChain(2, salt="b"))
    pool = wired(FakeNode(chain))
    pool.transport.nodes["http://one.test"] = theirs
    with pytest.raises(WrongChain, match="genesis"):
        await pool.node.block(1)


async def test_the_first_read_and_the_handshake_are_one_request() -> None:
    chain = FakeChain(9)
    pool = wired(FakeNode(chain))
    assert await pool.node.block(4) == chain.block(4)
    assert (pool.node.requests, pool.endpoint.checked, pool.node.best_height) == (1, True, 9)
    assert await pool.node.block(5) == chain.block(5)
    assert pool.node.requests == 2


async def test_what_a_stranger_says_is_not_believed_though_it_came_with_the_handshake() -> None:
    node = FakeNode(FakeChain(3), eth_chainId=lambda params: "0x1")
    pool = wired(node)
    for _ in range(2):
        with pytest.raises(WrongChain):
            await pool.node.block(1)
    assert (pool.node.requests, pool.endpoint.checked) == (2, False)


async def test_much_is_not_asked_of_a_stranger() -> None:
    node = FakeNode(FakeChain(30), eth_chainId=lambda params: "0x1")
    with pytest.raises(WrongChain):
        await wired(node).node.headers(range(1, 30))
    assert {params[0] for method, params in node.asked if "Block" in method} == {"latest", "0x0"}


@pytest.mark.parametrize("limit", [1, 2, 4])
async def test_a_batch_that_is_too_large_with_the_handshake_says_nothing_of_the_read(limit: int) -> None:
    chain = FakeChain(9)
    node = FakeNode(chain)
    node.batch_limit = limit
    pool = wired(node)
    assert await pool.node.block(4) == chain.block(4)
    assert pool.endpoint.capabilities.get("max_batch", 4) == limit


async def test_a_body_refused_with_the_handshake_is_asked_for_again_without_it() -> None:
    chain = FakeChain(9)
    node = FakeNode(chain)
    node.exchanges = [HttpResponse(413, None, b"")]
    pool = wired(node)
    assert await pool.node.block(4) == chain.block(4)
    assert (node.bodies, pool.endpoint.capabilities) == ([4, 1], {})


@pytest.mark.parametrize("chain_id", [None, 31337, "31337", "0x", "0x07a69", ["0x7a69"]])
async def test_a_chain_id_that_is_no_quantity_is_refused(chain_id: Any) -> None:
    with pytest.raises(BadAnswer):
        await wired(FakeNode(FakeChain(), eth_chainId=lambda params: chain_id)).node.connect()


def test_no_endpoint_names_the_setting() -> None:
    with pytest.raises(Unavailable, match=r"no endpoint is configured \(add one to chains.fake in the settings\)"):
        Node(facts_of(FakeChain()), [], Environment())


def test_a_chain_without_endpoints_names_the_setting(tmp_path: Any) -> None:
    facts = tmp_path / "fake.toml"
    facts.write_text('key="fake"\nkind="evm"\nchain_id=1\nname="F"\nnative={symbol="A",name="B",decimals=18,slip44=60}')
    with pytest.raises(Unavailable, match="no endpoint is configured"):
        build("fake", EvmSettings(facts=str(facts)), Environment(), configs=tmp_path)


async def test_a_node_without_a_finalized_tag_is_trusted_for_what_is_old() -> None:
    chain = FakeChain(100)
    node = FakeNode(chain)
    plain = node.eth_getBlockByNumber
    pool = wired(node)
    facts = msgspec.structs.replace(pool.node.facts, finality="finalized")
    pool.node = Node(facts, [pool.endpoint], pool.node.environment)
    for answer in (refuses(-32602, "invalid block tag"), lambda params: None, refuses(-39001, "Unknown block")):
        node.on["eth_getBlockByNumber"] = _but_finalized(plain, answer)
        assert (await pool.node.connect()).finalized == 36


def _but_finalized(plain: Handler, answer: Handler) -> Handler:
    return lambda params: answer(params) if params[0] == "finalized" else plain(params)


# --- whether it answers ----------------------------------------------------------------------------------------------


async def test_a_dead_node_is_tried_again_and_then_named_with_the_cure() -> None:
    pool = wired(dead(FakeChain()))
    with pytest.raises(Unavailable, match=r"one.test: cannot be reached") as caught:
        await pool.node.connect()
    assert caught.value.remedy == "is the node running, and is the address right?"
    assert pool.endpoint.requests == 6
    assert pool.clock.slept == sorted(pool.clock.slept)


async def test_a_node_that_comes_back_is_not_given_up() -> None:
    node = FakeNode(FakeChain(3))
    node.exchanges = [DOWN, HttpResponse(502, None, b"<html>bad gateway</html>"), HttpResponse(200, None, b"")]
    pool = wired(node)
    assert (await pool.node.connect()).latest.height == 3
    assert pool.endpoint.errors.counts == {"Unavailable": 3}


async def test_a_node_that_is_behind_is_waited_for_and_then_said_to_be_behind() -> None:
    pool = wired(FakeNode(FakeChain(3)))
    with pytest.raises(NodeBehind, match="does not have block 4"):
        await pool.node.block(4)
    assert pool.clock.slept == [0.5, 1.0, 2.0]


async def test_a_node_that_catches_up_is_read() -> None:
    chain = FakeChain(3)
    pool = wired(FakeNode(chain))
    sleep = pool.clock.sleep

    async def mining(seconds: float) -> None:
        chain.mine()
        await sleep(seconds)

    pool.clock.sleep = mining  # type: ignore[method-assign]
    assert (await pool.node.block(5)).height == 5


@pytest.mark.parametrize(
    "header",
    [
        {"number": "0x9"},
        {"hash": "0x12"},
        {"hash": "0x" + "zz" * 32},
        {"logsBloom": "0x" + "zz" * 256},
        {"logsBloom": "0x00"},
        {"timestamp": "yesterday"},
        {"parentHash": None},
        {"timestamp": "0x" + "f" * 30},
        {"number": "0x8000000000000000"},
        {"transactions": None},
    ],
)
async def test_a_header_that_cannot_be_one_is_refused(header: dict[str, Any]) -> None:
    node = FakeNode(FakeChain(3))
    node.on["eth_getBlockByNumber"] = lambda params: {**node.chain.headers[2], **header}
    with pytest.raises(BadAnswer):
        await wired(node, checked=True).node.headers([2])


# --- who answers instead ---------------------------------------------------------------------------------------------


async def test_of_three_the_good_one_answers() -> None:
    chain = FakeChain(5)
    wrong = FakeNode(FakeChain(5), eth_chainId=lambda params: "0x1")
    three = wired(dead(chain), wrong, FakeNode(chain))
    assert (await three.node.block(5)).hash == chain.headers[5]["hash"]
    assert errors_of(three.node)["two.test"] == {"WrongChain": 1}
    assert errors_of(three.node)["one.test"]["Unavailable"] >= 6


async def test_a_dead_node_is_asked_last_for_a_while() -> None:
    chain = FakeChain(5)
    two = wired(dead(chain), FakeNode(chain))
    await two.node.block(5)
    request_count = len(two.transport.order)
    await two.node.block(4)
    assert two.transport.order[request_count:] == ["two.test"]
    two.clock.now_s += 60
    await two.node.block(3)
    assert two.transport.order[request_count + 1] == "one.test"


async def test_when_all_are_dead_the_last_says_why() -> None:
    chain = FakeChain()
    nodes = [dead(chain) for _ in range(3)]
    nodes[2].always = Unavailable("three.test", "no answer within 60 s", remedy="ask its owner")
    with pytest.raises(Unavailable, match=r"three.test: no answer within 60 s \(ask its owner\)"):
        await wired(*nodes).node.connect()


async def test_history_that_one_has_pruned_is_read_from_another() -> None:
    chain = FakeChain(5)
    pruned = FakeNode(chain, eth_getBlockByNumber=refuses(-32000, "missing trie node"))
    two = wired(pruned, FakeNode(chain), checked=True)
    assert (await two.node.block(1)).height == 1
    assert errors_of(two.node) == {"one.test": {"HistoryUnavailable": 1}}


async def test_history_that_all_have_pruned_is_never_nothing() -> None:
    chain = FakeChain(5)
    nodes = [FakeNode(chain, eth_getBlockByNumber=refuses(-32000, "missing trie node")) for _ in range(2)]
    with pytest.raises(HistoryUnavailable, match="no state at block 1"):
        await wired(*nodes, checked=True).node.block(1)


PRUNED = HistoryUnavailable("pruned.test", 1, "missing trie node")
WITHOUT_METHOD = UnsupportedMethod("plain.test", "the method does not exist")
TIMEOUT = Unavailable("archive.test", "no answer within 60 s")
BEHIND = NodeBehind("late.test", "does not have block 1")
MALFORMED = BadAnswer("broken.test", "no JSON")
OTHER_CHAIN = WrongChain("other.test", "serves chain 1")


@pytest.mark.parametrize("quorum", [1, 2])
@pytest.mark.parametrize("is_reversed", [False, True])
@pytest.mark.parametrize(
    ("errors", "decisive"),
    [
        ((TIMEOUT, PRUNED), TIMEOUT),
        ((TIMEOUT, WITHOUT_METHOD), TIMEOUT),
        ((BEHIND, PRUNED), BEHIND),
        ((BEHIND, TIMEOUT), BEHIND),
        ((MALFORMED, PRUNED), MALFORMED),
        ((OTHER_CHAIN, PRUNED), PRUNED),
        ((PRUNED, WITHOUT_METHOD, TIMEOUT), TIMEOUT),
        ((PRUNED, PRUNED), PRUNED),
    ],
)
async def test_a_refusal_is_final_only_if_all_endpoints_refuse_in_any_order(
    errors: tuple[SourceError, ...], decisive: SourceError, is_reversed: bool, quorum: int
) -> None:
    pool = wired(*(FakeNode(FakeChain()) for _ in errors), checked=True)
    pool.node.quorum = quorum
    raised = dict(zip(pool.node.endpoints, reversed(errors) if is_reversed else errors, strict=True))

    async def read(endpoint: Endpoint) -> list[str]:
        raise raised[endpoint]

    with pytest.raises(SourceError) as caught:
        await pool.node.agreed(read, key=str, describe=str)
    assert caught.value is decisive


async def test_a_node_that_is_down_is_no_reason_not_to_wait_for_one_that_is_behind() -> None:
    chain = FakeChain(3)
    pool = wired(FakeNode(chain), dead(chain))
    sleep = pool.clock.sleep

    async def mining(seconds: float) -> None:
        chain.mine()
        await sleep(seconds)

    pool.clock.sleep = mining  # type: ignore[method-assign]
    assert (await pool.node.block(5)).height == 5


async def test_the_fake_transport_is_let_go() -> None:
    pool = wired(FakeNode(FakeChain()))
    await pool.node.close()
    assert pool.transport.nodes == {}
    assert answered({}).status == 200
