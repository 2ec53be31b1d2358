"""The command line: one file a command group, imported only when it is called."""

from __future__ import annotations

import argparse
import difflib
import errno
import importlib
import json
import os
import re
import sys
from collections.abc import Collection, Sequence
from types import ModuleType
from typing import NoReturn

from chainfolio import __version__
from chainfolio.cli import output, process
from chainfolio.cli.examples import EXAMPLES
from chainfolio.cli.groups import EXTRAS, GROUPS
from chainfolio.errors import (
    BadRequest,
    ChainfolioError,
    MissingDependency,
    StorageFull,
    StoreError,
    TooManyFiles,
    needs_extra,
)

WHERE = "`data` in the settings names a folder that this user may write to"


def parser(groups: Collection[str] = GROUPS.keys(), *, name_only: Collection[str] = ()) -> argparse.ArgumentParser:
    """Return the parser of the commands of `groups`. It lists those of `name_only` with their help alone.

    The code of a command in `name_only` is not imported. A command whose extra is missing is listed the same way.
    """
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
    for group in name_only:
        if group not in groups:
            commands.add_parser(group, help=GROUPS[group])
    for group in groups:
        try:
            _module(group).add(commands, common)
        except MissingDependency:
            if len(groups) == 1:
                raise
            commands.add_parser(group, help=GROUPS[group])
    _exemplify(top, ())
    return top


def _module(group: str) -> ModuleType:
    """Import the module of a command. Raises MissingDependency if its extra is not installed."""
    name = f"chainfolio.cli.{group.replace('-', '_')}"
    if group not in EXTRAS:
        return importlib.import_module(name)
    with needs_extra(*EXTRAS[group]):
        return importlib.import_module(name)


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
        valid_words = [name for action in self._actions for name in (*action.option_strings, *(action.choices or ()))]
        matches = difflib.get_close_matches(unknown[1], map(str, valid_words), 1) if unknown else []
        hint = f"; did you mean {matches[0]}?" if matches else ""
        raise UsageError(message + hint, self.format_usage(), self.prog)


def commands_of(of: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the commands or verbs directly below a parser, by name; empty if it has none."""
    groups = [action for action in of._actions if isinstance(action, argparse._SubParsersAction)]
    return {name: command for group in groups for name, command in group.choices.items()}


def _exemplify(of: argparse.ArgumentParser, path: tuple[str, ...]) -> None:
    """Set the examples of each command as the end of its help, for all commands below `of`."""
    below = commands_of(of)
    for name, command in below.items():
        _exemplify(command, (*path, name))
    if not below:
        lines = (f"  chainfolio {' '.join(path)} {example}".rstrip() for example in EXAMPLES.get(" ".join(path), ()))
        of.formatter_class = argparse.RawDescriptionHelpFormatter
        of.epilog = "examples:\n" + "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 done, 2 wrong usage, 3 node, 4 not indexed, 5 store."""
    with output.written_whole():
        return _flushed(arguments)


def _flushed(arguments: Sequence[str] | None) -> int:
    """Run one command with all of its output, and return its exit code.

    A reader that closed standard output gives `output.CLOSED`, a full disk the code of StorageFull.
    """
    try:
        try:
            process.use_one_heap()
            with process.rare_garbage_collection():
                return _ended(arguments)
        finally:
            output.flush()
    except BrokenPipeError:
        if not output.is_closed():  # of a connection, say
            raise
        output.discard_output(of_errors=True)
        return output.CLOSED
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        output.discard_output(of_errors=False)
        _complain(full := StorageFull("output"), as_json=False)
        return full.exit_code


def _ended(arguments: Sequence[str] | None) -> int:
    """Run the command of the arguments and return its exit code; errors are printed.

    New files are made readable for their owner alone. An interrupt gives 130. OSError without a file is raised, except
    for too many open files.
    """
    os.umask(0o077)  # what stores hold is their owner's: tenants' data, keys, settings of nodes
    arguments_list = _command_first(sys.argv[1:] if arguments is None else arguments)
    try:
        options = _parsed(arguments_list)
    except ChainfolioError as error:  # wrong usage, or the extra of the command is not installed
        _complain(error, as_json="--json" in arguments_list)
        return error.exit_code
    try:
        process.raise_file_limit()
        return int(options.run(options) or 0)
    except ChainfolioError as error:
        _complain(error, as_json=getattr(options, "json", False))
        return error.exit_code
    except (KeyboardInterrupt, _cancellation()):
        print("stopped; what was committed stays", file=sys.stderr)
        return 130
    except OSError as error:
        is_limit = error.errno in (errno.EMFILE, errno.ENFILE)
        if error.filename is None and not is_limit:
            raise
        refusal_of_file = StoreError("files", f"{error.filename}: {error.strerror}", remedy=WHERE)
        refusal = TooManyFiles("files") if is_limit else refusal_of_file
        _complain(refusal, as_json=getattr(options, "json", False))
        return refusal.exit_code


def _cancellation() -> type[BaseException]:
    """Return the class of a cancelled task's error. asyncio takes 30 ms to import."""
    from asyncio import CancelledError

    return CancelledError


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the options of a command line; UsageError if it cannot be read."""
    group = next((argument for argument in arguments if argument in GROUPS), None)
    is_first = bool(arguments) and arguments[0] == group
    top = parser([group] if group else [], name_only=() if is_first else GROUPS)
    options, unknown = top.parse_known_args(arguments)
    if unknown:  # refused by the command's own parser, which has its words for the hint
        _command_parser(top, options).error(f"unrecognized arguments: {' '.join(unknown)}")
    return options


def _command_first(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with the common options after the command, also if they stood before it.

    They stay before a `--`.
    """
    remaining, common_options = list(arguments), list[str]()
    while remaining and (remaining[0] == "--json" or remaining[0].split("=", 1)[0] == "--config"):
        common_options += [
            remaining.pop(0) for _ in range(2 if remaining[0] == "--config" and len(remaining) > 1 else 1)
        ]
    end = remaining.index("--") if "--" in remaining else len(remaining)
    return [*remaining[:end], *common_options, *remaining[end:]]


def _command_parser(top: argparse.ArgumentParser, options: argparse.Namespace) -> argparse.ArgumentParser:
    command = commands_of(top)[options.command]
    return commands_of(command).get(getattr(options, "verb", ""), command)


def _complain(error: ChainfolioError, *, as_json: bool) -> None:
    """Print an error: with `as_json` to standard output, else with its remedy to standard error."""
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
