"""Items of answers as a frame of Polars, without loss."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    import polars as pl

PLACES = 18
DIGITS = 38
EXACT = Context(prec=500)


def to_polars(items: Sequence[msgspec.Struct], kind: type[msgspec.Struct]) -> pl.DataFrame:
    """Return a frame with a row for each item. `kind` names the columns, also if there are no items.

    An object inside of an item becomes columns `outer_inner`, and a list or map becomes its JSON. A decimal becomes its
    exact text, null if it is not known. A second column `<name>_decimal` is for computing: rounded to 18 places, and
    null if that needs more than 38 digits.
    """
    import polars as pl

    types: dict[type, Any] = {
        msgspec.inspect.IntType: pl.Int64,
        msgspec.inspect.BoolType: pl.Boolean,
        msgspec.inspect.DateTimeType: pl.Datetime("us", "UTC"),
    }
    columns: dict[str, pl.Series] = {}
    for name, path, type_ in _columns(kind):
        cells = [_cell(item, path) for item in items]
        if isinstance(type_, msgspec.inspect.CustomType | msgspec.inspect.DecimalType):
            columns[name] = pl.Series(name, [None if cell is None else format(cell, "f") for cell in cells], pl.String)
            name, cells = f"{name}_decimal", [_computable(cell) for cell in cells]
            columns[name] = pl.Series(name, cells, pl.Decimal(DIGITS, PLACES))
        elif type(type_) in types:
            columns[name] = pl.Series(name, cells, types[type(type_)])
        else:
            columns[name] = pl.Series(name, [_text(cell) for cell in cells], pl.String)
    return pl.DataFrame(columns)


def _columns(kind: type, *outer: str) -> Iterator[tuple[str, tuple[str, ...], msgspec.inspect.Type]]:
    """Yield the name, the path and the type of each column of a Struct."""
    struct = msgspec.inspect.type_info(kind)
    for field in struct.fields if isinstance(struct, msgspec.inspect.StructType) else ():
        path = (*outer, field.name)
        alternatives: Iterable[msgspec.inspect.Type] = (field.type,)
        if isinstance(field.type, msgspec.inspect.UnionType):
            alternatives = field.type.types
        type_ = next(each for each in alternatives if not isinstance(each, msgspec.inspect.NoneType))
        if isinstance(type_, msgspec.inspect.StructType):
            yield from _columns(type_.cls, *path)
        else:
            yield "_".join(name.rstrip("_") for name in path), path, type_


def _cell(item: object, path: Iterable[str]) -> Any:
    for name in path:
        item = getattr(item, name, None)
    return item


def _text(cell: object) -> str | None:
    """Return a text as it is, anything else as JSON in which decimals are texts."""
    if cell is None or isinstance(cell, str):
        return cell
    plain = msgspec.to_builtins(cell, builtin_types=(Decimal,))
    return json.dumps(plain, default=lambda number: format(number, "f"), ensure_ascii=False)


def _computable(number: Decimal | None) -> Decimal | None:
    if number is None:
        return None
    rounded = EXACT.quantize(number, Decimal(1).scaleb(-PLACES)) if number.adjusted() < DIGITS else None
    return rounded if rounded is not None and rounded.adjusted() < DIGITS - PLACES else None
