"""SQL over the lake is exact to the last digit, reads nothing but the lake, and ends when it should."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import msgspec
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from chainfolio.amounts import MAX_DEC38, MAX_RAW
from chainfolio.errors import BadRequest, MissingDependency
from chainfolio.storage import sandbox
from chainfolio.storage.lake import Lake
from chainfolio.storage.lake_sources import sources
from chainfolio.storage.sandbox import run_query
from chainfolio.storage.sql_query import run_query as run_in_child
from chainfolio.storage.sql_task import HEAD, SUMMARY, Summary, Task
from chainfolio.storage.views import decimal_of, total_of, views
from chainfolio.table import Table, bucket
from chainfolio.tables import ACCOUNT_TRANSFERS, BLOCKS, TABLES, TRANSFERS
from tests.cli.conftest import Run
from tests.storage.attacker import tree
from tests.storage.conftest import make

EDGES = [
    0,
    1,
    2**53 + 1,
    2**64,
    2**127 - 1,
    2**127,
    2**128 - 1,
    2**128,
    MAX_DEC38 - 1,
    MAX_DEC38,
    MAX_DEC38 + 1,
    MAX_RAW,
]
RAWS = [*EDGES, *(3**n for n in range(1, 161, 8)), *(10**n - 1 for n in range(1, 78, 5))]
Query = Callable[..., dict[str, Any]]


def rows(table: Table, raws: Sequence[int], chain: str = "ethereum") -> pa.Table:
    """Return a table with one row and one block for each raw amount."""
    samples: dict[str, Any] = {"text": "0xab", "int": 1, "long": 2, "bool": True, "time": 3, "bytes": b"\1\2"}
    columns = {
        column.name: [
            {"chain": chain, "height": at}.get(column.name) or samples.get(column.type) or raw.to_bytes(32, "big")
            for at, raw in enumerate(raws, 1)
        ]
        for column in table.columns
    }
    return pa.table(columns, schema=table.schema())


def answer_of(task: Task) -> dict[str, Any]:
    """The document of a query that runs in this process, or its error."""
    parts: list[bytes] = []
    summary = run_query(task, parts.append)
    return {"error": summary.error} if summary.error else json.loads(b"".join(parts))


def ask(query: str, files: dict[str, list[str]], **more: Any) -> dict[str, Any]:
    """The document of a query that runs in the sandbox."""
    result = asyncio.run(run_in_child(Task(query=query, files=files, **{"limit": 1, "seconds": 9, **more})))
    document: dict[str, Any] = msgspec.to_builtins(result.document())
    return document


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Two chains of transfers with every kind of raw, and some blocks; the other tables are not there."""
    lake = Lake(str(tmp_path_factory.mktemp("o'lake") / "lake"))
    for chain in ("ethereum", "base"):
        lake.append(TRANSFERS, rows(TRANSFERS, RAWS, chain), stream=chain, batch=1)
    lake.append(BLOCKS, rows(BLOCKS, range(1, 11)), stream="ethereum", batch=1)
    return lake


@pytest.fixture(scope="module")
def files(lake: Lake) -> dict[str, list[str]]:
    return {name: lake.files(table) for name, table in TABLES.items() if lake.exists(table)}


@pytest.fixture(scope="module")
def query(files: dict[str, list[str]]) -> Query:
    """The sandbox's answer, in this process: its limits of memory and time are the child's."""

    def run_in_process(text: str, limit: int = 0, **more: Any) -> dict[str, Any]:
        return answer_of(Task(query=text, files=files, limit=limit, seconds=30, **more))

    return run_in_process


# --- exact -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def plain() -> Iterator[duckdb.DuckDBPyConnection]:
    """A DuckDB as anybody has it."""
    with duckdb.connect() as connection:
        yield connection


@given(raws=st.lists(st.integers(0, MAX_RAW) | st.integers(0, MAX_DEC38) | st.sampled_from(EDGES), max_size=30))
def test_the_decimal_beside_a_raw_is_that_raw_or_null_where_it_does_not_fit(
    plain: duckdb.DuckDBPyConnection, raws: list[int]
) -> None:
    raw_bytes = [raw.to_bytes(32, "big") for raw in raws]
    answer = plain.execute(f"SELECT {decimal_of('raw')} FROM (SELECT unnest(?::BLOB[]) AS raw)", [raw_bytes]).fetchall()
    assert answer == [(Decimal(raw) if raw <= MAX_DEC38 else None,) for raw in raws]


def test_raws_and_decimals_come_out_of_the_files_exactly(query: Query) -> None:
    answer = query("SELECT raw, raw_dec FROM transfers WHERE chain = 'base' ORDER BY height")
    assert [int(raw, 16) for raw, _ in answer["rows"]] == RAWS
    assert [dec for _, dec in answer["rows"]] == [str(raw) if raw <= MAX_DEC38 else None for raw in RAWS]


def test_sums_are_exact_far_beyond_a_double(query: Query) -> None:
    fitting = [raw for raw in RAWS if raw < 10**36]
    answer = query(f"SELECT sum(raw_dec), max(raw_dec) FROM transfers WHERE chain = 'base' AND raw_dec < {10**36}")
    assert answer["rows"] == [[str(sum(fitting)), str(max(fitting))]]


def test_a_sum_that_does_not_fit_is_refused_and_never_rounded(query: Query) -> None:
    assert "Overflow" in query("SELECT sum(raw_dec) FROM transfers")["error"]


@given(raws=st.lists(st.integers(0, MAX_RAW) | st.integers(0, MAX_DEC38) | st.sampled_from(EDGES), max_size=8))
@example([MAX_DEC38]).via("all that fits")
@example([MAX_DEC38 - 2**64, 2**63, 2**63]).via("the lower limbs carry")
@example([MAX_DEC38, 1]).via("one more")
@example([MAX_DEC38] * 3).via("more than 128 bits")
@example([2**128, MAX_RAW, 5]).via("a sum without the large ones would fit")
def test_a_total_is_the_sum_of_all_or_null_where_it_does_not_fit(
    plain: duckdb.DuckDBPyConnection, raws: list[int]
) -> None:
    raw_bytes = [raw.to_bytes(32, "big") for raw in raws]
    answer = plain.execute(f"SELECT {total_of('raw')} FROM (SELECT unnest(?::BLOB[]) AS raw)", [raw_bytes]).fetchall()
    fits = raws and sum(raws) <= MAX_DEC38
    assert answer == [(Decimal(sum(raws)) if fits else None,)]


def test_amounts_without_bound_break_the_total_of_nothing_beside_them(query: Query) -> None:
    of = "if(raw_dec < 10^30, 'honest', 'hostile') AS who"
    answer = query(f"SELECT {of}, total(raw) FROM transfers WHERE chain = 'base' GROUP BY who ORDER BY who")
    assert answer["rows"] == [["honest", str(sum(raw for raw in RAWS if raw < 10**30))], ["hostile", None]]


def test_bytes_sort_as_the_numbers_they_are(query: Query) -> None:
    answer = query("SELECT raw FROM transfers WHERE chain = 'base' ORDER BY raw")
    assert [int(raw, 16) for (raw,) in answer["rows"]] == sorted(RAWS)


def test_numbers_that_json_readers_would_round_are_text(query: Query) -> None:
    answer = query(
        f"SELECT {2**53 - 1}::BIGINT, {2**53}::BIGINT, -{2**60}::BIGINT, 0.1::DECIMAL(3,2), 0.5::DOUBLE, NULL, true"
    )
    assert answer["rows"] == [[2**53 - 1, str(2**53), str(-(2**60)), "0.10", "0.5", None, True]]


def test_times_bytes_and_nested_values_have_a_text(query: Query) -> None:
    answer = query(
        "SELECT time, input, [raw_dec], {'a': tx_index} FROM transfers NATURAL JOIN (SELECT 1 AS height, "
        "'\\x01'::BLOB AS input) WHERE chain = 'base'"
    )
    assert answer["rows"] == [["1970-01-01 00:00:00.000003+00:00", "0x01", ["0"], {"a": 1}]]
    json.dumps(answer)


# --- views -----------------------------------------------------------------------------------------------------------


def test_printed_views_read_their_files_from_any_folder(run: Run, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "chainfolio.toml").write_text('data = "data"\n')
    run("account", "list")
    lake = Lake("data/lake")
    lake.append(TRANSFERS, rows(TRANSFERS, [1, 2]), stream="ethereum", batch=1)
    printed = run("sql")
    assert printed.code == 0, printed.err
    assert f"['{here}/data/lake/" in printed.out
    monkeypatch.chdir("/")
    with duckdb.connect() as connection:
        connection.execute(printed.out)
        assert connection.execute("SELECT count(*) FROM transfers").fetchall() == [(2,)]


def test_the_views_that_are_printed_work_in_a_duckdb_of_ones_own(run: Run, lake: Lake, here: Path) -> None:
    (here / "chainfolio.toml").write_text(f'[lake]\nuri = "{lake.uri}"')
    printed = run("sql")
    assert printed.code == 0
    with duckdb.connect() as connection:
        connection.execute(printed.out)
        assert connection.execute("SELECT count(*) FROM transfers WHERE chain = 'base'").fetchall() == [(len(RAWS),)]
        assert connection.execute("SELECT sum(base_fee_dec) FROM blocks").fetchall() == [(Decimal(55),)]
        assert connection.execute("SELECT count(raw_dec) FROM balances").fetchall() == [(0,)]
        assert {name for (name,) in connection.execute("SHOW TABLES").fetchall()} == set(TABLES)


@pytest.mark.slow(
    "other tables are declared in the same way",
    fast=["blocks", "transfers", "account_transfers", "balances", "prices", "validator_rewards"],
)
@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES.keys())
def test_a_table_has_the_same_columns_and_types_with_rows_and_without(tmp_path: Path, table: Table) -> None:
    lake = Lake(str(tmp_path))
    lake.append(table, rows(table, [1]), stream="s", batch=1)
    with duckdb.connect() as connection:
        shapes = []
        for files in ({}, {table.name: lake.files(table)}):
            for view in views(files):
                connection.execute(view)
            shapes.append(
                connection.execute(f"SELECT column_name, column_type FROM (DESCRIBE {table.name})").fetchall()
            )
    assert shapes[0] == shapes[1]


def test_a_chain_whose_name_looks_like_a_number_is_text(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    lake.append(BLOCKS, rows(BLOCKS, [1], "0001"), stream="s", batch=1)
    task = Task(query="SELECT chain FROM blocks", files={"blocks": lake.files(BLOCKS)})
    assert answer_of(task)["rows"] == [["0001"]]


def test_an_accounts_rows_come_from_its_own_bucket_by_its_address_in_any_case(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    lake.append(ACCOUNT_TRANSFERS, make(ACCOUNT_TRANSFERS, "a", range(60)), stream="s", batch=1)
    files = {"account_transfers": lake.files(ACCOUNT_TRANSFERS)}
    text = "SELECT account, bucket, count(*) FROM account_transfers GROUP BY ALL"
    accounts = answer_of(Task(query=text, files=files))["rows"]
    assert len(accounts) > 20
    union = " UNION ALL ".join(
        f"SELECT '{account}', bucket_of('{account}'), count(*) FROM account_transfers_of('0x{account[2:].upper()}')"
        for account, _, _ in accounts
    )
    assert sorted(answer_of(Task(query=union, files=files))["rows"]) == sorted(accounts)


@given(st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=70))
def test_the_macro_knows_the_bucket_of_any_account(plain: duckdb.DuckDBPyConnection, account: str) -> None:
    for macro in (text for text in views({}) if "MACRO bucket_of" in text):
        plain.execute(macro)
    assert plain.execute("SELECT bucket_of(?)", [account]).fetchall() == [(bucket(account),)]


def test_an_empty_lake_answers_with_no_rows(run: Run) -> None:
    ran = run("sql", "SELECT token, sum(raw_dec) AS total FROM transfers GROUP BY token", "--json")
    assert (ran.code, ran.json) == (0, [])
    assert run("sql", "SELECT count(*) AS n FROM approvals WHERE approved", "--json").json == [{"n": 0}]


# --- the command -----------------------------------------------------------------------------------------------------


def test_rows_are_json_objects_or_a_table(run: Run, lake: Lake, here: Path) -> None:
    (here / "chainfolio.toml").write_text(f'[lake]\nuri = "{lake.uri}"')
    text = "SELECT height, raw_dec FROM transfers WHERE chain = 'base' ORDER BY height"
    answer = run("sql", text, "--json").json
    assert answer[3] == {"height": 4, "raw_dec": str(2**64)}
    assert answer[4] == {"height": 5, "raw_dec": None}
    table = run("sql", text, "--limit", "3")
    assert (table.code, table.err) == (0, "only the first 3 rows are shown: --limit 0 shows all\n")


SUMMED = "0xFB6916095ca1df60bB79Ce92cE3Ea74c37c5d359"


@pytest.mark.parametrize(
    ("text", "is_noted"),
    [
        (f"SELECT count(*) FROM transfers WHERE sender = '{SUMMED}'", True),
        (f"SELECT count(*) FROM transfers WHERE sender IN ('{SUMMED}', '{SUMMED}')", True),
        (f"SELECT count(*) FROM transfers WHERE sender = lower('{SUMMED}')", False),
        (f"SELECT count(*) FROM transfers WHERE sender = '{SUMMED.lower()}'", False),
    ],
)
def test_an_address_with_capitals_is_said_to_be_in_no_table(run: Run, text: str, is_noted: bool) -> None:
    ran = run("sql", text, "--json")
    note = f"note: '{SUMMED}' is in no table: they hold '{SUMMED.lower()}', in lower case\n"
    assert (ran.code, ran.err) == (0, note * is_noted)


@pytest.mark.parametrize(
    ("limit", "row_count", "has_more"),
    [(3, 3, True), (len(RAWS) - 1, len(RAWS) - 1, True), (len(RAWS), len(RAWS), False), (0, len(RAWS), False)],
)
def test_a_limit_cuts_the_rows_and_says_so(query: Query, limit: int, row_count: int, has_more: bool) -> None:
    answer = query("SELECT height FROM transfers WHERE chain = 'base'", limit)
    assert (len(answer["rows"]), answer["more"]) == (row_count, has_more)


@pytest.mark.parametrize("option", [("--limit", "-1"), ("--seconds", "0"), ("--seconds", "-5")])
def test_limits_that_cannot_be_meant_are_refused(run: Run, option: tuple[str, str]) -> None:
    assert run("sql", "SELECT 1", *option, "--json").error["field"] == "query"


@pytest.mark.parametrize(
    "text", ["SELEC 1", "SELECT", "SELECT * FROM gossip", "SELECT gossip FROM blocks", "/*", "", ";"]
)
def test_a_query_that_cannot_be_run_is_refused_in_one_json_object(query: Query, text: str) -> None:
    assert list(query(text)) == ["error"]


def test_a_refused_query_is_told_as_any_other_error(run: Run) -> None:
    ran = run("sql", "SELECT * FROM gossip", "--json")
    assert (ran.code, ran.error["kind"], ran.error["field"]) == (2, "BadRequest", "query")
    assert "gossip" in ran.error["message"]


def test_files_that_are_gone_are_named_as_the_reason(tmp_path: Path) -> None:
    answer = answer_of(Task(query="SELECT 1", files={"blocks": [str(tmp_path / "x.parquet")]}))
    assert "x.parquet" in answer["error"]


# --- the sandbox -----------------------------------------------------------------------------------------------------

READS = {
    "text": "SELECT * FROM read_text('{secret}')",
    "text behind the lake": "SELECT * FROM read_text('{lake}/../secret')",
    "blob": "SELECT * FROM read_blob('{secret}')",
    "csv": "SELECT * FROM read_csv('{secret}')",
    "csv by its shape": "SELECT * FROM sniff_csv('{secret}')",
    "json": "SELECT * FROM read_json('{secret}')",
    "json objects": "SELECT * FROM read_ndjson_objects('{secret}')",
    "parquet": "SELECT * FROM read_parquet('{secret}')",
    "parquet's metadata": "SELECT * FROM parquet_metadata('{secret}')",
    "another database": "SELECT * FROM read_duckdb('{secret}')",
    "names of files": "SELECT * FROM glob('{folder}/*')",
    "all files of a folder": "SELECT * FROM read_text('{folder}/*')",
    "by its name": "SELECT * FROM '{secret}'",
    "by its name as csv": "SELECT * FROM '{secret}.csv'",
    "a query in a query": "SELECT * FROM query('SELECT * FROM read_text(''{secret}'')')",
    "a table by its name": "SELECT * FROM query_table('{secret}')",
    "a serialised query": "FROM json_execute_serialized_sql(json_serialize_sql('FROM read_text(''{secret}'')'))",
    "the network": "SELECT * FROM read_csv('http://127.0.0.1:9/x')",
    "a bucket": "SELECT * FROM read_parquet('s3://bucket/x')",
    "a variable of Python": "SELECT * FROM a_python_variable",
    "the environment": "SELECT getenv('PATH')",
    "a folder to import": "PRAGMA import_database('{folder}')",
}
WRITES = {
    "copy": "COPY (SELECT 1) TO '{out}'",
    "copy under explain": "EXPLAIN ANALYZE COPY (SELECT 1) TO '{out}'",
    "attach": "ATTACH '{out}' AS x",
    "export": "EXPORT DATABASE '{out}'",
    "a profile": "PRAGMA profiling_output = '{out}'",
    "a log": "CALL enable_logging(storage = 'file', storage_path = '{out}')",
    "create": "CREATE TABLE x AS SELECT 1",
    "create or replace a view": "CREATE OR REPLACE VIEW blocks AS SELECT 1",
    "drop": "DROP VIEW blocks",
    "insert": "INSERT INTO blocks VALUES (1)",
}
SETTINGS = {
    "set": "SET memory_limit = '90GB'",
    "set under explain": "EXPLAIN ANALYZE SET threads = 64",
    "reset": "RESET enable_external_access",
    "set global": "SET GLOBAL enable_external_access = true",
    "pragma with a value": "PRAGMA threads = 64",
    "pragma without": "PRAGMA enable_verification",
    "pragma of a checkpoint": "PRAGMA disable_checkpoint_on_shutdown",
    "a variable": "SET VARIABLE x = 1",
    "install": "INSTALL httpfs",
    "install from others": "INSTALL x FROM community",
    "load": "LOAD httpfs",
    "load a file": "LOAD '{secret}'",
    "a secret": "CREATE SECRET (TYPE s3)",
    "use": "USE memory",
    "detach": "DETACH memory",
    "two at once": "SELECT 1; SELECT 2",
    "two, the second hidden": "SELECT 1;/**/;COPY (SELECT 1) TO '{out}'",
    "prepare": "PREPARE x AS SELECT 1",
    "call": "CALL pragma_version()",
    "begin": "BEGIN",
}
ESCAPES = READS | WRITES | SETTINGS


@pytest.mark.slow(
    "other words for what the same lock refuses",
    fast=[
        *("text", "blob", "csv", "json", "parquet", "another database", "names of files", "all files of a folder"),
        *("the network", "a variable of Python", "the environment", "copy under explain", "insert", "reset", "install"),
        "two, the second hidden",
    ],
)
@pytest.mark.parametrize("escape", ESCAPES.values(), ids=ESCAPES.keys())
def test_no_query_reaches_beyond_the_lake(query: Query, lake: Lake, tmp_path: Path, escape: str) -> None:
    a_python_variable = pa.table({"x": ["the secret"]})
    secret, output = Path(lake.uri).parent / "secret", tmp_path / "out"
    for path in (secret, secret.with_suffix(".csv")):
        path.write_text("the secret\n")
    paths = {"secret": secret, "lake": lake.uri, "folder": secret.parent, "out": output}
    paths = {name: str(path_text).replace("'", "''") for name, path_text in paths.items()}
    answer = query(escape.format(**paths))
    assert a_python_variable.num_rows == 1
    assert list(answer) == ["error"]
    assert "the secret" not in answer["error"]
    assert not output.exists()


COPIES = {
    "as text": "(FORMAT csv, USE_TMP_FILE false)",
    "by a temporary file": "(FORMAT csv)",
    "as Parquet": "(FORMAT parquet, USE_TMP_FILE false)",
    "by name alone": "(FORMAT csv, USE_TMP_FILE false, OVERWRITE_OR_IGNORE true)",
}


@pytest.mark.slow("other forms of the same query", fast=["as text", "as Parquet"])
@pytest.mark.parametrize("how", COPIES.values(), ids=COPIES.keys())
def test_no_query_changes_a_byte_of_the_lake_that_it_reads(lake: Lake, files: dict[str, list[str]], how: str) -> None:
    before = tree(Path(lake.uri))
    file = files["transfers"][0].replace("'", "''")
    with pytest.raises(BadRequest, match=r"Cannot (open|access) file"):
        ask(f"EXPLAIN ANALYZE COPY (SELECT 1) TO '{file}' {how}", files)
    assert tree(Path(lake.uri)) == before


def test_no_query_runs_where_the_system_lets_its_process_write(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "probe").write_text("x")
    task = Task(query="SELECT 1", probe=str(tmp_path / "probe"))
    output = io.BytesIO()
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(msgspec.json.encode(task))))
    monkeypatch.setattr("sys.stdout", SimpleNamespace(buffer=output))
    monkeypatch.setattr("resource.setrlimit", lambda *_: None)
    monkeypatch.setattr("chainfolio.storage.sandbox.give_up_writing", lambda: None)
    sandbox.main()
    kind, length = HEAD.unpack(output.getvalue()[: HEAD.size])
    summary = msgspec.json.decode(output.getvalue()[HEAD.size :], type=Summary)
    assert (kind, length, summary.possible[0]) == (SUMMARY, len(output.getvalue()) - HEAD.size, "write")

    async def answer(*_: object) -> Summary:
        return summary

    monkeypatch.setattr("chainfolio.storage.sql_query._answer", answer)
    with pytest.raises(MissingDependency, match="cannot make a process read-only: it could write"):
        ask("SELECT 1", {})


def test_views_and_settings_stay_as_they_were_for_every_query(query: Query) -> None:
    expected = {
        "autoload_known_extensions": "false",
        "enable_external_access": "false",
        "lock_configuration": "true",
        "python_enable_replacements": "false",
    }
    answer = query(f"SELECT name, value FROM duckdb_settings() WHERE name IN {tuple(expected)}")
    assert dict(answer["rows"]) == expected


def test_there_are_no_secrets_to_list(query: Query) -> None:
    assert query("SELECT * FROM duckdb_secrets()")["rows"] == []


READS_BLOCKS = [
    "SELECT count(*) FROM blocks",
    "SELECT hash FROM blocks WHERE height = 3",
    "SELECT count(*) FROM blocks WHERE hash IS NOT NULL AND time > '2020-01-01'",
    "SELECT t.height FROM transfers t JOIN blocks b USING (chain, height)",
    "SELECT t.height FROM transfers t LEFT JOIN blocks b ON b.height = t.height",
    "WITH b AS (SELECT max(height) FROM blocks) SELECT * FROM b",
]


@pytest.mark.slow("takes seconds, and faster tests take its branches")
def test_a_table_of_another_revision_refuses_only_the_queries_that_read_it(
    lake: Lake, files: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    newer = {**TABLES, "blocks": replace(BLOCKS, revision=BLOCKS.revision + 1)}
    monkeypatch.setattr("chainfolio.storage.lake_sources.TABLES", newer)
    readable = sources(lake)
    assert {*readable.files} == {*files} - {"blocks"}
    more = {"folder": readable.folder, "refused": readable.unreadable}
    assert ask("SELECT count(*) > 0 FROM transfers", readable.files, **more)["rows"] == [[True]]
    for query in READS_BLOCKS:
        with pytest.raises(BadRequest, match="table blocks was written by decoder revision 1"):
            ask(query, readable.files, **more)


def test_the_child_gets_nothing_of_our_environment(monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    monkeypatch.setenv("CHAINFOLIO_KEY", "s3cr3t")
    options: dict[str, Any] = {}

    def capture_options(*_: Any, **keywords: Any) -> Any:
        options.update(keywords)
        raise KeyboardInterrupt

    monkeypatch.setattr("asyncio.create_subprocess_exec", capture_options)
    run("sql", "SELECT 1")
    assert set(options["env"]) == {"PATH", "PYTHONPATH"}


BOMBS = {
    "a product of ranges": "SELECT count(*) FROM range(10000000) a, range(10000000) b",
    "a recursion without end": "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT max(n) FROM t",
}


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS.keys())
def test_a_query_without_end_is_ended_and_its_cure_said(run: Run, bomb: str) -> None:
    ran = run("sql", bomb, "--seconds", "1", "--json")
    assert ran.code == 2
    assert "exceeded maximum execution time" in ran.error["message"]
    assert "--seconds" in ran.error["remedy"]


def test_a_query_that_wants_all_memory_is_refused(files: dict[str, list[str]], query: Query) -> None:
    assert "Out of Memory" in query("SELECT list(range) FROM range(1000000000)")["error"]
    assert ask("SELECT 1 AS one", files)["rows"] == [[1]]
