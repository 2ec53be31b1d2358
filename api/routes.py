"""Every operation the API has: one line each, or one a family."""

from __future__ import annotations

from typing import Final

from api import beacon, chains, health, nav, overview, portfolio, protocols, status, wallet
from api.router import Route

ROUTES: Final[tuple[Route, ...]] = (
    portfolio.portfolio,
    wallet.wallet,
    nav.nav,
    overview.token_overview,
    chains.chains,
    protocols.chain_protocols,
    protocols.contract_protocol,
    status.status,
    *beacon.ROUTES,
    health.healthz,
    health.readyz,
)
