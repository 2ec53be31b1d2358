"""JSON-RPC as nodes really write it: each answer matches its request, and no other text is an answer."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainfolio.adapters.evm.hexadecimal import data, quantity
from chainfolio.errors import BadAnswer, Unavailable
from chainfolio.transport.wire import Request, RpcError, decode, encode, plain_result, typed

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5), lambda x: st.lists(x), max_leaves=5
)


def reply(number: Any, **content: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, **content}


def body(tree: Any) -> bytes:
    return json.dumps(tree).encode()


@given(st.lists(JSON, min_size=2, max_size=20), st.randoms())
def test_answers_in_any_order_find_their_questions(results: list[Any], random: Any) -> None:
    replies = [reply(number, result=result) for number, result in enumerate(results, 1)]
    random.shuffle(replies)
    assert [
        json.loads(answer) for answer in decode("n", body(replies), len(results)) if isinstance(answer, bytes)
    ] == results


@given(st.lists(JSON, min_size=2, max_size=8), st.data())
def test_a_missing_answer_is_refused(results: list[Any], draw: st.DataObject) -> None:
    replies = [reply(number, result=result) for number, result in enumerate(results, 1)]
    del replies[draw.draw(st.integers(0, len(replies) - 1))]
    with pytest.raises(BadAnswer, match="missing"):
        decode("n", body(replies), len(results))


@given(st.lists(JSON, min_size=1, max_size=8), st.data())
def test_a_second_answer_to_a_question_is_refused(results: list[Any], draw: st.DataObject) -> None:
    replies = [reply(number, result=result) for number, result in enumerate(results, 1)]
    replies.insert(draw.draw(st.integers(0, len(replies))), draw.draw(st.sampled_from(replies)))
    with pytest.raises(BadAnswer, match=r"two answers|of length"):
        decode("n", body(replies), len(results))


@pytest.mark.parametrize("number", [0, 3, -1, "1", None, 2**70, True, 1.5, [1]])
def test_an_answer_to_nobody_is_refused(number: Any) -> None:
    with pytest.raises(BadAnswer):
        decode("n", body([reply(1, result=1), reply(number, result=2)]), 2)


def test_an_answer_with_an_error_is_never_its_result() -> None:
    (answer,) = decode("n", body(reply(1, result="0x1", error={"code": -32000, "message": "no"})), 1)
    assert answer == RpcError(-32000, "no")


def test_an_error_of_null_is_none() -> None:
    assert decode("n", body(reply(1, result="0x1", error=None)), 1) == [b'"0x1"']
    assert decode("n", body(reply(1, result=None, error={"code": 1, "message": "no"})), 1) == [RpcError(1, "no")]


def test_an_answer_with_neither_is_refused() -> None:
    with pytest.raises(BadAnswer, match="neither"):
        decode("n", body(reply(1)), 1)


def test_a_result_of_null_is_a_result() -> None:
    assert decode("n", body(reply(1, result=None)), 1) == [b"null"]


def test_one_refusal_for_a_whole_batch_is_everybodys() -> None:
    refusal = RpcError(-32600, "no batches")
    assert decode("n", body(reply(None, error={"code": -32600, "message": "no batches"})), 3) == [refusal] * 3


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"null",
        b"true",
        b'"text"',
        b"[1]",
        b"[[]]",
        b"{}{}",
        b'{"id":1,"result":1} tail',
        b'{"id":1,"result":NaN}',
        b"\xef\xbb\xbf{}",
        "{}".encode("utf-16"),
        b'{"id":1,"result":Infinity}',
        b'{"error":"a text","id":1}',
        b"\xff\xfe",
        b'{"id":1,"error":{"code":"x","message":"y"}}',
        b"{'id':1}",
    ],
)
def test_what_is_no_answer_is_refused(content: bytes) -> None:
    with pytest.raises((BadAnswer, Unavailable)):
        decode("n", content, 1)


@given(st.integers(1, 60))
def test_an_answer_cut_off_anywhere_may_come_whole_next_time(end: int) -> None:
    content = body([reply(1, result=["0x1", {"a": 2}]), reply(2, result=[])])
    with pytest.raises(Unavailable, match="breaks off"):
        decode("n", content[:end], 2)


def test_questions_are_numbered_from_one() -> None:
    requests = json.loads(encode([Request("a"), Request("b", (1, {"x": 2}))]))
    assert [(each["id"], each["method"], each["params"]) for each in requests] == [
        (1, "a", []),
        (2, "b", [1, {"x": 2}]),
    ]
    assert json.loads(encode([Request("a")]))["id"] == 1


# --- a big answer, handed over unread --------------------------------------------------------------------------------


@given(JSON, st.permutations(["jsonrpc", "id", "result"]), st.sampled_from([(",", ":"), (", ", ": ")]))
def test_a_result_taken_whole_is_the_result(result: Any, keys: list[str], separators: tuple[str, str]) -> None:
    content = json.dumps({key: reply(1, result=[result])[key] for key in keys}, separators=separators).encode()
    plain = plain_result(content)
    assert plain is None or json.loads(bytes(plain)) == [result]


def test_the_plain_envelopes_of_nodes_are_taken_whole() -> None:
    for keys in (("jsonrpc", "id", "result"), ("id", "jsonrpc", "result"), ("result", "id", "jsonrpc")):
        tree = {key: reply(1, result=[{"a": "0x"}])[key] for key in keys}
        plain = plain_result(json.dumps(tree, separators=(",", ":")).encode())
        assert plain is not None
        assert bytes(plain) == b'[{"a":"0x"}]'


@pytest.mark.parametrize(
    "content",
    [
        b'{"jsonrpc":"2.0","id":2,"result":[]}',
        b'{"jsonrpc":"2.0","result":[]}',
        b'{"jsonrpc":"2.0","id":1,"result":null}',
        b'{"jsonrpc":"2.0","id":1,"result":[],"error":{"code":1,"message":"m"}}',
        b'{"jsonrpc":"2.0","id":1,"result":[],"error":null}',
        b'{"jsonrpc":"2.0","id":1,"result":[{}',
        b'{"jsonrpc":"2.0","id":1,"result":[{},{}',
        b'{"id":1,"result":[],"id":2}',
    ],
)
def test_an_envelope_that_is_not_plain_is_left_to_the_parser(content: bytes) -> None:
    assert plain_result(content) is None


# --- values ----------------------------------------------------------------------------------------------------------


@given(st.integers(0, 2**256 - 1))
def test_a_quantity_is_a_number(number: int) -> None:
    assert quantity("n", hex(number)) == number == quantity("n", "0x" + f"{number:X}")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0x",
        "0x00",
        "0x01",
        "0X1",
        "1",
        "-0x1",
        "0x-1",
        " 0x1",
        "0x1 ",
        "0x1\n",
        "0x_1",
        "0xg",
        "１",
        "0x１",
        "1e3",
        "0x" + "f" * 65,
        "0x1" + "0" * 1_000_000,
    ],
)
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(BadAnswer):
        quantity("n", text)


def test_a_quantity_wider_than_it_may_be_is_refused() -> None:
    assert quantity("n", "0xff", bits=8) == 255
    with pytest.raises(BadAnswer, match="wider"):
        quantity("n", "0x100", bits=8)


@given(st.binary(max_size=99))
def test_data_is_bytes(content: bytes) -> None:
    assert data("n", "0x" + content.hex()) == content


@pytest.mark.parametrize("text", ["", "0", "0x0", "0xzz", "0x 00", "00", "0x00 ", "0X00", "0x00\n"])
def test_what_is_no_data_is_refused(text: str) -> None:
    with pytest.raises(BadAnswer):
        data("n", text)


@pytest.mark.parametrize(("content", "kind"), [(b"1", str), (b'"1"', int), (b"[]", dict), (b"null", list)])
def test_a_value_of_another_type_is_refused(content: bytes, kind: type) -> None:
    with pytest.raises(BadAnswer, match="wrong shape"):
        typed("n", content, kind)
