"""The command line: one file a command group, imported only when it is called, so that a command starts fast."""

from __future__ import annotations

import argparse
import asyncio
import difflib
import errno
import importlib
import json
import os
import re
import sys
from collections.abc import Sequence
from typing import NoReturn

from chainfolio import __version__
from chainfolio.errors import BadRequest, ChainfolioError, StorageFull, StoreError, TooManyFiles
from cli import output, process
from cli.examples import EXAMPLES

GROUPS = (
    "demo", "serve", "worker", "watch", "index", "materialise", "portfolio", "history", "performance", "nav", "price",
    "approvals", "transactions", "pnl", "validators", "verify", "reconcile", "account", "key", "addressbook",
    "subscription", "virtual-user", "sql", "check", "status", "doctor", "init", "completion", "new-protocol",
    "record", "test-protocol",
)  # fmt: skip

RENAMED = {"derive": "materialise", "--readmit": "--reinstate"}  # words of earlier releases
WHERE = "`data` in the settings names a folder that this user may write to"


def parser(groups: Sequence[str] = GROUPS) -> argparse.ArgumentParser:
    """The commands of some groups with their options."""
    top = Parser(
        prog="chainfolio",
        description="Self-hosted blockchain indexer and portfolio engine.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Settings: --config FILE, else $CHAINFOLIO_CONFIG, else chainfolio.toml; CHAINFOLIO_… overrides.",
    )
    top.add_argument("--version", action="version", version=f"chainfolio {__version__}")
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--config", metavar="FILE", help="settings file")
    common.add_argument("--json", action="store_true", help="print JSON for programs instead of text for people")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for group in groups:
        importlib.import_module(f"cli.{group.replace('-', '_')}").add(commands, common)
    _exemplify(top, ())
    return top


class UsageError(BadRequest):
    """The words of a command line cannot be read. `usage` is the usage of the command that refused them."""

    def __init__(self, message: str, usage: str, program: str) -> None:
        super().__init__("usage", message, remedy=f"{program} --help")
        self.usage = usage
        self.program = program


class Parser(argparse.ArgumentParser):
    """A parser that suggests the nearest word for an unknown one, and raises a UsageError."""

    def error(self, message: str) -> NoReturn:
        """Raise UsageError."""
        unknown = re.search(r"(?:invalid choice: '|unrecognized arguments: )([^' ]+)", message)
        if unknown and unknown[1] in RENAMED:
            message = f"`{unknown[1]}` is called `{RENAMED[unknown[1]]}` now"
            raise UsageError(message, self.format_usage(), self.prog)
        known = [name for action in self._actions for name in (*action.option_strings, *(action.choices or ()))]
        near = difflib.get_close_matches(unknown[1], map(str, known), 1) if unknown else []
        hint = f"; did you mean {near[0]}?" if near else ""
        raise UsageError(message + hint, self.format_usage(), self.prog)


def commands_of(of: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The commands or verbs directly below a parser, by name."""
    groups = [action for action in of._actions if isinstance(action, argparse._SubParsersAction)]
    return {name: made for group in groups for name, made in group.choices.items()}


def _exemplify(of: argparse.ArgumentParser, path: tuple[str, ...]) -> None:
    """Put the examples of each command below its help."""
    below = commands_of(of)
    for name, made in below.items():
        _exemplify(made, (*path, name))
    if not below:
        lines = (f"  chainfolio {' '.join(path)} {example}".rstrip() for example in EXAMPLES.get(" ".join(path), ()))
        of.formatter_class = argparse.RawDescriptionHelpFormatter
        of.epilog = "examples:\n" + "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code says how it ended (0 done, 2 wrong usage, 3 node, 4 not indexed, 5 store…)."""
    try:
        try:
            with process.few_looks_for_rings():
                return _ended(arguments)
        finally:
            output.flush()
    except BrokenPipeError:
        if not output.is_closed():  # of a connection, say
            raise
        output.let_go(of_errors=True)
        return output.CLOSED
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        output.let_go(of_errors=False)
        _complain(full := StorageFull("output"), as_json=False)
        return full.exit_code


def _ended(arguments: Sequence[str] | None) -> int:
    os.umask(0o077)  # what stores hold is their owner's: tenants' data, keys, settings of nodes
    words = _command_first(sys.argv[1:] if arguments is None else arguments)
    try:
        options = _parsed(words)
    except UsageError as error:
        _complain(error, as_json="--json" in words)
        return error.exit_code
    try:
        process.allow_files()
        return int(options.run(options) or 0)
    except ChainfolioError as error:
        _complain(error, as_json=getattr(options, "json", False))
        return error.exit_code
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("stopped; what was committed stays", file=sys.stderr)
        return 130
    except OSError as error:
        is_limit = error.errno in (errno.EMFILE, errno.ENFILE)
        if error.filename is None and not is_limit:
            raise
        refused = StoreError("files", f"{error.filename}: {error.strerror}", remedy=WHERE)
        refusal = TooManyFiles("files") if is_limit else refused
        _complain(refusal, as_json=getattr(options, "json", False))
        return refusal.exit_code


def _parsed(words: Sequence[str]) -> argparse.Namespace:
    """Return the options of a command line; UsageError if it cannot be read."""
    named = words[0] if words else ""
    top = parser([named] if named in GROUPS else [] if named == "--version" else GROUPS)
    options, unknown = top.parse_known_args(words)
    if unknown:  # refused by the command's own parser, which has its words for the hint
        _named(top, options).error(f"unrecognized arguments: {' '.join(unknown)}")
    return options


def _command_first(words: Sequence[str]) -> list[str]:
    """The words with the options of every command behind it, where somebody wrote them before it."""
    rest, before = list(words), list[str]()
    while rest and (rest[0] == "--json" or rest[0].split("=", 1)[0] == "--config"):
        before += [rest.pop(0) for _ in range(2 if rest[0] == "--config" and len(rest) > 1 else 1)]
    end = rest.index("--") if "--" in rest else len(rest)
    return [*rest[:end], *before, *rest[end:]]


def _named(top: argparse.ArgumentParser, options: argparse.Namespace) -> argparse.ArgumentParser:
    command = commands_of(top)[options.command]
    return commands_of(command).get(getattr(options, "verb", ""), command)


def _complain(error: ChainfolioError, *, as_json: bool) -> None:
    if as_json:
        fields = {key: value for key, value in vars(error).items() if isinstance(value, str | int | float | None)}
        print(json.dumps({"error": {"kind": type(error).__name__, **fields}}))
        return
    if isinstance(error, UsageError):
        print(f"{error.usage}{error.program}: error: {error.reason}", file=sys.stderr)
        return
    print(f"error: {error.message}", file=sys.stderr)
    if error.remedy:
        print(f"  remedy: {error.remedy}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
