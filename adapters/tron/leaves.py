"""The bytes of transactions from all that nodes show: by its name what Tron has, by its number what it has not.

Whoever sends a transaction may write into it what is not Tron's, and more results than one. It lies in the block, and
nodes show it: `"ret": [{"4": [""]}, {"unfreeze_amount": 7}]`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec

from adapters.tron.protobuf import BEGIN, BYTES, END, MOST, VARINT, there, varint, written
from adapters.tron.roots import CODES, RESULTS

LARGEST: Final = 2**29 - 1  # number of a field
NO_NAME: Final = "UNKNOWN_ENUM_VALUE_"


class Field(NamedTuple):
    """A field that Tron has: its number, how it lies in the bytes, what writes it."""

    number: int
    kind: int
    write: Callable[[int, Any], bytes]


Message = Mapping[str, Field]


def leaves(content: bytes | memoryview) -> list[bytes]:
    """Every transaction of a block, as the block has it. ValueError where it is none that could be sent."""
    try:
        block = msgspec.json.decode(content)
        return [packed(TRANSACTION, each) for each in block.get("transactions", ())]
    except (msgspec.DecodeError, AttributeError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"no transactions of a block: {error}") from None


def packed(message: Message, shown: Mapping[str, Any]) -> bytes:
    """A message: the fields that it has, then, by their numbers, what else there is. ValueError where one is both."""
    known = b"".join(field.write(field.number, shown[name]) for name, field in message.items() if name in shown)
    kinds = {field.number: field.kind for field in message.values()}
    numbers = sorted(int(name) for name in shown if name.isascii() and name.isdigit())
    return known + b"".join(_unknown(each, shown[str(each)], kinds.get(each)) for each in numbers)


def _unknown(number: int, values: list[Any], known: int | None = None) -> bytes:
    """What was written under a number. Of a field that Tron has that is only what lies there in another way."""
    if not 0 < number <= LARGEST:
        raise ValueError(f"a field {number}")
    return b"".join(_value(number, each, known) for each in values)


def _value(number: int, value: Any, known: int | None) -> bytes:
    match value:
        case bool():
            raise ValueError("true and false have no number")
        case int() if known != VARINT and 0 <= value <= MOST:
            return varint(number << 3 | VARINT) + varint(value)
        case str() if known != BYTES:
            return there(number, bytes.fromhex(value))
        case dict():
            return varint(number << 3 | BEGIN) + packed({}, value) + varint(number << 3 | END)
        case _:
            raise ValueError(f"field {number} is {value!r}"[:100])


# --- what Tron has ---------------------------------------------------------------------------------------------------


def _number(key: int, value: int) -> bytes:
    return written(key, _signed(value))


def _signed(value: int) -> int:
    if not -(MOST >> 1) - 1 <= value <= MOST >> 1:
        raise ValueError(f"a number of {value}"[:100])
    return value & MOST


def _text(key: int, value: str) -> bytes:
    return written(key, value.encode())


def _data(key: int, value: str) -> bytes:
    return written(key, bytes.fromhex(value))


def _piece(key: int, value: str) -> bytes:
    return there(key, bytes.fromhex(value))


def _word(names: Mapping[str, int], key: int, value: str) -> bytes:
    """A word of some, or a number that none of them has."""
    number = int(value.rpartition("_")[2]) if value.startswith(NO_NAME) else names[value]
    if value.startswith(NO_NAME) and number in names.values():
        raise ValueError(f"{number} has a name")
    return written(key, _signed(number))


def _inside(message: Message, key: int, value: Mapping[str, Any]) -> bytes:
    return there(key, packed(message, value))


def _entry(key: int, value: Mapping[str, Any]) -> bytes:
    """An entry of a map, of which both halves are there even where they are empty."""
    half = varint(2 << 3 | VARINT) + varint(_signed(value["value"]))
    return there(key, there(1, value["key"].encode()) + half)


def _each(write: Callable[[int, Any], bytes], key: int, values: list[Any]) -> bytes:
    return b"".join(write(key, each) for each in values)


def _numbers(**fields: int) -> Iterator[tuple[str, Field]]:
    return ((name, Field(number, VARINT, _number)) for name, number in fields.items())


ORDER: Final[Message] = {
    "makerOrderId": Field(1, BYTES, _data), "takerOrderId": Field(2, BYTES, _data),
    **dict(_numbers(fillSellQuantity=3, fillBuyQuantity=4)),
}  # fmt: skip
RESULT: Final[Message] = {
    **dict(_numbers(fee=1)),
    "ret": Field(2, VARINT, partial(_word, CODES)),
    "contractRet": Field(3, VARINT, partial(_word, RESULTS)),
    "assetIssueID": Field(14, BYTES, _text),
    **dict(_numbers(
        withdraw_amount=15, unfreeze_amount=16, exchange_received_amount=18, exchange_inject_another_amount=19,
        exchange_withdraw_another_amount=20, exchange_id=21, shielded_transaction_fee=22,
    )),
    "orderId": Field(25, BYTES, _data),
    "orderDetails": Field(26, BYTES, partial(_each, partial(_inside, ORDER))),
    **dict(_numbers(withdraw_expire_amount=27)),
    "cancel_unfreezeV2_amount": Field(28, BYTES, partial(_each, _entry)),
}  # fmt: skip
TRANSACTION: Final[Message] = {
    "raw_data_hex": Field(1, BYTES, _data),
    "signature": Field(2, BYTES, partial(_each, _piece)),
    "ret": Field(5, BYTES, partial(_each, partial(_inside, RESULT))),
}  # fmt: skip
