"""SQL over HTTP: exact rows of public tables, paid by what is read, and nothing else of this machine."""

from __future__ import annotations

import asyncio
import contextlib
import csv
import io
import itertools
import os
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, cast

import duckdb
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from chainfolio.amounts import MAX_DEC38, MAX_RAW
from chainfolio.api.export_slots import ExportSlots
from chainfolio.engine.lake_sql import LakeSql
from chainfolio.engine.lake_tables import PRIVATE, PUBLIC
from chainfolio.errors import BadRequest, NothingIndexed, Unavailable
from chainfolio.settings import Settings, Sql
from chainfolio.storage.lake import Lake
from chainfolio.storage.sandbox import _batches
from chainfolio.storage.sql_files import _unique
from chainfolio.storage.sql_query import run_query
from chainfolio.storage.sql_task import MEBIBYTE, Format, Task
from chainfolio.storage.state.ledger import Balance
from chainfolio.tables import BLOCKS, TABLES, TRANSFERS
from tests.api.fakes import FakeLake
from tests.api.furnished import GRANTS
from tests.api.tenants import ApiResponse, Tenant, World, a_world
from tests.cli.test_sql import RAWS, rows

LIMITS = Sql(seconds=2, memory_mib=128, max_rows=5000, max_mib=1, at_once=2, max_saved=3)


class Tail:
    """The tail of a system whose approvals are indexed."""

    def all_ranges(self, chain: str) -> list[tuple[str, str, object]]:
        return [("approvals", "", None)] if chain == "ethereum" else []


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("o'sql")


@pytest.fixture(scope="module")
def lake(folder: Path) -> LakeSql:
    """A lake with transfers of every kind of amount, and some blocks."""
    lake = Lake(str(folder / "lake"))
    lake.append(TRANSFERS, rows(TRANSFERS, RAWS), stream="ethereum", batch=1)
    lake.append(BLOCKS, rows(BLOCKS, range(1, 11)), stream="ethereum", batch=1)
    (folder / "secret").write_text("the secret\n")
    return LakeSql(lake, cast("Any", Tail()), folder, ("ethereum", "base"))


@pytest.fixture
async def world(state_url: str, lake: LakeSql) -> AsyncIterator[World]:
    async with a_world(state_url, Settings(sql=LIMITS), lake=lake) as running:
        yield running


@pytest.fixture
def ann(world: World) -> Tenant:
    return world.tenant("ann", grants=GRANTS)


async def run(tenant: Tenant, query: str, **more: object) -> ApiResponse:
    return await tenant.ask("POST", "/v1/sql", {"query": query, **more})


# --- results ---------------------------------------------------------------------------------------------------------


async def test_rows_are_exact_in_every_format(ann: Tenant) -> None:
    text = "SELECT height, raw, raw_dec, tx_index::HUGEINT * 2 AS wide FROM transfers ORDER BY height"
    answer = await run(ann, text)
    assert answer.status == 200, answer.body
    assert [column["type"] for column in answer.json["columns"]] == ["BIGINT", "BLOB", "DECIMAL(38,0)", "HUGEINT"]
    expected = [str(raw) if raw <= MAX_DEC38 else None for raw in RAWS]
    assert [row[2] for row in answer.json["rows"]] == expected
    assert [int(row[1], 16) for row in answer.json["rows"]] == RAWS
    assert answer.json["more"] is False
    in_csv = [*csv.DictReader(io.StringIO((await run(ann, text, format="csv")).body.decode()))]
    assert [row["raw_dec"] or None for row in in_csv] == expected
    for table in (
        pa.ipc.open_stream((await run(ann, text, format="arrow")).body).read_all(),
        pq.read_table(io.BytesIO((await run(ann, text, format="parquet")).body)),
    ):
        assert [None if each is None else str(each) for each in table["raw_dec"].to_pylist()] == expected
        assert [int.from_bytes(each, "big") for each in table["raw"].to_pylist()] == RAWS
        assert (table.schema.field("raw_dec").type, table.schema.field("wide").type) == (pa.decimal128(38), pa.string())
    assert max(RAWS) == MAX_RAW


@pytest.mark.parametrize(
    ("format", "media"),
    [
        ("json", "application/json"),
        ("csv", "text/csv"),
        ("arrow", "application/vnd.apache.arrow.stream"),
        ("parquet", "application/vnd.apache.parquet"),
    ],
)
async def test_a_limit_cuts_rows_and_the_head_says_so(ann: Tenant, format: str, media: str) -> None:
    for limit, more in ((3, "true"), (10, "false")):
        answer = await run(ann, "SELECT height FROM blocks", limit=limit, format=format)
        assert answer.headers["Content-Type"].partition(";")[0] == media
        assert (answer.headers["Chainfolio-Rows"], answer.headers["Chainfolio-More"]) == (str(limit), more)
        assert int(answer.headers["Content-Length"]) == len(answer.body)


async def test_parameters_are_values_and_no_part_of_the_text(ann: Tenant) -> None:
    hostile = "' OR 1=1 --"
    by_place = await run(ann, "SELECT count(*), ? FROM blocks WHERE chain = ?", parameters=["x", hostile])
    assert by_place.json["rows"] == [[0, "x"]]
    text = "SELECT $big::DECIMAL(38, 0) + $one AS n, $none, $yes"
    values = {"big": str(MAX_DEC38 - 1), "one": 1, "none": None, "yes": True}
    assert (await run(ann, text, parameters=values)).json["rows"] == [[str(MAX_DEC38), None, True]]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"query": "SELECT ?"}, "parameters"),
        ({"query": "SELECT 1", "parameters": [1]}, "count mismatch"),
        ({"query": "SELECT $a", "parameters": {"b": 1}}, "count mismatch"),
        ({"query": "SELECT ?", "parameters": [1.5]}, "parameters"),
        ({"query": "SELECT ?", "parameters": [[1]]}, "parameters"),
        ({"query": "SELECT 1", "limit": 5001}, "`limit` is at most 5000"),
        ({"query": "SELECT 1", "limit": 0}, "limit"),
        ({"query": "SELECT 1", "format": "xlsx"}, "format"),
        ({"query": "SELECT 1", "saved": "mine"}, "either"),
        ({}, "either"),
        ({"query": ""}, "query"),
        ({"query": "SELECT 1 -- " + "x" * 20_000}, "query"),
        ({"query": "SELECT 1\0; DROP TABLE x"}, "NUL"),
        ({"query": "/*"}, "query"),
        ({"query": "-- nothing"}, "one SELECT"),
    ],
    ids=map(str, range(15)),
)
async def test_a_request_that_cannot_be_meant_is_refused(ann: Tenant, body: dict[str, Any], reason: str) -> None:
    answer = await ann.ask("POST", "/v1/sql", body)
    assert (answer.status, reason in answer.json["message"]) == (400, True), answer.body


# --- the sandbox -----------------------------------------------------------------------------------------------------

REFUSED = {
    "a file": "SELECT * FROM read_text('{secret}')",
    "a file by its name": "SELECT * FROM '{secret}'",
    "names of files": "SELECT * FROM glob('/*')",
    "the network": "SELECT * FROM read_csv('http://127.0.0.1:9/x')",
    "attach": "ATTACH '{secret}' AS x",
    "copy": "COPY (SELECT 1) TO '{secret}'",
    "copy under explain": "EXPLAIN ANALYZE COPY (SELECT 1) TO '{secret}'",
    "install": "INSTALL httpfs",
    "load": "LOAD httpfs",
    "set": "SET threads = 64",
    "pragma": "PRAGMA threads = 64",
    "create": "CREATE TABLE x AS SELECT 1",
    "insert": "INSERT INTO blocks VALUES (1)",
    "drop": "DROP VIEW blocks",
    "several": "SELECT 1; SELECT 2",
    "several, the second hidden": "SELECT 1;/**/;COPY (SELECT 1) TO '{secret}'",
    "call": "CALL pragma_version()",
    "settings": "SELECT * FROM duckdb_settings()",
    "settings by schema": "SELECT * FROM system.main.duckdb_settings()",
    "one setting": "SELECT 'allowed_paths'.\"CURRENT_SETTING\"()",
    "a setting in a query in a text": "FROM query('SELECT current_setting(''allowed_paths'')')",
    "a serialised query": "FROM json_execute_serialized_sql(json_serialize_sql('SELECT 1'))",
    "the environment": "SELECT getenv('PATH')",
    "settings as PostgreSQL has them": 'SELECT * FROM pg_catalog."PG_Settings"',
    "files that were read": "SELECT path FROM blocks, duckdb_external_file_cache()",
    "extensions": "SELECT * FROM duckdb_extensions()",
    "snapshots of subscribers": "SELECT * FROM snapshots",
    "holdings of subscribers": "SELECT * FROM snapshot_holdings_of('0x00')",
    "data of the state": "SELECT * FROM ledger",
}


@pytest.mark.parametrize("query", REFUSED.values(), ids=REFUSED.keys())
async def test_no_query_reaches_beyond_public_tables(world: World, ann: Tenant, folder: Path, query: str) -> None:
    before = await world.settled_balance(ann)
    answer = await run(ann, query.format(secret=str(folder / "secret").replace("'", "''")))
    assert answer.status == 400, answer.body
    assert b"the secret" not in answer.body
    assert (folder / "secret").read_text() == "the secret\n"
    spent = before.available - (await world.settled_balance(ann)).available
    assert spent == ("is not shown" in answer.json["message"]), "only what ran costs"


async def test_views_errors_and_files_do_not_name_folders_of_the_server(ann: Tenant, folder: Path) -> None:
    for query in (
        "SELECT view_definition FROM information_schema.views /* blocks */",
        "SELECT * FROM read_parquet('blocks/none.parquet') /* blocks */",
        "SELECT current_database(), current_schema(), version()",
        "SELECT * FROM sqlite_master /* blocks */",
        "SHOW ALL TABLES /* blocks */",
    ):
        answer = await run(ann, query)
        assert os.fsencode(folder) not in answer.body, query
        assert os.fsencode(Path.home()) not in answer.body, query


BOMBS = {
    "a product of ranges": ("SELECT count(*) FROM range(10000000) a, range(10000000) b", "maximum execution time"),
    "a recursion without end": (
        "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT max(n) FROM t",
        "maximum execution time",
    ),
    "all memory": ("SELECT list(range) FROM range(1000000000)", "Out of Memory"),
    "a long text": ("SELECT repeat('x', 2000000)", "longer than 1 MiB"),
    "many texts": ("SELECT repeat('x', 1000) FROM range(4000)", "longer than 1 MiB"),
    "nesting": (f"SELECT {'abs(' * 900}1{')' * 900}", "nested"),
}


@pytest.mark.parametrize(("query", "reason"), BOMBS.values(), ids=BOMBS.keys())
async def test_a_query_without_bounds_is_ended_and_is_not_free(
    world: World, ann: Tenant, query: str, reason: str
) -> None:
    answer = await run(ann, query, limit=5000)
    assert (answer.status, reason in answer.json["message"]) == (400, True), answer.body
    assert (await world.settled_balance(ann)).earned == (0 if reason == "nested" else 1), "it costs what it ran"
    assert (await run(ann, "SELECT 1")).status == 200


@pytest.mark.parametrize("format", ["arrow", "parquet"])
async def test_a_value_that_a_format_lacks_is_refused_and_never_null(ann: Tenant, format: str) -> None:
    answer = await run(ann, "SELECT '290000-01-01'::TIMESTAMP", format=format)
    assert (answer.status, "does not fit into this format" in answer.json["message"]) == (400, True)


async def test_a_server_with_few_rows_cuts_requests_without_a_limit(state_url: str, lake: LakeSql) -> None:
    async with a_world(state_url, Settings(sql=Sql(max_rows=5)), lake=lake) as world:
        ann = world.tenant("ann", grants=GRANTS)
        answer = await run(ann, "SELECT height FROM blocks")
        assert (len(answer.json["rows"]), answer.json["more"]) == (5, True)
        assert (await run(ann, "SELECT 1", limit=1001)).status == 400


async def test_a_name_of_a_hidden_function_is_a_name_like_others(ann: Tenant) -> None:
    assert (await run(ann, "WITH query AS (SELECT 1 AS a) SELECT a FROM query")).json["rows"] == [[1]]


def test_equal_names_of_many_columns_get_numbers() -> None:
    assert _unique(["a", "a_2", "a", "a"]) == ["a", "a_2", "a_3", "a_4"]
    assert len(set(_unique(["a"] * 20_000))) == 20_000


def test_a_batch_of_many_columns_has_fewer_rows() -> None:
    wide = duckdb.connect().execute(f"SELECT {', '.join(['range'] * 4096)} FROM range(20)")
    assert [len(rows) for rows in _batches(wide, 0)] == [16, 4]


INEXACT = [
    "'infinity'::DATE",
    "'-infinity'::TIMESTAMP",
    "'infinity'::TIMESTAMPTZ",
    "[TIMESTAMP 'infinity']",
    "INTERVAL '1 year 2 months'",
    "{'a': [INTERVAL 1 month]}",
    "'2020-01-01 00:00:00.123456789'::TIMESTAMP_NS",
    "'12:00:00.123456789'::TIME_NS",
]


async def test_a_value_that_would_not_be_exact_is_refused_with_the_cure() -> None:
    for format, value in itertools.product(("json", "arrow"), INEXACT):
        with pytest.raises(BadRequest, match="cast it to VARCHAR"):
            await run_query(Task(query=f"SELECT {value}", format=cast("Format", format)))


async def test_keys_of_maps_are_text_as_cells_are(ann: Tenant) -> None:
    answer = await run(ann, "SELECT MAP {'\\x01'::BLOB: 1}, {'INTERVAL': 1}, MAP {DATE '2020-01-01': 1}")
    assert answer.json["rows"] == [[{"0x01": 1}, {"INTERVAL": 1}, {"2020-01-01": 1}]]


@pytest.mark.parametrize(
    ("query", "kind"),
    [
        ("SELECT error((SELECT string_agg(hash, ',') FROM blocks))", "Invalid Input Error"),
        ("SELECT ('a' || hash)::INT FROM blocks", "Conversion Error"),
        ("SELECT (height + 9223372036854775800)::BIGINT FROM blocks", "Out Of Range Error"),
        (f"SELECT error(coalesce(max(hash), '') || '{NothingIndexed('logs').message}') FROM blocks", "Invalid"),
    ],
)
async def test_an_error_of_a_row_shows_no_value_and_costs_as_an_answer_does(
    world: World, ann: Tenant, query: str, kind: str
) -> None:
    answer = await run(ann, query)
    assert (answer.status, kind in answer.json["message"]) == (400, True), answer.body
    assert "is not shown" in answer.json["message"]
    assert (await world.settled_balance(ann)).earned == 1


@pytest.mark.parametrize(
    "query", ["SELECT nope FROM blocks", "SELECT nope(1) FROM blocks", "SELECT * FROM nope", "SELECT 1 nope nope"]
)
async def test_an_error_of_the_text_of_a_query_is_whole_and_free(world: World, ann: Tenant, query: str) -> None:
    answer = await run(ann, query)
    assert (answer.status, "nope" in answer.json["message"]) == (400, True), answer.body
    assert (await world.settled_balance(ann)).earned == 0


async def test_the_local_command_sees_the_whole_error() -> None:
    with pytest.raises(BadRequest, match="'a value' to INT32"):
        await run_query(Task(query="SELECT 'a value'::INT"))


async def test_results_that_are_sent_count_until_they_are_closed() -> None:
    places = ExportSlots()
    files = [places.held("ann", io.BytesIO(b"x")) for _ in range(4)]
    with pytest.raises(Unavailable):
        async with places.slot("ann"):
            pass
    async with places.slot("bob"):
        pass
    for file in files:
        file.close()
        file.close()
    async with places.slot("ann"):
        pass


async def test_a_result_that_is_not_read_takes_a_place(state_url: str, lake: LakeSql) -> None:
    body = msgspec.json.encode({"query": LONG, "format": "csv"})
    async with AsyncExitStack() as stack:
        world = await stack.enter_async_context(a_world(state_url, lake=lake))
        ann = world.tenant("ann", grants=GRANTS)
        for _ in range(4):
            client = stack.enter_context(socket.socket())
            await ask_slowly(client, world, ann, body)
        answer = await run(ann, "SELECT 1")
        assert (answer.status, answer.headers["Retry-After"]) == (503, "30")


async def test_a_result_of_millions_of_rows_is_cut_at_the_limit(ann: Tenant) -> None:
    answer = await run(ann, "SELECT * FROM range(1000000000)", limit=5000)
    assert (len(answer.json["rows"]), answer.json["more"]) == (5000, True)


async def test_a_client_that_leaves_ends_the_query_and_pays_nothing(state_url: str, lake: LakeSql) -> None:
    limits = msgspec.structs.replace(LIMITS, seconds=300)
    async with a_world(state_url, Settings(sql=limits), lake=lake) as world:
        ann = world.tenant("ann", grants=GRANTS)
        before = await world.settled_balance(ann)
        body = msgspec.json.encode({"query": BOMBS["a product of ranges"][0]})
        head = f"POST /v1/sql HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {ann.key}\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        _, writer = await asyncio.open_connection("127.0.0.1", int(world.base.rpartition(":")[2]))
        writer.write(head.encode() + body)
        await until(lambda: len(children()) == 1 and scored(children()[0]) == 1000)
        await until(lambda: f" {(128 + 400) * MEBIBYTE} " in (children()[0] / "limits").read_text())
        writer.transport.abort()
        await until(lambda: not children())
        assert await world.settled_balance(ann) == before


LONG = "SELECT repeat('x', 30000000)"  # more than the buffers of a connection hold


async def test_a_client_that_leaves_in_the_middle_of_a_result_has_paid_for_it(state_url: str, lake: LakeSql) -> None:
    async with a_world(state_url, lake=lake) as world:
        ann = world.tenant("ann", grants=GRANTS)
        with socket.socket() as client:
            await ask_slowly(client, world, ann, msgspec.json.encode({"query": LONG, "format": "csv"}))
        assert (await world.settled_balance(ann)).earned == 1


async def ask_slowly(client: socket.socket, world: World, tenant: Tenant, body: bytes) -> None:
    """Send a query and read only the beginning of its result."""
    head = f"POST /v1/sql HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {tenant.key}\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(client, ("127.0.0.1", int(world.base.rpartition(":")[2])))
    await loop.sock_sendall(client, head.encode() + body)
    received = b""
    while b"\r\n\r\n" not in received:
        received += await loop.sock_recv(client, 4096)
    assert b" 200 " in received[:16]


async def test_clients_that_leave_start_one_comparison_of_files(lake: LakeSql, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, end = [], threading.Event()

    def compare(*parts: Any) -> Any:
        begun.append(parts)
        end.wait(20)
        return parts[1]

    monkeypatch.setattr("chainfolio.engine.lake_sql.check_files", compare)
    monkeypatch.setattr("chainfolio.engine.lake_sql.missing_bytes", lambda *parts: not end.is_set())
    query = Task(query="SELECT count(*) FROM blocks", for_stranger=True)
    left = [asyncio.create_task(lake.run(query)) for _ in range(3)]
    await until(lambda: begun)
    for task in left:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    last = asyncio.create_task(lake.run(query))
    await asyncio.wait([last], timeout=0.2)
    end.set()
    assert (await last).document().rows == [[10]]
    assert len(begun) == 1


def scored(process: Path) -> int:
    """How soon the system ends a process without memory: 1000 is first."""
    return int((process / "oom_score_adj").read_text())


def children() -> list[Path]:
    """The processes of this one that run a query."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has just ended
            parent = (process / "stat").read_text().rpartition(")")[2].split()[1]
            if int(parent) == os.getpid() and b"chainfolio.storage.sandbox" in (process / "cmdline").read_bytes():
                found.append(process)
    return found


async def until(condition: Any) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 (processes set no event)
            await asyncio.sleep(0.02)


# --- what is not there -----------------------------------------------------------------------------------------------


async def test_a_table_that_was_never_indexed_is_503_with_the_fix_and_an_empty_one_is_empty(ann: Tenant) -> None:
    answer = await run(ann, "SELECT count(*) FROM logs")
    assert (answer.status, answer.json["error"]) == (503, "Not Indexed")
    assert "chainfolio index" in answer.json["message"]
    assert (await run(ann, "SELECT 1 AS logs")).json["rows"] == [[1]]
    assert (await run(ann, "WITH logs AS (SELECT 1) SELECT * FROM logs")).json["rows"] == [[1]]
    assert (await run(ann, "SELECT count(*) FROM approvals")).json["rows"] == [[0]]
    assert (await run(ann, "SELECT count(*) FROM account_approvals_of('0x00')")).json["rows"] == [[0]]


async def test_tables_are_described_with_the_columns_that_a_query_sees(world: World, ann: Tenant) -> None:
    tables = {each["name"]: each for each in (await ann.ask("GET", "/v1/sql/tables")).json["data"]}
    assert {*tables} == {*PUBLIC} == {*TABLES} - PRIVATE
    assert (tables["blocks"]["chains"], tables["blocks"]["rows"]) == (["ethereum"], 10)
    assert (tables["logs"]["chains"], tables["logs"]["bytes"]) == ([], 0)
    columns = (await run(ann, "SELECT * FROM transfers LIMIT 0")).json["columns"]
    spelled = [(each["name"], each["type"]) for each in columns]
    spellings = {"TIMESTAMPTZ": "TIMESTAMP WITH TIME ZONE", "DECIMAL(38, 0)": "DECIMAL(38,0)"}
    described = [(each["name"], spellings.get(each["type"], each["type"])) for each in tables["transfers"]["columns"]]
    assert described == spelled
    assert all(column["description"] for table in tables.values() for column in table["columns"])
    assert (await world.settled_balance(ann)).earned == 1, "the tables are free, the query is not"


# --- credits and places ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mebibytes", "credits"), [(0, 1), (64, 1), (65, 2), (640, 10)])
async def test_a_query_costs_a_credit_for_each_part_that_it_reads(state_url: str, mebibytes: int, credits: int) -> None:
    async with a_world(state_url, lake=FakeLake(mebibytes * MEBIBYTE)) as world:
        ann = world.tenant("ann", credits=10, grants=GRANTS)
        answer = await run(ann, "SELECT 1")
        assert (answer.status, answer.headers["Chainfolio-Credits"]) == (200, str(credits))
        assert await world.settled_balance(ann) == Balance(10 - credits, 0, credits)


async def test_a_query_that_reads_more_than_the_account_can_pay_is_402_and_free(state_url: str) -> None:
    async with a_world(state_url, lake=FakeLake(640 * MEBIBYTE)) as world:
        ann = world.tenant("ann", credits=9, grants=GRANTS)
        answer = await run(ann, "SELECT 1")
        assert (answer.status, answer.json["creditsRequired"]) == (402, 9)
        assert await world.settled_balance(ann) == Balance(9, 0, 0)


async def test_what_a_query_reads_is_counted(ann: Tenant) -> None:
    for format in ("json", "arrow", "parquet"):
        answers = [await run(ann, text, format=format) for text in ("SELECT 1", "SELECT * FROM transfers")]
        narrow, wide = (int(answer.headers["Chainfolio-Bytes-Read"]) for answer in answers)
        assert narrow < 1000 < wide, format


async def test_more_queries_than_places_of_an_account_are_refused_for_a_while(world: World, ann: Tenant) -> None:
    answers = await asyncio.gather(*(run(ann, BOMBS["a product of ranges"][0]) for _ in range(6)))
    assert sorted(answer.status for answer in answers) == [400] * 4 + [503] * 2
    assert {answer.headers["Retry-After"] for answer in answers if answer.status == 503} == {"30"}


async def test_an_account_without_the_grant_is_refused(world: World) -> None:
    eve = world.tenant("eve", grants=("portfolio", "at-block", "enterprise"))
    assert (await run(eve, "SELECT 1")).status == 403
    for path in ("/v1/sql/tables", "/v1/sql/queries"):
        assert (await eve.ask("GET", path)).status == 403


# --- saved queries ---------------------------------------------------------------------------------------------------


async def test_a_query_is_saved_run_replaced_and_removed(ann: Tenant) -> None:
    saved = await ann.ask("POST", "/v1/sql/queries", {"name": "mine", "query": "SELECT 1 AS a"})
    assert (saved.status, saved.json["query"]) == (200, "SELECT 1 AS a")
    assert (await ann.ask("POST", "/v1/sql", {"saved": "mine"})).json["rows"] == [[1]]
    await ann.ask("POST", "/v1/sql/queries", {"name": "mine", "query": "SELECT ? AS a"})
    assert (await ann.ask("POST", "/v1/sql", {"saved": "mine", "parameters": ["x"]})).json["rows"] == [["x"]]
    (listed,) = (await ann.ask("GET", "/v1/sql/queries")).json["data"]
    assert (listed["name"], listed["query"]) == ("mine", "SELECT ? AS a")
    assert (await ann.ask("DELETE", "/v1/sql/queries/mine")).status == 204
    assert (await ann.ask("POST", "/v1/sql", {"saved": "mine"})).status == 404
    assert (await ann.ask("DELETE", "/v1/sql/queries/mine")).status == 404


async def test_saved_queries_of_others_are_as_unknown_as_none(world: World, ann: Tenant) -> None:
    eve = world.tenant("eve", grants=GRANTS)
    await ann.ask("POST", "/v1/sql/queries", {"name": "mine", "query": "SELECT 'ann'"})
    assert (await eve.ask("POST", "/v1/sql", {"saved": "mine"})).status == 404
    assert (await eve.ask("DELETE", "/v1/sql/queries/mine")).status == 404
    assert (await eve.ask("GET", "/v1/sql/queries")).json["data"] == []
    await eve.ask("POST", "/v1/sql/queries", {"name": "mine", "query": "SELECT 'eve'"})
    assert (await ann.ask("POST", "/v1/sql", {"saved": "mine"})).json["rows"] == [["ann"]]


async def test_an_account_has_a_bounded_number_of_saved_queries(ann: Tenant) -> None:
    for number in range(3):
        assert (await ann.ask("POST", "/v1/sql/queries", {"name": f"q{number}", "query": "SELECT 1"})).status == 200
    refused = await ann.ask("POST", "/v1/sql/queries", {"name": "q3", "query": "SELECT 1"})
    assert (refused.status, "at most 3" in refused.json["message"]) == (400, True)
    assert (await ann.ask("POST", "/v1/sql/queries", {"name": "q0", "query": "SELECT 2"})).status == 200


@pytest.mark.parametrize(
    "body",
    [
        {"name": "", "query": "SELECT 1"},
        {"name": "a/b", "query": "SELECT 1"},
        {"name": "x" * 65, "query": "SELECT 1"},
        {"name": "a", "query": "SELECT '\0'"},
        {"name": "a\0", "query": "SELECT 1"},
        {"name": "a"},
    ],
    ids=["no name", "slash", "long", "NUL in the query", "NUL in the name", "no query"],
)
async def test_what_cannot_be_saved_is_refused(ann: Tenant, body: dict[str, str]) -> None:
    assert (await ann.ask("POST", "/v1/sql/queries", body)).status == 400
    assert (await ann.ask("GET", "/v1/sql/queries")).json["data"] == []
