"""Fields of answers whose text is a decimal number, or `N/A` if it is not known.

The OpenAPI description marks them with `format: decimal`, so that generated clients read them exactly. Block numbers,
indices and token ids are identifiers and not marked. A type that is not listed has texts only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from chainfolio.api.fields import JsonObject

DECIMAL_FIELDS: Final = frozenset(
    {
        *("actual", "amount", "arrived", "balance", "cashBalance", "closedPnl", "commission", "confidence"),
        *("consensusPotentialReward", "consensusReward", "conversionRates", "cost", "costBasis", "count"),
        *("dailyExpense", "dailyIncome", "debts", "effective", "endEffectiveBalance", "endValue", "executionReward"),
        *("fee", "fees", "feesFiat", "flow", "flows", "gain", "growth", "healthRate", "held", "income"),
        *("manualBalanceNetworth", "moneyWeightedReturn", "moneyWeightedYearly", "netFlows", "networth", "openPnl"),
        *("part", "percentage", "price", "proceeds", "raw", "realised", "rewards", "share", "short", "startValue"),
        *("takeable", "timeWeightedReturn", "timeWeightedYearly", "totalClosedPnl", "totalCostBasis", "totalOpenPnl"),
        *("totalValue", "unasked", "unrealised", "value", "valueAtRisk", "valueFiat", "valuePercentile"),
    }
)
TYPES: Final = frozenset(  # those in which a field of one of these names is a decimal
    {
        *("AllowanceLeft", "AssetDocument", "ChainDocument", "ChangesDocument", "CollectibleOperator"),
        *("CollectionDocument", "DayDocument", "DrawdownDocument", "EarningDocument", "FlowDocument", "GainDocument"),
        *("HoldingDocument", "NftChainDocument", "NftDocument", "PerformanceDocument", "PermittedSpender"),
        *("PnlDocument", "Portfolio", "PositionDocument", "PositionsDocument", "ProtocolChainDocument"),
        *("ProtocolDocument", "ShareDocument", "Sources", "SumsDocument", "TokenApproval", "TokenAsset", "TokenRow"),
        *("TokenShare", "TransactionAssetDocument", "TransactionDocument", "TransferDocument"),
        *("UnexplainedChangeDocument", "UnexplainedDocument", "ValidatorBalance", "ValidatorDeposit"),
        *("ValidatorReward", "ValidatorWithdrawal"),
    }
)


def mark_decimals(schemas: Mapping[str, Any]) -> None:
    """Add `format: decimal` to the texts of `DECIMAL_FIELDS` in the schemas of `TYPES`, in place."""
    for type_name in TYPES & schemas.keys():
        properties = schemas[type_name]["properties"]
        for name in DECIMAL_FIELDS & properties.keys():
            _mark(properties[name])


def _mark(schema: JsonObject) -> None:
    """Mark a schema, the values of a map, or the alternatives of a union."""
    if schema.get("type") == "string":
        schema["format"] = "decimal"
    values = schema.get("additionalProperties")
    for part in [*schema.get("anyOf", ()), *([values] if isinstance(values, dict) else [])]:
        _mark(part)
