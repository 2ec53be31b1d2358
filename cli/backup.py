"""`chainfolio backup`: copy lake, tail, state and settings of one moment to a folder.

Servers and workers may run meanwhile. The backup has a manifest with the SHA-256 of each file, and `chainfolio restore`
puts it back. It has no secrets: settings refer to environment variables instead of keys, and `pepper` in the data
folder, the secret of the accounts' keys, stays out. Copy that file once, to another place. With stores in PostgreSQL or
in an object store, use pg_dump and the versioning of the bucket instead.
"""

from __future__ import annotations

import argparse
import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from chainfolio import __version__
from chainfolio.cli.common import Commands, one_line, settings, settings_file
from chainfolio.cli.groups import GROUPS
from chainfolio.cli.progress_bar import watch
from chainfolio.storage.backup import MANIFEST, StorePaths, back_up, sha256_of

if TYPE_CHECKING:
    from chainfolio.settings import Settings
    from chainfolio.storage.backup import Manifest, Progress

_TEXTS: Final = re.compile(r"""(["'])((?:(?!\1)[^\\\n])*)\1""")
_KEYS: Final = re.compile(r"""^(\s*[\w.-]*(?:key|secret|token|password)\s*=\s*)(["'])(?!env:)[^"'\n]+\2""", re.M | re.I)


def add(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Register the command."""
    command = commands.add_parser("backup", parents=[common], help=GROUPS["backup"], description=__doc__)
    command.add_argument("folder", type=Path, help="a new or empty folder, best on another disk")
    command.add_argument(
        "--link",
        action="store_true",
        help="hard-link the files of the lake instead of copying them, where the file system can: quick and small, but "
        "a damaged disk damages both",
    )
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Write a backup, and print its size and the variables that its settings need. The exit code is 0.

    Raises:
        BadRequest: The folder is not empty, there is nothing to back up, or a store is not a local file.
        StoreError: A store cannot be read, or the folder cannot be written.
    """
    config = settings(options)
    documents, variables = _documents(config, settings_file(options))
    manifest = back_up(
        StorePaths.of(config),
        options.folder,
        documents,
        release=__version__,
        now=lambda: f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        on_progress=show_bytes("backup", quiet=options.json),
        link=options.link,
    )
    digest = sha256_of(options.folder / MANIFEST)
    if options.json:
        one_line(summary(manifest) | {"folder": str(options.folder), "manifest": digest, "variables": variables})
        return 0
    size = sum(file.bytes for file in manifest.files)
    print(f"{options.folder}: {len(manifest.files):,} files, {size:,} bytes, as of {manifest.made_at}")
    print(f"SHA-256 of {MANIFEST}: {digest}")
    if variables:
        print(f"Its settings read what may be secret from: {', '.join(variables)}. Note the values elsewhere.")
    print(f"Not in it: {config.data_dir / 'pepper'}, the secret of the accounts' keys. Copy it once, to another place.")
    return 0


def summary(manifest: Manifest) -> dict[str, object]:
    """Return the facts of a backup for --json."""
    return {
        "madeAt": manifest.made_at,
        "release": manifest.release,
        "files": len(manifest.files),
        "bytes": sum(file.bytes for file in manifest.files),
        "tables": manifest.tables,
    }


def show_bytes(name: str, *, quiet: bool) -> Progress:
    """Return a function that shows bytes copied of bytes in all, as a progress bar on standard error.

    With `quiet` it shows nothing.
    """
    start_s, progress = time.monotonic(), watch(name)

    def show(done: int, total: int) -> None:
        if not quiet:
            share = min(1.0, done / max(1, total))
            progress(share, time.monotonic() - start_s, lambda: f"{done >> 20:,} of {total >> 20:,} MiB")

    return show


def _documents(config: Settings, file: Path | None) -> tuple[dict[str, str], list[str]]:
    """Return the settings and their files without secrets, by path in the backup, and the new variables.

    The variables replace the secrets. Both are empty without a settings file. Files outside of the folder of the
    settings are left out: their paths mean nothing elsewhere.
    """
    if file is None:
        return {}, []
    folder = file.parent.resolve()
    files = [file]
    if config.prices_file:
        files.append(Path(config.prices_file))
    if config.protocols:
        files += sorted(Path(config.protocols).rglob("*.toml"))
    documents: dict[str, str] = {}
    variables: list[str] = []
    for path in files:
        if path.resolve().is_relative_to(folder) and path.is_file():
            text = without_secrets(path.read_text(), variables)
            documents[f"settings/{path.resolve().relative_to(folder).as_posix()}"] = text
    return documents, variables


def without_secrets(text: str, variables: list[str]) -> str:
    """Return a TOML text in which variables of the environment stand in place of secrets.

    A secret is a URL with more than scheme, host and port, or a value of a key that is named like one.

    Args:
        variables: The names of the variables so far; new ones are added.
    """

    def variable() -> str:
        variables.append(f"RESTORED_SECRET_{len(variables) + 1}")
        return f'"env:{variables[-1]}"'

    def replace(match: re.Match[str]) -> str:
        return variable() if _is_secret(match[2]) else match[0]

    return _TEXTS.sub(replace, _KEYS.sub(lambda match: match[1] + variable(), text))


def _is_secret(text: str) -> bool:
    """Return True for a URL in which a secret may be: with user, path, query or fragment.

    Addresses of `sqlite` and `s3` are secret only with a user; other texts never.
    """
    scheme, mark, rest = text.partition("://")
    if not mark or scheme in ("sqlite", "s3"):
        return bool(mark) and "@" in rest
    try:
        parts = urlsplit(text)
    except ValueError:
        return True
    return bool(parts.path.strip("/") or parts.query or parts.fragment or "@" in parts.netloc)
