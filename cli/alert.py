"""`chainfolio alert …`: rules about wallets and about the service, and the deliveries of their events."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from chainfolio.alerts import rules as documents
from chainfolio.alerts.events import trial
from chainfolio.alerts.kinds import KINDS
from chainfolio.alerts.service import AlertService
from chainfolio.alerts.signing import PURPOSE
from chainfolio.assets import account
from chainfolio.cli.account import existing
from chainfolio.cli.common import Commands, one_line, settings, show_json, show_table, with_system
from chainfolio.cli.dashboard_link import owner_account
from chainfolio.cli.groups import GROUPS
from chainfolio.cli.state_store import opened_state
from chainfolio.engine.service import Engine
from chainfolio.errors import BadRequest, NotFound
from chainfolio.storage.state import accounts, alerts, deliveries

if TYPE_CHECKING:
    from chainfolio.indexer.wiring import System
    from chainfolio.storage.state import State
    from chainfolio.storage.state.alerts import Target
    from chainfolio.storage.state.database import Transaction

TARGETS: Final[tuple[documents.TargetKind, ...]] = ("webhook", "command", "file")
MAX_LISTED: Final = 10_000
REPLAYED_AT_ONCE: Final = 1_000  # events of one transaction, which holds up the writers of the state store
HOUR_US: Final = 3_600_000_000


def add(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Register the commands."""
    group = commands.add_parser("alert", help=GROUPS["alert"], description=__doc__)
    verbs = group.add_subparsers(dest="verb", metavar="VERB", required=True)

    def verb(name: str, run: Callable[[argparse.Namespace], int], help_text: str) -> argparse.ArgumentParser:
        command: argparse.ArgumentParser = verbs.add_parser(name, parents=[common], help=help_text)
        if name != "run":
            command.add_argument("--account", metavar="ID", help="account of the API (default: that of the operator)")
        command.set_defaults(run=run)
        return command

    _add_rule(verb("add", _add, "a new rule, and the secret of its webhook"))
    verb("list", _list, "the rules of an account")
    verb("test", _test, "send a test event of a rule now").add_argument("rule", metavar="RULE")
    verb("remove", _remove, "delete a rule and end its deliveries").add_argument("rule", metavar="RULE")
    rotate = verb("rotate", _rotate, "a new secret for the webhook of a rule")
    rotate.add_argument("rule", metavar="RULE")
    rotate.add_argument(
        "--overlap-hours", type=int, default=24, metavar="N", help="the last secret stays valid so long"
    )
    listing = verb("deliveries", _deliveries, "events and their last attempts, the newest first")
    listing.add_argument("--state", default="", choices=deliveries.STATES, help="dead: given up after three days")
    listing.add_argument("--limit", type=int, default=50, metavar="N")
    replay = verb("replay", _replay, "deliver events again")
    replay.add_argument("deliveries", nargs="*", metavar="DELIVERY")
    replay.add_argument("--dead", action="store_true", help="all that were given up, the oldest first")
    verb("run", _run, "read new blocks, check conditions and deliver once; a server does it by itself")


def _add_rule(command: argparse.ArgumentParser) -> None:
    kinds = "; ".join(f"{name}: {kind.help}" for name, kind in KINDS.items())
    command.add_argument("kind", choices=[*KINDS], metavar="KIND", help=kinds)
    help_text = "address, asset, validator, job or chain; job and endpoint without one: any"
    command.add_argument("subject", nargs="?", default="", metavar="SUBJECT", help=help_text)
    command.add_argument("--chain", action="append", default=[], metavar="KEY", help="this chain only; may be repeated")
    command.add_argument("--over", metavar="X", help="in USD for values and prices")
    command.add_argument("--under", metavar="X")
    targets = command.add_mutually_exclusive_group(required=True)
    targets.add_argument("--webhook", metavar="URL", help="POST with the signatures of Standard Webhooks")
    targets.add_argument("--command", dest="command_line", metavar="COMMAND", help="gets the event as its input")
    targets.add_argument("--file", metavar="PATH", help="gets a line of JSON for each event")


def _add(options: argparse.Namespace) -> int:
    """Store a rule and print it with the secrets of its webhook; BadRequest for a wrong rule.

    Blocks count from the newest one on.
    """
    by_kind = {"webhook": options.webhook, "command": options.command_line, "file": options.file}
    kind = next(each for each in TARGETS if by_kind[each] is not None)
    address = str(Path(options.file).absolute()) if kind == "file" else by_kind[kind]
    new = documents.NewRule(
        options.kind, options.subject, kind, address, options.over, options.under, tuple(options.chain)
    )
    new.check(is_operator=True)

    async def starts(system: System) -> dict[str, int]:
        return await Engine(system).heads.newest_of(account(new.subject), new.chains)

    heights = with_system(options, starts) if KINDS[options.kind].of_blocks else {}
    with opened_state(options) as state:
        owner, now_us = _owner(state, options), state.clock.now_us()
        ids = (state.new_id("alr"), state.new_id("tgt"))
        rule, target = documents.new_rule(new, ids, owner, heights, now_us)
        max_rules = settings(options).alerts.max_rules
        stored = state.database.write(lambda tx: documents.add(tx, rule, target, max_rules))
        shared = state.database.read(lambda tx: alerts.target(tx, stored.target_id))
        assert shared is not None
        document = documents.rule_document(stored, shared) | _secrets(state, shared)
    if options.json:
        show_json(document)
        return 0
    print(f"rule    {stored.id}: {KINDS[stored.kind].help}")
    for secret in document.get("secrets", ()):
        print(f"secret  {secret}")
    return 0


def _list(options: argparse.Namespace) -> int:
    """Print the rules of an account, as a table or --json."""
    with opened_state(options) as state:
        owner = _owner(state, options)
        rules = state.database.read(lambda tx: alerts.rules(tx, owner))
        targets = state.database.read(lambda tx: alerts.targets(tx, owner))
        rows = [documents.rule_document(each, targets.get(each.target_id)) for each in rules]
        if options.json:
            show_json([row | _secrets(state, targets[row["targetId"]]) for row in rows])
            return 0
    columns = ("id", "kind", "subject", "bound", "target", "active", "problem")
    cells = [[str(row[name]) if name != "active" else ", ".join(row[name]) for name in columns] for row in rows]
    show_table("", [(name, "") for name in columns], cells)
    return 0


def _test(options: argparse.Namespace) -> int:
    """Store a test event of a rule, deliver it, and print the result; 1 if it was not delivered."""
    with opened_state(options) as state:
        owner, now_us = _owner(state, options), state.clock.now_us()

        def work(tx: Transaction) -> str:
            test = trial(alerts.rule(tx, owner, options.rule), state.new_id("test"), now_us)
            deliveries.add(tx, [test], now_us)
            return test.id

        id = state.database.write(work)
        _with_service(options, state, lambda service: service.deliver())
        stored = state.database.read(lambda tx: deliveries.listing(tx, owner, "", MAX_LISTED))
        document = documents.delivery_document(next(each for each in stored if each.id == id))
    waits = "behind earlier events of its target" if not document["attempts"] else document["error"]
    result = "delivered" if document["state"] == "done" else f"not delivered yet: {waits}"
    one_line(document) if options.json else print(f"{id} {result}")
    return 0 if document["state"] == "done" else 1


def _remove(options: argparse.Namespace) -> int:
    """Delete a rule; NotFound if there is none."""
    with opened_state(options) as state:
        owner = _owner(state, options)

        def work(tx: Transaction) -> None:
            accounts.lock(tx, owner)
            alerts.remove_rule(tx, owner, options.rule)

        state.database.write(work)
    one_line({"removed": options.rule}) if options.json else print(f"{options.rule} is removed")
    return 0


def _rotate(options: argparse.Namespace) -> int:
    """Add a secret to the webhook of a rule and print all valid ones, the newest first.

    Raises BadRequest for more than 720 hours of overlap, too many valid secrets, or a target that is no webhook.
    """
    if not 0 <= options.overlap_hours <= 24 * 30:
        raise BadRequest("overlap-hours", "0 to 720")
    with opened_state(options) as state:
        owner, now_us = _owner(state, options), state.clock.now_us()

        def work(tx: Transaction) -> Target:
            accounts.lock(tx, owner)
            rule = alerts.rule(tx, owner, options.rule)
            target = alerts.rotate(tx, owner, rule.target_id, options.overlap_hours * HOUR_US, now_us)
            if target.kind != "webhook":  # an error rolls the transaction back
                raise BadRequest("rule", f"its target is a {target.kind}, which has no secret")
            return target

        target = state.database.write(work)
        secrets = _secrets(state, target)["secrets"]
    show_json({"target": target.address, "secrets": secrets}) if options.json else print(*secrets, sep="\n")
    return 0


def _deliveries(options: argparse.Namespace) -> int:
    """Print the newest deliveries of an account, as a table or --json; BadRequest for a bad limit."""
    if not 1 <= options.limit <= MAX_LISTED:
        raise BadRequest("limit", f"1 to {MAX_LISTED:,}")
    with opened_state(options) as state:
        owner = _owner(state, options)
        stored = state.database.read(lambda tx: deliveries.listing(tx, owner, options.state, options.limit))
    rows = [documents.delivery_document(each) for each in stored]
    if options.json:
        show_json(rows)
        return 0
    columns = ("id", "type", "state", "attempts", "status", "error", "createdAt")
    cells = [["" if row[name] is None else str(row[name]) for name in columns] for row in rows]
    show_table("", [(name, "") for name in columns], cells)
    return 0


def _replay(options: argparse.Namespace) -> int:
    """Make the named events, or with --dead all that were given up, pending again; print their number.

    With --dead, the oldest come first, in transactions of up to REPLAYED_AT_ONCE. A server, or `alert run`, delivers
    them. Raises BadRequest for neither or both.
    """
    if bool(options.deliveries) == options.dead:
        raise BadRequest("deliveries", "name them, or give --dead")
    with opened_state(options) as state:
        owner, now_us = _owner(state, options), state.clock.now_us()

        def replay(ids: Sequence[str], tx: Transaction) -> int:
            return sum(_replayed(tx, owner, id, now_us, is_named=not options.dead) for id in ids)

        if options.dead:
            dead = state.database.read(lambda tx: deliveries.dead_ids(tx, owner))
            parts = [dead[first : first + REPLAYED_AT_ONCE] for first in range(0, len(dead), REPLAYED_AT_ONCE)]
        else:
            parts = [options.deliveries]
        count = sum(state.database.write(partial(replay, part)) for part in parts)
    one_line({"replayed": count}) if options.json else print(f"{count} to deliver again")
    return 0


def _replayed(tx: Transaction, owner: str, id: str, now_us: int, *, is_named: bool) -> bool:
    """Make an event pending; return False if it or its target is gone, an error for one that is named."""
    try:
        deliveries.replay(tx, owner, id, now_us)
    except (BadRequest, NotFound):
        if is_named:
            raise
        return False
    return True


def _run(options: argparse.Namespace) -> int:
    """Do the work of alerts once and print the numbers of new events and attempts."""
    with opened_state(options) as state:
        counts = _with_service(options, state, lambda service: service.run_once())
    one_line(counts) if options.json else print(f"{counts['events']} new events, {counts['attempts']} attempts")
    return 0


def _with_service(options: argparse.Namespace, state: State, work: Callable[[AlertService], Awaitable[Any]]) -> Any:
    """Return the result of `work` on an alert service with the system of the settings.

    The service is closed afterwards.
    """

    async def main(system: System) -> Any:
        service = AlertService(Engine(system), lambda: state)
        try:
            return await work(service)
        finally:
            await service.close()

    return with_system(options, main)


def _owner(state: State, options: argparse.Namespace) -> str:
    if options.account is None:
        return owner_account(state).id
    existing(state, options.account)
    return str(options.account)


def _secrets(state: State, target: Target) -> dict[str, Any]:
    if target.kind != "webhook":
        return {}
    return {"secrets": documents.secrets_of(target, state.secret(PURPOSE), state.clock.now_us())}
