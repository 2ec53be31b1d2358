"""`chainfolio new-protocol NAME`: the file of a fork, or a package with a decoder to start from."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from chainfolio.addresses import rules_of
from chainfolio.chain_settings import DEFAULT_KIND
from chainfolio.cli.common import Commands, show_json, with_system
from chainfolio.cli.groups import GROUPS
from chainfolio.engine.scaffolding import check_key, deployment, file_text, protocol_fields, write
from chainfolio.engine.scaffolding import package as files
from chainfolio.errors import BadRequest, BadSettings
from chainfolio.indexer.protocol_files import protocol_of
from chainfolio.kinds import decoder_kit

if TYPE_CHECKING:
    from chainfolio.engine.scaffolding import Deployment
    from chainfolio.indexer.wiring import System
    from chainfolio.protocols import ProtocolFamily

Made = tuple[list[Path], list[str]]


def add(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Register the command."""
    command = commands.add_parser("new-protocol", parents=[common], help=GROUPS["new-protocol"], description=__doc__)
    command.add_argument("name", metavar="NAME", help="its key: lower-case letters, digits and _")
    kind = command.add_mutually_exclusive_group()
    kind.add_argument("--like", metavar="FAMILY", help="a package whose decoder begins as a copy of this one")
    kind.add_argument("--fork-of", metavar="FAMILY", help="no code: a file in the settings' folder of protocols")
    command.add_argument("--chain", default="", help="where the contracts lie")
    command.add_argument("--contract", action="append", default=[], metavar="ROLE=0x…", help="may be repeated")
    command.add_argument("--option", action="append", default=[], metavar="NAME=TEXT", help="may be repeated")
    command.add_argument("--dir", default=".", help="where the package's folder is made (default: here)")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Write the files of a new protocol and print the next steps; the exit code is 0.

    Existing files are not written over.
    """
    files, steps = with_system(options, partial(start, options=options))
    if options.json:
        show_json({"files": [str(path) for path in files], "next": steps})
        return 0
    for path in files:
        print(f"written: {path}")
    print("next:")
    for number, step in enumerate(steps, 1):
        print(f"  {number}. {step}")
    return 0


async def start(system: System, options: argparse.Namespace) -> Made:
    """Write the files of a new protocol; return them and the next steps.

    Raises BadRequest if the name is taken, or for an unknown chain.
    """
    check_key(options.name)
    if any(each.key == options.name for each in system.registry.protocols):
        raise BadRequest("NAME", f"there is a protocol `{options.name}` already", remedy="choose another name")
    if options.chain and options.chain not in system.chain_kinds:
        kinds_text = ", ".join(sorted(system.chain_kinds))
        raise BadRequest("chain", f"no such chain: {options.chain}", remedy=f"one of {kinds_text}")
    kind = system.chain_kinds.get(options.chain, DEFAULT_KIND)
    deployed_at = deployment(options.chain, options.contract, options.option, rules_of(kind).address)
    if options.fork_of is not None:
        return fork(system, options.name, family_of(system, "fork-of", options.fork_of), deployed_at)
    like = None if options.like is None else family_of(system, "like", options.like)
    texts = files(options.name, like, deployed_at, decoder_kit(kind))
    return package(system, options.name, texts, deployed_at, Path(options.dir))


def family_of(system: System, field: str, name: str) -> ProtocolFamily:
    """Return an installed family by its name. Raises BadRequest if it is not installed."""
    if name not in system.families:
        families_text = ", ".join(sorted(system.families))
        raise BadRequest(field, f"no protocol family `{name}` is installed", remedy=f"one of {families_text}")
    return system.families[name]


def fork(system: System, key: str, family: ProtocolFamily, deployed_at: Deployment) -> Made:
    """Write the file of a fork into the folder of protocols, after checking that it can be read there.

    Return the file, and the next steps as texts.

    Raises:
        BadRequest: The contract does not fit the family, or the file exists.
        BadSettings: The settings name no folder of protocols.
    """
    fields = protocol_fields(family)
    if not system.settings.protocols:
        raise BadSettings(
            "protocols", "no folder is named for files of protocols", remedy='add protocols = "protocols"'
        )
    if not deployed_at.contracts or not family.can_find_accounts(deployed_at.contracts):
        raise BadRequest(
            "contract",
            f"`{family.name}` finds a fork by its contracts, in the role of: {', '.join(fields.roles)}",
            remedy=f"--chain ethereum --contract {next(iter(fields.roles), 'pool')}=0x…",
        )
    text = file_text(key, family.name, deployed_at, fields)
    check(system, key, text)
    files = write(Path(system.settings.protocols), {f"{key}.toml": text})
    unsaid = [name for name in fields.options if name not in deployed_at.options]
    differing = f"see whether it differs from others of `{family.name}`, in [options]: {', '.join(unsaid)}"
    return files, [
        *([differing] if unsaid else []),
        _record(key, deployed_at.chain, Path(f"{key}.json")),
        f"chainfolio test-protocol {key}.json",
    ]


def check(system: System, key: str, text: str) -> None:
    """Raise BadSettings if a protocol file cannot be read here, or has a contract of another protocol."""
    with tempfile.TemporaryDirectory() as folder:
        draft = Path(folder) / f"{key}.toml"
        draft.write_text(text)
        system.registry.with_protocols([protocol_of(draft, system.chain_kinds)])


def package(system: System, key: str, texts: Mapping[str, str], deployed_at: Deployment, folder: Path) -> Made:
    """Write a package in a folder of its name; return its files, and the next steps as texts.

    Raises BadRequest if the folder exists or there is such a family.
    """
    if key in system.families:
        raise BadRequest("NAME", f"there is a protocol family `{key}` already", remedy="choose another name")
    home, module = folder / f"chainfolio-{key.replace('_', '-')}", f"chainfolio_{key}"
    check(system, key, texts[f"{module}/{key}.toml"])
    files = write(home, texts)
    steps = [
        f"write what the decoder asks ({module}/{key}.py), and where it is deployed ({module}/{key}.toml)",
        f"install it beside chainfolio: pip install --no-deps -e {home}",
        "chainfolio doctor says whether it was found",
        _record(key, deployed_at.chain, home / "tests" / "recordings" / "one.json"),
        f"chainfolio test-protocol {home / 'tests' / 'recordings'}",
    ]
    return files, steps


def _record(key: str, chain: str, file: Path) -> str:
    return f"chainfolio record 0x… --chain {chain or 'ethereum'} --protocol {key} --to {file}"
