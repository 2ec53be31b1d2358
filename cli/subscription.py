"""`chainfolio subscription add|list`: for which addresses an account gets daily snapshots, and until when."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from api.texts import tidy
from chainfolio.errors import BadRequest
from cli.common import Commands, moment, one_line, show_json, show_table
from cli.names import read_account
from cli.state_store import kept

if TYPE_CHECKING:
    from storage.state.database import Transaction
    from storage.state.subscriptions import Subscription


def add(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Register the commands."""
    group = commands.add_parser("subscription", help="daily snapshots of addresses", description=__doc__)
    verbs = group.add_subparsers(dest="verb", metavar="VERB", required=True)
    make = verbs.add_parser("add", parents=[common], help="subscribe for one year, without credits")
    make.add_argument("address")
    make.add_argument("--account", required=True, metavar="ID")
    make.add_argument("--description", default="")
    make.set_defaults(run=_add)
    listing = verbs.add_parser("list", parents=[common], help="an account's subscriptions, the lapsed ones included")
    listing.add_argument("--account", required=True, metavar="ID")
    listing.set_defaults(run=_list)


def _add(options: argparse.Namespace) -> int:
    from cli.account import existing
    from storage.state import accounts, subscriptions

    address = read_account(options, options.address).address
    try:
        description = tidy("description", options.description)
    except ValueError as error:
        raise BadRequest("description", str(error)) from None
    with kept(options) as state:
        existing(state, options.account)
        now_us = state.clock.now_us()

        def change(tx: Transaction) -> list[Subscription]:
            accounts.lock(tx, options.account)
            return subscriptions.add(tx, options.account, {address: description}, now_us)

        (made,) = state.database.change(change)
    words = f"{made.address} is subscribed to until {moment(made.expires_us)}"
    one_line(_document(made)) if options.json else print(words)
    return 0


def _list(options: argparse.Namespace) -> int:
    from cli.account import existing
    from storage.state import subscriptions

    with kept(options) as state:
        existing(state, options.account)
        listed = state.database.look(lambda tx: subscriptions.every(tx, options.account))
    if options.json:
        show_json([_document(each) for each in listed])
        return 0
    rows = [(s.address, moment(s.began_us) or "", moment(s.expires_us) or "", s.description) for s in listed]
    show_table("", [("address", ""), ("began", ""), ("expires", ""), ("description", "")], rows)
    return 0


def _document(made: Subscription) -> dict[str, Any]:
    return {
        "address": made.address, "description": made.description, "beganAt": moment(made.began_us),
        "expiresAt": moment(made.expires_us),
    }  # fmt: skip
