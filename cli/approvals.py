"""`chainfolio approvals ADDRESS`: what an address still allows others to take, greatest risk first."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from chainfolio import amounts
from chainfolio.amounts import text
from chainfolio.assets import Account
from chainfolio.cli.common import Commands, add_csv, add_rpc, show_csv, show_issues, show_json, with_system
from chainfolio.cli.groups import GROUPS
from chainfolio.cli.names import account_of
from chainfolio.cli.table import Column, Group, print_wrapped, show_groups
from chainfolio.engine.named_accounts import one_chain
from chainfolio.engine.service import Engine
from chainfolio.portfolio.compose import issue_documents

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
SHEET = (
    "chain",
    "block",
    "standard",
    "contract",
    "symbol",
    "decimals",
    "tokenId",
    "spender",
    "spenderLabel",
    "allowance",
    "unlimited",
    "balance",
    "valueAtRisk",
    "approvedBlock",
    "approvedHash",
)


def add(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Register the command."""
    command = commands.add_parser("approvals", parents=[common], help=GROUPS["approvals"], description=__doc__)
    command.add_argument("address")
    command.add_argument("--chain", help="the chain, by its key; needed where several are configured")
    add_csv(command)
    add_rpc(command)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the allowances as a table, --json or --csv; the exit code is 0 even if there are issues."""

    async def read(system: System) -> tuple[Account, str, CurrentApprovals]:

        owner = await account_of(system, options.address, options.chain)
        key = one_chain(system, options.chain, [owner], "approvals are those of one chain")
        return owner, key, await Engine(system).allowances(key, owner)

    owner, chain, allowances = with_system(options, read)
    if options.json:
        show_json(document(owner.address, chain, allowances))
    elif options.csv:
        report = document(owner.address, chain, allowances)
        show_csv(SHEET, _sheet(report, allowances))
        show_issues(report["issues"])
    else:
        show(owner.address, allowances)
    return 0


def document(address: str, chain: str, allowances: CurrentApprovals) -> dict[str, Any]:
    """Return allowances of tokens and operators of collectibles for --json.

    Amounts are raw and text, USD is decimal text; unknown ones are null.
    """
    return {
        "address": address,
        "chain": chain,
        "block": {"number": str(allowances.block.height), "hash": allowances.block.hash},
        "valueAtRisk": text(allowances.at_risk),
        "unpriced": allowances.unpriced,
        "approvals": [_allowance(each) for each in allowances.allowances],
        "operators": [_operator(each) for each in allowances.operators],
        "issues": issue_documents(allowances.issues),
    }


def _sheet(report: dict[str, Any], allowances: CurrentApprovals) -> list[list[Any]]:
    """A row for each approval, amounts raw; tokens first, then collectibles."""
    standards = [each.token.asset.kind for each in allowances.allowances]
    tokens = [
        {**each, **each["token"], "standard": standard}
        for each, standard in zip(report["approvals"], standards, strict=True)
    ]
    operators = [{**each, "contract": each["collection"], "balance": each["held"]} for each in report["operators"]]
    block_columns = {"chain": report["chain"], "block": report["block"]["number"]}
    return [[{**block_columns, **each}.get(name) for name in SHEET] for each in (*tokens, *operators)]


def _allowance(each: Allowance) -> dict[str, Any]:

    return {
        "token": {
            "contract": each.approval.token,
            "symbol": each.token.symbol.lower(),
            "decimals": each.token.decimals,
        },
        "spender": each.approval.spender,
        "spenderLabel": each.label,
        "allowance": None if each.raw is None else str(each.raw),
        "unlimited": each.unlimited,
        "balance": None if each.balance is None else str(each.balance),
        "valueAtRisk": None if each.at_risk is None else text(each.at_risk),
        "approvedBlock": str(each.approval.position.height),
        "approvedHash": each.approval.position.tx_hash,
    }


def _operator(each: Operator) -> dict[str, Any]:
    return {
        "collection": each.token,
        "spender": each.spender,
        "spenderLabel": each.label,
        "standard": each.standard,
        "tokenId": None if each.token_id is None else str(each.token_id),
        "held": each.movable_count,
        "approvedBlock": str(each.position.height),
        "approvedHash": each.position.tx_hash,
    }


def show(address: str, allowances: CurrentApprovals) -> None:
    """Two tables for people; the exact figures are in --json."""
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
