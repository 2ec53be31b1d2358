"""Measure cold starts of `chainfolio --help` and `import chainfolio`, without the interpreter's own.

python -m bench.startup [--repeat 10]
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time

from bench.figures import Figure, main

COMMANDS = {
    "python -c pass": ("-c", "pass"),
    "import chainfolio": ("-c", "import chainfolio"),
    "chainfolio --help": ("-m", "chainfolio", "--help"),
}
BARS_S = {"import chainfolio": 0.05, "chainfolio --help": 0.25}


def run(options: argparse.Namespace) -> list[Figure]:
    """Measure the commands in turn, so that a busy machine slows all of them."""
    seconds: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(options.repeat):
        for name, arguments in COMMANDS.items():
            start = time.perf_counter()
            subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
            seconds[name].append(time.perf_counter() - start)
    return [_figure(name, statistics.median(times)) for name, times in seconds.items()]


def _figure(name: str, median_s: float) -> Figure:
    bar = BARS_S.get(name)
    if bar is None:
        return Figure("startup", name, f"{median_s * 1000:.0f} ms")
    return Figure("startup", name, f"{median_s * 1000:.0f} ms", f"≤ {bar * 1000:.0f} ms", median_s <= bar)


def add(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument("--repeat", type=int, default=10)


if __name__ == "__main__":
    main(__doc__, run, add)
