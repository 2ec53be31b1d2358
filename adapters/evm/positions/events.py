"""Events as contracts declare them: by what a log of one is found, and what its words say. Pure: no I/O."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

WORD = 32
MAX_TOPICS = 3  # besides the first
_DECLARED = re.compile(r"(\w+)\((.*)\)\Z")
_PARAMETER = re.compile(r"([a-z]+\d*)((?:\[\])*)(?: (indexed))?(?: \w+)?\Z")
_READABLE = frozenset([
    "address", "bool", *(f"bytes{size}" for size in range(1, 33)),
    *(f"{kind}{bits}" for kind in ("int", "uint") for bits in range(8, 257, 8)),
])  # fmt: skip


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter: its type, and whether it is a topic or a word of the data."""

    type: str
    indexed: bool

    @property
    def is_readable(self) -> bool:
        """Whether its word is its value: of an array or a text a topic has only the hash, the data only a pointer."""
        return self.type in _READABLE


@dataclass(frozen=True, slots=True)
class Declared:
    """An event: its first topic (0x + 64 hex digits), and its parameters, which are named by position, from 0."""

    topic: str
    parameters: tuple[Parameter, ...]

    def filter(self, contract: str) -> str:
        """How the dataset `events` calls this event of a contract: `0x…contract/0x…topic`."""
        return f"{contract}/{self.topic}"

    def place(self, at: int) -> int:
        """Which topic, from 1, an indexed parameter is."""
        return sum(each.indexed for each in self.parameters[: at + 1])

    def values(self, of: Sequence[int], topics: Sequence[str], data: bytes) -> tuple[Any, ...] | None:
        """The values of some parameters in a log, whose `topics` come without the first; None where the log is none of
        this event as it is declared. Numbers are int, addresses lower-case text, bytes are bytes."""
        indexed = sum(each.indexed for each in self.parameters)
        if len(topics) != indexed or len(data) < WORD * (len(self.parameters) - indexed):
            return None
        values = tuple(self._value(at, topics, data) for at in of)
        return None if None in values else values

    def _value(self, at: int, topics: Sequence[str], data: bytes) -> Any:
        if self.parameters[at].indexed:
            return _value(self.parameters[at].type, bytes.fromhex(topics[self.place(at) - 1][2:]))
        start = WORD * (at - self.place(at))
        return _value(self.parameters[at].type, data[start : start + WORD])


@lru_cache(maxsize=1024)
def declared(written: str) -> Declared:
    """Parse `Deposit(address indexed user, uint256 indexed pid, uint256 amount)`; names may be left out.

    ValueError where it is none such: structs and arrays of fixed size, which take several words, are not known.
    """
    from sha3 import keccak_256

    match = _DECLARED.match(written)
    if match is None:
        raise ValueError(f"not an event: {written}")
    parameters = tuple(_parameter(each.strip(), written) for each in match[2].split(",") if match[2].strip())
    canonical = f"{match[1]}({','.join(each.type for each in parameters)})"
    if sum(each.indexed for each in parameters) > MAX_TOPICS:
        raise ValueError(f"an event has three indexed parameters at most: {written}")
    return Declared("0x" + str(keccak_256(canonical.encode()).hexdigest()), parameters)


def _parameter(written: str, event: str) -> Parameter:
    match = _PARAMETER.match(written)
    if match is None or match[1] not in {*_READABLE, "string", "bytes"}:
        raise ValueError(f"not a parameter of an event: `{written}` in {event}")
    return Parameter(match[1] + match[2], match[3] is not None)


def _value(kind: str, word: bytes) -> Any:
    """What a word says; None where it is none of its type."""
    number = int.from_bytes(word, "big")
    if kind.startswith("bytes"):
        return word[: int(kind.removeprefix("bytes"))]
    if kind == "address":
        return f"0x{number:040x}" if number < 1 << 160 else None
    if kind == "bool":
        return bool(number) if number < 2 else None
    if kind.startswith("uint"):
        return number if number < 1 << int(kind.removeprefix("uint")) else None
    signed, half = int.from_bytes(word, "big", signed=True), 1 << (int(kind.removeprefix("int")) - 1)
    return signed if -half <= signed < half else None
