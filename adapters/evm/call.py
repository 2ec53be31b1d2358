"""Calls on the wire: a signature and arguments to call data, return data to values. The ABI itself is eth-abi's, except
for values of one word."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sha3 import keccak_256

from adapters.evm import words
from adapters.evm.reads import Call
from chainfolio.plans import Unknown

RAW = "*"


@dataclass(frozen=True, slots=True)
class Signature:
    """A parsed `name(inputs)(outputs)`; outputs `*` means the return data as it is."""

    selector: bytes
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @property
    def is_raw(self) -> bool:
        """Whether the return data is handed over undecoded."""
        return self.outputs == (RAW,)


@lru_cache(maxsize=4096)
def signature(written: str) -> Signature:
    """Parse `balanceOf(address)(uint256)`; a malformed one is a bug of whoever wrote it."""
    opened = written.index("(")
    closed = _closing(written, opened)
    inputs, rest = written[opened + 1 : closed], written[closed + 1 :]
    assert (rest[:1], rest[-1:]) == ("(", ")"), f"not a call signature: {written}"
    selector = keccak_256(written[: closed + 1].encode()).digest()[:4]
    return Signature(selector, _split(inputs), _split(rest[1:-1]))


def _closing(text: str, opened: int) -> int:
    depth = 0
    for at in range(opened, len(text)):
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        if depth == 0:
            return at
    raise AssertionError(f"not a call signature: {text}")


def _split(types: str) -> tuple[str, ...]:
    parts, depth, start = [], 0, 0
    for at, char in enumerate(types):
        depth += {"(": 1, ")": -1}.get(char, 0)
        if char == "," and depth == 0:
            parts.append(types[start:at])
            start = at + 1
    return (*parts, types[start:]) if types else ()


def encode(written: str, args: tuple[Any, ...]) -> bytes:
    """Call data."""
    parsed = signature(written)
    assert len(parsed.inputs) == len(args), f"{written} takes {len(parsed.inputs)} arguments, not {len(args)}"
    if parsed.inputs == ("address",):
        return parsed.selector + bytes(12) + bytes.fromhex(args[0][2:])
    return _encoded(written, args) if args else parsed.selector


@lru_cache(maxsize=16_384)
def _encoded(written: str, args: tuple[Any, ...]) -> bytes:
    parsed = signature(written)
    simple = words.written(parsed.inputs, args)
    if simple is not None:
        return parsed.selector + simple
    from eth_abi.abi import encode as abi_encode

    return parsed.selector + abi_encode(parsed.inputs, args)


def encode_answer(written: str, value: Any) -> bytes:
    """The return data that decodes to a value: exactly the words of the outputs that the signature names."""
    parsed = signature(written)
    if parsed.is_raw:
        return bytes(value)
    from eth_abi.abi import encode as abi_encode

    return bytes(abi_encode(parsed.outputs, [value] if len(parsed.outputs) == 1 else value))


def decode(call: Call, data: bytes) -> Any:
    """The value in some return data, or Unknown with the reason it cannot be one."""
    parsed = signature(call.signature)
    if parsed.is_raw:
        return data
    if len(data) < 32 * len(parsed.outputs):
        wanted = 32 * len(parsed.outputs)
        return Unknown(f"returned {len(data)} bytes where {call.signature} has to return {wanted}", "contract")
    if parsed.outputs == ("uint256",):
        return int.from_bytes(data[:32], "big")
    simple = words.read(parsed.outputs, data)
    if simple is not None:
        return simple[0] if len(simple) == 1 else simple
    from eth_abi.abi import decode as abi_decode
    from eth_abi.exceptions import DecodingError

    try:
        values = abi_decode(parsed.outputs, data)
    except (DecodingError, OverflowError, UnicodeDecodeError) as error:
        return Unknown(f"returned what {call.signature} cannot: {type(error).__name__}", cause="contract")
    return values[0] if len(values) == 1 else values
