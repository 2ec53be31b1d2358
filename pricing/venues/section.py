"""What the settings say of one venue, read strictly."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from chainfolio.assets import evm
from chainfolio.errors import BadRequest, BadSettings
from chainfolio.kinds import contract_calls
from chainfolio.reads import Read

KIND: Final = "evm"  # of the chains on which venues lie
DECIMALS: Final = "decimals()(uint8)"
MAX_DECIMALS: Final = 36
WORD: Final = re.compile(r"0x[0-9a-f]{64}\Z")


def call(contract: str, function: str, args: tuple[Any, ...] = ()) -> Read:
    """A read of a contract."""
    return contract_calls(KIND)(contract, function, args)


def scale(decimals: Any) -> int:
    """How many raw units an amount of one is, by what a token answered; 0 where it names no decimals that can be
    meant."""
    return 10**decimals if isinstance(decimals, int) and decimals <= MAX_DECIMALS else 0


@dataclass(slots=True)
class Facts:
    """The keys of a venue. Each is read once; what nobody reads is an error."""

    section: Mapping[str, Any]
    where: str
    read: set[str] = field(default_factory=lambda: {"family", "name"})

    @property
    def name(self) -> str:
        """What prices name the venue by: its name, else its family."""
        return str(self._value("name", self.section.get("family", "")))

    def address(self, key: str) -> str:
        """A contract."""
        return address_of(self._value(key), f"{key} of {self.name}", self.where)

    def words(self, key: str) -> tuple[bytes, ...]:
        """Several words of 32 bytes."""
        value = self._value(key)
        if (
            not isinstance(value, list)
            or not value
            or not all(isinstance(each, str) and WORD.match(each) for each in value)
        ):
            said = f"{key} of {self.name} is not a list of words of 32 bytes"
            raise BadSettings(self.where, said, remedy="0x and 64 hex digits in lower case each")
        return tuple(dict.fromkeys(bytes.fromhex(each[2:]) for each in value))

    def number(self, key: str, default: int | None = None, most: int = 86_400) -> int:
        """A whole number from 1."""
        return self._whole(self._value(key, default), key, most)

    def numbers(self, key: str, most: int) -> tuple[int, ...]:
        """Several different ones."""
        value = self._value(key)
        if not isinstance(value, list) or not value or len(set(map(str, value))) != len(value):
            raise BadSettings(self.where, f"{key} of {self.name} is not a list of different numbers")
        return tuple(self._whole(each, key, most) for each in value)

    def same_length(self, one: str, values: tuple[int, ...], other: str, others: tuple[int, ...]) -> None:
        """BadSettings where two lists that belong together have not as many numbers."""
        if len(values) != len(others):
            raise BadSettings(self.where, f"{one} and {other} of {self.name} have not as many numbers")

    def done(self) -> None:
        """BadSettings where the section has a key that nobody reads."""
        for key in sorted(self.section.keys() - self.read):
            raise BadSettings(self.where, f"{self.name} has no key `{key}`")

    def _value(self, key: str, default: Any = None) -> Any:
        self.read.add(key)
        value = self.section.get(key, default)
        if value is None:
            raise BadSettings(self.where, f"{self.name} needs `{key}`")
        return value

    def _whole(self, value: Any, key: str, most: int) -> int:
        if type(value) is not int or not 1 <= value <= most:
            raise BadSettings(self.where, f"{key} of {self.name} is {value!r}, not a whole number from 1 to {most}")
        return value


def address_of(value: Any, what: str, where: str) -> str:
    """A contract's address as the settings write it."""
    try:
        address = evm(value) if isinstance(value, str) else ""
    except BadRequest:
        address = ""
    if not address or address != value:
        raise BadSettings(where, f"{what} is not an address", remedy="0x and 40 hex digits in lower case")
    return address
