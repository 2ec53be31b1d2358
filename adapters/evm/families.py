"""The decoders of the EVM for other kinds of chain, as `chainfolio.abi` has it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from adapters.evm.call import decode, encode
from adapters.evm.positions.matching import Protocols
from adapters.evm.positions.reader import Accounts
from adapters.evm.reads import Call, NativeBalance
from chainfolio.abi import AbiCall, CoinsOf, NamesAssets
from chainfolio.protocols import InstalledProtocols


@dataclass(frozen=True, slots=True)
class Families:
    """As `chainfolio.abi.AbiFamilies` has it."""

    def account_reader(
        self, names: NamesAssets, installed: InstalledProtocols, plain: Collection[str], listed: Collection[str]
    ) -> Accounts:
        """What reads accounts with these protocols."""
        own = frozenset(plain)
        found = Protocols(installed.rows, own, installed.issues, installed.unread, own | frozenset(listed))
        return Accounts(found, names)

    def asked(self, read: Any) -> AbiCall | CoinsOf | None:
        """What a read of a decoder asks for."""
        if isinstance(read, Call):
            return AbiCall(read.to, encode(read.signature, read.args), read.alone)
        return CoinsOf(read.account) if isinstance(read, NativeBalance) else None

    def given(self, read: Call, returned: bytes) -> Any:
        """The value of a call."""
        return decode(read, returned)


FAMILIES = Families()
