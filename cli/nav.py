"""`chainfolio nav ADDRESS…`: net asset value of addresses together; with `--from FILE` of each alone."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from chainfolio.cli import wallets
from chainfolio.cli.common import Commands, add_rpc, show_issues, with_system
from chainfolio.cli.groups import GROUPS
from chainfolio.cli.names import accounts_of
from chainfolio.engine.named_accounts import check_chains
from chainfolio.engine.service import Engine
from chainfolio.errors import BadRequest
from chainfolio.portfolio.nav import encode

if TYPE_CHECKING:
    from chainfolio.assets import Account
    from chainfolio.blocks import Block
    from chainfolio.indexer.wiring import System
    from chainfolio.portfolio.nav import Nav

HEAD = f"{'address':<42}  {'net asset value':>24}"


def add(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Register the command."""
    command = commands.add_parser("nav", parents=[common], help=GROUPS["nav"], description=__doc__)
    command.add_argument("address", nargs="*")
    wallets.add(command)
    command.add_argument("--chain", help="with --from: the chain; needed where several are configured")
    command.add_argument("--block", type=int, metavar="N", help="with --from: at this block instead of now")
    command.add_argument("--currency", default="USD")
    add_rpc(command)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print one value over all accounts, or with --from one line for each address.

    The exit code is 0 even if there are issues.

    Raises:
        BadRequest: for --chain or --block without --from.
    """
    wallets.check(options)
    if options.file is not None:
        with_system(options, partial(wallets.show, options=options, listing=_listing(options)))
        return 0
    if options.chain is not None or options.block is not None:
        raise BadRequest("chain", "one value is of all chains now", remedy="--from FILE for one block of one chain")

    async def read(system: System) -> Nav:

        accounts = await accounts_of(system, options.address)
        check_chains(system)
        return await Engine(system).nav(accounts, options.currency, wait=True)

    result = with_system(options, read)
    rate = f" (rate {result.conversion_price}: {result.conversion_source})" if result.conversion_source else ""
    print(encode(result).decode() if options.json else f"{_amount(result)}{rate}")
    if not options.json:
        show_issues(result.issues)
    return 0


def _amount(value: Nav) -> str:
    lacks = f", without {value.unpriced_assets} assets that have no price" if value.unpriced_assets else ""
    lacks += ", not everything could be read" if value.completeness == "partial" else ""
    return f"{value.nav:,.2f} {value.currency}{lacks}"


def _listing(options: argparse.Namespace) -> wallets.Listing[Nav]:
    """Return how net asset values of many wallets are read and printed: a line each, or JSON with --json."""

    async def read_some(engine: Engine, accounts: Sequence[Account], key: str, block: Block) -> list[Nav]:
        return await engine.navs_at(accounts, key, block, options.currency, past=options.block is not None)

    def line(account: Account, value: Nav) -> str:
        if options.json:
            address = msgspec.json.encode(account.address).decode()
            return f'{{"address":{address},{encode(value).decode()[1:]}'
        return f"{account.address:<42}  {_amount(value):>24}"

    return wallets.Listing(read_some, line, HEAD)
