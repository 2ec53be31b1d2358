"""Names of the fields of answers whose text is a decimal number, or `N/A` if it is not known.

The OpenAPI description marks them with `format: decimal`, so that generated clients read them exactly. A name has one
meaning in all answers; block numbers, indices and token ids are identifiers and not marked.
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


def mark_decimals(schemas: Mapping[str, Any]) -> None:
    """Add `format: decimal` to the texts of `DECIMAL_FIELDS` in schemas of answers, in place."""
    for schema in schemas.values():
        for name in DECIMAL_FIELDS & schema.get("properties", {}).keys():
            _mark(schema["properties"][name])


def _mark(schema: JsonObject) -> None:
    """Mark a schema, the values of a map, or the alternatives of a union."""
    if schema.get("type") == "string":
        schema["format"] = "decimal"
    values = schema.get("additionalProperties")
    for part in [*schema.get("anyOf", ()), *([values] if isinstance(values, dict) else [])]:
        _mark(part)
