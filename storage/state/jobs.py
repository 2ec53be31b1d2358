"""The last run of each recurring job, over all processes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa

from chainfolio.storage.state import schema
from chainfolio.storage.state.database import Statement, Transaction, Value, argument

STOPPED: Final = "stopped before its end"  # the error of a run whose process or chain was stopped


@dataclass(frozen=True, slots=True)
class JobRun:
    """The last run of a job. `chain` is empty for a job of no chain.

    Attributes:
        began_us: Begin of the last run.
        ended_us: End of the last run that has ended, with its duration and its error; None before.
        error: Why that run failed or was stopped; empty if it succeeded.
    """

    name: str
    chain: str
    began_us: int
    ended_us: int | None
    duration_us: int | None
    error: str

    @property
    def has_failed(self) -> bool:
        """True if the last run that has ended failed: neither succeeded nor was stopped."""
        return is_failure(self.error)

    @property
    def is_running(self) -> bool:
        """True if no end of the last run is known: it lasts, or its process was killed."""
        return self.ended_us is None or self.ended_us < self.began_us


def is_failure(error: str) -> bool:
    """Return True if the error of a run means a failure; a run that was stopped did not fail."""
    return error not in ("", STOPPED)


_TABLE = schema.jobs
_ALL = Statement(sa.select(*[_TABLE.c[name] for name in JobRun.__slots__]).order_by(_TABLE.c.name, _TABLE.c.chain))
_OF = sa.and_(_TABLE.c.name == argument("job"), _TABLE.c.chain == argument("of_chain"))
_BEGIN = Statement(_TABLE.update().where(_OF).values(began_us=argument("began")))
_SET = Statement(
    _TABLE.update()
    .where(_OF)
    .values(
        began_us=argument("began"),
        ended_us=argument("ended"),
        duration_us=argument("duration"),
        error=argument("reason"),
    )
)
_ADD = Statement(_TABLE.insert())


def every(tx: Transaction) -> list[JobRun]:
    """Return the last run of each job that ever ran, by name and chain."""
    return [JobRun(*row) for row in tx.rows(_ALL)]


def store(tx: Transaction, run: JobRun) -> None:
    """Store the begin or the end of a run of a job on a chain, in the place of the run before.

    A begin keeps the result of the run before.
    """
    of: dict[str, Value] = {"job": run.name, "of_chain": run.chain, "began": run.began_us}
    if run.is_running:
        changed = tx.run(_BEGIN, **of)
    else:
        changed = tx.run(_SET, **of, ended=run.ended_us, duration=run.duration_us, reason=run.error)
    if not changed:
        values: dict[str, Value] = {name: getattr(run, name) for name in JobRun.__slots__}
        tx.run(_ADD, **values)
