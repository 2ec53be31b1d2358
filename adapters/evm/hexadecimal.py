"""Parse numbers and data as EVM nodes write them: hexadecimal, strictly."""

from __future__ import annotations

import re

from chainfolio.errors import BadAnswer

_QUANTITY = re.compile(r"0x(0|[1-9a-fA-F][0-9a-fA-F]{0,63})\Z")
_DATA = re.compile(r"0x(?:[0-9a-fA-F]{2})*\Z")


def quantity(source: str, text: object, *, bits: int = 256) -> int:
    """Parse a hex quantity of at most `bits` bits, without sign, blanks or leading zeros.

    Raises:
        BadAnswer: It is none.
    """
    if not isinstance(text, str) or not _QUANTITY.match(text):
        raise BadAnswer(source, f"{_type_and_size(text)} where a quantity should be")
    value = int(text, 16)
    if value.bit_length() > bits:
        raise BadAnswer(source, f"a quantity wider than {bits} bits: {text}")
    return value


def data(source: str, text: object) -> bytes:
    """Parse hex data.

    Raises:
        BadAnswer: It is none.
    """
    if not isinstance(text, str) or not _DATA.match(text):
        raise BadAnswer(source, f"{_type_and_size(text)} where hex data should be")
    return bytes.fromhex(text[2:])


def _type_and_size(value: object) -> str:
    """Describe a value by type and size only: a node's own words may hold anything."""
    return f"a text of {len(value)} characters" if isinstance(value, str) else f"a {type(value).__name__}"
