"""`chainfolio virtual-user add|list|remove`: portfolios that an account defines itself."""

from __future__ import annotations

import argparse
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from chainfolio.api.texts import tidy
from chainfolio.cli.account import existing
from chainfolio.cli.common import Commands, one_line, show_json, show_table
from chainfolio.cli.groups import GROUPS
from chainfolio.cli.state_store import opened_state
from chainfolio.errors import BadRequest
from chainfolio.storage.state import accounts, virtual_users

if TYPE_CHECKING:
    from chainfolio.contracts import VirtualUser
    from chainfolio.storage.state.database import Transaction

TYPES = ("BALANCE", "CEX", "GROUP")


def add(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Register the commands."""
    group = commands.add_parser("virtual-user", help=GROUPS["virtual-user"], description=__doc__)
    verbs = group.add_subparsers(dest="verb", metavar="VERB", required=True)
    make = verbs.add_parser("add", parents=[common], help="a new virtual user")
    make.add_argument("--account", required=True, metavar="ID")
    make.add_argument("--type", required=True, choices=TYPES)
    make.add_argument("--label", required=True)
    make.add_argument("--file", required=True, type=Path, help="JSON: a list of holdings, or for a GROUP its addresses")
    make.set_defaults(run=_add)
    listing = verbs.add_parser("list", parents=[common], help="an account's virtual users")
    listing.add_argument("--account", required=True, metavar="ID")
    listing.set_defaults(run=_list)
    remove = verbs.add_parser("remove", parents=[common], help="delete a virtual user")
    remove.add_argument("id", help="as in virtual:<id>")
    remove.add_argument("--account", required=True, metavar="ID")
    remove.set_defaults(run=_remove)


def _add(options: argparse.Namespace) -> int:
    """Add a virtual user from a file and print its address.

    Raises BadRequest if the label, the file or the document in it is not valid.
    """
    try:
        label = tidy("label", options.label)
        label.encode()  # an argument that is not UTF-8 cannot be kept
        document = options.file.read_bytes()
    except ValueError as error:
        raise BadRequest("label", str(error)) from None
    except OSError as error:
        raise BadRequest("file", f"{options.file} cannot be read: {error.strerror}") from None
    virtual_users.parse_document(options.type, document)
    with opened_state(options) as state:
        existing(state, options.account)
        now_us = state.clock.now_us()
        id = str(uuid.UUID(int=state.random.getrandbits(128), version=4))

        def change(tx: Transaction) -> VirtualUser:
            accounts.lock(tx, options.account)
            return virtual_users.add(tx, options.account, id, options.type, label, document, now_us)

        user = state.database.write(change)
    one_line(_document(user)) if options.json else print(f"virtual:{user.id} ({user.type}, {user.label})")
    return 0


def _list(options: argparse.Namespace) -> int:
    """Print the virtual users of an account, as a table or --json; BadRequest if there is no account."""
    with opened_state(options) as state:
        existing(state, options.account)
        users = state.database.read(lambda tx: virtual_users.every(tx, options.account))
    if options.json:
        show_json([_document(user) for user in users])
        return 0
    rows = [(f"virtual:{u.id}", u.type, u.label, str(len(u.holdings) or len(u.accounts))) for u in users]
    show_table("", [("address", ""), ("type", ""), ("label", ""), ("lines", "right")], rows)
    return 0


def _remove(options: argparse.Namespace) -> int:
    """Remove a virtual user and print its address; BadRequest if there is none."""
    id = options.id.removeprefix("virtual:").lower()
    with opened_state(options) as state:
        now_us = state.clock.now_us()

        def change(tx: Transaction) -> bool:
            accounts.lock(tx, options.account)
            return virtual_users.remove(tx, options.account, id, now_us)

        if not state.database.write(change):
            remedy = f"chainfolio virtual-user list --account {options.account}"
            raise BadRequest("virtual user", f"the account has no virtual user {id}", remedy=remedy)
    one_line({"removed": f"virtual:{id}"}) if options.json else print(f"virtual:{id} is removed")
    return 0


def _document(user: VirtualUser) -> dict[str, str]:
    return {"id": user.id, "address": f"virtual:{user.id}", "type": user.type, "label": user.label}
