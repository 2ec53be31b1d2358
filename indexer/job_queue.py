"""A queue of jobs in the PostgreSQL of the tail, for workers on several machines.

procrastinate stores the jobs in the schema `chainfolio_jobs`. A job says what to do again, and never what is missing:
that follows from the lake and the tail, so a job that runs twice writes nothing twice.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from chainfolio.errors import BadRequest, NotFound, StoreError, needs_extra

if TYPE_CHECKING:
    from procrastinate import App
    from procrastinate.jobs import Job

SCHEMA: Final = "chainfolio_jobs"
VERSION: Final = 1  # of the jobs and their arguments; workers of another one are refused
QUEUE: Final = "chainfolio"
KINDS: Final = ("index", "accounts", "materialise", "compact", "vacuum")
PARALLEL: Final = ("index", "accounts")  # kinds whose jobs of one chain run at the same time
POSTGRES: Final = ("postgresql://", "postgres://")
CLOCKED: Final = ("compact", "vacuum")  # kinds that are due at the times of the settings
ENDED: Final = ("succeeded", "failed", "cancelled", "aborted")
OF_LAKE: Final = ("vacuum",)  # kinds of which one job runs at a time, for all chains
LAKE_LOCK: Final = "lake"
_FIRINGS: Final = """
CREATE TABLE IF NOT EXISTS job_firings (
    kind text NOT NULL, chain text NOT NULL, fired_at timestamptz NOT NULL, PRIMARY KEY (kind, chain)
)
"""
# The database has the one clock that all workers share. A time that is recorded far ahead of it was an error.
_AHEAD: Final = "now() + interval '1 hour'"
_FIRE: Final = f"""
WITH fired AS (
    INSERT INTO job_firings AS f (kind, chain, fired_at)
    SELECT %(kind)s, %(chain)s, %(at)s WHERE %(at)s::timestamptz <= {_AHEAD}
    ON CONFLICT (kind, chain) DO UPDATE SET fired_at = excluded.fired_at
    WHERE f.fired_at < excluded.fired_at OR f.fired_at > {_AHEAD}
    RETURNING kind
)
SELECT EXISTS (SELECT FROM fired) AS is_new, %(at)s::timestamptz > {_AHEAD} AS is_ahead
"""
_REPLACE: Final = "DELETE FROM procrastinate_jobs WHERE status = 'failed' AND queueing_lock = %(name)s"
_VERSION: Final = "CREATE TABLE IF NOT EXISTS queue_version (version int NOT NULL)"
_ERRORS: Final = """
CREATE TABLE job_errors (
    job_id bigint NOT NULL REFERENCES procrastinate_jobs ON DELETE CASCADE,
    attempt int NOT NULL, at timestamptz NOT NULL DEFAULT now(), reason text NOT NULL,
    is_temporary boolean NOT NULL
)
"""
_LOCK: Final = 0x636A6F6273  # the advisory lock under which the schema is created
_JOBS: Final = """
SELECT id, status::text AS status, task_name, args, attempts, scheduled_at,
    (SELECT reason FROM job_errors WHERE job_id = j.id ORDER BY at DESC LIMIT 1) AS reason,
    (SELECT min(at) FROM procrastinate_events e WHERE e.job_id = j.id) AS added_at
FROM procrastinate_jobs j WHERE %(id)s::bigint IS NULL OR id = %(id)s ORDER BY id
"""

Task = Callable[..., Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """A job of the queue.

    Attributes:
        status: `todo`, `doing`, `succeeded`, `failed` (parked), `cancelled`, `aborting` or `aborted`.
        arguments: What the job works on: `chain`, a range of blocks (`first`, `last`) for `index`, and one of
            `ACCOUNT_BUCKETS` groups of accounts (`bucket`) for `accounts`.
        attempts: How often it was tried and failed.
        reason: Why the last attempt failed; empty if none did.
        scheduled_at: The earliest time of the next attempt; None if it is now.
    """

    number: int
    kind: str
    status: str
    arguments: Mapping[str, Any]
    attempts: int
    reason: str
    scheduled_at: datetime | None
    added_at: datetime | None

    @property
    def chain(self) -> str:
        """The key of the job's chain."""
        return str(self.arguments["chain"])

    @property
    def is_due_again(self) -> bool:
        """True for a parked job that is added again at its next time."""
        return self.status == "failed" and self.kind in CLOCKED


class JobQueue:
    """The queue of one installation, open as long as the block of `opened` lasts."""

    def __init__(self, app: App) -> None:
        self.app = app

    async def add(self, kind: str, chain: str, **arguments: int) -> int | None:
        """Add a job, and return its number; None if the same job waits already.

        It replaces the same parked job, if that is due by the clock.

        Raises:
            BadRequest: There is no such kind of job.
        """
        from procrastinate.exceptions import AlreadyEnqueued

        if kind not in KINDS:
            raise BadRequest("kind", f"{kind!r} is none of {', '.join(KINDS)}")
        name = "/".join([chain, kind, *(f"{key}={arguments[key]}" for key in sorted(arguments))])
        lock = name if kind in PARALLEL else LAKE_LOCK if kind in OF_LAKE else chain
        priority = 0 if kind in PARALLEL else 1  # ranges may be waiting for days
        job = self.app.configure_task(kind, queue=QUEUE, lock=lock, queueing_lock=name, priority=priority)
        try:
            number = await job.defer_async(chain=chain, **arguments)
        except AlreadyEnqueued:
            return None
        if kind in CLOCKED:
            await self.app.connector.execute_query_async(_REPLACE, name=name)
        return number

    async def record_firing(self, kind: str, chain: str, at: datetime) -> bool:
        """Record a time at which a job is due; False if that time or a later one is recorded.

        Raises:
            StoreError: The time is more than an hour ahead of the database's clock.
        """
        row = await self.app.connector.execute_query_one_async(_FIRE, kind=kind, chain=chain, at=at)
        if row["is_ahead"]:
            reason = f"the clock of this machine ({at:%Y-%m-%d %H:%M}) is far ahead of the database's"
            raise StoreError("queue", reason, remedy="set the clocks of both machines")
        return bool(row["is_new"])

    async def jobs(self) -> list[QueuedJob]:
        """Return all jobs by number; those that succeeded are deleted."""
        return [_job(row) for row in await self.app.connector.execute_query_all_async(_JOBS, id=None)]

    async def job(self, number: int) -> QueuedJob:
        """Return a job. Raises NotFound if there is none."""
        rows = await self.app.connector.execute_query_all_async(_JOBS, id=number)
        if not rows:
            raise NotFound(f"there is no job {number}")
        return _job(rows[0])

    async def retry(self, number: int) -> QueuedJob:
        """Replace a job that ended by a new one with all its attempts, and return the new one.

        The old one is deleted.

        Raises:
            NotFound: There is no such job.
            BadRequest: The job has not ended, or the same job waits already.
        """
        job = await self.job(number)
        if job.status not in ENDED:
            raise BadRequest("job", f"job {number} is {job.status}", remedy="only a job that ended is tried again")
        arguments = {name: value for name, value in job.arguments.items() if name != "chain"}
        new = await self.add(job.kind, job.chain, **arguments)
        if new is None:
            raise BadRequest("job", f"the same job as {number} waits already")
        await self.app.connector.execute_query_async("DELETE FROM procrastinate_jobs WHERE id = %(id)s", id=number)
        return await self.job(new)

    async def cancel(self, number: int) -> None:
        """Cancel a job that waits, or interrupt one that runs.

        Raises:
            NotFound: There is no such job.
            BadRequest: The job has ended.
        """
        job = await self.job(number)
        if not await self.app.job_manager.cancel_job_by_id_async(number, abort=True):
            raise BadRequest(
                "job", f"job {number} is {job.status}", remedy="only a job that waits or runs is cancelled"
            )

    async def drop_twin(self, job: Job) -> None:
        """Delete the same job if it waits, because the same job waits at most once."""
        await self.app.connector.execute_query_async(
            "DELETE FROM procrastinate_jobs WHERE status = 'todo' AND queueing_lock = %(name)s AND id <> %(id)s",
            name=job.queueing_lock,
            id=job.id,
        )

    async def record_error(self, job: Job, reason: str, *, is_temporary: bool = False) -> int:
        """Store why an attempt failed, and return how often the job failed by errors that are not temporary."""
        await self.app.connector.execute_query_async(
            "INSERT INTO job_errors (job_id, attempt, reason, is_temporary)"
            " VALUES (%(id)s, %(attempt)s, %(reason)s, %(is_temporary)s)",
            id=job.id,
            attempt=job.attempts,
            reason=reason,
            is_temporary=is_temporary,
        )
        return await self.failures(job)

    async def failures(self, job: Job) -> int:
        """Return how often a job failed by errors that are not temporary."""
        row = await self.app.connector.execute_query_one_async(
            "SELECT count(*) AS failures FROM job_errors WHERE job_id = %(id)s AND NOT is_temporary", id=job.id
        )
        return int(row["failures"])


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[JobQueue]:
    """Yield the queue in the database of the tail; create its tables first if they are missing.

    Raises:
        BadRequest: The tail is not in PostgreSQL.
        MissingDependency: procrastinate is not installed.
        StoreError: The database is away, or holds the queue of another version.
    """
    if not url.startswith(POSTGRES):
        raise BadRequest("tail", "a queue of jobs needs the tail in PostgreSQL", remedy='[tail] url = "postgresql://…"')
    with needs_extra("workers", "a queue of jobs"):
        from procrastinate import App, PsycopgConnector

    options = f"-c search_path={SCHEMA}"
    await _prepare(url)
    app = App(connector=PsycopgConnector(conninfo=url, kwargs={"options": options}, min_size=1, max_size=4))
    async with app.open_async():
        yield JobQueue(app)


async def _prepare(url: str) -> None:
    """Create the schema of the queue unless it exists; processes wait for each other.

    Raises:
        StoreError: It is of another version, or the database failed.
    """
    import psycopg
    from procrastinate.schema import SchemaManager

    try:
        async with await psycopg.AsyncConnection.connect(url) as connection:
            await connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
            await connection.execute(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}".encode())
            await connection.execute(f"SET LOCAL search_path TO {SCHEMA}".encode())
            await connection.execute(_VERSION.encode())
            await connection.execute(_FIRINGS.encode())
            row = await (await connection.execute("SELECT version FROM queue_version")).fetchone()
            if row is None:
                await connection.execute(SchemaManager.get_schema().encode())
                await connection.execute(_ERRORS.encode())
                await connection.execute("INSERT INTO queue_version VALUES (%s)", (VERSION,))
            elif row[0] != VERSION:
                raise StoreError(
                    "queue",
                    f"its jobs are of version {row[0]}, and this release has version {VERSION}",
                    remedy="run the same release on all workers",
                )
    except psycopg.Error as error:
        raise StoreError("queue", str(error).strip().splitlines()[0][:300]) from None


def _job(row: Mapping[str, Any]) -> QueuedJob:
    """Return the job of a row; `scheduled_at` is None if it is not in the future."""
    scheduled_at = row["scheduled_at"]
    return QueuedJob(
        row["id"],
        row["task_name"],
        row["status"],
        row["args"],
        row["attempts"],
        row["reason"] or "",
        scheduled_at if scheduled_at and scheduled_at > datetime.now(UTC) else None,
        row["added_at"],
    )
