"""An endpoint of a Solana chain: what its refusals mean, and what its calls cost."""

from __future__ import annotations

from typing import ClassVar, Final

from adapters.solana.refusals import meaning
from chainfolio.errors import SourceError
from transport.endpoint import Endpoint
from transport.wire import RpcError

# Compute units of single calls, about as large providers count them.
UNITS: Final = {
    "getProgramAccounts": 50, "getBlock": 30, "getTransaction": 20, "getSignaturesForAddress": 20,
    "getTokenAccountsByOwner": 20, "getMultipleAccounts": 20,
}  # fmt: skip
OTHER_UNITS: Final = 10


class SolanaEndpoint(Endpoint):
    """One URL of a Solana chain."""

    means_none: ClassVar[bool] = True

    def meaning(self, method: str, refusal: RpcError, height: int) -> SourceError:
        """By the code of the refusal, else by its words."""
        return meaning(self.name, method, refusal, height)

    def units(self, method: str) -> int:
        """About as many as large providers count."""
        return UNITS.get(method, OTHER_UNITS)
