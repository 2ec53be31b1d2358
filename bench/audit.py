"""Compare the responses that clients received with the ledger's record of the same calls."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from bench.tears import Tears
from bench.wire import Response
from chainfolio.storage.state import ledger
from chainfolio.storage.state.database import Database, Statement, Transaction

# Other than statuses: no response yet, an incomplete one, the client did not wait, or cut the connection.
ASKED, LOST, LEFT, TORN = -1, 0, -2, -3
REPLAYED, CLOSED, CHANGE = 1, 2, 4
# Kinds of calls that are left at every byte of their answers: one of each route and outcome.
TORN_KINDS = (
    "quick",
    "virtual 1",
    "read /v1/addressbook",
    "read /v1/bundles",
    "change add",
    "change rename",
    "change remove",
    "change bundle",
    "change bundle name",
    "change bundle away",
    "subscribe",
    "refused",
)
MOMENT_S = 1.0  # of those who closed their line this long before a kill, the last call may have been unsettled
PAGE = 50_000

_CALLS = Statement(
    sa.text(
        "SELECT reserved.amount, reserved.memo, settled.kind FROM ledger reserved "
        "LEFT JOIN ledger settled ON settled.call_id = reserved.call_id AND settled.kind IN ('post', 'void', 'expire') "
        "WHERE reserved.kind = 'reserve' AND reserved.id > :after AND reserved.id <= :last ORDER BY reserved.id"
    )
)
_PAGE_END = Statement(
    sa.text("SELECT max(id) FROM (SELECT id FROM ledger WHERE id > :after ORDER BY id LIMIT :most) page")
)
_MADE = Statement(sa.text("SELECT description FROM subscriptions"))
_NAMES = Statement(sa.text("SELECT label FROM addressbook UNION ALL SELECT name FROM bundles"))
_TWICE = Statement(
    sa.text(
        "SELECT count(*) FROM (SELECT call_id FROM ledger WHERE kind IN ('post', 'void', 'expire') "
        "GROUP BY call_id HAVING count(*) > 1) doubled"
    )
)


@dataclass(slots=True)
class Record:
    """Columns of all calls, by number. `key` is the number of the Idempotency-Key, 0 for none."""

    status: array[int] = field(default_factory=lambda: array("h"))
    cost: array[int] = field(default_factory=lambda: array("h"))
    key: array[int] = field(default_factory=lambda: array("i"))
    worker: array[int] = field(default_factory=lambda: array("i"))
    flags: array[int] = field(default_factory=lambda: array("b"))
    began_s: array[float] = field(default_factory=lambda: array("d"))
    ended_s: array[float] = field(default_factory=lambda: array("d"))
    keys: int = 0
    changes: int = 0
    subscribed: dict[int, int] = field(default_factory=dict)  # number of the subscription that a call makes
    name_calls: dict[str, list[int]] = field(default_factory=dict)  # calls by the unique name that they give
    tears: Tears = field(default_factory=lambda: Tears(TORN_KINDS))
    workers: set[int] = field(default_factory=set)  # process ids that have answered

    def __len__(self) -> int:
        return len(self.status)

    def begin(self, cost: int, key: int, now_s: float, flags: int = 0) -> int:
        """Record a call before it is sent; return its number. `cost` is in credits, if it succeeds."""
        for column, value in (
            (self.status, ASKED),
            (self.cost, cost),
            (self.key, key),
            (self.worker, 0),
            (self.flags, flags),
        ):
            column.append(value)
        self.began_s.append(now_s)
        self.ended_s.append(0.0)
        return len(self.status) - 1

    def end(self, number: int, answer: Response | int, now_s: float) -> None:
        """Record the end of a call: a complete response, LOST or LEFT."""
        self.ended_s[number] = now_s
        if isinstance(answer, int):
            self.status[number] = answer
            return
        self.status[number] = answer.status
        self.worker[number] = int(answer.headers[b"x-worker"])
        self.workers.add(self.worker[number])
        self.flags[number] |= REPLAYED if b"idempotency-replayed" in answer.headers else 0

    def went_well(self, number: int) -> bool:
        """Return True if a complete response with status 2xx arrived."""
        return 200 <= self.status[number] < 300


def request_id(number: int) -> str:
    """Return the request id of a call, which the ledger stores."""
    return f"call-{number}"


@dataclass(slots=True)
class Audit:
    """Result of the comparison. All counts except `unbilled`, `late` and the totals must be 0.

    A read is charged if the whole response was sent; a change is charged if it was made.
    """

    calls: int
    statuses: Counter[int]
    kills: int
    charged_unreceived: int = 0  # reads without a complete 2xx although the client waited
    made: int = 0  # subscriptions, 1,200 credits each
    free: int = 0  # subscriptions and names without a charge
    names: int = 0  # names of entries and bundles that exist at the end
    unmade: int = 0  # subscriptions that were charged and do not exist
    bought_twice: int = 0
    torn: int = 0  # calls whose client left in the middle of the response
    offsets: tuple[int, int] = (0, 0)  # number of cut offsets of responses, and of all offsets
    unmet: dict[str, int] = field(default_factory=dict)  # number of offsets without a cut, by kind of call
    charged_wrongly: int = 0  # calls with another charge than their price
    charged_twice: int = 0
    settled_twice: int = 0
    keys_charged_twice: int = 0
    keys_charged: int = 0
    unknown: int = 0  # reservations without a call
    unbilled: int = 0  # complete 2xx without a charge
    late: int = 0  # unbilled calls that took longer than a reservation lasts
    in_flight: int = 0  # calls that were cut off, or just settled, when their server was killed
    worst: str = ""  # a kill with more unbilled calls than calls in flight
    totals: dict[str, tuple[int, int]] = field(default_factory=dict)
    unsound: list[str] = field(default_factory=list)
    lowest: int = 0
    still_held: int = 0
    took_s: float = 0.0

    @property
    def is_sound(self) -> bool:
        """True if no call was charged wrongly or twice, and no record is missing."""
        counts = (
            self.charged_unreceived,
            self.charged_wrongly,
            self.charged_twice,
            self.settled_twice,
            self.keys_charged_twice,
            self.unknown,
            self.still_held,
            self.free,
            self.unmade,
            self.bought_twice,
        )
        return not any(counts) and not self.unsound and self.lowest >= 0

    @property
    def is_billed(self) -> bool:
        """True if the kills explain all calls that were not charged."""
        return self.unbilled - self.late <= self.in_flight and not self.worst


def audit(database: Database, record: Record, killed: Sequence[tuple[float, int]], hold_s: int) -> Audit:
    """Compare every call with the ledger. `killed` has moments (seconds since 1970) and process ids."""
    result = Audit(len(record), Counter(record.status), len(killed))
    posted = _posted(database, record, result)
    _keyed(record, posted, result)
    _changed(database, record, posted, result)
    _unbilled(record, posted, killed, hold_s, result)
    ((result.settled_twice,),) = database.read(lambda tx: tx.rows(_TWICE))
    result.totals = database.read(ledger.totals)
    result.unsound = database.read(ledger.check)
    return result


def _posted(database: Database, record: Record, result: Audit) -> bytearray:
    """Return the number of charges of each call; count unknown and double ones in `result`."""
    posted = bytearray(len(record))
    for amount, memo, kind in reservations(database):
        name = memo.rpartition(" ")[2]
        number = int(name.removeprefix("call-")) if name.startswith("call-") else -1
        if not 0 <= number < len(record):
            result.unknown += 1
        elif kind == "post":
            posted[number] += 1
            stayed = record.status[number] != TORN and not record.flags[number] & CHANGE
            result.charged_unreceived += stayed and not record.went_well(number)
            result.charged_wrongly += amount != record.cost[number]
    result.charged_twice = sum(times > 1 for times in posted)
    return posted


def reservations(database: Database) -> Iterator[tuple[int, str, str | None]]:
    """Yield amount, memo and end (None while open) of every reservation; a page is read at a time."""
    after, rows = _page(database, 0)
    while rows is not None:
        yield from rows
        after, rows = _page(database, after)


def _page(database: Database, after: int) -> tuple[int, list[tuple[Any, ...]] | None]:
    """Return the last id of a page after `after` and its rows; None for rows after the last page."""

    def read(tx: Transaction) -> tuple[int, list[tuple[Any, ...]] | None]:
        ((last,),) = tx.rows(_PAGE_END, after=after, most=PAGE)
        return (after, None) if last is None else (last, tx.rows(_CALLS, after=after, last=last))

    return database.read(read)


def _keyed(record: Record, posted: bytearray, result: Audit) -> None:
    charged = Counter(record.key[number] for number, times in enumerate(posted) if times and record.key[number])
    result.keys_charged = len(charged)
    result.keys_charged_twice = sum(times > 1 for times in charged.values())


def _changed(database: Database, record: Record, posted: bytearray, result: Audit) -> None:
    """Compare subscriptions and names with the charges of their calls; store the counts in `result`."""
    created = {int(text.removeprefix("change ")) for (text,) in database.read(lambda tx: tx.rows(_MADE))}
    charges = Counter(dict.fromkeys(record.subscribed.values(), 0))
    for number, change in record.subscribed.items():
        charges[change] += posted[number]
    bought = {change for change, times in charges.items() if times}
    result.made, result.free, result.unmade = len(created), len(created - bought), len(bought - created)
    result.bought_twice = sum(times > 1 for times in charges.values())
    names = [name for (name,) in database.read(lambda tx: tx.rows(_NAMES))]
    result.names = len(names)
    result.free += sum(not any(posted[number] for number in record.name_calls[name]) for name in names)
    result.torn, result.offsets, result.unmet = record.tears.count, record.tears.covered, record.tears.unmet


def _unbilled(
    record: Record, posted: bytearray, killed: Sequence[tuple[float, int]], hold_s: int, result: Audit
) -> None:
    """Count in `result` the calls with 2xx that cost nothing, and the calls in flight at each kill.

    Of a key that was answered with 2xx, one attempt is charged. `worst` names a process with more of the former.
    """
    moments = [at for at, _ in killed]
    last_s = {worker: at for at, worker in killed}
    in_flight, unbilled = Counter[int](), Counter[int]()
    keys = {record.key[number] for number, times in enumerate(posted) if times}
    free_keys = set[int]()
    for number, status in enumerate(record.status):
        worker, flags = record.worker[number], record.flags[number]
        if status == LOST and (at := bisect_right(moments, record.ended_s[number])):
            in_flight[killed[at - 1][1]] += 1
        elif flags & CLOSED and worker in last_s and last_s[worker] - MOMENT_S < record.ended_s[number]:
            in_flight[worker] += 1
        if not record.went_well(number) or posted[number] or not record.cost[number]:
            continue
        if key := record.key[number]:
            if key in keys or key in free_keys:
                continue
            free_keys.add(key)
        result.unbilled += 1
        if record.ended_s[number] - record.began_s[number] >= hold_s - 1:
            result.late += 1
        elif not flags & REPLAYED:
            unbilled[worker] += 1
    result.in_flight = in_flight.total()
    result.worst = next(
        (
            f"process {worker}: {count} unbilled, {in_flight[worker]} in flight"
            for worker, count in unbilled.items()
            if count > in_flight[worker]
        ),
        "",
    )
