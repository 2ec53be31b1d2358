"""The folder of a demo: cleared at each start, and refused if anything but a demo wrote into it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from chainfolio.errors import BadRequest
from chainfolio.storage.disk import lock_file

MARKER: Final = ".chainfolio-demo"
# What a demo and the commands that are run on its settings make. Everything else in the folder stays.
MADE: Final = (
    "chainfolio.toml",
    "local.toml",
    "prices.toml",
    "solana.toml",
    "protocols",
    "lake",
    "locks",
    "pepper",
    *(f"{store}.db{suffix}" for store in ("tail", "state") for suffix in ("", "-wal", "-shm")),
)
MAX_NAMES: Final = 3  # in a message


@contextmanager
def reserved_folder(folder: Path) -> Iterator[None]:
    """Clear a folder for a demo, and keep other demos out of it until the end of the block.

    It is created if missing; only files that demos make are deleted.

    Raises:
        BadRequest: The folder has files, and no demo marked it as its own; or it is no folder.
        Busy: Another demo uses it.
    """
    if folder.exists() and not folder.is_dir():
        raise _refusal(folder, "is not a folder")
    names = sorted(each.name for each in folder.iterdir()) if folder.is_dir() else []
    if names and MARKER not in names:
        rest_text = f" and {len(names) - MAX_NAMES:,} more" if len(names) > MAX_NAMES else ""
        raise _refusal(folder, f"has files that no demo made: {', '.join(names[:MAX_NAMES])}{rest_text}")
    with lock_file(folder / MARKER, store="demo", subject=str(folder)):
        for name in MADE:
            _remove(folder / name)
        yield


def _refusal(folder: Path, reason: str) -> BadRequest:
    return BadRequest("data", f"{folder} {reason}", remedy="name an empty or a new folder: chainfolio demo --data DIR")


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
