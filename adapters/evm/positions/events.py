"""Event signatures: parse a declaration, find its logs by topic, and decode their values. No I/O."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from sha3 import keccak_256

from chainfolio.adapters.evm.reads import AbiValue

WORD = 32
MAX_TOPICS = 3  # after the first one, the hash of the signature
_DECLARATION = re.compile(r"(\w+)\((.*)\)\Z")
_PARAMETER = re.compile(r"([a-z]+\d*)((?:\[\])*)(?: (indexed))?(?: \w+)?\Z")
_READABLE = frozenset(
    [
        "address",
        "bool",
        *(f"bytes{size}" for size in range(1, 33)),
        *(f"{kind}{bits}" for kind in ("int", "uint") for bits in range(8, 257, 8)),
    ]
)


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter: its ABI type, and True if it is `indexed` (a topic, not a word of the data)."""

    type: str
    indexed: bool

    @property
    def is_readable(self) -> bool:
        """True if its word is its value: not an array or text, which have a hash or an offset there."""
        return self.type in _READABLE


@dataclass(frozen=True, slots=True)
class EventSignature:
    """An event: its first topic (0x + 64 hex digits) and its parameters, which are numbered from 0."""

    topic: str
    parameters: tuple[Parameter, ...]

    def filter(self, contract: str) -> str:
        """Return the key of this event in the dataset `events`: `0x…contract/0x…topic`."""
        return f"{contract}/{self.topic}"

    def topic_number(self, position: int) -> int:
        """Return the number of the topic of an indexed parameter, from 1."""
        return sum(parameter.indexed for parameter in self.parameters[: position + 1])

    def values(self, positions: Sequence[int], topics: Sequence[str], data: bytes) -> tuple[AbiValue, ...] | None:
        """Decode some parameters of a log: numbers as int, addresses as lower-case text, bytes as bytes.

        Args:
            positions: The parameters to decode.
            topics: The topics after the first one.
            data: The data of the log.

        Returns:
            None if the log does not fit the event's declaration.
        """
        indexed_count = sum(parameter.indexed for parameter in self.parameters)
        if len(topics) != indexed_count or len(data) < WORD * (len(self.parameters) - indexed_count):
            return None
        values = tuple(self._value(position, topics, data) for position in positions)
        return None if None in values else values

    def _value(self, position: int, topics: Sequence[str], data: bytes) -> AbiValue:
        """Return a parameter from its topic or its word of the data; None if it is out of its type's range."""
        parameter, topic_number = self.parameters[position], self.topic_number(position)
        if parameter.indexed:
            return _decode_word(parameter.type, bytes.fromhex(topics[topic_number - 1][2:]))
        start = WORD * (position - topic_number)
        return _decode_word(parameter.type, data[start : start + WORD])


@lru_cache(maxsize=1024)
def parse_event(declaration: str) -> EventSignature:
    """Parse `Deposit(address indexed user, uint256 indexed pid, uint256 amount)`; names may be left out.

    Raises:
        ValueError: It is no event, or has more than three indexed parameters. Structs and arrays of fixed size, which
            take several words, are not supported.
    """
    match = _DECLARATION.match(declaration)
    if match is None:
        raise ValueError(f"not an event: {declaration}")
    parameters = tuple(_parse_parameter(text.strip(), declaration) for text in match[2].split(",") if text.strip())
    canonical = f"{match[1]}({','.join(parameter.type for parameter in parameters)})"
    if sum(parameter.indexed for parameter in parameters) > MAX_TOPICS:
        raise ValueError(f"an event has three indexed parameters at most: {declaration}")
    return EventSignature("0x" + str(keccak_256(canonical.encode()).hexdigest()), parameters)


def _parse_parameter(text: str, declaration: str) -> Parameter:
    match = _PARAMETER.match(text)
    if match is None or match[1] not in {*_READABLE, "string", "bytes"}:
        raise ValueError(f"not a parameter of an event: `{text}` in {declaration}")
    return Parameter(match[1] + match[2], match[3] is not None)


def _decode_word(abi_type: str, word: bytes) -> AbiValue:
    """Decode a word as a value of an ABI type; None if it is out of the type's range."""
    number = int.from_bytes(word, "big")
    if abi_type.startswith("bytes"):
        return word[: int(abi_type.removeprefix("bytes"))]
    if abi_type == "address":
        return f"0x{number:040x}" if number < 1 << 160 else None
    if abi_type == "bool":
        return bool(number) if number < 2 else None
    if abi_type.startswith("uint"):
        return number if number < 1 << int(abi_type.removeprefix("uint")) else None
    signed, limit = int.from_bytes(word, "big", signed=True), 1 << (int(abi_type.removeprefix("int")) - 1)
    return signed if -limit <= signed < limit else None
