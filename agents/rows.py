"""Rows of answers: holdings by value, and cells of queries with quoted texts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from chainfolio import amounts
from chainfolio.agents.compact import MAX_TEXT, Row, quoted
from chainfolio.portfolio.document import ASSETS, UNKNOWN, asset_rows

if TYPE_CHECKING:
    from chainfolio.portfolio.document import Portfolio

# Hashes, addresses, numbers and times; a second word has no letters.
PLAIN: Final = re.compile(r"[0-9A-Za-z:._+/\-]{0,128}( [0-9:.+\-]{1,20})?")
PLAIN_NAME: Final = re.compile(r"[0-9A-Za-z_.()*:]{1,64}")  # of a column, as `count(*)`


def holding_rows(portfolio: Portfolio) -> list[Row]:
    """Return a row for each asset, the greatest value first, be it owned or owed.

    The value of a debt is negative, so values can be summed. Assets without a price come after the others, and then
    spam, whose value is unknown here because no sum contains it.
    """
    rows = [_holding(dict(zip(ASSETS, cells, strict=True))) for cells in asset_rows(portfolio)]
    return sorted(rows, key=_rank)


def _holding(cells: Mapping[str, str | None]) -> dict[str, object]:
    """Return the row of an asset: owed values are negative, that of spam is unknown.

    Names that others chose are quoted. Keys are `chain`, `protocol`, `side`, `token` (its symbol), `contract`,
    `balance`, `value`, and `spam` for spam only.
    """
    value = UNKNOWN if cells["spam"] else str(cells["value"])
    if cells["side"] == "owed" and value != UNKNOWN:
        value = amounts.text(amounts.EXACT.minus(Decimal(value)))
    return {
        "chain": cells["chain"],
        "protocol": cells["protocol"] if cells["protocol"] == "wallet" else quoted(str(cells["protocol"])),
        "side": cells["side"],
        "token": quoted(str(cells["symbol"])),
        "contract": cells["contract"],
        "balance": cells["balance"],
        "value": value,
        **({"spam": True} if cells["spam"] else {}),
    }


def _rank(row: Row) -> tuple[bool, bool, Decimal]:
    is_known = row["value"] != UNKNOWN
    size = amounts.EXACT.abs(Decimal(str(row["value"]))) if is_known else Decimal()
    return "spam" in row, not is_known, amounts.EXACT.minus(size)


def query_rows(columns: list[str], rows: list[list[object]]) -> list[Row]:
    """Return the rows of a query, by the names of columns.

    Texts that are no hash, address, number or time are quoted, in lists and structures too.
    """
    names = [name if PLAIN_NAME.fullmatch(name) else quoted(name) for name in map(str, columns)]
    return [dict(zip(names, map(plain_cell, row), strict=True)) for row in rows]


def plain_cell(cell: object) -> object:
    """Return a cell of a query with its texts quoted, except for hashes, addresses, numbers and times."""
    if isinstance(cell, str):
        return cell if PLAIN.fullmatch(cell) else quoted(cell, MAX_TEXT)
    if isinstance(cell, list):
        return [plain_cell(each) for each in cell]
    if isinstance(cell, dict):
        return {plain_cell(str(name)): plain_cell(each) for name, each in cell.items()}
    return cell
