"""`chainfolio account create|list|show`: who may call the API."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime

from chainfolio.errors import BadRequest
from cli.common import Commands, one_line, settings, show_json, show_table

GRANTS = ("portfolio", "at-block", "enterprise")
MAX_CREDITS = 2**53 - 1  # the API gives credits as a JSON number


def add(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Register the commands."""
    group = commands.add_parser("account", help="accounts of the API", description=__doc__)
    verbs = group.add_subparsers(dest="verb", metavar="VERB", required=True)
    create = verbs.add_parser("create", parents=[common], help="a new account and its first key, shown once")
    create.add_argument("--name", required=True)
    create.add_argument("--plan", default="FREE", choices=("FREE", "LITE", "PRO"))
    create.add_argument("--credits", type=int, default=0, metavar="N")
    create.add_argument("--grant", action="append", default=[], choices=GRANTS, help="may be given several times")
    create.add_argument("--expires", metavar="2027-01-01T00:00:00Z", help="when the plan lapses")
    create.set_defaults(run=_create)
    verbs.add_parser("list", parents=[common], help="all accounts").set_defaults(run=_list)
    show = verbs.add_parser("show", parents=[common], help="one account with its keys")
    show.add_argument("id")
    show.set_defaults(run=_show)


def moment_us(written: str) -> int:
    """A moment in UTC as microseconds."""
    try:
        moment = datetime.fromisoformat(written)
    except ValueError:
        raise BadRequest("expires", f"{written!r} is not a moment", cure="for example 2027-01-01T00:00:00Z") from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return int(moment.timestamp()) * 1_000_000 + moment.microsecond


def _create(options: argparse.Namespace) -> int:
    from cli.serve import open_state

    expires = moment_us(options.expires) if options.expires else None
    if not options.name.strip():
        raise BadRequest("name", "an account needs a name")
    if not 0 <= options.credits <= MAX_CREDITS:
        raise BadRequest("credits", f"0 to {MAX_CREDITS:,}")
    state = open_state(settings(options))
    account, key = state.create_account(options.name, options.plan, options.credits, options.grant, expires)
    state.close()
    if options.json:
        one_line({"accountId": account.id, "apiKey": key})
        return 0
    print(f"account {account.id} ({account.name}, {account.plan})\nkey     {key}")
    print("The key is shown this once and stored only as a hash.")
    return 0


def _list(options: argparse.Namespace) -> int:
    from cli.serve import open_state

    state = open_state(settings(options))
    rows = [(a.id, a.name, a.plan, ", ".join(sorted(a.grants)), str(state.balance(a.id))) for a in state.accounts()]
    state.close()
    if options.json:
        names = ("accountId", "name", "plan", "grants", "credits")
        show_json([dict(zip(names, row, strict=True)) for row in rows])
        return 0
    show_table("", [("id", ""), ("name", ""), ("plan", ""), ("grants", ""), ("credits", "right")], rows)
    return 0


def _show(options: argparse.Namespace) -> int:
    from cli.serve import open_state

    state = open_state(settings(options))
    account = state.account(options.id)
    if account is None:
        state.close()
        raise BadRequest("account", f"there is no account {options.id}", cure="chainfolio account list")
    keys = state.keys(account.id)
    balance = state.balance(account.id)
    state.close()
    show_json({
        "accountId": account.id, "name": account.name, "plan": account.plan, "grants": sorted(account.grants),
        "credits": balance, "keys": [{"id": k.id, "name": k.name, "ends": k.hint} for k in keys],
    })  # fmt: skip
    return 0
