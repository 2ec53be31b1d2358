"""Logs as nodes might write them: any shape that JSON allows and some that no node should send."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

from chainfolio.adapters.evm import events
from chainfolio.adapters.evm.logs import Logs

KNOWN = (
    events.TRANSFER,
    events.TRANSFER_SINGLE,
    events.TRANSFER_BATCH,
    events.DEPOSIT,
    events.WITHDRAWAL,
    events.APPROVAL,
    events.APPROVAL_FOR_ALL,
)
WRAPPED = "0x" + "ee" * 20
WIDE = st.integers(0, 2**256 - 1)
ADDRESSES = st.integers(0, 2**160 - 1).map(lambda number: f"0x{number:040x}")
FEW_ADDRESSES = st.sampled_from(["0x" + "00" * 20, "0x" + "aa" * 20, WRAPPED])
HEIGHTS = st.sampled_from([0, 1, 15, 16, 255, 256, 4095, 4096, 19_000_000, 2**31 - 1])


def word(number: int) -> str:
    return f"{number:064x}"


def topic_of(address: str) -> str:
    return "0x" + "0" * 24 + address[2:]


@st.composite
def records(draw: st.DrawFn, height: int, log_index: int) -> dict[str, Any]:
    """One log at one place, with any topics and any data."""
    topics = draw(st.lists(WIDE.map(lambda number: "0x" + word(number)), max_size=4))
    size = draw(st.sampled_from([0, 32, 32, 32, 1, 31, 33, 64, 96, 200]))
    log = {
        "address": draw(ADDRESSES),
        "topics": topics,
        "data": "0x" + draw(st.binary(min_size=size, max_size=size)).hex(),
        "blockNumber": hex(height),
        "transactionHash": "0x" + word(draw(WIDE)),
        "blockHash": "0x" + word(height),
        "transactionIndex": hex(draw(st.integers(0, 300))),
        "logIndex": hex(log_index),
        "removed": False,
    }
    if draw(st.booleans()):
        log["blockTimestamp"] = hex(1_700_000_000 + height)
    return log


@st.composite
def answers(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Logs at distinct places, in any order."""
    positions = draw(
        st.lists(st.tuples(HEIGHTS, st.sampled_from([0, 1, 9, 10, 15, 16, 300])), max_size=12, unique=True)
    )
    return [draw(records(height, log_index)) for height, log_index in positions]


@st.composite
def json_text(draw: st.DrawFn, logs: list[dict[str, Any]]) -> bytes:
    """Draw JSON text of logs: shuffled keys, unknown keys, whitespace, upper case, and mixed records."""
    orders = [draw(st.permutations(list(logs[0])))] if logs else []
    alike = draw(st.booleans())
    entries = []
    for log in logs:
        keys = orders[0] if alike else draw(st.permutations(list(log)))
        record = {key: log[key] for key in [*keys, *log] if key in log}
        if not alike:
            record.update(draw(st.sampled_from([{}, {}, {"type": "mined"}, {"note": "a}, {b"}, {"deep": {"a": [1]}}])))
            for key in draw(st.sets(st.sampled_from(["address", "data", "blockHash", "transactionHash", "logIndex"]))):
                record[key] = "0x" + record[key][2:].upper()
            record["topics"] = draw(st.sampled_from([record["topics"], [_shout(t) for t in record["topics"]]]))
        entries.append(record)
    separators = draw(st.sampled_from([(",", ":"), (", ", ": "), (" , ", " : ")]))
    around = draw(st.sampled_from([("", ""), (" ", "\n"), ("\n\t", " " * 80)]))
    return (around[0] + json.dumps(entries, separators=separators) + around[1]).encode()


def _shout(topic: str) -> str:
    return "0x" + topic[2:].upper()


# --- events ----------------------------------------------------------------------------------------------------------


@st.composite
def events_of_tokens(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Logs in the order of the chain that look like events of tokens: most are, some are nearly."""
    heights = sorted(draw(st.lists(st.integers(1, 4), min_size=1, max_size=14)))
    logs: list[dict[str, Any]] = []
    for index, height in enumerate(heights):
        topics, data = draw(st.one_of(_words_of_an_event(), _batch(), _anything()))
        logs.append(
            {
                "address": draw(FEW_ADDRESSES),
                "topics": topics,
                "data": data,
                "blockNumber": hex(height),
                "transactionHash": "0x" + word(height * 1000 + index // 2),
                "blockHash": "0x" + word(height),
                "transactionIndex": hex(index // 2),
                "logIndex": hex(index),
                "blockTimestamp": hex(1000 + height),
                "removed": False,
            }
        )
    return logs


@st.composite
def _words_of_an_event(draw: st.DrawFn) -> tuple[list[str], str]:
    """The right topic and the right number of words, divided between topics and data as it comes."""
    topic0 = draw(st.sampled_from(KNOWN))
    party = st.one_of(FEW_ADDRESSES.map(lambda a: topic_of(a)[2:]), FEW_ADDRESSES.map(lambda a: "ff" * 12 + a[2:]))
    clean = FEW_ADDRESSES.map(lambda a: topic_of(a)[2:])
    words = [draw(st.one_of(clean, clean, clean, party)) for _ in range(draw(st.integers(1, 3)))]
    words += [word(draw(st.one_of(st.integers(0, 2), WIDE))) for _ in range(draw(st.integers(0, 2)))]
    indexed = draw(st.integers(0, min(3, len(words))))
    return [topic0, *("0x" + each for each in words[:indexed])], "0x" + "".join(words[indexed:])


@st.composite
def _batch(draw: st.DrawFn) -> tuple[list[str], str]:
    """A TransferBatch: well encoded, or with one word of its data changed."""
    count = draw(st.integers(0, 4))
    values = [word(draw(WIDE)) for _ in range(2 * count)]
    words = [word(64), word(96 + 32 * count), word(count), *values[:count], word(count), *values[count:]]
    if draw(st.booleans()):
        words[draw(st.integers(0, len(words) - 1))] = word(draw(st.one_of(st.integers(0, 300), WIDE)))
    parties = [topic_of(draw(FEW_ADDRESSES)) for _ in range(3)]
    return [events.TRANSFER_BATCH, *parties], "0x" + "".join(words)


@st.composite
def _anything(draw: st.DrawFn) -> tuple[list[str], str]:
    topics = draw(st.lists(st.one_of(st.sampled_from(KNOWN), WIDE.map(lambda n: "0x" + word(n))), max_size=4))
    return topics, "0x" + draw(st.binary(max_size=100)).hex()


# --- seen again ------------------------------------------------------------------------------------------------------


def plain_values(logs: Logs) -> list[dict[str, Any]]:
    """Parsed logs as plain values, to compare."""
    return [
        {
            "height": int(logs.height[row]),
            "tx_index": int(logs.tx_index[row]),
            "log_index": int(logs.log_index[row]),
            "time_s": int(logs.time_s[row]),
            "address": logs.address[row].tobytes(),
            "tx_hash": logs.tx_hash[row].tobytes(),
            "block_hash": logs.block_hash[row].tobytes(),
            "topics": [logs.topics[k][row].tobytes() for k in range(int(logs.topic_count[row]))],
            "data_size": int(logs.data_size[row]),
            "data": logs.data(row),
        }
        for row in range(len(logs))
    ]
