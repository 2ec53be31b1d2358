"""`chainfolio nav ADDRESS…`: the net asset value of addresses together."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from cli.common import Commands, add_rpc, check_chains, with_system
from cli.names import accounts_of

if TYPE_CHECKING:
    from indexer.wiring import System
    from portfolio.nav import Nav


def add(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Register the command."""
    command = commands.add_parser("nav", parents=[common], help="net asset value", description=__doc__)
    command.add_argument("address", nargs="+")
    command.add_argument("--currency", default="USD")
    add_rpc(command)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    from portfolio.nav import encode

    async def read(system: System) -> Nav:
        from engine.service import Engine

        accounts = await accounts_of(system, options.address)
        check_chains(system)
        return await Engine(system).nav(accounts, options.currency, wait=True)

    result = with_system(options, read)
    lacks = f", without {result.unpriced_assets} assets that have no price" if result.unpriced_assets else ""
    lacks += ", not everything could be read" if result.completeness == "partial" else ""
    rate = f" (rate {result.conversion_price}: {result.conversion_source})" if result.conversion_source else ""
    print(encode(result).decode() if options.json else f"{result.nav:,.2f} {result.currency}{lacks}{rate}")
    return 0
