"""An endpoint of a Starknet chain: what its refusals mean, and what its calls cost."""

from __future__ import annotations

from typing import ClassVar, Final

from chainfolio.adapters.starknet.refusals import meaning
from chainfolio.errors import SourceError
from chainfolio.transport.endpoint import Endpoint
from chainfolio.transport.wire import RpcError

# Compute units of single calls, about as large providers count them.
UNITS: Final = {
    "starknet_getBlockWithReceipts": 75,
    "starknet_getBlockWithTxs": 50,
    "starknet_getEvents": 75,
    "starknet_call": 26,
}
OTHER_UNITS: Final = 20


class StarknetEndpoint(Endpoint):
    """One URL of a Starknet chain."""

    means_none: ClassVar[bool] = True

    def meaning(self, method: str, refusal: RpcError, height: int) -> SourceError:
        """By the code of the refusal, else by its words."""
        return meaning(self.name, method, refusal, height)

    def units(self, method: str) -> int:
        """About as many as large providers count."""
        return UNITS.get(method, OTHER_UNITS)
