"""Families of protocols whose decoders call contracts by Ethereum's ABI, for kinds of chain whose contracts understand
it and which are not of the EVM otherwise.

A kind that has such families offers them (`chainfolio.kinds.OffersFamilies`). Another one reads accounts with them and
answers their reads by calls of its own. Inside, addresses are `0x` and 40 digits; assets have the names of the chain.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Protocol

from chainfolio.assets import Asset
from chainfolio.positions import AccountReader
from chainfolio.protocols import InstalledProtocols


class NamesAssets(Protocol):
    """What assets are called on a chain."""

    @property
    def native_asset(self) -> Asset:
        """The native coin."""

    def token_asset(self, contract: str) -> Asset:
        """The fungible token of a contract."""


@dataclass(frozen=True, slots=True)
class AbiCall:
    """Call data for a contract. `alone`: the function changes something, and is asked for what it would give: it does
    not travel together with others in one call."""

    contract: str
    data: bytes
    alone: bool = False


@dataclass(frozen=True, slots=True)
class CoinsOf:
    """The native coins of an account."""

    account: str


class AbiFamilies(Protocol):
    """The decoders of a kind of chain, and how their reads are put into calls."""

    def account_reader(
        self, names: NamesAssets, installed: InstalledProtocols, plain: Collection[str], listed: Collection[str]
    ) -> AccountReader:
        """What reads accounts with these protocols: contracts in `plain` are no shares of anything, and transfers of
        those in `listed` nobody has to doubt."""

    def asked(self, read: Any) -> AbiCall | CoinsOf | None:
        """What a read of a decoder asks for; None where it is no such read."""

    def given(self, read: Any, returned: bytes) -> Any:
        """The value that a read of a contract has, from what it returned."""
