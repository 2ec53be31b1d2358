"""`chainfolio close make|check`: a period's books as a signed folder, and its check without network."""

from __future__ import annotations

import argparse
import asyncio
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from chainfolio import __version__
from chainfolio.cli.common import Commands, add_rpc, money, show_json, with_system
from chainfolio.cli.groups import GROUPS
from chainfolio.cli.table import print_wrapped
from chainfolio.cli.wallets import read_accounts
from chainfolio.engine.named_accounts import check_chains, on_chains
from chainfolio.errors import BadRequest

if TYPE_CHECKING:
    from chainfolio.exports.close.check import CheckResult
    from chainfolio.exports.close.pack import Manifest
    from chainfolio.indexer.wiring import System

WRONG: Final = 12
OPEN: Final = 13


def add(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Register the commands."""
    group = commands.add_parser("close", help=GROUPS["close"], description=__doc__)
    verbs = group.add_subparsers(dest="verb", metavar="VERB", required=True)
    make = verbs.add_parser("make", parents=[common], help="write the pack of a period")
    make.add_argument("--accounts", required=True, metavar="FILE", help="addresses of one owner, one a line")
    make.add_argument("--from", dest="first", required=True, metavar="DATE", help="day of the opening, YYYY-MM-DD")
    make.add_argument("--to", dest="last", required=True, metavar="DATE", help="day of the closing")
    make.add_argument(
        "--at", required=True, metavar="TIME", help='time and zone of both cut-offs, as "17:00 Europe/Zurich"'
    )
    make.add_argument("--currency", default="USD", help="USD, or another fiat currency (default USD)")
    make.add_argument("--policy", required=True, metavar="FILE", help="method, limits of prices and overrides, as TOML")
    make.add_argument("--chain", action="append", default=[], metavar="KEY", help="only this chain; repeatable")
    make.add_argument("--key", metavar="FILE", help="private key of OpenSSH (Ed25519) that signs; without it, unsigned")
    make.add_argument("--out", required=True, metavar="PACK", help="the new folder")
    add_rpc(make, keeps=True)
    make.set_defaults(run=_make)
    check = verbs.add_parser("check", parents=[common], help="check a pack, without network")
    check.add_argument("pack", help="the folder")
    check.add_argument("--signer", metavar="KEY.pub", help="the public key that must have signed it")
    check.set_defaults(run=_check)


def _make(options: argparse.Namespace) -> int:
    """Write a pack, print its sums and return 0."""
    from chainfolio.engine.service import Engine
    from chainfolio.exports.close.books import CloseRequest, read_books
    from chainfolio.exports.close.pack import write_pack
    from chainfolio.exports.close.policy import load_policy

    policy, policy_data = load_policy(Path(options.policy))

    async def work(system: System) -> Manifest:
        check_chains(system)
        listed = [on_chains(system, each, options.chain) for each in read_accounts(options.accounts)]
        accounts = tuple(dict.fromkeys(listed))
        if not accounts:
            raise BadRequest("accounts", f"{options.accounts} has no address", remedy="one address a line")
        request = CloseRequest(
            accounts, options.first, options.last, options.at, options.currency, policy, tuple(options.chain)
        )
        engine = Engine(system, max_lookups=None, adds_gains=False)
        books = await read_books(engine, request)
        key = Path(options.key) if options.key else None
        write = partial(write_pack, made_with=f"chainfolio {__version__}")
        return await asyncio.to_thread(write, books, policy_data, system.settings, Path(options.out), key)

    _show_manifest(options, with_system(options, work))
    return 0


def _show_manifest(options: argparse.Namespace, manifest: Manifest) -> None:
    """Print the sums of a pack, and how it is signed if it is not."""
    from chainfolio.exports.close.signature import NAMESPACE

    if options.json:
        show_json({"pack": options.out, "digest": manifest.digest, "totals": manifest.totals})
        return
    totals, unit = manifest.totals, manifest.currency
    print_wrapped(f"{options.out}: {manifest.period.opening} to {manifest.period.closing}")
    print_wrapped(f"value {money(totals.opening_value)} to {money(totals.closing_value)} {unit}")
    print_wrapped(f"realised {money(totals.realised)}, income {money(totals.income)}, fees {money(totals.fees)} {unit}")
    print_wrapped(f"digest {manifest.digest}")
    if not options.key:
        print(f"not signed: ssh-keygen -Y sign -f KEY -n {NAMESPACE} {options.out}/manifest.json")


def _check(options: argparse.Namespace) -> int:
    """Print the findings about a pack; return 12 if something is wrong, 13 if something is open, else 0."""
    from chainfolio.exports.close.check import check_pack
    from chainfolio.exports.close.signature import public_key_in

    signer = ""
    if options.signer:
        try:
            signer = public_key_in(Path(options.signer).read_text(encoding="utf-8", errors="replace"))
        except OSError as error:
            raise BadRequest("signer", f"{options.signer}: {error.strerror}", remedy="name KEY.pub") from None
    result = check_pack(Path(options.pack), signer)
    if options.json:
        show_json(result)
    else:
        _show_result(result)
    return WRONG if result.wrong else OPEN if result.open else 0


def _show_result(result: CheckResult) -> None:
    """Print what is wrong and what is open, the key, and the value by class of evidence."""
    for text in result.wrong:
        print_wrapped(f"wrong: {text}")
    for text in result.open:
        print_wrapped(f"open: {text}")
    print_wrapped(f"{result.pack}: {len(result.wrong)} wrong, {len(result.open)} open")
    print_wrapped(f"signed by {result.signer or 'nobody'}")
    for name, value in result.evidence.items():
        print_wrapped(f"{name}: {money(value)} {result.currency}", indent=2)
