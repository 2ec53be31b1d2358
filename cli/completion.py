"""`chainfolio completion bash|zsh|tcsh`: a script that completes commands and options when the tab key is pressed."""

from __future__ import annotations

import argparse

from cli.common import Commands

SHELLS = ("bash", "zsh", "tcsh")


def add(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Register the command."""
    command = commands.add_parser("completion", parents=[common], help="complete with the tab key", description=__doc__)
    command.add_argument("shell", choices=SHELLS)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    import shtab

    from cli.main import parser

    print(shtab.complete(parser(), shell=options.shell))
    return 0
