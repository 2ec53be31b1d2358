"""GET /v1/chains: the configured chains and what this server answers about each."""

from __future__ import annotations

from chainfolio.api.context import Context
from chainfolio.api.router import get
from chainfolio.engine.results import ChainFact


@get("/v1/chains", tag="Service", summary="Chains this server answers about", cost=0)
async def chains(request: Context) -> list[ChainFact]:
    """Returns every configured chain, sorted by name."""
    return sorted(request.engine.chains(), key=lambda chain: (chain.name.casefold(), chain.key))
