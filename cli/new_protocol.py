"""`chainfolio new-protocol NAME`: what a new protocol starts from: the file of a fork, or a package with a decoder."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from chainfolio.errors import BadRequest, BadSettings
from cli.common import Commands, show_json, with_system

if TYPE_CHECKING:
    from chainfolio.protocols import ProtocolFamily
    from engine.scaffolding import Deployment
    from indexer.wiring import System

Made = tuple[list[Path], list[str]]


def add(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Register the command."""
    command = commands.add_parser("new-protocol", parents=[common], help="start a new protocol", description=__doc__)
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
    """Run the command; nothing that exists is written over."""
    made, steps = with_system(options, partial(start, options=options))
    if options.json:
        show_json({"files": [str(path) for path in made], "next": steps})
        return 0
    for path in made:
        print(f"written: {path}")
    print("next:")
    for number, step in enumerate(steps, 1):
        print(f"  {number}. {step}")
    return 0


async def start(system: System, options: argparse.Namespace) -> Made:
    """The files that were written, and what to do next."""
    from chainfolio.addresses import rules_of
    from chainfolio.chain_settings import DEFAULT_KIND
    from chainfolio.kinds import decoder_kit
    from engine.scaffolding import check_key, deployment
    from engine.scaffolding import package as files

    check_key(options.name)
    if any(each.key == options.name for each in system.registry.protocols):
        raise BadRequest("NAME", f"there is a protocol `{options.name}` already", remedy="choose another name")
    if options.chain and options.chain not in system.chain_kinds:
        known = ", ".join(sorted(system.chain_kinds))
        raise BadRequest("chain", f"no such chain: {options.chain}", remedy=f"one of {known}")
    kind = system.chain_kinds.get(options.chain, DEFAULT_KIND)
    where = deployment(options.chain, options.contract, options.option, rules_of(kind).address)
    if options.fork_of is not None:
        return fork(system, options.name, family_of(system, "fork-of", options.fork_of), where)
    like = None if options.like is None else family_of(system, "like", options.like)
    texts = files(options.name, like, where, decoder_kit(kind))
    return package(system, options.name, texts, where, Path(options.dir))


def family_of(system: System, field: str, name: str) -> ProtocolFamily:
    """An installed family by its name; BadRequest with those that there are."""
    if name not in system.families:
        known = ", ".join(sorted(system.families))
        raise BadRequest(field, f"no protocol family `{name}` is installed", remedy=f"one of {known}")
    return system.families[name]


def fork(system: System, key: str, family: ProtocolFamily, where: Deployment) -> Made:
    """The file of a fork, where the settings look for it, once it is sure that it can be read there."""
    from engine.scaffolding import file_text, wants, write

    wanted = wants(family)
    if not system.settings.protocols:
        raise BadSettings(
            "protocols", "no folder is named for files of protocols", remedy='add protocols = "protocols"'
        )
    if not where.contracts or not family.finds_anybody(where.contracts):
        raise BadRequest(
            "contract", f"`{family.name}` finds a fork by its contracts, in the role of: {', '.join(wanted.roles)}",
            remedy=f"--chain ethereum --contract {next(iter(wanted.roles), 'pool')}=0x…",
        )  # fmt: skip
    text = file_text(key, family.name, where, wanted)
    check(system, key, text)
    written = write(Path(system.settings.protocols), {f"{key}.toml": text})
    unsaid = [name for name in wanted.options if name not in where.options]
    differing = f"see whether it differs from others of `{family.name}`, in [options]: {', '.join(unsaid)}"
    return written, [
        *([differing] if unsaid else []),
        _record(key, where.chain, Path(f"{key}.json")),
        f"chainfolio test-protocol {key}.json",
    ]


def check(system: System, key: str, text: str) -> None:
    """BadSettings where a protocol file could not be read here, or has a contract of another's."""
    from indexer.registry import protocol_of

    with tempfile.TemporaryDirectory() as folder:
        draft = Path(folder) / f"{key}.toml"
        draft.write_text(text)
        system.registry.plus([protocol_of(draft, system.chain_kinds)])


def package(system: System, key: str, texts: Mapping[str, str], where: Deployment, folder: Path) -> Made:
    """A package in a folder of its own."""
    from engine.scaffolding import write

    if key in system.families:
        raise BadRequest("NAME", f"there is a protocol family `{key}` already", remedy="choose another name")
    home, inside = folder / f"chainfolio-{key.replace('_', '-')}", f"chainfolio_{key}"
    check(system, key, texts[f"{inside}/{key}.toml"])
    written = write(home, texts)
    steps = [
        f"write what the decoder asks ({inside}/{key}.py), and where it is deployed ({inside}/{key}.toml)",
        f"install it beside chainfolio: pip install --no-deps -e {home}",
        "chainfolio doctor says whether it was found",
        _record(key, where.chain, home / "tests" / "recordings" / "one.json"),
        f"chainfolio test-protocol {home / 'tests' / 'recordings'}",
    ]
    return written, steps


def _record(key: str, chain: str, file: Path) -> str:
    return f"chainfolio record 0x… --chain {chain or 'ethereum'} --protocol {key} --to {file}"
