"""`chainfolio key create|list|revoke|accept-secret`: the keys of an account.

Rotate by create, then revoke: both keys work in between.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from chainfolio.cli.common import PEPPER, Commands, moment_us, one_line, settings, show_json, show_table
from chainfolio.cli.groups import GROUPS
from chainfolio.cli.state_store import open_state, opened_state
from chainfolio.errors import BadRequest

if TYPE_CHECKING:
    from chainfolio.storage.state import State


def add(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Register the commands."""
    group = commands.add_parser("key", help=GROUPS["key"], description=__doc__)
    verbs = group.add_subparsers(dest="verb", metavar="VERB", required=True)
    create = verbs.add_parser("create", parents=[common], help="a new key, shown once")
    create.add_argument("--account", required=True, metavar="ID")
    create.add_argument("--name", required=True)
    create.add_argument("--expires", metavar="2027-01-01T00:00:00Z")
    create.set_defaults(run=_create)
    listing = verbs.add_parser("list", parents=[common], help="the keys of an account")
    listing.add_argument("--account", required=True, metavar="ID")
    listing.set_defaults(run=_list)
    revoke = verbs.add_parser("revoke", parents=[common], help="end a key at once")
    revoke.add_argument("id")
    revoke.set_defaults(run=_revoke)
    help = "go on with the secret that is there, after the right one was lost: no key made before works again"
    accept = verbs.add_parser("accept-secret", parents=[common], help=help)
    accept.set_defaults(run=_accept)


def _check(state: State, account: str) -> None:
    """Raise BadRequest if there is no such account."""
    if state.account(account) is None:
        raise BadRequest("account", f"there is no account {account}", remedy="chainfolio account list")


def _create(options: argparse.Namespace) -> int:
    """Create a key of an account and print it, this once; returns 0."""
    expires = moment_us(options.expires) if options.expires else None
    with opened_state(options) as state:
        _check(state, options.account)
        key, token = state.create_key(options.account, options.name, expires)
    one_line({"keyId": key.id, "apiKey": token}) if options.json else print(f"key {key.id}\n{token}\nShown this once.")
    return 0


def _list(options: argparse.Namespace) -> int:
    """Print the keys of an account, valid or revoked, by their last characters; returns 0."""
    with opened_state(options) as state:
        _check(state, options.account)
        keys = state.keys(options.account)
    rows = [(k.id, k.name, f"…{k.hint}", "revoked" if k.revoked_us else "valid") for k in keys]
    if options.json:
        show_json([dict(zip(("keyId", "name", "ends", "state"), row, strict=True)) for row in rows])
    else:
        show_table("", [("id", ""), ("name", ""), ("ends", ""), ("state", "")], rows)
    return 0


def _accept(options: argparse.Namespace) -> int:
    """Accept the secret that is there for the keys of the store; returns 0. Earlier keys work no more."""
    config = settings(options)
    open_state(config, accept=True).close()
    path = str(config.data_dir / PEPPER)
    one_line({"accepted": path}) if options.json else print(f"{path} is accepted; make new keys: chainfolio key create")
    return 0


def _revoke(options: argparse.Namespace) -> int:
    """Revoke a key and print its id; BadRequest if there is no valid one."""
    with opened_state(options) as state:
        is_revoked = state.revoke_key(options.id)
    if not is_revoked:
        raise BadRequest("key", f"there is no valid key {options.id}", remedy="chainfolio key list --account ID")
    one_line({"revoked": options.id}) if options.json else print(f"{options.id} is revoked")
    return 0
