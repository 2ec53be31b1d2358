"""The forms of fields in node answers: a field of another form fails the decoding of its answer.

They are types of fields in `msgspec` structs, so that `wire.typed` refuses a malformed field as `BadAnswer` of its node
before anything is read from it. Code behind that boundary may use `int(text, 16)` and `bytes.fromhex(text[2:])`.
"""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta


def _bytes(size: int, *, optional: bool = False) -> Meta:
    return Meta(pattern=rf"\A(?:0x[0-9a-fA-F]{{{2 * size}}}){'?' if optional else ''}\Z")


def _number(bits: int) -> Meta:
    """Return the form of a quantity of at most `bits` bits: no sign, blanks or leading zeros."""
    digits, extra_bits = divmod(bits, 4)
    forms = ["0", rf"[1-9a-fA-F][0-9a-fA-F]{{0,{digits - 1}}}"]
    if extra_bits:
        forms.append(rf"[1-{2**extra_bits - 1}][0-9a-fA-F]{{{digits}}}")
    return Meta(pattern=rf"\A0x(?:{'|'.join(forms)})\Z")


Hash = Annotated[str, _bytes(32)]
Address = Annotated[str, _bytes(20)]
# Empty if the node leaves the field out.
MaybeHash = Annotated[str, _bytes(32, optional=True)]
MaybeAddress = Annotated[str, _bytes(20, optional=True)]
Bloom = Annotated[str, _bytes(256)]
MaybeBloom = Annotated[str, _bytes(256, optional=True)]
Data = Annotated[str, Meta(pattern=r"\A0x(?:[0-9a-fA-F]{2})*\Z")]
# Heights, positions and sizes: their columns have 31 bits.
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
