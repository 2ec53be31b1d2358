"""`chainfolio verify ADDRESS`: read an answer again from another endpoint, and prove its balances."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from typing import TYPE_CHECKING

from chainfolio.cli.common import Commands, add_rpc, show_json, show_table, with_system
from chainfolio.cli.groups import GROUPS
from chainfolio.cli.names import account_of
from chainfolio.engine.named_accounts import check_chains, one_chain
from chainfolio.engine.verification import verify
from chainfolio.engine.wiring import snapshotter_of
from chainfolio.errors import BadRequest

if TYPE_CHECKING:
    from chainfolio.engine.verification import Check, Verification
    from chainfolio.indexer.wiring import System

DIFFERS, NOT_SHOWN = 10, 11
COLUMNS = (("number", ""), ("asset", ""), ("value", "right"), ("status", ""), ("shown by", ""))


def add(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Register the command."""
    command = commands.add_parser("verify", parents=[common], help=GROUPS["verify"], description=__doc__)
    command.add_argument("address")
    command.add_argument("--chain", help="needed where several are configured")
    command.add_argument("--block", type=int, metavar="N", help="the block (default: the newest final one)")
    command.add_argument(
        "--against",
        action="append",
        default=[],
        metavar="URL",
        help="an endpoint to compare with, may be repeated (default: the other endpoints of the settings)",
    )
    add_rpc(command)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the comparison of a snapshot with other endpoints and proofs.

    The exit code is 10 if a number differs, else 11 if one could not be shown, else 0.
    """
    verification = with_system(options, lambda system: _verified(system, options))
    if options.json:
        show_json(verification)
    else:
        _show(verification)
    return DIFFERS if verification.differs else 0 if verification.complete else NOT_SHOWN


async def _verified(system: System, options: argparse.Namespace) -> Verification:
    """Check the options and return the verification; progress goes to standard error without --json.

    Raises:
        BadRequest: No chain is configured, several chains fit and none is named, the address is of another kind, the
            block is negative, or an endpoint is no URL.
    """
    check_chains(system)
    if options.block is not None and options.block < 0:
        raise BadRequest("block", "a block height is at least 0")
    for url in options.against:
        if not url.startswith(("http://", "https://")):
            raise BadRequest(
                "against", f"{url!r} is not an address", remedy="for example --against http://127.0.0.1:8545"
            )
    on_step = (lambda text: None) if options.json else (lambda text: print(f"{text} …", file=sys.stderr))
    owner = await account_of(system, options.address, options.chain)
    key = one_chain(system, options.chain, [owner], "a block belongs to one chain")
    at_endpoint, readers = partial(system.at_endpoint, key), partial(snapshotter_of, system)
    return await verify(system.chain(key), at_endpoint, readers, owner, options.block, options.against, on_step)


def _show(verification: Verification) -> None:
    """Print the checks as a table, then notes, endpoints that failed, faults and counts."""
    title = f"{verification.address} on {verification.chain} at block {verification.block_number}"
    show_table(title, COLUMNS, [_row(check) for check in verification.checks])
    print(f"answered by {verification.answered_by}; block hash {verification.block_hash}")
    compared_with = ", ".join(verification.compared_with) or "no other endpoint"
    print(f"compared with {compared_with}; proofs from {verification.proven_by or 'no endpoint'}")
    for note in verification.notes:
        print(f"  note: {note}")
    for fault in verification.silent:
        print(f"  no help: {fault.endpoint}: {fault.kind}: {fault.reason}")
    for fault in verification.faults:
        print(f"  FAULT: {fault.endpoint}: {fault.kind}: {fault.reason}")
    print(", ".join(f"{count} {status}" for status, count in verification.counts.items() if count))


def _row(check: Check) -> tuple[str, ...]:
    """Return the row of a check: number, token, value, status, and proof or values elsewhere."""
    other_values = [f"{each.endpoint}: {each.value if each.value is not None else '?'}" for each in check.elsewhere]
    if check.status == "equal" or (check.status == "proven" and other_values):
        other_values = [f"equal at {', '.join(each.endpoint for each in check.elsewhere)}"]
    remarks = [check.proof, *other_values] if check.status != "unprovable" else [check.reason, *other_values]
    return (
        check.number,
        check.symbol.lower() or check.asset,
        check.value or "?",
        check.status,
        "; ".join(filter(None, remarks)),
    )
