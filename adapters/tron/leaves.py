"""The bytes of transactions, encoded from all that nodes show: known fields by name, others by number.

A sender may write fields that Tron does not define, and more results than one. They are part of the block, and nodes
show them: `"ret": [{"4": [""]}, {"unfreeze_amount": 7}]`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from chainfolio.adapters.tron.protobuf import (
    BYTES,
    END_GROUP,
    MAX_UINT64,
    START_GROUP,
    VARINT,
    encode_bytes_field,
    encode_field,
    encode_varint,
)
from chainfolio.adapters.tron.roots import CODES, RESULTS

MAX_FIELD_NUMBER: Final = 2**29 - 1
UNNAMED_PREFIX: Final = "UNKNOWN_ENUM_VALUE_"
Encoder: TypeAlias = Callable[[int, Any], bytes]  # field number and JSON value → bytes
JsonObject: TypeAlias = Mapping[str, Any]


class Field(NamedTuple):
    """A field that Tron defines: its number, its wire type, and its encoder."""

    number: int
    wire_type: int
    encode: Encoder


Message = Mapping[str, Field]


def encode_transactions(content: bytes | memoryview) -> list[bytes]:
    """Return every transaction of a block's JSON, encoded as in the block.

    Raises:
        ValueError: The content is no block, or no such transaction can be encoded.
    """
    try:
        block = msgspec.json.decode(content)
        return [encode_message(TRANSACTION, transaction) for transaction in block.get("transactions", ())]
    except (msgspec.DecodeError, AttributeError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"no transactions of a block: {error}") from None


def encode_message(message: Message, values: JsonObject) -> bytes:
    """Return a message: the fields that Tron defines, then the others by number.

    Raises:
        ValueError: A value does not fit its field.
    """
    named = b"".join(field.encode(field.number, values[name]) for name, field in message.items() if name in values)
    wire_types = {field.number: field.wire_type for field in message.values()}
    numbers = sorted(int(name) for name in values if name.isascii() and name.isdigit())
    unnamed = (_encode_unnamed(each, values[str(each)], wire_types.get(each)) for each in numbers)
    return named + b"".join(unnamed)


def _encode_unnamed(number: int, values: list[object], wire_type: int | None = None) -> bytes:
    """Encode values that nodes show by field number.

    `wire_type` is that of the field that Tron defines with this number, if any: values of that type
    are shown by name.
    """
    if not 0 < number <= MAX_FIELD_NUMBER:
        raise ValueError(f"a field {number}")
    return b"".join(_encode_unnamed_value(number, each, wire_type) for each in values)


def _encode_unnamed_value(number: int, value: object, wire_type: int | None) -> bytes:
    """Encode a value that a node shows by field number: varint, bytes or group.

    Texts are hexadecimal bytes, and a dictionary is a group.

    Raises:
        ValueError: The value has the type `wire_type`, is a boolean or none of these, or has more than 64 bits.
    """
    match value:
        case bool():
            raise ValueError("true and false have no number")
        case int() if wire_type != VARINT and 0 <= value <= MAX_UINT64:
            return encode_varint(number << 3 | VARINT) + encode_varint(value)
        case str() if wire_type != BYTES:
            return encode_bytes_field(number, bytes.fromhex(value))
        case dict():
            start, end = encode_varint(number << 3 | START_GROUP), encode_varint(number << 3 | END_GROUP)
            return start + encode_message({}, value) + end
        case _:
            raise ValueError(f"field {number} is {value!r}"[:100])


# --- the fields that Tron defines -------------------------------------------------------------------------------------


def _encode_int(number: int, value: int) -> bytes:
    return encode_field(number, _unsigned(value))


def _unsigned(value: int) -> int:
    if not -(MAX_UINT64 >> 1) - 1 <= value <= MAX_UINT64 >> 1:
        raise ValueError(f"a number of {value}"[:100])
    return value & MAX_UINT64


def _encode_text(number: int, value: str) -> bytes:
    return encode_field(number, value.encode())


def _encode_hex(number: int, value: str) -> bytes:
    return encode_field(number, bytes.fromhex(value))


def _encode_hex_element(number: int, value: str) -> bytes:
    return encode_bytes_field(number, bytes.fromhex(value))


def _encode_enum(names: Mapping[str, int], number: int, value: str) -> bytes:
    """Encode an enum as field `number`, by its name, or by `UNKNOWN_ENUM_VALUE_…_<code>` without one.

    Empty for code 0.

    Raises:
        KeyError: The name is unknown.
        ValueError: The code is no number, or has a name.
    """
    code = int(value.rpartition("_")[2]) if value.startswith(UNNAMED_PREFIX) else names[value]
    if value.startswith(UNNAMED_PREFIX) and code in names.values():
        raise ValueError(f"{code} has a name")
    return encode_field(number, _unsigned(code))


def _encode_nested(message: Message, number: int, value: JsonObject) -> bytes:
    return encode_bytes_field(number, encode_message(message, value))


def _encode_map_entry(number: int, entry: JsonObject) -> bytes:
    """Encode an entry of a map: key and value are written even if they have the default value."""
    value = encode_varint(2 << 3 | VARINT) + encode_varint(_unsigned(entry["value"]))
    return encode_bytes_field(number, encode_bytes_field(1, entry["key"].encode()) + value)


def _encode_repeated(encode: Encoder, number: int, values: list[object]) -> bytes:
    return b"".join(encode(number, each) for each in values)


def _int_fields(**numbers: int) -> Iterator[tuple[str, Field]]:
    return ((name, Field(number, VARINT, _encode_int)) for name, number in numbers.items())


ORDER: Final[Message] = {
    "makerOrderId": Field(1, BYTES, _encode_hex),
    "takerOrderId": Field(2, BYTES, _encode_hex),
    **dict(_int_fields(fillSellQuantity=3, fillBuyQuantity=4)),
}
RESULT: Final[Message] = {
    **dict(_int_fields(fee=1)),
    "ret": Field(2, VARINT, partial(_encode_enum, CODES)),
    "contractRet": Field(3, VARINT, partial(_encode_enum, RESULTS)),
    "assetIssueID": Field(14, BYTES, _encode_text),
    **dict(
        _int_fields(
            withdraw_amount=15,
            unfreeze_amount=16,
            exchange_received_amount=18,
            exchange_inject_another_amount=19,
            exchange_withdraw_another_amount=20,
            exchange_id=21,
            shielded_transaction_fee=22,
        )
    ),
    "orderId": Field(25, BYTES, _encode_hex),
    "orderDetails": Field(26, BYTES, partial(_encode_repeated, partial(_encode_nested, ORDER))),
    **dict(_int_fields(withdraw_expire_amount=27)),
    "cancel_unfreezeV2_amount": Field(28, BYTES, partial(_encode_repeated, _encode_map_entry)),
}
TRANSACTION: Final[Message] = {
    "raw_data_hex": Field(1, BYTES, _encode_hex),
    "signature": Field(2, BYTES, partial(_encode_repeated, _encode_hex_element)),
    "ret": Field(5, BYTES, partial(_encode_repeated, partial(_encode_nested, RESULT))),
}
