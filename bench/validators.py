"""Measure validators: an index of some, a whole network for one epoch, and a year of one by day.

python -m bench.validators [--epochs 1000] [--network 1000000] [--years-of 1000] [--repeat 9] [--parts rate …]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import uvloop

from bench import beacon_states, runs
from bench.beacon_node import SLOTS
from bench.figures import Figure, main, options, spread
from bench.places import ROOT, scratch
from chainfolio.adapters.beacon.settings import BeaconSettings
from chainfolio.blocks import Block, Span
from chainfolio.chain_results import Heads
from chainfolio.chains import Chain
from chainfolio.engine.validators.records import ValidatorRecords
from chainfolio.engine.validators.results import Range, Window
from chainfolio.indexer.wiring import System
from chainfolio.settings import Settings
from chainfolio.staking_tables import VALIDATOR_REWARDS, VALIDATORS
from chainfolio.storage.lake import Lake
from chainfolio.validators import HasValidators, SlotClock, ValidatorNow

PARTS = ("rate", "network", "year", "states")
CHAIN, AT_ONCE = "own", 16
SOME, AMONG = 100, 20_011  # validators that are indexed, and all that there are: a prime, so that all propose in turn
BEGIN = 5  # the first epoch that is read
MIN_RATE, MAX_GIB, MAX_CPU_S, MAX_BYTES, MAX_YEAR_S = 0.6, 1.5, 10.0, 8.0, 0.05
YEAR, EPOCH_S, GENESIS_S = 82_125, 384, 1_606_824_023
EPOCHS_AT_ONCE = 4_000


@contextmanager
def network(validators: int, head: int, *options: str) -> Iterator[str]:
    """Run a node in a separate process within the context; yield its URL."""
    command = [sys.executable, "-m", "bench.beacon_node", "--validators", str(validators), "--head", str(head)]
    command += options
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.kill()


def index(
    folder: Path,
    url: str,
    first: int,
    last: int,
    validators: Sequence[str],
    *,
    watched: bool = False,
    command: Sequence[str] = (),
) -> runs.Run:
    """Run the index command, or another command in place of `chainfolio`.

    Watching its memory takes a tenth of a core, so not when speed is compared.
    """
    config = folder / "chainfolio.toml"
    setting = f"validators = {json.dumps(list(validators))}\n" if validators else ""
    config.write_text(
        f'data = "{folder / "data"}"\n[chains.{CHAIN}]\nadapter = "beacon"\nrpc = ["{url}"]\n'
        f"start_block = {first}\n{setting}"
    )
    arguments = ["index", CHAIN, "--from", str(first), "--to", str(last), "--config", str(config), "--json"]
    return runs.run(
        [*(command or runs.product()), *arguments], runs.environment(), limit_s=3600, watched=watched
    ).checked()


def stored(folder: Path) -> pa.Table:
    """Return the rewards in the index."""
    lake = Lake(str(folder / "data" / "lake"))
    rows: pa.Table = lake.scan(VALIDATOR_REWARDS, chain=CHAIN).select(VALIDATOR_REWARDS.names).collect().to_arrow()
    return rows


# --- some validators of an archive node ------------------------------------------------------------------------------


def rate(chosen: argparse.Namespace) -> list[Figure]:
    """Compare indexing 100 validators with fetching the same responses by two clients."""
    first, last = BEGIN * SLOTS, (BEGIN + chosen.epochs) * SLOTS - 1
    validators = [str(each * 199) for each in range(SOME)]
    with network(AMONG, last + 10 * SLOTS) as url, scratch() as folder:
        ran = index(folder, url, first, last, validators)
        with urllib.request.urlopen(f"{url}/local/log") as answer:
            request_log = answer.read()
        (folder / "asked.json").write_bytes(request_log)
        fetched, cpu_s = dict[str, float](), dict[str, float]()
        for client in ("aiohttp", "ours"):
            command = [sys.executable, "-m", "bench.validators", "--fetch", client, "--log", str(folder / "asked.json")]
            result = runs.run([*command, "--url", url], runs.environment(), limit_s=3600).checked()
            fetched[client], cpu_s[client] = float(result.output), result.cpu_s
        rows = stored(folder)
    wrong = sum(each != 0 for each in rows.column("unexplained").to_pylist())
    count, best = len(json.loads(request_log)), min(fetched.values())
    ratio = best / ran.wall_s
    name = f"{chosen.epochs:,} epochs x {SOME} validators of {AMONG:,}, blocks of 73 kB"
    return [
        Figure(
            "validators",
            f"{name}: rate / that of fetching the same {count:,} answers, {AT_ONCE} at once, with the "
            "faster of two clients",
            f"{ratio:.2f} ({ran.wall_s:.1f} s, CPU {ran.cpu_s:.1f}; {best:.1f} s, "
            f"CPU {cpu_s[min(fetched, key=fetched.__getitem__)]:.1f})",
            f"≥ {MIN_RATE}",
            ratio >= MIN_RATE,
            {"fetched_s": fetched, "fetched_cpu_s": cpu_s},
        ),
        Figure(
            "validators",
            f"{name}: rows; balances that do not close",
            f"{len(rows):,}; {wrong}",
            f"{SOME * chosen.epochs:,}; 0",
            (len(rows), wrong) == (SOME * chosen.epochs, 0),
        ),
    ]


async def fetch(client: str, url: str, log: bytes) -> float:
    """Return the seconds for fetching the responses to logged requests, without decoding."""
    requests = [(path, body and body.encode()) for path, body in json.loads(log)]
    clients: dict[str, Callable[..., Any]] = {"aiohttp": _by_aiohttp, "ours": _by_transport}
    pending = iter(requests)
    begin_s = time.perf_counter()
    await clients[client](url, pending)
    return time.perf_counter() - begin_s


async def _by_aiohttp(url: str, pending: Iterator[tuple[str, bytes | None]]) -> None:
    import aiohttp

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=AT_ONCE)) as session:

        async def work() -> None:
            for path, body in pending:
                async with session.request("POST" if body else "GET", url + path, data=body) as answer:
                    await answer.read()

        await asyncio.gather(*(work() for _ in range(AT_ONCE)))


async def _by_transport(url: str, pending: Iterator[tuple[str, bytes | None]]) -> None:
    from chainfolio.transport.http import HttpTransport

    transport = HttpTransport(connections=AT_ONCE)

    async def work() -> None:
        for path, body in pending:
            posted = await (
                transport.post("node", url + path, body, 60) if body else transport.get("node", url + path, 60)
            )
            posted.give_back()

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))
    await transport.close()


# --- a whole network -------------------------------------------------------------------------------------------------


def whole_network(chosen: argparse.Namespace) -> list[Figure]:
    """Index all validators of a network from nodes with JSON only, and with SSZ; compare the rows."""
    json_figures, rows_told = _network_by(chosen, "JSON")
    figures, rows = _network_by(chosen, "SSZ", "--ssz")
    is_same = rows.equals(rows_told)
    name = f"a network of {chosen.network:,} validators: rows of states in SSZ are those of states in JSON"
    return [*json_figures, *figures, Figure("validators", name, "yes" if is_same else "no", "yes", is_same)]


def _network_by(chosen: argparse.Namespace, form: str, *options: str) -> tuple[list[Figure], pa.Table]:
    """Measure memory, processor time and bytes of an epoch and one more; return also the first one's rows."""
    first = BEGIN * SLOTS
    with network(chosen.network, first + 10 * SLOTS, *options) as url:
        with scratch() as folder:
            result = index(folder, url, first, first + SLOTS - 1, (), watched=True)
            rows = stored(folder)
            count, wrong = len(rows), sum(each != 0 for each in rows.column("unexplained").to_pylist())
            files = (folder / "data" / "lake" / VALIDATOR_REWARDS.name).rglob("*.parquet")
            size = sum(each.stat().st_size for each in files)
        with scratch() as folder:
            two = index(folder, url, first, first + 2 * SLOTS - 1, (), watched=True)
    peak_gib, more_s = max(result.peak_mb, two.peak_mb) / 1024, two.cpu_s - result.cpu_s
    name = f"a network of {chosen.network:,} validators, states in {form}"
    figures = [
        Figure(
            "validators",
            f"{name}: peak memory of the command, GiB",
            f"{peak_gib:.2f}",
            f"≤ {MAX_GIB}",
            peak_gib <= MAX_GIB,
        ),
        Figure(
            "validators",
            f"{name}: processor time of an epoch that follows another, s",
            f"{more_s:.1f} (wall {two.wall_s - result.wall_s:.1f})",
            f"≤ {MAX_CPU_S:.0f}",
            more_s <= MAX_CPU_S,
        ),
        Figure(
            "validators",
            f"{name}: processor time of the first epoch, with two registries, two lists of balances "
            "and the start of Python, s",
            f"{result.cpu_s:.1f} (wall {result.wall_s:.1f})",
            f"≤ {MAX_CPU_S:.0f}",
            result.cpu_s <= MAX_CPU_S,
        ),
        Figure(
            "validators",
            f"{name}: bytes a row of rewards",
            f"{size / count:.2f}",
            f"≤ {MAX_BYTES:.0f}",
            size / count <= MAX_BYTES,
        ),
        Figure(
            "validators",
            f"{name}: rows; balances that do not close",
            f"{count:,}; {wrong}",
            f"{chosen.network:,}; 0",
            (count, wrong) == (chosen.network, 0),
        ),
    ]
    return figures, rows.sort_by([("validator", "ascending"), ("epoch", "ascending")])


# --- a year of one validator -----------------------------------------------------------------------------------------


HEAD = Block((YEAR + 3) * SLOTS, "0x" + "11" * 32, "0x" + "10" * 32, (GENESIS_S + (YEAR + 3) * EPOCH_S) * 10**6)


class ActiveChain:
    """A chain on which all validators are active, with the methods that records need."""

    key, settings, settled_after = CHAIN, BeaconSettings(adapter="beacon"), 3

    async def heads(self) -> Heads:
        """Return a head one year after the first slot."""
        return Heads(HEAD, HEAD.height)

    async def slot_clock(self) -> SlotClock:
        """Return the slot clock of mainnet."""
        return SlotClock(GENESIS_S, 12, SLOTS)

    async def validator(self, index: int | str) -> ValidatorNow:
        """Return an active validator with 32 ETH for any index."""
        return ValidatorNow(
            int(index),
            f"0x{int(index):096x}",
            "active_ongoing",
            False,
            32 * 10**9,
            32 * 10**9,
            "0x01" + "0" * 62,
            0,
            None,
            None,
        )

    async def validators_of(self, filters: Sequence[str]) -> tuple[int, ...]:
        """Return the filters as indexes."""
        return tuple(map(int, filters))


def year(chosen: argparse.Namespace) -> list[Figure]:
    """Measure a year by day of one validator among 1,000 with 82,125 epochs each."""
    with scratch() as folder:
        settings = BeaconSettings(adapter="beacon", rpc=["http://127.0.0.1:1"])
        system = System(Settings(data=str(folder), chains={CHAIN: settings}))
        rows = fill(system.lake, chosen.years_of)
        system.tail.set_anchor(CHAIN, HEAD)
        for table in (VALIDATOR_REWARDS, VALIDATORS):
            system.tail.add_ranges(CHAIN, [(table.name, "")], Span(0, HEAD.height))
        took, buckets = asyncio.run(year_by_day(system, chosen.years_of, chosen.repeat))
    name = f"365 days of a validator by day, from {rows:,} rows of {chosen.years_of:,} validators"
    middle = sorted(took)[len(took) // 2]
    return [
        Figure(
            "validators",
            f"{name}: ms",
            spread([each * 1000 for each in took], 0),
            f"≤ {MAX_YEAR_S * 1000:.0f}",
            middle <= MAX_YEAR_S,
        ),
        Figure("validators", f"{name}: days that the year touches", f"{buckets}", "366", buckets == 366),
    ]


def fill(lake: Lake, validators: int) -> int:
    """Store a year of rewards as the product does, and return the number of rows."""
    chance, schema = np.random.default_rng(3), VALIDATOR_REWARDS.schema()
    indexes = np.arange(validators)
    for batch, begin in enumerate(range(0, YEAR, EPOCHS_AT_ONCE), 1):
        count = min(EPOCHS_AT_ONCE, YEAR - begin)
        validator, epoch = np.repeat(indexes, count), np.tile(np.arange(begin, begin + count), validators)
        luck = chance.integers(0, 1000, len(validator))
        zero = np.zeros(len(validator), np.int64)
        columns: dict[str, Any] = {
            "bucket": validator % 64,
            "validator": validator,
            "epoch": epoch,
            "height": (epoch + 3) * SLOTS,
            "source": np.where(luck < 3, -2_500, 2_500),
            "target": np.where(luck < 3, -4_700, 4_700),
            "head": np.where(luck < 15, 0, 2_500 + luck % 7),
            "ideal": zero + 9_706,
            "effective": zero + 32 * 10**9,
        }
        arrays = [
            pa.repeat(pa.scalar(CHAIN), len(validator))
            if each.name == "chain"
            else pa.array(columns.get(each.name, zero)).cast(each.type)
            for each in schema
        ]
        rows = pa.Table.from_arrays(arrays, schema=schema)
        lake.append(VALIDATOR_REWARDS, rows, stream=f"{CHAIN}/bench", batch=batch)
    lake.compact(VALIDATOR_REWARDS, CHAIN)
    return lake.count(VALIDATOR_REWARDS)


async def year_by_day(system: System, validators: int, repeat: int) -> tuple[list[float], int]:
    """Return the seconds of each read of a year by day, and the number of days of the last one."""
    chain = ActiveChain()
    records = ValidatorRecords(system.lake, system.tail, cast("Chain", chain), cast("HasValidators", chain))
    took, days = [], 0
    for each in range(repeat + 1):
        begin_s = time.perf_counter()
        page = await records.rewards(each * 97 % validators, Range("epoch", 0, YEAR - 1, "day"), Window(0, 366))
        took.append(time.perf_counter() - begin_s)
        days = len(page.rows)
    return took[1:], days


def run(chosen: argparse.Namespace) -> list[Figure]:
    """Measure, and return the figures."""
    parts: dict[str, Callable[[argparse.Namespace], list[Figure]]] = {
        "rate": rate,
        "network": whole_network,
        "year": year,
    }
    parts["states"] = lambda told: beacon_states.run(told.network, told.repeat)
    return [figure for part in chosen.parts for figure in parts[part](chosen)]


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark to a parser."""
    parser.add_argument("--epochs", type=int, default=1_000)
    parser.add_argument("--network", type=int, default=1_000_000, help="validators of the whole network")
    parser.add_argument("--years-of", type=int, default=1_000, help="validators with a year of rows")
    parser.add_argument("--repeat", type=int, default=9, help="years that are asked for")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--fetch", choices=("aiohttp", "ours"), help=argparse.SUPPRESS)
    parser.add_argument("--log", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)


if __name__ == "__main__":
    if "--fetch" in sys.argv:
        child = options(__doc__, add, sys.argv[1:])
        print(uvloop.run(fetch(child.fetch, child.url, child.log.read_bytes())))
    else:
        main(__doc__, run, add)
