"""Measure cold starts of `import chainfolio` and `chainfolio --help`, in turns with `python -c pass`.

The bar of the import applies to its time without that of the interpreter; that of the command to the whole process.

python -m bench.startup [--repeat 10]
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time

from bench.figures import Figure, main

INTERPRETER = "python -c pass"
COMMANDS = {
    INTERPRETER: ("-c", "pass"),
    "import chainfolio": ("-c", "import chainfolio"),
    "chainfolio --help": ("-m", "chainfolio", "--help"),
}
IMPORT_BAR_S, HELP_BAR_S = 0.05, 0.25


def run(options: argparse.Namespace) -> list[Figure]:
    """Measure the commands in turn, so that a busy machine slows all of them."""
    seconds: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(options.repeat):
        for name, arguments in COMMANDS.items():
            start = time.perf_counter()
            subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
            seconds[name].append(time.perf_counter() - start)
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    return [_figure(name, median, medians[INTERPRETER]) for name, median in medians.items()]


def _figure(name: str, median_s: float, interpreter_s: float) -> Figure:
    """Return the median of a command, with its time beyond the interpreter's own."""
    own_s = max(median_s - interpreter_s, 0)
    text = f"{median_s * 1000:.0f} ms" + ("" if name == INTERPRETER else f", {own_s * 1000:.0f} ms of it its own")
    if name == "import chainfolio":
        return Figure("startup", name, text, f"own ≤ {IMPORT_BAR_S * 1000:.0f} ms", own_s <= IMPORT_BAR_S)
    if name == "chainfolio --help":
        return Figure("startup", name, text, f"≤ {HELP_BAR_S * 1000:.0f} ms", median_s <= HELP_BAR_S)
    return Figure("startup", name, text)


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark to a parser."""
    parser.add_argument("--repeat", type=int, default=10)


if __name__ == "__main__":
    main(__doc__, run, add)
