"""/v1/sql: queries over the tables of the lake, and the queries that an account saved.

A result is made first, in a file, and then sent with its length, as exports are: so an error has a status.
"""

from __future__ import annotations

from contextlib import AsyncExitStack, suppress
from typing import Annotated, Final

import msgspec

from chainfolio.api.changes import change
from chainfolio.api.context import Answer, Context
from chainfolio.api.engine import LakeQueries
from chainfolio.api.errors import FieldError, Problem, invalid
from chainfolio.api.further_credits import reserve_more
from chainfolio.api.router import RouteOptions, get, write
from chainfolio.api.status import iso_time
from chainfolio.engine.lake_tables import LakeTable
from chainfolio.errors import NotSupported, Unavailable
from chainfolio.storage.sql_query import FailedQuery, QueryResult
from chainfolio.storage.sql_task import MEBIBYTE, Format, Parameter, Task
from chainfolio.storage.state import accounts, saved_queries
from chainfolio.storage.state.database import Transaction
from chainfolio.storage.state.saved_queries import SavedQuery

MAX_QUERY: Final = 20_000
SELECT: Final = "SELECT token, total(raw) AS total FROM transfers GROUP BY token"
FEW: Final = msgspec.Meta(max_length=200)
DEFAULT_LIMIT: Final = 1000
MAX_LIMIT: Final = 10_000_000  # of any server: that of the settings is lower
FAMILY: Final[RouteOptions] = {"tag": "SQL", "needs": "sql", "cost": 1}
TYPES: Final[dict[Format, str]] = {
    "json": "application/json",
    "csv": "text/csv",
    "arrow": "application/vnd.apache.arrow.stream",
    "parquet": "application/vnd.apache.parquet",
}
ENDINGS: Final[dict[Format, str]] = {"json": "json", "csv": "csv", "arrow": "arrows", "parquet": "parquet"}
FAILURES: Final = {
    404: "The account has no saved query of this name.",
    503: "Too many queries run, or nothing is indexed in a table of the query. `Retry-After` says when to retry.",
}
QueryText = Annotated[
    str,
    msgspec.Meta(
        description="One `SELECT` in the SQL of DuckDB.",
        min_length=1,
        max_length=MAX_QUERY,
        examples=[SELECT],
    ),
]
Name = Annotated[
    str,
    msgspec.Meta(
        description="Name of a saved query.",
        pattern="^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$",
        examples=["largest-transfers"],
    ),
]


class Query(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A query: its text in `query`, or the name of a saved one in `saved`."""

    query: Annotated[QueryText | None, msgspec.Meta(examples=[SELECT])] = None
    saved: Name | None = None
    parameters: Annotated[
        Annotated[list[Parameter], FEW] | Annotated[dict[str, Parameter], FEW],
        msgspec.Meta(
            description="Values of `?` in their order, or of `$name` by name. Send decimals as text, and cast them."
        ),
    ] = []
    limit: Annotated[
        int, msgspec.Meta(description="Maximum number of rows; the server has a maximum too.", ge=1, le=MAX_LIMIT)
    ] = DEFAULT_LIMIT
    format: Annotated[Format, msgspec.Meta(description="Format of the result.")] = "json"

    def __post_init__(self) -> None:
        if (self.query is None) == (self.saved is None):
            raise ValueError("send either `query` or `saved`")
        _check_text(self.query or "")


class NewQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A query to save. It replaces the one of the same name."""

    name: Name
    query: QueryText

    def __post_init__(self) -> None:
        _check_text(self.query)


class QueryPath(msgspec.Struct, frozen=True):
    """Name of a saved query."""

    name: Name


class StoredQuery(msgspec.Struct, frozen=True, rename="camel"):
    """A saved query."""

    name: str
    query: str
    saved_at: str


class StoredQueries(msgspec.Struct, frozen=True):
    """Saved queries, sorted by name."""

    data: list[StoredQuery]


class LakeTables(msgspec.Struct, frozen=True):
    """The tables that a query may read."""

    data: list[LakeTable]


EXAMPLE: Final = {"name": "largest-transfers", "query": "SELECT 1", "savedAt": "2026-03-01T12:00:00Z"}
TABLE: Final = {
    "name": "blocks",
    "description": "One row per block.",
    "columns": [{"name": "height", "type": "BIGINT", "description": "Height."}],
    "chains": ["ethereum"],
    "rows": 1200,
    "bytes": 65536,
}


def check(request: Context, body: Query) -> None:
    """Raise a 400 Problem for more rows than the settings allow; the default is cut instead."""
    most = request.parts.settings.sql.max_rows
    if body.limit > max(most, DEFAULT_LIMIT):
        raise invalid("body", [FieldError(f"`limit` is at most {most} on this server", ["limit"])])


@write(
    "POST",
    "/v1/sql",
    summary="Run a query in SQL",
    reads=True,
    check=check,
    media=", ".join(TYPES.values()),
    is_slow=True,
    fails=FAILURES,
    **FAMILY,
)
async def run_sql(request: Context, body: Query) -> Answer:
    """Returns the rows of one `SELECT` over the tables of `/v1/sql/tables`, with the length of the file.

    JSON is `{columns, rows, more}`; numbers that JSON readers would round are text. Costs one more credit for each
    further 64 MiB that the query reads, or as the operator set it; `Chainfolio-Bytes-Read` says how much it was.
    A query that fails as it runs costs as much, and its error shows no values. `Chainfolio-More` is `true` if `limit`
    left out rows.
    """
    query, limits = await _text(request, body), request.parts.settings.sql
    task = Task(
        query=query,
        parameters=body.parameters,
        limit=min(body.limit, limits.max_rows),
        seconds=limits.seconds,
        memory_mib=limits.memory_mib,
        max_mib=limits.max_mib,
        format=body.format,
        for_stranger=True,
    )
    async with AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(request.parts.sql.slot(request.principal.account_id))
        except Unavailable as busy:
            headers = {"Retry-After": str(round(busy.retry_after_s or 1))}
            raise Problem(503, "too many queries are running; try again later", headers=headers) from None
        try:
            result = await _lake(request).run(task)
        except FailedQuery as failed:
            await _pay_failed(request, failed)
            raise
    try:
        return await _paid(request, result, body.format)
    except BaseException:  # the answer that would close the file is not made
        result.file.close()
        raise


async def _paid(request: Context, result: QueryResult, format: Format) -> Answer:
    """Reserve the credits for what a query read, and return its answer; raise a 402 Problem without enough."""
    summary = result.summary
    credits = await _reserve(request, summary.bytes_read)
    headers = {
        "Content-Disposition": f'attachment; filename="result.{ENDINGS[format]}"',
        "Chainfolio-Rows": str(summary.rows),
        "Chainfolio-More": "true" if summary.more else "false",
        "Chainfolio-Bytes-Read": str(summary.bytes_read or 0),
        "Chainfolio-Credits": str(credits),
    }
    file = request.parts.sql.held(request.principal.account_id, result.file)
    return Answer(b"", content_type=TYPES[format], headers=headers, file=file, is_paid_first=True)


async def _reserve(request: Context, bytes_read: int | None) -> int:
    """Reserve what a query costs beyond its first credit; return the whole price. Raises a 402 Problem."""
    credits = max(1, -(-(bytes_read or 0) // (request.parts.settings.sql.mib_per_credit * MEBIBYTE)))
    if credits > 1:
        await reserve_more(request, credits - 1)
    return credits


async def _pay_failed(request: Context, failed: FailedQuery) -> None:
    """Post the charge of a query that failed as it ran.

    An account with too few pays the first credit.
    """
    credits = 1
    with suppress(Problem):
        credits = await _reserve(request, failed.bytes_read)
    request.headers["Chainfolio-Credits"] = str(credits)
    charge, request.http.charge = request.http.charge, None
    if charge is not None:
        charge.post_soon()


@get("/v1/sql/tables", summary="Tables for queries in SQL", example={"data": [TABLE]}, **FAMILY | {"cost": 0})
async def sql_tables(request: Context) -> LakeTables:
    """Returns the tables that a query may read, with their columns.

    `chains` is empty if a table has no rows: nothing was indexed into it, or nothing happened.
    """
    return LakeTables(await _lake(request).tables())


@get("/v1/sql/queries", summary="Saved queries", example={"data": [EXAMPLE]}, **FAMILY)
async def list_queries(request: Context) -> StoredQueries:
    """Returns the saved queries of the account, sorted by name."""
    owner = request.principal.account_id
    stored = await request.parts.state.read(lambda tx: saved_queries.every(tx, owner))
    return StoredQueries([_stored(each) for each in stored])


@write("POST", "/v1/sql/queries", summary="Save a query", answers={200: StoredQuery}, example=EXAMPLE, **FAMILY)
async def save_query(request: Context, body: NewQuery) -> Answer:
    """Saves a query under a name, or replaces it. It is not run, and only you see it."""
    owner, now_us = request.principal.account_id, request.parts.environment.clock.now_us()
    new, max_saved = SavedQuery(body.name, body.query, now_us), request.parts.settings.sql.max_saved

    def work(tx: Transaction) -> StoredQuery:
        accounts.lock(tx, owner)
        saved_queries.save(tx, owner, new, max_saved)
        return _stored(new)

    return await change(request, work)


@write(
    "DELETE",
    "/v1/sql/queries/{name}",
    summary="Remove a saved query",
    answers={204: Answer},
    fails={404: FAILURES[404]},
    **FAMILY,
)
async def remove_query(request: Context, path: QueryPath) -> Answer:
    """Removes a saved query."""
    owner = request.principal.account_id

    def work(tx: Transaction) -> None:
        accounts.lock(tx, owner)
        saved_queries.remove(tx, owner, path.name)

    return await change(request, work, 204)


ROUTES: Final = (run_sql, sql_tables, list_queries, save_query, remove_query)


async def _text(request: Context, body: Query) -> str:
    """Return the query of a request; raise NotFound for a name under which the account saved none."""
    if body.query is not None:
        return body.query
    owner, name = request.principal.account_id, body.saved or ""
    return (await request.parts.state.read(lambda tx: saved_queries.one(tx, owner, name))).query


def _lake(request: Context) -> LakeQueries:
    if request.parts.lake is None:
        raise NotSupported("a query in SQL", "This server has no lake")
    return request.parts.lake


def _stored(query: SavedQuery) -> StoredQuery:
    return StoredQuery(query.name, query.query, iso_time(query.saved_us) or "")


def _check_text(query: str) -> None:
    """Raise a ValueError for a text that PostgreSQL cannot store and DuckDB would cut."""
    if "\0" in query:
        raise ValueError("`query` has a character NUL")
