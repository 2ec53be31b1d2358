"""`chainfolio test-protocol [FILE…]`: replay recordings with the installed decoders, without a node."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from chainfolio.chain_settings import DEFAULT_KIND
from chainfolio.cli.common import Commands, show_json, with_system
from chainfolio.cli.groups import GROUPS
from chainfolio.errors import BadRequest, NotFound
from chainfolio.kinds import decoder_kit
from chainfolio.recordings import chain_of

if TYPE_CHECKING:
    from chainfolio.indexer.wiring import System
    from chainfolio.recordings import Replay

DIFFERS, UNPLAYABLE = 10, 11
FOLDER = "tests/recordings"


def add(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Register the command."""
    command = commands.add_parser("test-protocol", parents=[common], help=GROUPS["test-protocol"], description=__doc__)
    command.add_argument("file", nargs="*", default=[FOLDER], help=f"recordings, or folders (default: {FOLDER})")
    command.add_argument("--update", action="store_true", help="what is found now is what is to be found from now on")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Replay recordings and print the state of each, or write new results with --update.

    The exit code is 10 for a different result, else 11 for an unplayable recording, else 0.
    """
    replays = with_system(options, partial(replayed, paths=files(options.file), update=options.update))
    if options.json:
        show_json({"recordings": replays})
    for each in [] if options.json else replays:
        print(f"{each.status}: {each.file}")
        for line in each.summary.splitlines():
            print(f"  {line}")
    ended = {each.status for each in replays}
    return DIFFERS if "differs" in ended else UNPLAYABLE if "unplayable" in ended else 0


def files(arguments: list[str]) -> list[Path]:
    """Return the recordings at these paths or below them (`*.json`), each once.

    Raises NotFound if there are none, BadRequest for a path that does not exist.
    """
    paths: list[Path] = []
    for path in map(Path, arguments):
        if not path.exists():
            raise BadRequest(
                "file", f"there is no {path}", remedy="chainfolio record ADDRESS --chain CHAIN --to FILE.json"
            )
        paths += sorted(path.glob("*.json")) if path.is_dir() else [path]
    if not paths:
        raise NotFound(
            f"no recordings in {', '.join(arguments)}", remedy="chainfolio record ADDRESS --chain CHAIN --to FILE.json"
        )
    return list(dict.fromkeys(paths))


async def replayed(system: System, paths: list[Path], update: bool) -> list[Replay]:
    """Replay recordings and return their outcomes, in order; a difference is no error.

    With `update`, a recording with another result is written anew, and its status is "updated". No node is read.
    """
    replays, kinds = [], system.chain_kinds
    for path in paths:
        kit = decoder_kit(kinds.get(chain_of(path), DEFAULT_KIND))
        recording = kit.read(path)
        ended = kit.replay(str(path), recording, system.registry.protocols, system.families)
        if update and ended.status == "differs":
            kit.save(path, kit.updated(recording, ended.result))
            ended = msgspec.structs.replace(ended, status="updated")
        replays.append(ended if ended.status == "differs" else _with_remedy(ended, system))
    return replays


def _with_remedy(replay: Replay, system: System) -> Replay:
    """Return a replay whose reason says how its unproven families become proven; unchanged if it has none."""
    keys = {position.protocol for position in replay.result.positions}
    named = {name for each in system.registry.protocols if each.key in keys for name in each.families}
    unproven = sorted(name for name in named & system.families.keys() if not system.families[name].is_proven)
    if replay.reason or not unproven:
        return replay
    reason = f"not proven yet: {', '.join(unproven)} (compare the amounts with the protocol's own page, then name the "
    return msgspec.structs.replace(replay, reason=f"{reason}families in the setting `proven`)")
