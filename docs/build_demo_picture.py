"""Writes `docs/images/demo.svg` from a demo that runs: `python -m docs.build_demo_picture`.

Of what the demo prints it shows how it began and one wallet, then two of the commands that it says to try.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

PICTURE = Path(__file__).parent / "images" / "demo.svg"
WIDTH, HEIGHT = 120, 22
CHAINFOLIO = [sys.executable, "-m", "chainfolio.cli.main"]
WALLET = "bob"  # who has positions
READY = "Ctrl-C ends it"
FIGURES = 8  # lines of a performance
ENVIRONMENT = {**os.environ, "COLUMNS": str(WIDTH), "LINES": str(HEIGHT), "PYTHONIOENCODING": "utf-8"}


@contextmanager
def demo(folder: str) -> Iterator[list[str]]:
    """What a demo printed up to where it waits; it ends with the block."""
    command = [*CHAINFOLIO, "demo", "--data", f"{folder}/data"]
    with subprocess.Popen(
        command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8"
    ) as process:
        assert process.stdout is not None
        lines = []
        try:
            for line in process.stdout:
                lines.append(line.rstrip())
                if READY in line:
                    break
            yield lines
        finally:
            process.send_signal(signal.SIGINT)


def shown(lines: list[str]) -> Iterator[str]:
    """The beginning, then one wallet."""
    yield "$ make demo"
    yield from (line for line in lines if re.match(r" *\d+\.\d s  ", line) and "ready" not in line)
    headings = [at for at, line in enumerate(lines) if line.endswith(" USD") and not line.startswith(" ")]
    yield from ("", *lines[headings[0] : headings[0] + 3])
    begin = next(at for at in headings if lines[at].startswith(f"{WALLET} ("))
    yield from lines[begin : next(at for at in headings if at > begin)]


def tried(lines: list[str]) -> Iterator[str]:
    """The commands that look at past days: a chart of the one, figures of the other."""
    for line in lines:
        words = shlex.split(line)
        if words[:2] in (["chainfolio", "history"], ["chainfolio", "performance"]):
            given = [word for word in words if word != "--plot" or "history" in words]
            yield from ("", f"$ {' '.join(given[: given.index('--config')])}")
            done = subprocess.run(
                [*CHAINFOLIO, *given[1:]], env=ENVIRONMENT, capture_output=True, encoding="utf-8", check=True
            )
            printed = [each.rstrip() for each in done.stdout.splitlines()]
            yield from printed if "history" in words else printed[:FIGURES]


def main() -> None:
    """Write the picture."""
    with tempfile.TemporaryDirectory() as folder, demo(folder) as lines, Path(os.devnull).open("w") as nowhere:
        console = Console(record=True, width=WIDTH, file=nowhere, force_terminal=True)
        for line in [*shown(lines), *tried(lines)]:
            console.print(Text(line), no_wrap=True, crop=True)
    # No font from elsewhere: the reader's own.
    plain = re.sub(r"@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    console.save_svg(str(PICTURE), title="chainfolio", code_format=plain.replace("Fira Code", "ui-monospace, Menlo"))


if __name__ == "__main__":
    main()
