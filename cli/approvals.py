"""`chainfolio approvals ADDRESS`: what an address still allows others to take, greatest risk first."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from chainfolio import amounts
from chainfolio.assets import Account
from chainfolio.cli.common import Commands, add_csv, add_rpc, show_csv, show_issues, show_json, with_system
from chainfolio.cli.groups import GROUPS
from chainfolio.cli.names import account_of
from chainfolio.cli.table import Column, Group, print_wrapped, show_groups
from chainfolio.engine.named_accounts import one_chain
from chainfolio.engine.service import Engine
from chainfolio.exports.approval_rows import SHEET, approval_rows, document

if TYPE_CHECKING:
    from decimal import Decimal

    from chainfolio.engine.approvals.allowances import CurrentApprovals
    from chainfolio.engine.results import Allowance, Operator
    from chainfolio.indexer.wiring import System

COLUMNS = (
    Column("token"),
    Column("spender"),
    Column("allowed", "amount"),
    Column("balance", "amount", rank=1),
    Column("at risk USD", "number"),
)
COLLECTIBLES = (Column("collection"), Column("may be moved by"), Column("what"), Column("held", "number"))


def add(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Register the command."""
    command = commands.add_parser("approvals", parents=[common], help=GROUPS["approvals"], description=__doc__)
    command.add_argument("address")
    command.add_argument("--chain", help="the chain, by its key; needed where several are configured")
    add_csv(command)
    add_rpc(command)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the allowances as a table, --json or --csv; the exit code is 0 even if there are issues.

    Raises BadRequest without --chain if several chains fit.
    """

    async def read(system: System) -> tuple[Account, str, CurrentApprovals]:

        owner = await account_of(system, options.address, options.chain)
        key = one_chain(system, options.chain, [owner], "approvals are those of one chain")
        return owner, key, await Engine(system).allowances(key, owner)

    owner, chain, allowances = with_system(options, read)
    if options.json:
        show_json(document(owner.address, chain, allowances))
    elif options.csv:
        report = document(owner.address, chain, allowances)
        show_csv(SHEET, approval_rows(report, allowances))
        show_issues(report["issues"])
    else:
        show(owner.address, allowances)
    return 0


def show(address: str, allowances: CurrentApprovals) -> None:
    """Print two tables for people: allowances and operators of collectibles; then issues.

    Exact figures are in --json; a table without rows, but for that of allowances, is left out.
    """
    count = len(allowances.allowances)
    title = f"{address} at block {allowances.block.height}: {count} allowances, {allowances.at_risk:,.2f} USD at risk"
    show_groups(title, COLUMNS, [Group("", [_cells(each) for each in allowances.allowances])])
    if allowances.unpriced:
        print_wrapped(
            f"{allowances.unpriced} of them at an unknown risk: no price, or the contract does not say",
            indent=2,
        )
    if allowances.operators:
        rows = [
            (
                each.token,
                each.label or each.spender,
                _operator_scope(each),
                "?" if each.movable_count is None else str(each.movable_count),
            )
            for each in allowances.operators
        ]
        show_groups("collectibles", COLLECTIBLES, [Group("", rows)])
    for issue in allowances.issues:
        print_wrapped(f"{issue.adapter}: {issue.subject}: {issue.reason}", indent=2)


def _operator_scope(operator: Operator) -> str:
    return "all" if operator.token_id is None else f"#{operator.token_id}"


def _cells(each: Allowance) -> tuple[str, str, str, str, str]:
    token = each.token.symbol.lower() or each.approval.token
    allowed = "unlimited" if each.unlimited else _amount(each.raw, each)
    return token, each.label or each.approval.spender, allowed, _amount(each.balance, each), _money(each.at_risk)


def _amount(raw: int | None, each: Allowance) -> str:

    decimals = each.token.decimals
    if raw is None or decimals is None or decimals > amounts.MAX_DECIMALS:
        return "?" if raw is None else f"{raw} raw"
    return amounts.text(amounts.amount(raw, decimals))


def _money(usd: Decimal | None) -> str:
    return "-" if usd is None else f"{usd:,.2f}"
