"""`chainfolio addressbook add|plan|list`: the wallets of an account's address book, and their plans."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from chainfolio.api.texts import MAX_CHARS, tidy
from chainfolio.cli.account import existing
from chainfolio.cli.common import Commands, moment_us, one_line, settings, show_json, show_table, utc_time
from chainfolio.cli.groups import GROUPS
from chainfolio.cli.names import read_account
from chainfolio.cli.state_store import opened_state
from chainfolio.errors import BadRequest
from chainfolio.storage.state import accounts, address_book, audit

if TYPE_CHECKING:
    from chainfolio.storage.state.address_book import Entry
    from chainfolio.storage.state.database import Transaction

EXPIRES = "2027-01-01T00:00:00Z"


def add(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Register the commands."""
    group = commands.add_parser("addressbook", help=GROUPS["addressbook"], description=__doc__)
    verbs = group.add_subparsers(dest="verb", metavar="VERB", required=True)
    adding = verbs.add_parser("add", parents=[common], help="add wallets; entries that exist stay as they are")
    adding.add_argument("address", nargs="+")
    adding.add_argument("--account", required=True, metavar="ID")
    adding.add_argument(
        "--label", default="", metavar="TEXT", help=f"label of one wallet, at most {MAX_CHARS} characters"
    )
    adding.set_defaults(run=_add)
    plan = verbs.add_parser("plan", parents=[common], help="move an entry to another plan")
    plan.add_argument("address")
    plan.add_argument("--account", required=True, metavar="ID")
    plan.add_argument("--plan", required=True, choices=("FREE", "LITE", "PRO"))
    plan.add_argument("--expires", metavar=EXPIRES, help="when it lapses: needed with LITE and PRO, none with FREE")
    plan.add_argument(
        "--owner-authorized",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="whether the wallet's owner authorized the entry, which then cannot be deleted (default: as it is)",
    )
    plan.set_defaults(run=_plan)
    listing = verbs.add_parser("list", parents=[common], help="every entry of an account")
    listing.add_argument("--account", required=True, metavar="ID")
    listing.set_defaults(run=_list)


def _add(options: argparse.Namespace) -> int:
    """Add wallets, all of them or none.

    Raises:
        BadRequest: for an address or a label that is none, and for a label of several wallets.
        Refusal: if the account's quota is too small.
    """
    try:
        label = tidy("label", options.label)
    except ValueError as error:
        raise BadRequest("label", str(error)) from None
    if label and len(options.address) > 1:
        raise BadRequest("label", "a label is of one wallet", remedy="add the wallets one by one")
    labels = {read_account(options, address).address: label for address in options.address}
    with opened_state(options) as state:
        existing(state, options.account)
        now_us, quotas = state.clock.now_us(), settings(options).quotas

        def add_wallets(tx: Transaction) -> list[Entry]:
            accounts.lock(tx, options.account)
            address_book.add(tx, options.account, labels, quotas, now_us)
            detail = {"addresses": list(labels)}
            audit.record(tx, now_us, audit.OPERATOR, options.account, "addresses added", detail)
            return [address_book.entry(tx, options.account, address) for address in labels]

        entries = state.database.write(add_wallets)
    if options.json:
        show_json([_document(entry, now_us) for entry in entries])
    for entry in () if options.json else entries:
        print(f"{entry.address} is in the address book, on {entry.plan}")
    return 0


def _plan(options: argparse.Namespace) -> int:
    """Set the plan of an entry in an account's address book, and print it.

    Whether the owner authorized it changes only if the option says so.
    """
    until_us = moment_us(options.expires) if options.expires else None
    address = read_account(options, options.address).address
    with opened_state(options) as state:
        now_us = state.clock.now_us()

        def set_plan(tx: Transaction) -> Entry:
            accounts.lock(tx, options.account)
            authorized = options.owner_authorized
            return address_book.set_plan(
                tx, options.account, address, options.plan, until_us, now_us, owner_authorized=authorized
            )

        entry = state.database.write(set_plan)
    document = _document(entry, now_us)
    one_line(document) if options.json else print(f"{entry.address} is on {entry.plan}")
    return 0


def _list(options: argparse.Namespace) -> int:
    """Print an account's address book, as a table or --json; returns 0. BadRequest if there is no account."""
    with opened_state(options) as state:
        existing(state, options.account)
        now_us = state.clock.now_us()
        entries = state.database.read(lambda tx: address_book.entries(tx, options.account))
    if options.json:
        show_json([_document(entry, now_us) for entry in entries])
        return 0
    rows = [
        (e.address, e.label, e.plan, utc_time(e.expires_us) or "", "yes" if e.owner_authorized else "") for e in entries
    ]
    show_table("", [("address", ""), ("label", ""), ("plan", ""), ("expires", ""), ("authorized", "")], rows)
    return 0


def _document(entry: Entry, now_us: int) -> dict[str, Any]:
    """Return an entry for --json: `address`, `label`, `plan`, `expiresAt`, `isPaid`, `ownerAuthorized`.

    `expiresAt` is a UTC text, None without an end.
    """
    return {
        "address": entry.address,
        "label": entry.label,
        "plan": entry.plan,
        "expiresAt": utc_time(entry.expires_us),
        "isPaid": entry.is_paid(now_us),
        "ownerAuthorized": entry.owner_authorized,
    }
