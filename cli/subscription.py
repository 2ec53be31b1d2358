"""`chainfolio subscription add|list`: addresses with daily snapshots, and the end of each."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from chainfolio.api.texts import tidy
from chainfolio.cli.account import existing
from chainfolio.cli.common import Commands, one_line, show_json, show_table, utc_time
from chainfolio.cli.groups import GROUPS
from chainfolio.cli.names import read_account
from chainfolio.cli.state_store import opened_state
from chainfolio.errors import BadRequest
from chainfolio.storage.state import accounts, subscriptions

if TYPE_CHECKING:
    from chainfolio.storage.state.database import Transaction
    from chainfolio.storage.state.subscriptions import Subscription


def add(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Register the commands."""
    group = commands.add_parser("subscription", help=GROUPS["subscription"], description=__doc__)
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
    """Subscribe an account to an address and print until when.

    Raises BadRequest for a bad address, description or account, Refusal if it is subscribed already.
    """
    address = read_account(options, options.address).address
    try:
        description = tidy("description", options.description)
    except ValueError as error:
        raise BadRequest("description", str(error)) from None
    with opened_state(options) as state:
        existing(state, options.account)
        now_us = state.clock.now_us()

        def change(tx: Transaction) -> list[Subscription]:
            accounts.lock(tx, options.account)
            return subscriptions.add(tx, options.account, {address: description}, now_us)

        (subscription,) = state.database.write(change)
    message = f"{subscription.address} is subscribed to until {utc_time(subscription.expires_us)}"
    one_line(_document(subscription)) if options.json else print(message)
    return 0


def _list(options: argparse.Namespace) -> int:
    """Print all subscriptions of an account, also expired ones, as a table or --json; returns 0.

    Raises BadRequest if there is no such account.
    """
    with opened_state(options) as state:
        existing(state, options.account)
        subscribed = state.database.read(lambda tx: subscriptions.every(tx, options.account))
    if options.json:
        show_json([_document(each) for each in subscribed])
        return 0
    rows = [(s.address, utc_time(s.began_us) or "", utc_time(s.expires_us) or "", s.description) for s in subscribed]
    show_table("", [("address", ""), ("began", ""), ("expires", ""), ("description", "")], rows)
    return 0


def _document(subscription: Subscription) -> dict[str, Any]:
    """Return a subscription for --json; times are UTC texts."""
    return {
        "address": subscription.address,
        "description": subscription.description,
        "beganAt": utc_time(subscription.began_us),
        "expiresAt": utc_time(subscription.expires_us),
    }
