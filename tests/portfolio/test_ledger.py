"""The ledger equals a model of plain Python integers, and its output fits the schemas of its tables."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainfolio import tables
from chainfolio.amounts import MAX_DEC38, MAX_RAW
from chainfolio.assets import ZERO_ADDRESS
from chainfolio.portfolio import ledger
from chainfolio.table import Table, bucket

ACCOUNTS = [f"0x{n:040x}" for n in (0, 1, 2, 0xABC)]
TOKENS = [f"0x{n:040x}" for n in (7, 8)]
RAWS = st.one_of(
    st.sampled_from(
        [0, 1, 2**63, 2**64 - 1, 2**64, 2**127, 2**128 - 1, 2**128, MAX_DEC38, MAX_DEC38 + 1, 2**255, MAX_RAW]
    ),
    st.integers(0, MAX_RAW),
    st.integers(0, 1000),
)
# What a row of a standard has that is no fungible token: the native coin no token, one of a collection a number.
OF_STANDARD: dict[str, dict[str, Any]] = {"native": {"token": None}, "erc721": {"token_id": 7}}
TRANSFERS = st.lists(
    st.fixed_dictionaries(
        {
            "height": st.integers(1, 3),
            "tx_index": st.integers(0, 2),
            "standard": st.sampled_from(["erc20", "erc20", "wrap", "unwrap", "native", "erc721"]),
            "token": st.sampled_from(TOKENS),
            "sender": st.sampled_from(ACCOUNTS),
            "recipient": st.sampled_from(ACCOUNTS),
            "raw": RAWS,
        }
    ).map(lambda row: row | OF_STANDARD.get(str(row["standard"]), {})),
    max_size=40,
)


def frame(table: Table, rows: list[dict[str, Any]]) -> pl.DataFrame:
    """Rows of a table with everything that a test does not speak of filled in."""
    fill: dict[str, Any] = {"text": "x", "int": 0, "long": 0, "bool": None, "time": 0, "bytes": b"", "raw": None}
    columns: dict[str, list[Any]] = {name: [] for name in table.names}
    for log_index, row in enumerate(rows):
        full = (
            {column.name: fill[column.type] for column in table.columns}
            | {"chain": "local", "log_index": log_index}
            | row
        )
        for column in table.columns:
            value = full[column.name]
            if column.type == "raw":
                value = None if value is None else value.to_bytes(32, "big")
            columns[column.name].append(value)
    types = {
        "text": pl.String,
        "int": pl.Int32,
        "long": pl.Int64,
        "bool": pl.Boolean,
        "time": pl.Datetime("us", "UTC"),
        "bytes": pl.Binary,
        "raw": pl.Binary,
    }
    schema: dict[str, Any] = {column.name: types[column.type] for column in table.columns}
    return pl.DataFrame([pl.Series(name, columns[name], dtype=schema[name]) for name in table.names])


def model(rows: list[dict[str, Any]]) -> dict[tuple[str, str], int]:
    """Received minus sent."""
    balances: defaultdict[tuple[str, str], int] = defaultdict(int)
    for row in rows:
        if row["standard"] in ("erc20", "wrap"):
            balances[row["recipient"], row["token"]] += row["raw"]
        if row["standard"] in ("erc20", "unwrap"):
            balances[row["sender"], row["token"]] -= row["raw"]
    return {key: raw for key, raw in balances.items() if key[0] != ZERO_ADDRESS}


@given(TRANSFERS)
def test_balances_are_received_minus_sent(rows: list[dict[str, Any]]) -> None:
    result = ledger.balances(frame(tables.TRANSFERS, rows), height=9)
    expected = [
        ("local", 9, account, token, min(abs(raw), MAX_RAW), raw < 0)
        for (account, token), raw in sorted(model(rows).items())
    ]
    with_ints = result.with_columns(
        pl.col("raw").map_elements(lambda b: str(int.from_bytes(b, "big")), return_dtype=pl.String)
    )
    assert [(*row[:4], int(row[4]), row[5]) for row in with_ints.rows()] == expected
    assert result["raw"].bin.size().eq(32).all()


@given(TRANSFERS)
def test_the_order_of_events_and_laziness_change_no_balance(rows: list[dict[str, Any]]) -> None:
    transfers = frame(tables.TRANSFERS, rows)
    assert ledger.balances(transfers).equals(ledger.balances(transfers.reverse().lazy()))


def test_balances_without_a_height_stand_at_the_last_fungible_transfer_of_their_chain() -> None:
    transfer = {"standard": "erc20", "token": TOKENS[0], "sender": ACCOUNTS[0], "recipient": ACCOUNTS[1], "raw": 1}
    rows = [
        transfer | {"height": 5},
        transfer | {"height": 7, "chain": "other"},
        transfer | {"height": 9, "standard": "erc721", "token_id": 7},
    ]
    assert ledger.balances(frame(tables.TRANSFERS, rows)).select("chain", "height").rows() == [
        ("local", 5),
        ("other", 7),
    ]


def test_two_chains_are_never_added_up() -> None:
    transfer = {"standard": "erc20", "token": TOKENS[0], "sender": ACCOUNTS[0], "recipient": ACCOUNTS[1], "raw": 1}
    result = ledger.balances(frame(tables.TRANSFERS, [transfer, transfer | {"chain": "other"}]))
    assert [int.from_bytes(raw, "big") for raw in result["raw"]] == [1, 1]


def test_events_that_sum_up_beyond_uint256_are_given_as_the_largest_there_is() -> None:
    transfer = {
        "standard": "erc20",
        "token": TOKENS[0],
        "sender": ACCOUNTS[1],
        "recipient": ACCOUNTS[2],
        "raw": MAX_RAW,
    }
    result = ledger.balances(frame(tables.TRANSFERS, [transfer] * 3))
    assert result.select("account", "raw", "short").rows() == [
        (ACCOUNTS[1], b"\xff" * 32, True),
        (ACCOUNTS[2], b"\xff" * 32, False),
    ]


@pytest.mark.parametrize("raw", [b"", b"\x01" * 31, b"\x01" * 33, None])
def test_a_raw_that_is_not_32_bytes_is_not_added_up(raw: bytes | None) -> None:
    transfer = {"standard": "erc20", "token": TOKENS[0], "sender": ACCOUNTS[0], "recipient": ACCOUNTS[1], "raw": 1}
    transfers = frame(tables.TRANSFERS, [transfer]).with_columns(pl.lit(raw, dtype=pl.Binary).alias("raw"))
    with pytest.raises(AssertionError, match="32 bytes"):
        ledger.balances(transfers)


APPROVALS = st.lists(
    st.fixed_dictionaries(
        {
            "height": st.integers(1, 3),
            "tx_index": st.integers(0, 2),
            "standard": st.sampled_from(["erc20", "erc20", "erc721", "operator"]),
            "token": st.sampled_from(TOKENS),
            "owner": st.sampled_from(ACCOUNTS[:2]),
            "spender": st.sampled_from(ACCOUNTS[:2]),
            "raw": RAWS,
        }
    ).map(lambda row: row | OF_STANDARD.get(str(row["standard"]), {})),
    max_size=40,
)


@given(APPROVALS, st.randoms())
def test_allowances_are_what_the_last_approval_said(rows: list[dict[str, Any]], random: Any) -> None:
    numbered = [row | {"log_index": index} for index, row in enumerate(rows)]
    last: dict[tuple[str, str, str], dict[str, Any]] = {}
    for row in sorted(numbered, key=lambda row: (row["height"], row["tx_index"], row["log_index"])):
        if row["standard"] == "erc20":
            last[row["owner"], row["token"], row["spender"]] = row
    random.shuffle(numbered)
    result = ledger.allowances(frame(tables.APPROVALS, numbered), height=9)
    expected = [("local", 9, *key, row["raw"].to_bytes(32, "big"), row["height"]) for key, row in sorted(last.items())]
    assert result.rows() == expected


@given(TRANSFERS)
def test_every_transfer_is_once_in_the_history_of_either_side(rows: list[dict[str, Any]]) -> None:
    result = ledger.in_buckets(tables.ACCOUNT_TRANSFERS, frame(tables.TRANSFERS, rows).reverse())
    expected = sorted(
        (bucket(account), account, row["height"], row["tx_index"], index, 0, direction, counterparty)
        for index, row in enumerate(rows)
        for account, counterparty, direction in (
            (row["recipient"], row["sender"], "in"),
            (row["sender"], row["recipient"], "out"),
        )
    )
    columns = result.select("bucket", "account", "height", "tx_index", "log_index", "item", "direction", "counterparty")
    assert columns.rows() == expected
    by_log = {index: row["raw"].to_bytes(32, "big") for index, row in enumerate(rows)}
    assert result["raw"].to_list() == [by_log[index] for index in result["log_index"]]


MOVED = {"standard": "erc20", "token": TOKENS[0], "sender": ACCOUNTS[1], "recipient": ACCOUNTS[2], "raw": MAX_RAW}


@pytest.mark.parametrize("rows", [[], [MOVED | {"owner": ACCOUNTS[1], "spender": ACCOUNTS[2]}]])
def test_what_leaves_fits_the_schema_of_its_table(rows: list[dict[str, Any]]) -> None:
    transfers, approvals = frame(tables.TRANSFERS, rows), frame(tables.APPROVALS, rows)
    for table, result in (
        (tables.BALANCES, ledger.balances(transfers)),
        (tables.ALLOWANCES, ledger.allowances(approvals)),
        (tables.ACCOUNT_TRANSFERS, ledger.in_buckets(tables.ACCOUNT_TRANSFERS, transfers)),
        (tables.ACCOUNT_APPROVALS, ledger.in_buckets(tables.ACCOUNT_APPROVALS, approvals)),
    ):
        arrow = result.to_arrow()
        assert arrow.schema.names == table.schema().names
        assert arrow.cast(table.schema()).num_rows == result.height


def test_importing_the_ledger_does_not_import_polars() -> None:
    import subprocess
    import sys

    slow = "{'polars', 'numpy', 'pyarrow'}"
    code = f"import sys; from chainfolio.portfolio import compose, ledger, nav; print({slow} & set(sys.modules))"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert process.stdout == "set()\n"


def topic(number: int) -> str:
    return f"0x{number:064x}"


def test_an_event_is_in_the_history_of_each_account_that_a_topic_names() -> None:
    """Neither a small number, nor one that is too large, nor the first topic is an account."""
    large, small = f"0x{2**159 + 1:040x}", f"0x{2**64:040x}"
    log_rows: list[dict[str, Any]] = [
        {"topic0": topic(2**100), "topic1": topic(2**159 + 1), "topic2": topic(2**64), "topic3": topic(2**64 - 1)},
        {"topic0": "x", "topic1": topic(2**160), "topic2": topic(2**159 + 1), "topic3": None},
        {"topic0": "x", "topic1": topic(0), "topic2": None, "topic3": None},
        {"topic0": "x", "topic1": topic(0), "topic2": topic(1), "topic3": topic(2**64)},
    ]
    logs = frame(tables.LOGS, [{"address": "0xa", "data": b"d", "tx_hash": "h", **each} for each in log_rows])
    rows = ledger.in_buckets(tables.ACCOUNT_EVENTS, logs)
    places_found = sorted(rows.select("account", "log_index", "place").iter_rows())
    assert places_found == [(small, 0, 2), (small, 3, 3), (large, 0, 1), (large, 1, 2)]
    assert rows.schema == frame(tables.ACCOUNT_EVENTS, []).schema


def test_a_transaction_is_a_row_of_its_sender_and_of_the_account_that_it_called_or_created() -> None:
    sender, other = ACCOUNTS[1:3]
    called: dict[str, Any] = {"sender": sender, "recipient": other, "created": None, "raw": 0, "input": b"\1\2\3\4\5"}
    rows = [
        {**called, "height": 1, "hash": "0x1"},
        {**called, "height": 2, "hash": "0x2", "recipient": None, "created": other, "input": b""},
        {**called, "height": 3, "hash": "0x3", "recipient": sender, "input": None},
    ]
    source = frame(tables.TRANSACTIONS, [{**row, "fee": 1, "gas_price": None} for row in rows])
    result = ledger.by_account(tables.ACCOUNT_TRANSACTIONS, source.lazy()).collect().sort("tx_hash", "account")
    assert result.select("account", "tx_hash", "selector").rows() == [
        (sender, "0x1", b"\1\2\3\4"),
        (other, "0x1", b"\1\2\3\4"),
        (sender, "0x2", b""),
        (other, "0x2", b""),
        (sender, "0x3", None),
    ]
