"""Measure `chainfolio index` at nodes of this machine: our HTTP client against aiohttp.

python -m bench.clients [--repeat 7] [--epochs 300] [--parts logs usual validators]
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

from bench import runs, validators
from bench.beacon_node import SLOTS
from bench.figures import Figure, main, spread
from bench.node import replay
from bench.places import recorded, scratch

MIN_RATIO: Final = 1.25
PARTS: Final = ("logs", "usual", "validators")
OWN: Final = "import sys; from chainfolio.cli.main import main; sys.exit(main())"
AIOHTTP: Final = (
    f"from chainfolio.transport.http import HttpTransport as T; T._exchange = T._exchange_by_aiohttp; {OWN}"
)
Index = Callable[[list[str]], runs.Run]  # runs the index by a command


@contextmanager
def evm(folder: Path, datasets: str) -> Iterator[Index]:
    """Yield a function that indexes the recorded chain by a command: a few dozen batches, large responses."""
    chain = recorded()
    arguments = ["index", "local", "--from", str(chain.first), "--to", str(chain.last), "--datasets", datasets]
    with replay() as node:
        yield lambda command: runs.run(
            [*command, *arguments], runs.product_env(node.url, runs.empty(folder / "data"))
        ).checked()


@contextmanager
def beacon(folder: Path, epochs: int) -> Iterator[Index]:
    """Yield a function that indexes 100 validators of an archive node: 37 responses for each epoch."""
    first, last = validators.BEGIN * SLOTS, (validators.BEGIN + epochs) * SLOTS - 1
    indexed = [str(each * 199) for each in range(validators.SOME)]
    with validators.network(validators.AMONG, last + 10 * SLOTS) as url:
        yield lambda command: validators.index(runs.empty(folder), url, first, last, indexed, command=command)


def compare(name: str, index: Index, repeat: int) -> Figure:
    """Run both clients in turns, each first in every other round; the first round does not count."""
    wall_ratios, cpu_ratios = list[float](), list[float]()
    clients = {client: [sys.executable, "-c", client] for client in (OWN, AIOHTTP)}
    for number in range(repeat + 1):
        order = (OWN, AIOHTTP) if number % 2 else (AIOHTTP, OWN)
        round_runs = {client: index(clients[client]) for client in order}
        if number:
            wall_ratios.append(round_runs[AIOHTTP].wall_s / round_runs[OWN].wall_s)
            cpu_ratios.append(round_runs[AIOHTTP].cpu_s / round_runs[OWN].cpu_s)
    is_met = statistics.median(cpu_ratios) >= MIN_RATIO  # the wall time of a shared machine depends on its other work
    value = f"{spread(wall_ratios)}, CPU {spread(cpu_ratios)}"
    return Figure(
        "clients", f"index of {name}: wall with aiohttp / with the own client", value, f"≥ {MIN_RATIO} (CPU)", is_met
    )


def run(options: argparse.Namespace) -> list[Figure]:
    """Measure, and return the figures."""
    parts: dict[str, tuple[str, Callable[[Path], AbstractContextManager[Index]]]] = {
        "logs": ("logs of 2,000 EVM blocks", lambda folder: evm(folder, runs.EVENTS)),
        "usual": ("2,000 EVM blocks with the usual datasets", lambda folder: evm(folder, runs.USUAL)),
        "validators": (
            f"{options.epochs} epochs of {validators.SOME} validators",
            lambda folder: beacon(folder, options.epochs),
        ),
    }
    figures = []
    for name, start in (parts[part] for part in options.parts):
        with scratch() as folder, start(folder) as index:
            figures.append(compare(name, index, options.repeat))
            print(figures[-1].value, flush=True)
    return figures


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark to a parser."""
    parser.add_argument("--repeat", type=int, default=7, help="counted rounds")
    parser.add_argument("--epochs", type=int, default=300)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))


if __name__ == "__main__":
    main(__doc__, run, add)
