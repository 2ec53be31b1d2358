"""The decoders of the EVM for other kinds of chain; see `chainfolio.abi`."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from chainfolio.abi import AbiCall, AssetNames, CoinBalance
from chainfolio.adapters.evm.call import decode, encode
from chainfolio.adapters.evm.positions.matching import Protocols
from chainfolio.adapters.evm.positions.reader import EvmAccountReader
from chainfolio.adapters.evm.reads import AbiValue, Call, NativeBalance
from chainfolio.protocols import InstalledProtocols
from chainfolio.reads import Read


@dataclass(frozen=True, slots=True)
class Families:
    """The implementation of `chainfolio.abi.AbiFamilies`."""

    def account_reader(
        self, names: AssetNames, installed: InstalledProtocols, plain: Collection[str], trusted: Collection[str]
    ) -> EvmAccountReader:
        """Return a reader of accounts with these protocols.

        Contracts in `plain` are no shares; transfers of those in `trusted` need no check.
        """
        non_shares = frozenset(plain)
        protocols = Protocols(
            installed.rows, non_shares, installed.issues, installed.unread, non_shares | frozenset(trusted)
        )
        return EvmAccountReader(protocols, names)

    def to_request(self, read: Read[object]) -> AbiCall | CoinBalance | None:
        """Return the call or balance that a decoder's read stands for; None if it is no such read."""
        if isinstance(read, Call):
            return AbiCall(read.to, encode(read.signature, read.args), read.alone)
        return CoinBalance(read.account) if isinstance(read, NativeBalance) else None

    def decode(self, read: Read[object], returned: bytes) -> AbiValue:
        """Return the value of a call's return data; Unknown if the data does not fit the signature."""
        assert isinstance(read, Call), "balances have no return data"
        return decode(read, returned)


FAMILIES = Families()
