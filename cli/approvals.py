"""`chainfolio approvals ADDRESS`: what an address still allows others to take, the greatest risk first."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from chainfolio.assets import Account
from cli.common import Commands, add_csv, add_rpc, one_chain, show_csv, show_issues, show_json, with_system
from cli.names import account_of
from cli.table import Column, Group, say, show_groups

if TYPE_CHECKING:
    from decimal import Decimal

    from engine.allowances import Standing
    from engine.answers import Allowance, Operator
    from indexer.wiring import System

COLUMNS = (
    Column("token"), Column("spender"), Column("allowed", "amount"), Column("balance", "amount", rank=1),
    Column("at risk USD", "number"),
)  # fmt: skip
COLLECTIBLES = (Column("collection"), Column("may be moved by"), Column("what"), Column("held", "number"))
SHEET = (
    "chain", "block", "standard", "contract", "symbol", "decimals", "tokenId", "spender", "spenderLabel", "allowance",
    "unlimited", "balance", "valueAtRisk", "approvedBlock", "approvedHash",
)  # fmt: skip


def add(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Register the command."""
    command = commands.add_parser("approvals", parents=[common], help="what others may take", description=__doc__)
    command.add_argument("address")
    command.add_argument("--chain", help="the chain, by its key; needed where several are configured")
    add_csv(command)
    add_rpc(command)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the command."""

    async def read(system: System) -> tuple[Account, str, Standing]:
        from engine.service import Engine

        owner = await account_of(system, options.address, options.chain)
        key = one_chain(system, options.chain, [owner], "approvals are those of one chain")
        return owner, key, await Engine(system).allowances(key, owner)

    owner, chain, standing = with_system(options, read)
    if options.json:
        show_json(document(owner.address, chain, standing))
    elif options.csv:
        shown = document(owner.address, chain, standing)
        show_csv(SHEET, _sheet(shown, standing))
        show_issues(shown["issues"])
    else:
        show(owner.address, standing)
    return 0


def document(address: str, chain: str, standing: Standing) -> dict[str, Any]:
    """All of it for programs: amounts raw as text, USD as decimal text, null where nobody knows."""
    from chainfolio.amounts import text
    from portfolio.compose import issue_documents

    return {
        "address": address,
        "chain": chain,
        "block": {"number": str(standing.block.height), "hash": standing.block.hash},
        "valueAtRisk": text(standing.at_risk),
        "unpriced": standing.unpriced,
        "approvals": [_allowance(each) for each in standing.allowances],
        "operators": [_operator(each) for each in standing.operators],
        "issues": issue_documents(standing.issues),
    }


def _sheet(shown: dict[str, Any], standing: Standing) -> list[list[Any]]:
    """A row for each approval, amounts raw; tokens first, then collectibles."""
    standards = [each.token.asset.kind for each in standing.allowances]
    tokens = [
        {**each, **each["token"], "standard": standard}
        for each, standard in zip(shown["approvals"], standards, strict=True)
    ]
    others = [{**each, "contract": each["collection"], "balance": each["held"]} for each in shown["operators"]]
    where = {"chain": shown["chain"], "block": shown["block"]["number"]}
    return [[{**where, **each}.get(name) for name in SHEET] for each in (*tokens, *others)]


def _allowance(each: Allowance) -> dict[str, Any]:
    from chainfolio.amounts import text

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
        "approvedBlock": str(each.approval.place.height),
        "approvedHash": each.approval.place.tx_hash,
    }


def _operator(each: Operator) -> dict[str, Any]:
    return {
        "collection": each.token,
        "spender": each.spender,
        "spenderLabel": each.label,
        "standard": each.standard,
        "tokenId": None if each.token_id is None else str(each.token_id),
        "held": each.held,
        "approvedBlock": str(each.place.height),
        "approvedHash": each.place.tx_hash,
    }


def show(address: str, standing: Standing) -> None:
    """Two tables for people; the exact figures are in --json."""
    count = len(standing.allowances)
    title = f"{address} at block {standing.block.height}: {count} allowances, {standing.at_risk:,.2f} USD at risk"
    show_groups(title, COLUMNS, [Group("", [_cells(each) for each in standing.allowances])])
    if standing.unpriced:
        say(
            f"{standing.unpriced} of them at a risk that nobody can tell: no price, or the contract does not say",
            indent=2,
        )
    if standing.operators:
        rows = [
            (each.token, each.label or each.spender, _what(each), "?" if each.held is None else str(each.held))
            for each in standing.operators
        ]
        show_groups("collectibles", COLLECTIBLES, [Group("", rows)])
    for issue in standing.issues:
        say(f"{issue.adapter}: {issue.subject}: {issue.reason}", indent=2)


def _what(operator: Operator) -> str:
    return "all" if operator.token_id is None else f"#{operator.token_id}"


def _cells(each: Allowance) -> tuple[str, str, str, str, str]:
    token = each.token.symbol.lower() or each.approval.token
    allowed = "unlimited" if each.unlimited else _amount(each.raw, each)
    return token, each.label or each.approval.spender, allowed, _amount(each.balance, each), _money(each.at_risk)


def _amount(raw: int | None, each: Allowance) -> str:
    from chainfolio import amounts

    decimals = each.token.decimals
    if raw is None or decimals is None or decimals > amounts.MAX_DECIMALS:
        return "?" if raw is None else f"{raw} raw"
    return amounts.text(amounts.amount(raw, decimals))


def _money(usd: Decimal | None) -> str:
    return "-" if usd is None else f"{usd:,.2f}"
