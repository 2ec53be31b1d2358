"""`chainfolio account …`: accounts of the API, their rights, their limits and their credits."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from chainfolio.cli.common import Commands, moment_us, one_line, settings, show_json, show_table, utc_time
from chainfolio.cli.groups import GROUPS
from chainfolio.cli.state_store import opened_state
from chainfolio.errors import BadRequest
from chainfolio.storage.state import accounts, audit, delegations, ledger, quotas

if TYPE_CHECKING:
    from chainfolio.storage.state import State

PLANS = ("FREE", "LITE", "PRO")
GRANTS = ("portfolio", "at-block", "enterprise", "sql")
QUOTAS = ("addressbook", "bundles", "bundle-size")
MAX_CREDITS = 2**53 - 1  # the API gives credits as a JSON number
EXPIRES = "2027-01-01T00:00:00Z"


def add(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Register the commands."""
    group = commands.add_parser("account", help=GROUPS["account"], description=__doc__)
    verbs = group.add_subparsers(dest="verb", metavar="VERB", required=True)
    create = verbs.add_parser("create", parents=[common], help="a new account and its first key, shown once")
    create.add_argument("--name", required=True)
    create.add_argument("--plan", default="FREE", choices=PLANS)
    create.add_argument("--credits", type=int, default=0, metavar="N")
    create.add_argument("--grant", action="append", default=[], choices=GRANTS, help="may be given several times")
    create.add_argument("--expires", metavar=EXPIRES, help="when the plan lapses")
    create.set_defaults(run=_create)
    verbs.add_parser("list", parents=[common], help="all accounts").set_defaults(run=_list)

    def verb(name: str, run: Any, help_text: str) -> argparse.ArgumentParser:
        command: argparse.ArgumentParser = verbs.add_parser(name, parents=[common], help=help_text)
        command.add_argument("id", metavar="ID", help="the account")
        command.set_defaults(run=run)
        return command

    verb("show", _show, "one account with its keys, quotas and delegates")
    credit = verb("credit", _credit, "give credits, or take back (below zero) what no running call holds")
    credit.add_argument("amount", type=int, metavar="N")
    credit.add_argument("--memo", default="", help="why, for the ledger")
    verb("grant", _grant, "grant an entitlement").add_argument("grant", choices=GRANTS)
    verb("revoke-grant", _revoke_grant, "take an entitlement back").add_argument("grant", choices=GRANTS)
    plan = verb("plan", _plan, "move to another plan")
    plan.add_argument("--plan", required=True, choices=PLANS)
    plan.add_argument("--expires", metavar=EXPIRES, help="when it lapses (default: never)")
    quota = verb("quota", _quota, "show how much may be kept, or change it")
    for name in QUOTAS:
        quota.add_argument(f"--{name}", type=int, metavar="N")
    quota.add_argument("--default", action="append", default=[], choices=QUOTAS, help="back to what the settings say")
    delegate = verb("delegate", _delegate, "let another account act for this one's address book and bundles")
    delegate.add_argument("--to", required=True, metavar="ID", help="who may act for it")
    delegate.add_argument("--withdraw", action="store_true", help="no longer")
    verb("audit", _audit, "what was done to it, the oldest first")
    ledger = verb("ledger", _ledger, "where its credits came from and went, the newest first")
    ledger.add_argument("--limit", type=int, default=100, metavar="N")


def existing(state: State, account_id: str) -> None:
    """Raise BadRequest if there is no such account."""
    if state.account(account_id) is None:
        raise BadRequest("account", f"there is no account {account_id}", remedy="chainfolio account list")


def _create(options: argparse.Namespace) -> int:
    """Create an account and print its id and key, which is shown this once; returns 0.

    Raises BadRequest without a name, or for credits out of range.
    """
    expires = moment_us(options.expires) if options.expires else None
    if not options.name.strip():
        raise BadRequest("name", "an account needs a name")
    if not 0 <= options.credits <= MAX_CREDITS:
        raise BadRequest("credits", f"0 to {MAX_CREDITS:,}")
    with opened_state(options) as state:
        account, key = state.create_account(options.name, options.plan, options.credits, options.grant, expires)
    if options.json:
        one_line({"accountId": account.id, "apiKey": key})
        return 0
    print(f"account {account.id} ({account.name}, {account.plan})\nkey     {key}")
    print("The key is shown this once and stored only as a hash.")
    if not options.credits:
        print(f"It has no credits: chainfolio account credit {account.id} 1000")
    return 0


def _list(options: argparse.Namespace) -> int:
    """Print all accounts with plan, grants and credits, as a table or --json; returns 0."""
    with opened_state(options) as state:
        accounts = [(each, state.balance(each.id)) for each in state.accounts()]
    if options.json:
        show_json(
            [
                {"accountId": a.id, "name": a.name, "plan": a.plan, "grants": sorted(a.grants), "credits": credits}
                for a, credits in accounts
            ]
        )
        return 0
    rows = [(a.id, a.name, a.plan, ", ".join(sorted(a.grants)), f"{credits:,}") for a, credits in accounts]
    show_table("", [("id", ""), ("name", ""), ("plan", ""), ("grants", ""), ("credits", "right")], rows)
    return 0


def _show(options: argparse.Namespace) -> int:
    """Print an account with its keys, quotas and delegates as JSON; BadRequest if there is none."""
    config = settings(options)
    with opened_state(options) as state:
        account = state.account(options.id)
        if account is None:
            raise BadRequest("account", f"there is no account {options.id}", remedy="chainfolio account list")
        keys, balance = state.keys(account.id), state.balance(account.id)
        limits = state.database.read(lambda tx: quotas.limits(tx, options.id, config.quotas))
        delegates = state.database.read(lambda tx: delegations.delegates(tx, options.id))
    show_json(
        {
            "accountId": account.id,
            "name": account.name,
            "plan": account.plan,
            "expiresAt": utc_time(account.plan_expires_us),
            "grants": sorted(account.grants),
            "credits": balance,
            "quotas": limits,
            "delegates": delegates,
            "keys": [{"id": k.id, "name": k.name, "ends": k.hint} for k in keys],
        }
    )
    return 0


def _credit(options: argparse.Namespace) -> int:
    """Give an account credits, or take them back, and print the balance; returns 0."""
    with opened_state(options) as state:
        now_us = state.clock.now_us()
        balance = state.database.write(lambda tx: ledger.credit(tx, options.id, options.amount, now_us, options.memo))
    _print_result(options, {"accountId": options.id, "credits": balance}, f"{options.id} has {balance:,} credits")
    return 0


def _grant(options: argparse.Namespace) -> int:

    with opened_state(options) as state:
        now_us = state.clock.now_us()
        state.database.write(lambda tx: accounts.grant(tx, options.id, options.grant, now_us))
        return _tell_grants(options, state)


def _revoke_grant(options: argparse.Namespace) -> int:

    with opened_state(options) as state:
        now_us = state.clock.now_us()
        state.database.write(lambda tx: accounts.revoke_grant(tx, options.id, options.grant, now_us))
        return _tell_grants(options, state)


def _tell_grants(options: argparse.Namespace, state: State) -> int:
    """Print the grants of an account; returns 0."""
    account = state.account(options.id)
    grants = sorted(account.grants) if account else []
    _print_result(
        options, {"accountId": options.id, "grants": grants}, f"{options.id}: {', '.join(grants) or 'no grants'}"
    )
    return 0


def _plan(options: argparse.Namespace) -> int:
    """Set the plan of an account and print it; without an end it never lapses.

    Raises BadRequest for FREE with an end, and for a malformed time.
    """
    until_us = moment_us(options.expires) if options.expires else None
    if options.plan == "FREE" and until_us is not None:
        raise BadRequest("expires", "FREE does not lapse", remedy="leave --expires out")
    with opened_state(options) as state:
        now_us = state.clock.now_us()
        state.database.write(lambda tx: accounts.set_plan(tx, options.id, options.plan, until_us, now_us))
    ends = utc_time(until_us)
    document = {"accountId": options.id, "plan": options.plan, "expiresAt": ends}
    _print_result(options, document, f"{options.id} is on {options.plan}" + (f" until {ends}" if ends else ""))
    return 0


def _quota(options: argparse.Namespace) -> int:
    """Set or reset quotas of an account, and print all of them; without changes only print them.

    Raises BadRequest if a quota is both set and reset.
    """
    config = settings(options)
    changes: dict[str, int | None] = dict.fromkeys(options.default)
    for name in QUOTAS:
        value = getattr(options, name.replace("-", "_"))
        if value is not None and name in changes:
            raise BadRequest("quota", f"{name} is both given and taken back", remedy=f"--{name} or --default {name}")
        if value is not None:
            changes[name] = value
    with opened_state(options) as state:
        existing(state, options.id)
        now_us = state.clock.now_us()

        def change(tx: Any) -> None:
            for name, value in changes.items():
                quotas.override(tx, options.id, name, value, now_us)

        if changes:
            state.database.write(change)
        limits = state.database.read(lambda tx: quotas.limits(tx, options.id, config.quotas))
    limits_text = ", ".join(f"{name} {value:,}" for name, value in limits.items())
    _print_result(options, {"accountId": options.id, **limits}, f"{options.id}: {limits_text}")
    return 0


def _delegate(options: argparse.Namespace) -> int:
    """Let the account --to act for another one, or with --withdraw no longer, and print all that may."""
    with opened_state(options) as state:
        now_us = state.clock.now_us()
        change = delegations.withdraw if options.withdraw else delegations.delegate
        state.database.write(lambda tx: change(tx, options.id, options.to, now_us))
        delegates = state.database.read(lambda tx: delegations.delegates(tx, options.id))
    message = f"{options.id}: accounts that act for it: {', '.join(delegates) or 'none'}"
    _print_result(options, {"accountId": options.id, "delegates": delegates}, message)
    return 0


def _audit(options: argparse.Namespace) -> int:
    """Print the recorded changes of an account, the oldest first, as a table or --json; returns 0.

    Raises BadRequest if there is no such account.
    """
    with opened_state(options) as state:
        existing(state, options.id)
        notes = state.database.read(lambda tx: audit.entries(tx, options.id))
    if options.json:
        show_json([{"at": utc_time(n.at_us), "actor": n.actor, "action": n.action, "detail": n.detail} for n in notes])
        return 0
    rows = [
        (utc_time(n.at_us) or "", n.actor, n.action, " ".join(f"{key}={value}" for key, value in n.detail.items()))
        for n in notes
    ]
    show_table("", [("at", ""), ("actor", ""), ("action", ""), ("detail", "")], rows)
    return 0


def _ledger(options: argparse.Namespace) -> int:
    """Print the newest --limit bookings of an account, as a table or --json; BadRequest for a bad limit."""
    if not 1 <= options.limit <= 1_000_000:
        raise BadRequest("limit", "1 to 1,000,000")
    with opened_state(options) as state:
        existing(state, options.id)
        entries = state.database.read(lambda tx: ledger.history(tx, options.id, options.limit))
    if options.json:
        show_json(
            [
                {
                    "id": r.id,
                    "at": utc_time(r.at_us),
                    "kind": r.kind,
                    "amount": r.amount,
                    "debit": r.debit,
                    "credit": r.credit,
                    "callId": r.call_id,
                    "memo": r.memo,
                }
                for r in entries
            ]
        )
        return 0
    rows = [(utc_time(r.at_us) or "", r.kind, f"{r.amount:,}", r.debit, r.credit, r.memo) for r in entries]
    columns = [("at", ""), ("kind", ""), ("amount", "right"), ("from", ""), ("to", ""), ("memo", "")]
    show_table("", columns, rows)
    return 0


def _print_result(options: argparse.Namespace, document: dict[str, Any], message: str) -> None:
    if options.json:
        one_line(document)
    else:
        print(message)
