"""The forms that fields of node answers have: a field of another form fails the decoding of its answer.

Used as types of `msgspec` structs, so that `wire.typed` refuses a malformed field as `BadAnswer` of the node that gave
it, before anything is read from it. Code behind that boundary may take `int(text, 16)` and `bytes.fromhex(text[2:])`.
"""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta


def _bytes(size: int, *, maybe: bool = False) -> Meta:
    return Meta(pattern=rf"\A(?:0x[0-9a-fA-F]{{{2 * size}}}){'?' if maybe else ''}\Z")


def _number(bits: int) -> Meta:
    """A quantity of at most so many bits: no sign, no blanks, no leading zeros."""
    digits, rest = divmod(bits, 4)
    forms = ["0", rf"[1-9a-fA-F][0-9a-fA-F]{{0,{digits - 1}}}"]
    if rest:
        forms.append(rf"[1-{2**rest - 1}][0-9a-fA-F]{{{digits}}}")
    return Meta(pattern=rf"\A0x(?:{'|'.join(forms)})\Z")


Hash = Annotated[str, _bytes(32)]
Address = Annotated[str, _bytes(20)]
# Empty where nothing is said.
MaybeHash = Annotated[str, _bytes(32, maybe=True)]
MaybeAddress = Annotated[str, _bytes(20, maybe=True)]
Bloom = Annotated[str, _bytes(256)]
MaybeBloom = Annotated[str, _bytes(256, maybe=True)]
Data = Annotated[str, Meta(pattern=r"\A0x(?:[0-9a-fA-F]{2})*\Z")]
# What heights, positions and sizes are: the columns that keep them have 31 bits of room.
Height = Annotated[str, _number(31)]
# Unix seconds until the year 2106. A wider field would be a time that calendars do not have.
Seconds = Annotated[str, _number(32)]
Gas = Annotated[str, _number(63)]
# A price or fee: wide enough for any, and narrow enough that no product with gas outgrows 256 bits.
Price = Annotated[str, _number(120)]
Scalar = Annotated[str, _number(64)]
Word = Annotated[str, _number(256)]
Status = Annotated[str, Meta(pattern=r"\A0x[01]\Z")]
# Numbers of explorers are decimal.
Decimal256 = Annotated[str, Meta(pattern=r"\A[0-9]{1,78}\Z")]
DecimalHeight = Annotated[str, Meta(pattern=r"\A[0-9]{1,10}\Z")]

MAX_TIME_S: Final = 2**32 - 1
