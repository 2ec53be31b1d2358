"""`chainfolio restore`: put a backup back, where the settings say.

Each file is compared with its SHA-256, and lake and tail with each other, before anything appears in its place. The
data folder has to be empty, except for `pepper`, the secret of the accounts' keys. Put that file there yourself. The
settings of the backup are in its folder `settings`: copy them first, and set the variables that they name.
"""

from __future__ import annotations

import argparse
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from chainfolio.cli.backup import show_bytes, summary
from chainfolio.cli.common import Commands, one_line, settings
from chainfolio.cli.groups import GROUPS
from chainfolio.errors import StoreError
from chainfolio.indexer import consistency
from chainfolio.storage.backup import StorePaths
from chainfolio.storage.lake import Lake
from chainfolio.storage.restore import SECRET, read_manifest, restored
from chainfolio.storage.tail import Tail
from chainfolio.tables import BLOCKS

if TYPE_CHECKING:
    from chainfolio.storage.backup import Manifest


def add(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Register the command."""
    command = commands.add_parser("restore", parents=[common], help=GROUPS["restore"], description=__doc__)
    command.add_argument("folder", type=Path, help="a folder that `chainfolio backup` wrote")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Restore a backup, and print what it has and what is missing. The exit code is 0.

    Raises:
        BadRequest: The folder is no backup, something is stored already, or a store is not a local file.
        StoreError: A file of the backup is missing or altered, or its stores do not belong together.
    """
    config = settings(options)
    places = StorePaths.of(config)
    manifest = read_manifest(options.folder)
    with restored(options.folder, manifest, places, show_bytes("restore", quiet=options.json)) as copies:
        _check(copies, manifest, set(config.chains))
    needs_secret = places.state.exists() and not (places.data / SECRET).exists()
    if options.json:
        one_line(summary(manifest) | {"data": str(places.data), "needsSecret": needs_secret})
        return 0
    size = sum(file.bytes for file in manifest.files)
    print(f"{places.data}: {len(manifest.files):,} files, {size:,} bytes, as of {manifest.made_at}; all match")
    if needs_secret:
        print(f"Put {places.data / SECRET} back before you start: without it, no key of an account is accepted.")
    return 0


def _check(places: StorePaths, manifest: Manifest, chains: set[str]) -> None:
    """Raise StoreError if a table has another version than in the manifest, or lake and tail do not fit.

    Without a tail only the tables are checked.
    """
    for name, version in manifest.tables.items():
        try:
            stored = DeltaTable(str(places.lake / name)).version()
        except DeltaError as error:
            raise StoreError("backup", f"table {name} cannot be read: {error}") from error
        if stored != version:
            raise StoreError("backup", f"table {name} has version {stored}, and the manifest says {version}")
    if places.tail.exists():
        lake = Lake(str(places.lake))
        with closing(Tail(places.tail)) as tail:
            for chain in sorted(chains | set(lake.chains(BLOCKS))):
                consistency.check(lake, tail, chain)
