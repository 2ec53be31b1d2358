"""The section of one venue in the settings, parsed strictly, with addresses and units."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Final

from chainfolio.assets import evm_address
from chainfolio.errors import BadRequest, BadSettings
from chainfolio.price_sources import Section

KIND: Final = "evm"  # of the chains that have these contracts
MAX_DECIMALS: Final = 36
BYTES32: Final = re.compile(r"0x[0-9a-f]{64}\Z")


def raw_unit(decimals: object) -> int:
    """Return the raw units of one token by its `decimals()`; 0 if these are unread or over MAX_DECIMALS."""
    return 10**decimals if isinstance(decimals, int) and decimals <= MAX_DECIMALS else 0


@dataclass(slots=True)
class VenueSection:
    """The section of a venue. Its methods raise BadSettings for a missing or malformed value.

    Attributes:
        location: Names the section in error messages.
        read_keys: Keys that were read so far. Any other key is an error, see `reject_unread_keys`.
    """

    section: Section
    location: str
    read_keys: set[str] = field(default_factory=lambda: {"family", "name"})

    @property
    def name(self) -> str:
        """The name that prices show: `name`, or else the family."""
        return str(self._value("name", self.section.get("family", "")))

    def address(self, key: str) -> str:
        """Return the address of a contract."""
        return parse_contract(self._value(key), f"{key} of {self.name}", self.location)

    def bytes32_list(self, key: str) -> tuple[bytes, ...]:
        """Return a list of 32-byte words, duplicates removed; raise BadSettings if it is empty or malformed."""
        value = self._value(key)
        if (
            not isinstance(value, list)
            or not value
            or not all(isinstance(text, str) and BYTES32.match(text) for text in value)
        ):
            fault = f"{key} of {self.name} is not a list of words of 32 bytes"
            raise BadSettings(self.location, fault, remedy="0x and 64 hex digits in lower case each")
        return tuple(dict.fromkeys(bytes.fromhex(text[2:]) for text in value))

    def number(self, key: str, default: int | None = None, maximum: int = 86_400) -> int:
        """Return a whole number from 1 to `maximum`; raise BadSettings if it is none.

        Without the key it is `default`; BadSettings if that is None.
        """
        return self._whole_number(self._value(key, default), key, maximum)

    def numbers(self, key: str, maximum: int) -> tuple[int, ...]:
        """Return a list of different whole numbers from 1 to `maximum`; BadSettings if it is empty or another."""
        value = self._value(key)
        if not isinstance(value, list) or not value or len(set(map(str, value))) != len(value):
            raise BadSettings(self.location, f"{key} of {self.name} is not a list of different numbers")
        return tuple(self._whole_number(number, key, maximum) for number in value)

    def check_same_length(self, key_a: str, key_b: str) -> None:
        """Raise BadSettings if two lists have different lengths."""
        if len(self._value(key_a)) != len(self._value(key_b)):
            raise BadSettings(self.location, f"{key_a} and {key_b} of {self.name} have not as many numbers")

    def reject_unread_keys(self) -> None:
        """Raise BadSettings if the section has a key that was not read."""
        for key in sorted(self.section.keys() - self.read_keys):
            raise BadSettings(self.location, f"{self.name} has no key `{key}`")

    def _value(self, key: str, default: object = None) -> Any:
        """Return the value of a key or its default, and note the key as read; BadSettings if it is None."""
        self.read_keys.add(key)
        value = self.section.get(key, default)
        if value is None:
            raise BadSettings(self.location, f"{self.name} needs `{key}`")
        return value

    def _whole_number(self, value: object, key: str, maximum: int) -> int:
        if type(value) is not int or not 1 <= value <= maximum:
            fault = f"{key} of {self.name} is {value!r}, not a whole number from 1 to {maximum}"
            raise BadSettings(self.location, fault)
        return value


def parse_contract(value: object, subject: str, location: str) -> str:
    """Parse the address of a contract.

    Raise BadSettings, which names `subject`, if it is not in canonical form.
    """
    try:
        address = evm_address(value) if isinstance(value, str) else ""
    except BadRequest:
        address = ""
    if not address or address != value:
        raise BadSettings(location, f"{subject} is not an address", remedy="0x and 40 hex digits in lower case")
    return address
