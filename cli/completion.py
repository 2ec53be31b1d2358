"""`chainfolio completion bash|zsh|tcsh`: a script that completes commands and options."""

from __future__ import annotations

import argparse

from chainfolio.cli.common import Commands
from chainfolio.cli.groups import GROUPS

SHELLS = ("bash", "zsh", "tcsh")


def add(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Register the command."""
    command = commands.add_parser("completion", parents=[common], help=GROUPS["completion"], description=__doc__)
    command.add_argument("shell", choices=SHELLS)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the completion script of a shell; the exit code is 0."""
    import shtab

    from chainfolio.cli.main import parser

    print(shtab.complete(parser(), shell=options.shell))
    return 0
