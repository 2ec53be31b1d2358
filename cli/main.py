"""The command line: one file a command group, imported only when it is called, so that a command starts fast."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import os
import sys
from collections.abc import Sequence

from chainfolio.errors import ChainfolioError, StoreError

GROUPS = (
    "demo", "serve", "worker", "index", "derive", "portfolio", "nav", "approvals", "transactions", "verify",
    "account", "key", "addressbook", "subscription", "virtual-user", "sql", "doctor",
    "new-protocol", "record", "test-protocol",
)  # fmt: skip

WHERE = "`data` in the settings names a folder that this user may write to"


def parser(groups: Sequence[str] = GROUPS) -> argparse.ArgumentParser:
    """The commands of some groups with their options."""
    top = argparse.ArgumentParser(
        prog="chainfolio",
        description="Self-hosted blockchain indexer and portfolio engine.",
        epilog="Settings: --config FILE, else $CHAINFOLIO_CONFIG, else chainfolio.toml; CHAINFOLIO_… overrides.",
    )
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--config", metavar="FILE", help="settings file")
    common.add_argument("--json", action="store_true", help="print JSON for programs instead of text for people")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for group in groups:
        importlib.import_module(f"cli.{group.replace('-', '_')}").add(commands, common)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code says how it ended (0 done, 2 wrong usage, 3 node, 4 not indexed, 5 store…)."""
    os.umask(0o077)  # what stores hold is their owner's: tenants' data, keys, settings of nodes
    given = list(sys.argv[1:] if arguments is None else arguments)
    named = given[0] if given else ""
    options = parser([named] if named in GROUPS else GROUPS).parse_args(given)
    try:
        return int(options.run(options) or 0)
    except ChainfolioError as error:
        _complain(error, as_json=getattr(options, "json", False))
        return error.exit_code
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("stopped; what was committed stays", file=sys.stderr)
        return 130
    except BrokenPipeError:
        return 0
    except OSError as error:
        if error.filename is None:
            raise
        refusal = StoreError("files", f"{error.filename}: {error.strerror}", cure=WHERE)
        _complain(refusal, as_json=getattr(options, "json", False))
        return refusal.exit_code


def _complain(error: ChainfolioError, *, as_json: bool) -> None:
    if as_json:
        fields = {key: value for key, value in vars(error).items() if isinstance(value, str | int | float | None)}
        print(json.dumps({"error": {"kind": type(error).__name__, **fields}}))
        return
    print(f"error: {error.message}", file=sys.stderr)
    if error.cure:
        print(f"  cure: {error.cure}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
