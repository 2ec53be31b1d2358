"""`chainfolio init`: a settings file with every key, explained; keys in comments show the default."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import replace

from chainfolio.chain_settings import DEFAULT_KIND
from chainfolio.cli.common import HERE, Commands, one_line, settings_file
from chainfolio.cli.groups import GROUPS
from chainfolio.errors import BadRequest
from chainfolio.kinds import kind_of
from chainfolio.settings_keys import CHAIN, Key, Section, sections

RPC = "http://127.0.0.1:8545"
WIDTH = 100


def add(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Register the command."""
    command = commands.add_parser("init", parents=[common], help=GROUPS["init"], description=__doc__)
    command.add_argument("--chain", default="ethereum", metavar="KEY", help="the chain to begin with")
    command.add_argument("--adapter", default=DEFAULT_KIND, metavar="KIND", help="the kind of chain")
    command.add_argument("--rpc", default=RPC, metavar="URL", help=f"its endpoint, or env:NAME (default {RPC})")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Write a settings file and print its path; the exit code is 0.

    Raises:
        BadRequest: The file exists; it is not written over.
    """
    path = settings_file(options) or HERE
    text = settings_text(options.chain, options.rpc, options.adapter)
    try:
        with path.open("x") as file:  # never over one that is there
            file.write(text)
    except FileExistsError:
        raise BadRequest("config", f"{path} is there already", remedy="choose another name: --config FILE") from None
    if options.json:
        one_line({"config": str(path)})
    else:
        print(f"written: {path}\nnext: chainfolio doctor")
    return 0


def settings_text(chain: str, rpc: str, adapter: str = DEFAULT_KIND) -> str:
    """Return the text of a settings file: all defaults as comments, one chain of a kind with one endpoint."""
    lines = ["# Settings of Chainfolio. A relative path is one from the folder of this file.", ""]
    values = {kind_of(adapter).settings.ENDPOINTS: f'["{rpc}"]'}
    if adapter != DEFAULT_KIND:
        values["adapter"] = f'"{adapter}"'
    known_sections = sections([adapter])
    kind_keys = {(each.section, each.name) for section in known_sections if section.kind for each in section.keys}
    for section in known_sections:
        if section.kind:
            lines.pop()  # its keys go on in the section before
        else:  # what the kind means otherwise is written there
            section = replace(
                section, keys=tuple(key for key in section.keys if (key.section, key.name) not in kind_keys)
            )
        lines += _section(section, chain, values)
    return "\n".join(lines)


def _section(section: Section, chain: str, values: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines of a section of settings: each key with its meaning, defaults as comments."""
    is_chain = section.name == CHAIN
    if section.name:
        yield from textwrap.wrap(section.meaning, WIDTH, initial_indent="# ", subsequent_indent="# ")
    if section.name and not section.kind:
        yield f"[chains.{chain}]" if is_chain else f"[{section.name}]"
    for key in section.keys:
        yield from textwrap.wrap(f"{key.name}: {key.meaning}", WIDTH, initial_indent="# ", subsequent_indent="#   ")
        yield f"{key.name} = {values[key.name]}" if is_chain and key.name in values else _default(key)
    yield ""


def _default(key: Key) -> str:
    return f"# {key.name} = {key.default}"
