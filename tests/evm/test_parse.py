"""Reading logs by templates is reading them one by one, only faster."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainfolio.adapters.evm.log_parser import MAX_TEMPLATES, LogRecord, parse, strict
from chainfolio.adapters.evm.logs import Logs, join
from chainfolio.errors import BadAnswer
from chainfolio.transport.wire import typed
from tests.evm.generated import answers, json_text, plain_values, records

ONE = {
    "address": "0x" + "11" * 20,
    "topics": ["0x" + "22" * 32],
    "data": "0x" + "00" * 32,
    "blockNumber": "0x10",
    "transactionHash": "0x" + "33" * 32,
    "blockHash": "0x" + "44" * 32,
    "transactionIndex": "0x0",
    "logIndex": "0x1",
    "removed": False,
}


def body(*logs: dict[str, Any]) -> bytes:
    return json.dumps(logs, separators=(",", ":")).encode()


def outcome(content: bytes, by: Any) -> Any:
    try:
        return plain_values(by("node", content))
    except BadAnswer:
        return BadAnswer


@given(st.data())
def test_templates_and_the_strict_parser_read_the_same(data: st.DataObject) -> None:
    content = data.draw(json_text(data.draw(answers())))
    assert plain_values(parse("node", content)) == plain_values(strict("node", content))


@given(answers(), st.data())
def test_what_was_written_is_what_is_read_in_the_order_of_the_chain(
    logs: list[dict[str, Any]], data: st.DataObject
) -> None:
    rows = plain_values(parse("node", data.draw(json_text(logs))))
    expected = sorted(logs, key=lambda log: (int(log["blockNumber"], 16), int(log["logIndex"], 16)))
    assert len(rows) == len(expected)
    for row, log in zip(rows, expected, strict=True):
        assert row["data"] == bytes.fromhex(log["data"][2:])
        assert row["topics"] == [topic.encode() for topic in log["topics"]]
        assert row["tx_index"] == int(log["transactionIndex"], 16)
        assert row["time_s"] == int(log.get("blockTimestamp", "-0x1"), 16)


@given(st.data())
def test_a_damaged_log_is_refused_by_both_or_read_alike_by_both(data: st.DataObject) -> None:
    """One character of an answer is replaced: whatever comes of it, both ways agree."""
    content = bytearray(body(*(data.draw(records(7, k)) for k in range(3))))
    content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.sampled_from(b'0fFgx"{}[],:\\ -19'))
    assert outcome(bytes(content), parse) == outcome(bytes(content), strict)


@pytest.mark.slow("takes seconds, and faster tests take its branches")
def test_no_place_of_an_answer_is_read_with_less_care_by_templates() -> None:
    content = body(*({**ONE, "topics": ["0x" + "22" * 32] * 2, "logIndex": hex(k)} for k in (1, 2)))
    for at in range(len(content)):
        for character in b'0xg", ':
            damaged = content[:at] + bytes([character]) + content[at + 1 :]
            assert outcome(damaged, parse) == outcome(damaged, strict), damaged


@given(answers(), st.data())
def test_two_logs_at_one_place_are_refused(logs: list[dict[str, Any]], data: st.DataObject) -> None:
    if logs:
        doubled = data.draw(st.permutations([*logs, data.draw(st.sampled_from(logs))]))
        with pytest.raises(BadAnswer, match="two logs at one place"):
            parse("node", data.draw(json_text(list(doubled))))


def test_more_shapes_than_templates_are_read_all_the_same() -> None:
    sizes = range(2 * MAX_TEMPLATES)
    logs = [{**ONE, "logIndex": hex(16 + k), "data": "0x" + f"{k:02x}" * (k % 7) * 2} for k in sizes]
    mixed = [dict(sorted(log.items(), key=lambda item: (hash(item[0]) + k) % 11)) for k, log in enumerate(logs)]
    assert plain_values(parse("node", body(*mixed))) == plain_values(strict("node", body(*logs)))


def test_no_logs_are_no_logs() -> None:
    for content in (b"[]", b" [ ] \n"):
        assert len(parse("node", content)) == 0


def test_answers_are_joined_in_the_order_given() -> None:
    parts = [parse("node", body({**ONE, "blockNumber": hex(k), "data": "0x" + "ab" * k})) for k in (5, 6, 7)]
    assert plain_values(join(parts)) == [row for part in parts for row in plain_values(part)]
    assert len(join([])) == len(Logs.blank(0)) == 0


@pytest.mark.parametrize(
    ("case", "change"),
    [
        ("a removed log", {"removed": True}),
        ("no log index", {"logIndex": None}),
        ("no transaction index", {"transactionIndex": None}),
        ("a pending log", {"blockNumber": None, "blockHash": None}),
        ("an index that ran below zero", {"logIndex": "0xffffffff"}),
        ("a transaction index that ran below zero", {"transactionIndex": "0xffffffffffffffff"}),
        ("five topics", {"topics": ["0x" + "22" * 32] * 5}),
        ("a short topic", {"topics": ["0x22"]}),
        ("a short address", {"address": "0x11"}),
        ("a long address", {"address": "0x" + "11" * 21}),
        ("a short transaction hash", {"transactionHash": "0x11"}),
        ("a short block hash", {"blockHash": "0x11"}),
        ("half a byte of data", {"data": "0x123"}),
        ("no data", {"data": None}),
        ("data that is no hex", {"data": "0x" + "zz" * 32}),
        ("a topic that is no hex", {"topics": ["0x" + "g2" * 32]}),
        ("a number with a leading zero", {"blockNumber": "0x010"}),
        ("a number with a sign", {"blockNumber": "-0x10"}),
        ("a number with blanks", {"blockNumber": " 0x10"}),
        ("a decimal number", {"blockNumber": "16"}),
        ("a JSON number", {"blockNumber": 16}),
        ("no digits", {"blockNumber": "0x"}),
        ("a block beyond all blocks", {"blockNumber": "0xffffffffffff"}),
        ("a time beyond all times", {"blockTimestamp": "0xfffffffffffffff"}),
        ("full-width digits", {"blockNumber": "0x\uff11"}),
        ("an upper-case prefix", {"blockNumber": "0X10"}),
        ("a block hash that is no hex", {"blockHash": "0x" + "zz" * 32}),
    ],
)
@pytest.mark.parametrize("neighbours", [0, 5])
def test_what_no_log_can_be_is_refused(case: str, change: dict[str, Any], neighbours: int) -> None:
    good = [{**ONE, "logIndex": hex(2 + k)} for k in range(neighbours)]
    for content in (body({**ONE, **change}, *good), body(*good, {**ONE, **change})):
        for by in (parse, strict):
            with pytest.raises(BadAnswer) as error:
                by("node", content)
            assert error.value.source == "node"


@pytest.mark.parametrize("content", [b"", b"null", b'"0x"', b"{}", b"[1]", b"[{}]", b"[[]]", b"[{},]", b"\xff\xfe[]"])
def test_what_is_no_list_of_logs_is_refused(content: bytes) -> None:
    with pytest.raises(BadAnswer):
        parse("node", content)


def test_a_list_nested_without_end_is_refused() -> None:
    with pytest.raises(BadAnswer):
        parse("node", b"[" * 100_000)


@pytest.mark.parametrize("field", [{}, {"note": 1}], ids=["template", "strict"])
def test_four_megabytes_of_data_are_the_most(field: dict[str, Any]) -> None:
    assert parse("node", body({**ONE, "data": "0x" + "00" * 4 * 1024 * 1024, **field})).data_size == 4 * 1024 * 1024
    with pytest.raises(BadAnswer, match="bytes of data"):
        parse("node", body({**ONE, "data": "0x" + "00" * (4 * 1024 * 1024 + 1), **field}))


def test_a_record_of_the_strict_parser_is_all_that_is_known_of_a_log() -> None:
    assert typed("node", json.dumps(ONE).encode(), LogRecord).blockTimestamp is None
