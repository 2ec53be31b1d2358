"""An endpoint of an EVM chain: what its refusals mean, and what its calls cost."""

from __future__ import annotations

from typing import Final

from chainfolio.adapters.evm.refusals import meaning
from chainfolio.errors import SourceError
from chainfolio.transport.endpoint import Endpoint
from chainfolio.transport.wire import RpcError

# Compute units of single calls, about as large providers count them.
UNITS: Final = {
    "eth_chainId": 1,
    "eth_getLogs": 60,
    "eth_call": 26,
    "trace_filter": 40,
    "trace_transaction": 40,
    "trace_block": 40,
    "debug_traceTransaction": 40,
    "debug_traceBlockByHash": 40,
    "debug_traceBlockByNumber": 40,
    "eth_simulateV1": 40,
}
OTHER_UNITS: Final = 20


class EvmEndpoint(Endpoint):
    """One URL of an EVM chain."""

    def meaning(self, method: str, refusal: RpcError, height: int) -> SourceError:
        """Return the typed error of a refusal, by the node's words."""
        return meaning(self.name, method, refusal, height)

    def units(self, method: str) -> int:
        """Return the compute units of a call, about as large providers count them."""
        return UNITS.get(method, OTHER_UNITS)
