"""Check the ledger under mixed calls over servers that are killed at random: wrong and double charges.

python -m bench.ledger [--calls 1000000] [--clients 64] [--every 10] [--seed N] [--postgres URL]

Clients record for every call whether its complete response arrived. Then the ledger is compared with that record.
Clients read the response, leave long before it, or cut the connection after some of its bytes. This continues until
they have cut at each byte of the responses to each kind of call. Bytes that the operating system has taken from a
server count as sent: a client that discards them may be charged for the read. A change is charged if it was made,
whether its response arrived or not.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import time
from dataclasses import dataclass
from functools import partial

import sqlalchemy as sa
import uvloop

from bench.audit import TORN_KINDS, Audit, Record, audit
from bench.figures import Figure, main
from bench.fleet import Fleet, fleet, opened
from bench.load_client import LoadClient, SharedKeys
from bench.places import scratch
from chainfolio.storage.state import State, virtual_users
from chainfolio.storage.state.database import Statement, Transaction
from chainfolio.storage.state.meter import SWEEP_S

SERVERS = 3
CALLS_A_KEY, MAX_KEYS = 100, 24  # so that no key reaches its limit
RICH = 10**9
LOOK_S = 0.1
EURO = b'[{"symbol":"EUR","amount":"10","priceUsd":"1.08"}]'
_LOWEST = Statement(sa.text("SELECT min(available), min(held), min(earned) FROM balances"))
_HELD = Statement(sa.text("SELECT sum(held) FROM balances"))


def run(options: argparse.Namespace) -> list[Figure]:
    """Measure, and return the figures."""
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")
    with scratch() as folder:
        url = options.postgres or f"sqlite:///{folder}/state.db"
        result = measured(url, Trial(options.calls, options.clients, options.every, options.hold, seed))
    return _figures(result, f"{options.clients} clients, {SERVERS} servers on {url.partition(':')[0]}, seed {seed}")


@dataclass(frozen=True)
class Trial:
    """Minimum numbers of calls and kills of a run; a server is killed every `every_s` seconds on average.

    An open reservation expires after `hold_s`. With `every_offset` the run continues until a response was cut
    at each of its bytes, or for three times as many calls.
    """

    calls: int
    clients: int
    every_s: float
    hold_s: int
    seed: int
    kills: int = 1
    every_offset: bool = True


def measured(url: str, trial: Trial) -> Audit:
    """Make calls and kill servers; then compare calls with the ledger."""
    state = opened(url, trial.hold_s)
    try:
        shared = _shared(state, trial.clients, trial.calls)
        with fleet(url, SERVERS, trial.hold_s) as servers:
            return uvloop.run(_Run(servers, state, trial).all(shared))
    finally:
        state.close()


def _shared(state: State, clients: int, calls: int) -> SharedKeys:
    """Create an account for each two clients, and one for all, whose few credits soon run out."""
    keys = max(1, min(MAX_KEYS, calls // clients // CALLS_A_KEY))
    owners: list[tuple[list[str], str]] = []
    for number in range((clients + 1) // 2):
        account, tokens = _account(state, f"bench {number}", RICH, 2 * keys)
        users = [f"0b5a2c1e-7d0f-4c58-9a0e-{number:06x}{each:06x}" for each in range(4)]
        state.database.write(partial(_add_users, account, users))
        owners.append((tokens, ",".join(f"virtual:{user}" for user in users)))
    return SharedKeys(owners, _account(state, "bench poor", max(10, calls // 100), keys)[1])


def _add_users(account: str, ids: list[str], tx: Transaction) -> None:
    for id in ids:
        virtual_users.add(tx, account, id, "CEX", "", EURO, 0)


def _account(state: State, name: str, credits: int, keys: int) -> tuple[str, list[str]]:
    account, token = state.create_account(name, "PRO", credits, ["portfolio"])
    return account.id, [token, *(state.create_key(account.id, "more")[1] for _ in range(keys - 1))]


class _Run:
    """One run: clients make calls, servers are killed, and a task reads the lowest balance."""

    def __init__(self, servers: Fleet, state: State, trial: Trial) -> None:
        self.servers, self.state, self.trial, self.chance = servers, state, trial, random.Random(trial.seed)
        self.lowest, self.over, self.seen = 0, asyncio.Event(), asyncio.Event()

    async def all(self, shared: SharedKeys) -> Audit:
        """Make calls and kill servers until both minimums are reached, and compare."""
        record, servers, trial = Record(), self.servers, self.trial
        load_clients = [
            LoadClient(number, servers.port, shared, record, random.Random(self.chance.random()))
            for number in range(trial.clients)
        ]
        began_s = time.monotonic()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch())
            async with asyncio.TaskGroup() as work:
                work.create_task(self._kill(record))
                for each in load_clients:
                    work.create_task(each.run_until(self.over))
                while len(record) < trial.calls or len(servers.killed) < trial.kills or self._lacks_tears(record):
                    await _is_set_within(self.over, LOOK_S / 2)
                took_s = time.monotonic() - began_s
                self.over.set()
            reservations = await self._open_reservations()
            self.seen.set()
        result = audit(self.state.database, record, servers.killed, servers.hold_s)
        result.lowest, result.took_s, result.still_held = self.lowest, took_s, reservations
        return result

    def _lacks_tears(self, record: Record) -> bool:
        """Return True if some offset of a response was never cut, and the trial permits more calls."""
        is_below_limit = len(record) < 3 * self.trial.calls
        return self.trial.every_offset and is_below_limit and record.tears.most_lacking is not None

    async def _kill(self, record: Record) -> None:
        """Kill one server at random times, in one of ten cases two at once.

        It waits until all servers answer: if servers start slowly, none would remain otherwise.
        """
        while not await _is_set_within(self.over, self.chance.uniform(0.2, 1.8) * self.trial.every_s):
            if self.servers.starting(record.workers):
                continue
            for _ in range(2 if self.chance.random() < 0.1 else 1):
                await asyncio.to_thread(self.servers.kill_one, self.chance)

    async def _watch(self) -> None:
        """Store the lowest balance of any account in `lowest` (0 if none was negative) until the run is over."""
        while not await _is_set_within(self.seen, LOOK_S):
            (row,) = await self.state.read(lambda tx: tx.rows(_LOWEST))
            self.lowest = min(self.lowest, *row)

    async def _open_reservations(self) -> int:
        """Wait until no reservation is open; return the number of those open after the longest time."""
        last_s = time.monotonic() + self.servers.hold_s + 3 * SWEEP_S
        while True:
            ((reservations,),) = await self.state.read(lambda tx: tx.rows(_HELD))
            if not reservations or time.monotonic() > last_s:
                return int(reservations)
            await asyncio.sleep(LOOK_S)


async def _is_set_within(event: asyncio.Event, seconds: float) -> bool:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)
    return event.is_set()


def _figures(result: Audit, subject: str) -> list[Figure]:
    amounts = {kind: amount for kind, (amount, _) in result.totals.items()}
    final_amounts = [amounts[kind] for kind in ("post", "void", "expire")]
    double_charges = result.charged_twice + result.settled_twice + result.keys_charged_twice
    complete = sum(times for status, times in result.statuses.items() if 200 <= status < 300)
    detail = {
        "statuses": dict(result.statuses),
        "totals": result.totals,
        "unsound": result.unsound,
        "worst": result.worst,
        "unmet": result.unmet,
    }
    return [
        Figure(
            "ledger",
            f"{result.calls:,} calls, {result.kills} kills, {subject}: charged without a whole 2xx at the "
            "client; charged twice",
            f"{result.charged_unreceived}; {double_charges} of {result.totals['post'][1]:,}",
            "0; 0",
            result.charged_unreceived == double_charges == 0 and result.is_sound,
            detail,
        ),
        Figure(
            "ledger",
            "charged twice: calls; Idempotency-Keys",
            f"{result.charged_twice + result.settled_twice}; {result.keys_charged_twice} of {result.keys_charged:,}",
            "0; 0",
            double_charges == 0,
            in_readme=False,
        ),
        Figure(
            "ledger",
            "credits reserved = posted + voided + expired; wrong amounts; lowest balance",
            f"{amounts['reserve']:,} = {' + '.join(f'{part:,}' for part in final_amounts)}; {result.charged_wrongly}; "
            f"{result.lowest}",
            "equal; 0; 0",
            result.is_sound and amounts["reserve"] == sum(final_amounts),
            in_readme=False,
        ),
        Figure(
            "ledger",
            f"changes of 1,200 credits among them, {result.torn:,} calls left after 0, 1, 2 … bytes of the "
            f"answer: made for nothing; paid but not made; paid twice",
            f"{result.free}; {result.unmade}; "
            f"{result.bought_twice} of {result.made:,} subscriptions and {result.names:,} names, at "
            f"{result.offsets[0]:,} of {result.offsets[1]:,} offsets "
            f"of the answers to {len(TORN_KINDS)} kinds of calls",
            "0; 0; 0; all",
            result.free == result.unmade == result.bought_twice == 0 and result.offsets[0] == result.offsets[1],
        ),
        Figure(
            "ledger",
            "2xx that nobody paid",
            f"{result.unbilled:,} of {complete:,}, {result.late} for being late",
            f"≤ {result.in_flight:,} in flight at the kills",
            result.is_billed,
        ),
        Figure("ledger", "calls/s", f"{result.calls / result.took_s:,.0f}"),
    ]


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark to a parser."""
    parser.add_argument("--calls", type=int, default=1_000_000)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--every", type=float, default=10.0, help="seconds between kills, on average")
    parser.add_argument("--hold", type=int, default=10, help="seconds after which an unsettled reservation expires")
    parser.add_argument("--seed", type=int, help="of calls and moments")
    parser.add_argument("--postgres", default="", metavar="URL", help="an empty database, instead of an SQLite file")


if __name__ == "__main__":
    main(__doc__, run, add)
