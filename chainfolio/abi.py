"""Protocol families whose decoders call contracts by Ethereum's ABI, for any kind of chain.

A kind that has such families offers them (`chainfolio.kinds.OffersFamilies`). Another kind reads accounts with them and
answers their reads by its own calls. Inside, addresses are `0x` and 40 digits; assets have the names of the chain.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from chainfolio.assets import Asset
from chainfolio.plans import Unknown
from chainfolio.positions import AccountReader
from chainfolio.protocols import InstalledProtocols
from chainfolio.reads import Read


class AssetNames(Protocol):
    """The assets of a chain by contract."""

    @property
    def native_asset(self) -> Asset:
        """The native coin."""

    def token_asset(self, contract: str) -> Asset:
        """Return the fungible token of a contract."""


@dataclass(frozen=True, slots=True)
class AbiCall:
    """Call data for a contract. `alone`: not batched, because the function changes state."""

    contract: str
    data: bytes
    alone: bool = False


@dataclass(frozen=True, slots=True)
class CoinBalance:
    """A read of an account's native balance."""

    account: str


class AbiFamilies(Protocol):
    """The decoders of a kind of chain, and the conversion of their reads into calls."""

    def account_reader(
        self, names: AssetNames, installed: InstalledProtocols, plain: Collection[str], trusted: Collection[str]
    ) -> AccountReader:
        """Return a reader of accounts with these protocols.

        Contracts in `plain` are no shares; transfers of those in `trusted` need no check.
        """

    def to_request(self, read: Read[object]) -> AbiCall | CoinBalance | Unknown | None:
        """Return the request of a decoder's read; Unknown if not encodable, None if it is of another kind."""

    def decode(self, read: Read[object], returned: bytes) -> object:
        """Return the value of a contract read from the bytes that the call returned."""
