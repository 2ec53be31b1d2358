"""Measure gains of an account with a million transactions, by every method: time, memory, linearity.

python -m bench.pnl [--entries 1000000] [--assets 1000] [--methods fifo uk]
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import time
from collections.abc import Iterator

from bench.figures import Figure, main
from chainfolio.contracts import GAIN_METHODS
from chainfolio.portfolio.pnl.entries import MONEY_DIGITS, Entry, Kind
from chainfolio.portfolio.pnl.methods import gains_of

MAX_S, MAX_MB = 60.0, 2048
SMALL = 10  # how many times fewer entries the comparison has
MAX_GROWTH = 1.25  # of the time an entry takes
KINDS: tuple[Kind, ...] = ("buy", "buy", "buy", "income", "sell", "sell", "sent", "fee")
COIN = 10**18
YEARS_US = 5 * 365 * 86_400_000_000


def entries(count: int, assets: int) -> Iterator[Entry]:
    """Yield five years of an account, in no order of assets; equal arguments give equal entries."""
    chance = random.Random(count)
    names = [f"chain:0x{number:040x}" for number in range(assets)]
    for number in range(count):
        yield Entry(
            number * YEARS_US // count,
            chance.choice(KINDS),
            chance.choice(names),
            chance.randrange(1, 10**4 * COIN),
            chance.randrange(10**4 * 10**MONEY_DIGITS),
            wallet="0xme",
            transaction=f"0x{number:064x}",
        )


def child(count: int, assets: int, method: str) -> dict[str, float]:
    """Measure one calculation in this child process, without the generation of the entries."""
    all_entries = list(entries(count, assets))
    began_s, before_s = time.perf_counter(), time.process_time()
    gains = gains_of(all_entries, method)
    took_s, cpu_s = time.perf_counter() - began_s, time.process_time() - before_s
    assert len(gains.remaining) == assets
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"took_s": took_s, "cpu_s": cpu_s, "peak_mb": peak_mb, "gains": len(gains.gains)}


def measured(count: int, assets: int, method: str) -> dict[str, float]:
    """Run `child` in a separate process and return its figures."""
    command = [sys.executable, "-m", "bench.pnl", "--child", method, "--entries", str(count), "--assets", str(assets)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    result: dict[str, float] = json.loads(output)
    return result


def run(options: argparse.Namespace) -> list[Figure]:
    """Measure, and return the figures."""
    figures, count = [], options.entries
    for method in options.methods:
        # A tenth of the entries in a tenth of the assets: the same number of entries for each asset.
        small = measured(count // SMALL, options.assets // SMALL, method)
        full = measured(count, options.assets, method)
        growth = full["cpu_s"] / small["cpu_s"] / SMALL
        subject = f"{count:,} transactions in {options.assets:,} assets, {method}"
        figures += [
            Figure(
                "pnl",
                f"{subject}: seconds; peak memory, MB",
                f"{full['took_s']:.1f} (CPU {full['cpu_s']:.1f}); {full['peak_mb']:,.0f}",
                f"≤ {MAX_S:.0f}; ≤ {MAX_MB:,}",
                full["took_s"] <= MAX_S and full["peak_mb"] <= MAX_MB,
                {"whole": full, "small": small},
            ),
            Figure(
                "pnl",
                f"{subject}: processor time of a transaction / with a tenth of them",
                f"{growth:.2f}",
                f"≤ {MAX_GROWTH}",
                growth <= MAX_GROWTH,
            ),
        ]
    return figures


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark to a parser."""
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--assets", type=int, default=1000)
    parser.add_argument("--methods", nargs="+", choices=GAIN_METHODS, default=GAIN_METHODS)
    parser.add_argument("--child", choices=GAIN_METHODS, help=argparse.SUPPRESS)


if __name__ == "__main__":
    if "--child" in sys.argv:
        from bench.figures import options

        chosen = options(__doc__, add, sys.argv[1:])
        print(json.dumps(child(chosen.entries, chosen.assets, chosen.child)))
    else:
        main(__doc__, run, add)
