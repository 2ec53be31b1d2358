"""An endpoint of a Solana chain: its error codes, and the cost of its calls."""

from __future__ import annotations

from typing import ClassVar, Final

from chainfolio.adapters.solana.refusals import meaning
from chainfolio.errors import SourceError
from chainfolio.transport.endpoint import Endpoint
from chainfolio.transport.wire import RpcError

# Compute units of single calls, about as large providers count them.
UNITS: Final = {
    "getProgramAccounts": 50,
    "getBlock": 30,
    "getTransaction": 20,
    "getSignaturesForAddress": 20,
    "getTokenAccountsByOwner": 20,
    "getMultipleAccounts": 20,
}
OTHER_UNITS: Final = 10


class SolanaEndpoint(Endpoint):
    """One URL of a Solana chain."""

    refuses_all_batches: ClassVar[bool] = True

    def meaning(self, method: str, refusal: RpcError, height: int) -> SourceError:
        """Return the typed error of a refusal, by its code or else by its text."""
        return meaning(self.name, method, refusal, height)

    def units(self, method: str) -> int:
        """Return the approximate compute units of a method, as large providers count them."""
        return UNITS.get(method, OTHER_UNITS)
