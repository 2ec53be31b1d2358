"""Faults of one endpoint: limits, pages that are not JSON, refused batches, and secrets in errors."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from chainfolio.errors import BadAnswer, ChainfolioError, ResponseTooLarge, SourceError, Unavailable, UnsupportedMethod
from chainfolio.transport.endpoint import MAX_BODY, Endpoint
from chainfolio.transport.exchange import HttpResponse
from chainfolio.transport.http_endpoint import identity, name_of
from chainfolio.transport.pacing import Pace
from chainfolio.transport.wire import Request
from tests.evm.contracts import RpcRefusal
from tests.evm.fakes import (
    FakeChain,
    FakeNode,
    Wired,
    answered,
    errors_of,
    wired,
)

KEY = "c4n4ry5ecretk3y"
URL = f"https://user:{KEY}pw@node.test:8545/v2/{KEY}path?apikey={KEY}query&x=1"
HEADERS = [Request("eth_getBlockByNumber", (hex(height), False)) for height in range(8)]


def pool_of(node: FakeNode) -> Wired:
    return wired(node, checked=True)


async def ask_headers(node: FakeNode) -> Wired:
    pool = pool_of(node)
    assert [b'"number"' in answer for answer in await pool.endpoint.ask(HEADERS) if isinstance(answer, bytes)] == [
        True
    ] * 8
    return pool


# --- waiting ---------------------------------------------------------------------------------------------------------


async def test_retry_after_is_waited_out() -> None:
    node = FakeNode(FakeChain(9))
    node.exchanges = [HttpResponse(429, 17.0, b"slow down")]
    pool = await ask_headers(node)
    assert len(pool.clock.slept) == 1
    assert 17.0 <= pool.clock.slept[0] < 17.2


async def test_retry_after_holds_for_everybody_at_that_endpoint() -> None:
    node = FakeNode(FakeChain(9))
    pool = pool_of(node)
    start_s = pool.clock.now_s
    node.always = HttpResponse(429, 30.0, b"")
    with pytest.raises(Unavailable):
        await pool.endpoint.ask_one(HEADERS[0])
    node.always = None
    await pool.endpoint.ask_one(HEADERS[0])
    assert pool.clock.now_s - start_s >= 6 * 30.0


async def test_without_retry_after_waits_grow_and_carry_jitter() -> None:
    node = FakeNode(FakeChain(9))
    node.exchanges = [HttpResponse(429, None, b"")] * 5
    pool = await ask_headers(node)
    for wait, base in zip(pool.clock.slept, (0.2, 0.4, 0.8, 1.6, 3.2), strict=True):
        assert base <= wait <= 1.5 * base


async def test_an_endpoint_that_asks_for_more_than_a_minute_fails_at_once() -> None:
    node = FakeNode(FakeChain(9))
    node.exchanges = [HttpResponse(429, 300.0, b"")]
    pool = pool_of(node)
    with pytest.raises(Unavailable, match="too many requests"):
        await pool.endpoint.ask(HEADERS)
    assert not pool.clock.slept
    await pool.endpoint.ask(HEADERS)
    assert sum(pool.clock.slept) < 1, "the next request does not wait for it either"


async def test_a_limit_that_never_ends_is_said_to_be_one() -> None:
    node = FakeNode(FakeChain(9))
    node.always = HttpResponse(429, None, b"")
    with pytest.raises(Unavailable, match="too many requests"):
        await pool_of(node).endpoint.ask(HEADERS)


async def test_a_limit_told_inside_an_answer_is_waited_for_too() -> None:
    tries = iter(range(3))

    def limited(params: list[Any]) -> Any:
        if next(tries, None) is not None:
            raise RpcRefusal(-32005, "daily request count exceeded, request rate limited")
        return node.chain.headers[0]

    node = FakeNode(FakeChain(9), eth_getBlockByNumber=limited)
    pool = pool_of(node)
    assert isinstance(await pool.endpoint.ask_one(HEADERS[0]), bytes)
    assert pool.endpoint.errors.counts == {"RateLimited": 3}


async def test_a_configured_rate_is_kept() -> None:
    pool = pool_of(FakeNode(FakeChain(9)))
    pool.endpoint.pace = Pace(pool.clock, max_rps=2)
    start_s = pool.clock.now_s
    for _ in range(5):
        await pool.endpoint.ask_one(HEADERS[0])
    assert pool.clock.now_s - start_s == pytest.approx(2.0)


# --- bodies ----------------------------------------------------------------------------------------------------------


def whole_of(endpoint: Endpoint) -> Callable[[Request], Awaitable[bytes]]:
    return lambda request: endpoint.ask_large(request, lambda source, content: bytes(content))


@pytest.mark.parametrize(
    ("posted", "kind", "message"),
    [
        (HttpResponse(200, None, b"<html><body>Checking your browser</body></html>"), Unavailable, "web page"),
        (HttpResponse(503, None, b"upstream connect error"), Unavailable, "HTTP 503"),
        (HttpResponse(200, None, b""), Unavailable, "no JSON"),
        (HttpResponse(200, None, b"error code: 1015"), Unavailable, "no JSON"),
        (HttpResponse(200, None, b'[{"jsonrpc":"2.0","id":1,"result":{"num'), Unavailable, "breaks off"),
        (HttpResponse(200, None, b'[{"jsonrpc":"2.0","id":1,"result":{}'), Unavailable, "breaks off"),
        (HttpResponse(401, None, b'{"error":"no"}'), BadAnswer, "access refused"),
        (HttpResponse(403, None, b"Forbidden"), BadAnswer, "access refused"),
        (HttpResponse(301, None, b""), BadAnswer, "redirects"),
        (HttpResponse(200, None, b'{"hello":"world"}'), BadAnswer, "an answer without a request"),
        (HttpResponse(404, None, b'{"message":"no Route matched"}'), BadAnswer, "an answer without a request"),
        (HttpResponse(200, None, b'{"jsonrpc":"2.0","id":1}'), BadAnswer, "neither"),
    ],
)
async def test_a_body_that_is_no_answer(posted: HttpResponse, kind: type[SourceError], message: str) -> None:
    node = FakeNode(FakeChain())
    node.always = posted
    for read in (pool_of(node).endpoint.ask_one, whole_of(pool_of(node).endpoint)):
        with pytest.raises(kind, match=message) as caught:
            await read(HEADERS[0])
        assert type(caught.value) is kind


async def test_answers_out_of_order_find_their_questions() -> None:
    node = FakeNode(FakeChain(9))
    node.envelope = lambda replies: replies[::-1]
    await ask_headers(node)


@pytest.mark.parametrize(
    "change",
    [
        lambda r: [*r[:-1], {**r[-1], "id": 99}],
        lambda r: [{**each, "id": str(each["id"])} for each in r],
        lambda r: r[:-1],
        lambda r: [*r, r[0]],
        lambda r: [{**each, "id": None} for each in r],
    ],
)
async def test_foreign_missing_and_double_answers_are_refused(change: Callable[[Any], Any]) -> None:
    node = FakeNode(FakeChain(9))
    node.envelope = change
    with pytest.raises(BadAnswer):
        await pool_of(node).endpoint.ask(HEADERS)


# --- batches ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (-32600, "batch requests are not supported"),
        (-32600, "Invalid Request"),
        (-32000, "batch too large"),
        (-32005, "Batch size is too large"),
        (-32700, "parse error: json: cannot unmarshal array"),
        (-32003, "batch length limit exceeded"),
        (-32601, "method not found"),
    ],
)
@pytest.mark.parametrize(("limit", "capabilities"), [(1, 1), (3, 2)])
async def test_a_node_that_takes_no_such_batch_is_asked_in_smaller_ones(
    code: int, message: str, limit: int, capabilities: int
) -> None:
    node = FakeNode(FakeChain(9))
    node.batch_limit, node.batch_refusal = limit, {"code": code, "message": message}
    pool = await ask_headers(node)
    assert pool.endpoint.capabilities == {"max_batch": capabilities}
    assert max(node.bodies) == 8
    before = len(node.bodies)
    await pool.endpoint.ask(HEADERS)
    assert node.bodies[before:] == [capabilities] * (8 // capabilities)


@pytest.mark.parametrize(
    ("message", "sizes"),
    [
        ("batch of more than 10 requests", [60, 10]),
        ("maximum batch size is 25", [60, 25]),
        ("batch limit exceeded: at most 1,000,000 bytes", [60, 30, 15, 10]),
        ("batch too large", [60, 30, 15, 10]),
    ],
    ids=["ten", "named", "bytes", "no number"],
)
async def test_a_refused_batch_is_followed_by_one_of_the_size_that_the_words_name(
    message: str, sizes: list[int]
) -> None:
    node = FakeNode(FakeChain(60))
    node.batch_limit, node.batch_refusal = sizes[-1], {"code": -32600, "message": message}
    pool = pool_of(node)
    await pool.endpoint.ask([Request("eth_getBlockByNumber", (hex(height), False)) for height in range(60)])
    assert node.bodies[: len(sizes)] == sizes
    assert pool.endpoint.capabilities["max_batch"] == sizes[-1]


async def test_a_batch_whose_answer_grew_too_large_is_asked_in_parts() -> None:
    """The node answers the first requests and refuses the others one by one, as geth does."""
    node = FakeNode(FakeChain(9))
    too_large = {"error": {"code": -32003, "message": "response too large"}}
    node.envelope = lambda replies: [
        reply if k < 3 else {"jsonrpc": "2.0", "id": reply["id"], **too_large} for k, reply in enumerate(replies)
    ]
    pool = await ask_headers(node)
    assert pool.endpoint.capabilities == {"max_batch": 2}


async def test_a_body_refused_with_413_is_made_smaller() -> None:
    node = FakeNode(FakeChain(9))
    node.exchanges = [HttpResponse(413, None, b"Request Entity Too Large")] * 2
    pool = await ask_headers(node)
    assert pool.endpoint.capabilities == {"max_batch": 2}


class Bounded(FakeNode):
    """A node that takes bodies of so many bytes."""

    def __init__(self, chain: FakeChain, limit: int) -> None:
        super().__init__(chain)
        self.most, self.sizes = limit, list[int]()

    def post(self, body: bytes) -> HttpResponse:
        self.sizes.append(len(body))
        return HttpResponse(413, None, b"length limit exceeded") if len(body) > self.most else super().post(body)


def large(count: int, size: int) -> list[Request]:
    return [Request("eth_chainId", (f"{number:0{size}d}",)) for number in range(count)]


async def test_many_large_questions_are_sent_in_bodies_that_nodes_take() -> None:
    node = Bounded(FakeChain(9), MAX_BODY)
    pool = pool_of(node)
    assert len(await pool.endpoint.ask(large(50, 100_000))) == 50
    assert pool.endpoint.capabilities == {}
    assert len(node.sizes) == 3
    assert max(node.sizes) <= MAX_BODY


async def test_a_node_that_takes_smaller_bodies_is_asked_in_them_and_still_in_large_batches() -> None:
    node = Bounded(FakeChain(9), 500_000)
    pool = pool_of(node)
    assert len(await pool.endpoint.ask(large(30, 100_000))) == 30
    (bytes_,) = pool.endpoint.capabilities.values()
    assert list(pool.endpoint.capabilities) == ["max_bytes"]
    assert bytes_ <= 500_000
    before = len(node.sizes)
    assert len(await pool.endpoint.ask(large(500, 10))) == 500
    assert len(node.sizes) == before + 1


async def test_a_single_question_that_is_too_large_is_refused_and_the_others_are_answered() -> None:
    node = Bounded(FakeChain(9), 300_000)
    answers = await pool_of(node).endpoint.ask([*large(2, 10), *large(1, 400_000), *large(2, 10)])
    assert [type(answer).__name__ for answer in answers] == ["bytes", "bytes", "BodyRefused", "bytes", "bytes"]


async def test_a_single_question_refused_with_413_is_an_answer() -> None:
    node = FakeNode(FakeChain(9))
    node.always = HttpResponse(413, None, b"")
    (answer,) = await pool_of(node).endpoint.ask(HEADERS[:1])
    assert isinstance(answer, ResponseTooLarge)


async def test_one_refusal_among_answers_is_only_its_own() -> None:
    node = FakeNode(FakeChain(9))
    answers = await pool_of(node).endpoint.ask([HEADERS[0], Request("eth_nonsense"), HEADERS[1]])
    assert [type(answer) for answer in answers] == [bytes, UnsupportedMethod, bytes]


async def test_a_contract_that_says_batch_changes_nothing() -> None:
    def refuse(params: list[Any]) -> Any:
        raise RpcRefusal(3, "execution reverted: batch too large")

    pool = pool_of(FakeNode(FakeChain(9), eth_call=refuse))
    await pool.endpoint.ask([Request("eth_call", ({}, "latest"))] * 4)
    assert pool.endpoint.capabilities == {}


# --- secrets ---------------------------------------------------------------------------------------------------------


def test_an_endpoint_is_called_by_its_host() -> None:
    assert name_of(URL) == "node.test:8545"
    assert KEY not in identity(URL)
    assert len(identity(URL)) == 16


@pytest.mark.parametrize(
    "fault",
    [
        Unavailable("node.test:8545", "cannot be reached"),
        HttpResponse(401, None, b"bad key " + KEY.encode()),
        HttpResponse(200, None, f"<html>{KEY}path is blocked</html>".encode()),
        HttpResponse(200, None, f'{{"error":"key {KEY}path unknown"}}'.encode()),
        HttpResponse(200, None, f'{{"{KEY}path'.encode()),
        answered({"jsonrpc": "2.0", "id": 1, "error": {"code": -1, "message": f"invalid project {KEY}path"}}),
        answered({"jsonrpc": "2.0", "id": 1, "error": {"code": -32601, "message": f"{KEY}query may not do that"}}),
        answered({"jsonrpc": "2.0", "id": 1, "error": {"code": -32005, "message": f"rate limit of {KEY}path"}}),
        answered({"jsonrpc": "2.0", "id": 1, "error": {"code": 3, "message": "x", "data": f"for {URL}"}}),
        answered({"jsonrpc": "2.0", "id": None, "error": {"code": -1, "message": f"no batches for {KEY}pw"}}),
        answered({"jsonrpc": "2.0", "id": f"{KEY}path", "result": 1}),
    ],
)
@pytest.mark.parametrize("method", ["eth_getLogs", "eth_call", "eth_getBlockByNumber"])
async def test_no_part_of_an_address_is_ever_shown(
    fault: HttpResponse | Exception, method: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    node = FakeNode(FakeChain())
    node.always = fault
    pool = wired(node, urls=[URL])
    texts = [repr(pool.endpoint), repr(pool.node), repr(errors_of(pool.node)), caplog.text]
    for read in (
        pool.endpoint.ask_one,
        whole_of(pool.endpoint),
        lambda request: pool.endpoint.ask([request, request]),
    ):
        try:
            texts.append(repr(await read(Request(method, ({},)))))
        except ChainfolioError as error:
            texts += [str(error), repr(error), repr(error.args), repr(vars(error)), error.remedy]
    assert len(texts) > 4
    assert not [text for text in texts if KEY in text]
