"""The decoders of the EVM for other kinds of chain; see `chainfolio.abi`."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from chainfolio.abi import AbiCall, AssetNames, CoinBalance
from chainfolio.adapters.evm.call import decode
from chainfolio.adapters.evm.positions.matching import Protocols
from chainfolio.adapters.evm.positions.reader import EvmAccountReader
from chainfolio.adapters.evm.reads import AbiValue, Call, NativeBalance
from chainfolio.adapters.evm.scanner import call_data, not_encodable
from chainfolio.plans import Unknown
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

    def to_request(self, read: Read[object]) -> AbiCall | CoinBalance | Unknown | None:
        """Return the call or balance that a decoder's read stands for; None if it is no such read.

        Unknown if it cannot be encoded.
        """
        if not isinstance(read, Call | NativeBalance):
            return None
        try:
            content = call_data(read)
        except Exception as error:  # decoders are third-party code, and pass on numbers of contracts
            return not_encodable(error)
        if isinstance(read, NativeBalance):
            return CoinBalance(read.account)
        return AbiCall(read.to, content or b"", read.alone)

    def decode(self, read: Read[object], returned: bytes) -> AbiValue:
        """Return the value of a call's return data; Unknown if the data does not fit the signature."""
        assert isinstance(read, Call), "balances have no return data"
        return decode(read, returned)


FAMILIES = Families()
