"""Encode calls and decode their return data, given a signature.

eth-abi does the ABI itself, except for values of one word.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from sha3 import keccak_256

from chainfolio.adapters.evm import words
from chainfolio.adapters.evm.reads import AbiValue, Call
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
        """True if the return data is handed over undecoded."""
        return self.outputs == (RAW,)


@lru_cache(maxsize=4096)
def signature(text: str) -> Signature:
    """Parse `balanceOf(address)(uint256)`.

    Raises:
        AssertionError: It is malformed, which is a bug of the caller.
        ValueError: It has no bracket.
    """
    opened = text.index("(")
    closed = _closing(text, opened)
    inputs, outputs = text[opened + 1 : closed], text[closed + 1 :]
    assert (outputs[:1], outputs[-1:]) == ("(", ")"), f"not a call signature: {text}"
    selector = keccak_256(text[: closed + 1].encode()).digest()[:4]
    return Signature(selector, _split(inputs), _split(outputs[1:-1]))


def _closing(text: str, opened: int) -> int:
    """Return the position of the parenthesis that closes the one at `opened`; AssertionError without one."""
    depth = 0
    for index in range(opened, len(text)):
        depth += {"(": 1, ")": -1}.get(text[index], 0)
        if depth == 0:
            return index
    raise AssertionError(f"not a call signature: {text}")


def _split(types: str) -> tuple[str, ...]:
    """Return the types of a list, split at commas outside of tuples; none for an empty text."""
    parts, depth, start = [], 0, 0
    for index, char in enumerate(types):
        depth += {"(": 1, ")": -1}.get(char, 0)
        if char == "," and depth == 0:
            parts.append(types[start:index])
            start = index + 1
    return (*parts, types[start:]) if types else ()


def encode(signature_text: str, args: tuple[AbiValue, ...]) -> bytes:
    """Return call data: the selector and the encoded arguments.

    Raises:
        AssertionError: There is another number of arguments than inputs.
        Exception: An argument does not fit its type. The class is that of eth-abi.
    """
    parsed = signature(signature_text)
    assert len(parsed.inputs) == len(args), f"{signature_text} takes {len(parsed.inputs)} arguments, not {len(args)}"
    if parsed.inputs == ("address",) and isinstance(args[0], str) and words.ADDRESS.match(args[0]):
        return parsed.selector + bytes(12) + bytes.fromhex(args[0][2:])
    return _encode_cached(signature_text, args) if args else parsed.selector


@lru_cache(maxsize=16_384)
def _encode_cached(signature_text: str, args: tuple[AbiValue, ...]) -> bytes:
    """Return the call data; as `encode`, which does the common cases faster than this cache."""
    parsed = signature(signature_text)
    word_encoding = words.encode_words(parsed.inputs, args)
    if word_encoding is not None:
        return parsed.selector + word_encoding
    from eth_abi.abi import encode as abi_encode

    return parsed.selector + abi_encode(parsed.inputs, args)


def encode_answer(signature_text: str, value: AbiValue) -> bytes:
    """Return the return data that decodes to a value, as the outputs of the signature say."""
    parsed = signature(signature_text)
    if parsed.is_raw:
        return bytes(value)
    from eth_abi.abi import encode as abi_encode

    return bytes(abi_encode(parsed.outputs, [value] if len(parsed.outputs) == 1 else value))


def decode(call: Call, data: bytes) -> AbiValue:
    """Return the value of return data, or Unknown with the reason if it does not fit the signature.

    Several outputs give a tuple, one gives its value; a raw signature gives the bytes.
    """
    parsed = signature(call.signature)
    if parsed.is_raw:
        return data
    if len(data) < 32 * len(parsed.outputs):
        min_size = 32 * len(parsed.outputs)
        return Unknown(f"returned {len(data)} bytes where {call.signature} has to return {min_size}", "contract")
    if parsed.outputs == ("uint256",):
        return int.from_bytes(data[:32], "big")
    word_values = words.decode_words(parsed.outputs, data)
    if word_values is not None:
        return word_values[0] if len(word_values) == 1 else word_values
    from eth_abi.abi import decode as abi_decode
    from eth_abi.exceptions import DecodingError

    try:
        values = abi_decode(parsed.outputs, data)
    except (DecodingError, OverflowError, UnicodeDecodeError) as error:
        return Unknown(f"returned what {call.signature} cannot: {type(error).__name__}", cause="contract")
    return values[0] if len(values) == 1 else values
