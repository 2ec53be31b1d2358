"""The few rules of the EVM that scripts need: call data, results, addresses."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import sha3
from eth_abi.abi import decode, encode
from eth_abi.grammar import TupleType, parse

ZERO = "0x" + "00" * 20
MAX = 2**256 - 1


@dataclass(frozen=True)
class Tx:
    """A transaction to be signed by the node; without `to` it creates a contract."""

    sender: str
    to: str | None
    data: str = "0x"
    value: int = 0
    gas: int = 1_000_000
    label: str = "transaction"


def keccak(data: bytes) -> bytes:
    """Return the Keccak-256 hash."""
    digest: bytes = sha3.keccak_256(data).digest()
    return digest


def topic(event: str) -> str:
    """Return the first topic of an event such as "Transfer(address,address,uint256)"."""
    return "0x" + keccak(event.encode()).hex()


def selector(signature: str) -> str:
    """Return the four bytes that select a function, in hex with 0x; result types are ignored."""
    return _function(signature)[0]


def call_data(signature: str, *args: object) -> str:
    """Encode call data, in hex with 0x, for "balanceOf(address)"; result types are ignored."""
    chosen, takes, _ = _function(signature)
    return chosen + encode(takes, args).hex()


def topic_of(address: str) -> str:
    """Return an address as a topic of a log."""
    return "0x" + "00" * 12 + address[2:].lower()


def words(types: Sequence[str], *values: object) -> str:
    """Encode values by the ABI, in hex without a prefix: constructor arguments, event data."""
    return encode(types, values).hex()


def result(signature: str, data: str) -> Any:
    """Decode the results of a function: a value if it has one result, else a tuple."""
    values = decode(_function(signature)[2], bytes.fromhex(data.removeprefix("0x")))
    return values[0] if len(values) == 1 else values


def tx(sender: str, to: str, signature: str, *args: object, value: int = 0, gas: int = 1_000_000) -> Tx:
    """Return a transaction that calls a function, with the function's name as its label."""
    return Tx(sender, to, call_data(signature, *args), value, gas, label=signature.partition("(")[0])


def created_address(sender: str, nonce: int) -> str:
    """Return the address of the contract that an account's transaction with this nonce creates."""
    number = nonce.to_bytes((nonce.bit_length() + 7) // 8, "big")
    # RLP: a number below 128 is its own byte, any other has its length before it (and zero has no bytes).
    item = number if 0 < nonce < 0x80 else bytes([0x80 + len(number)]) + number
    body = b"\x94" + bytes.fromhex(sender.removeprefix("0x")) + item
    return checksummed(keccak(bytes([0xC0 + len(body)]) + body)[12:].hex())


def checksummed(address: str) -> str:
    """Return an address with 0x and the letters' case of EIP-55."""
    plain = address.removeprefix("0x").lower()
    digest = keccak(plain.encode()).hex()
    return "0x" + "".join(c.upper() if int(d, 16) >= 8 else c for c, d in zip(plain, digest, strict=False))


@lru_cache(maxsize=512)
def _function(signature: str) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """Return the selector, the argument types and the result types of a signature."""
    end = _closing(signature, signature.index("("))
    plain, gives = signature[: end + 1], signature[end + 1 :]
    return "0x" + keccak(plain.encode())[:4].hex(), _types(plain[plain.index("(") :]), _types(gives or "()")


def _closing(text: str, start: int) -> int:
    """Return the index of the bracket that closes the one at `start`; ValueError if none does."""
    depth = 0
    for at in range(start, len(text)):
        depth += (text[at] == "(") - (text[at] == ")")
        if depth == 0:
            return at
    raise ValueError(f"no closing bracket in {text}")


def _types(group: str) -> tuple[str, ...]:
    """Split a list of types in brackets; empty for `()`."""
    if group == "()":
        return ()
    parsed = parse(group)
    assert isinstance(parsed, TupleType)
    return tuple(part.to_type_str() for part in parsed.components)
