"""Which chain an endpoint serves, before anything is known of that chain."""

from __future__ import annotations

from adapters.evm.endpoint import EvmEndpoint
from adapters.evm.hexadecimal import quantity
from adapters.evm.settings import EvmSettings
from chainfolio.seams import Seams
from transport.http import HttpTransport
from transport.wire import Request, typed


async def served(settings: EvmSettings, seams: Seams) -> int:
    """The chain id that the first endpoint of some settings gives."""
    transport = HttpTransport(seams.answers)
    endpoint = EvmEndpoint(settings.rpc[0], transport, seams, timeout_s=settings.timeout_s)
    try:
        return quantity(endpoint.name, typed(endpoint.name, await endpoint.one(Request("eth_chainId")), str))
    finally:
        await transport.close()
