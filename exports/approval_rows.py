"""The answer about approvals as a document, and as rows for a spreadsheet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from chainfolio.amounts import text
from chainfolio.portfolio.compose import issue_documents

if TYPE_CHECKING:
    from chainfolio.engine.approvals.allowances import CurrentApprovals
    from chainfolio.engine.results import Allowance, Operator

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


def document(address: str, chain: str, allowances: CurrentApprovals) -> dict[str, Any]:
    """Return allowances of tokens and operators of collectibles for --json.

    Amounts are raw and text, USD is decimal text; unknown ones are null. Keys are `address`, `chain`, `block` (number
    and hash), `valueAtRisk` (the sum of known ones), `unpriced` (a count), `approvals`, `operators` and `issues`.
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


def approval_rows(report: dict[str, Any], allowances: CurrentApprovals) -> list[list[Any]]:
    """Return a row for each approval, amounts raw; tokens first, then collectibles."""
    standards = [each.token.asset.kind for each in allowances.allowances]
    tokens = [
        {**each, **each["token"], "standard": standard}
        for each, standard in zip(report["approvals"], standards, strict=True)
    ]
    operators = [{**each, "contract": each["collection"], "balance": each["held"]} for each in report["operators"]]
    block_columns = {"chain": report["chain"], "block": report["block"]["number"]}
    return [[{**block_columns, **each}.get(name) for name in SHEET] for each in (*tokens, *operators)]


def _allowance(each: Allowance) -> dict[str, Any]:
    """Return the allowance of a token for --json: raw amounts and USD as text, unknown ones null."""
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
    """Return an operator of collectibles for --json; the token id is null for a whole collection."""
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
