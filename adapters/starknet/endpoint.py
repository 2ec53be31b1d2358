"""An endpoint of a Starknet chain: the errors behind its refusals, and the costs of its calls."""

from __future__ import annotations

from typing import ClassVar, Final

from chainfolio.adapters.starknet.refusals import error_from
from chainfolio.errors import SourceError
from chainfolio.transport.endpoint import Endpoint
from chainfolio.transport.wire import RpcError

# Approximate compute units per call, as large providers count them.
UNITS: Final = {
    "starknet_getBlockWithReceipts": 75,
    "starknet_getBlockWithTxs": 50,
    "starknet_getEvents": 75,
    "starknet_call": 26,
}
OTHER_UNITS: Final = 20


class StarknetEndpoint(Endpoint):
    """One URL of a Starknet chain."""

    refuses_all_batches: ClassVar[bool] = True

    def meaning(self, method: str, refusal: RpcError, height: int) -> SourceError:
        """Return the typed error for a refusal: by its code, else by its message."""
        return error_from(self.name, method, refusal, height)

    def units(self, method: str) -> int:
        """Return the approximate compute units of a call, as large providers count them."""
        return UNITS.get(method, OTHER_UNITS)
