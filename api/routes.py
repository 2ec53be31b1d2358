"""Every operation the API has: one line each."""

from __future__ import annotations

from typing import Final

from api import chains, credits, health, nav, portfolio, status, wallet
from api.router import Route

ROUTES: Final[tuple[Route, ...]] = (
    portfolio.portfolio,
    wallet.wallet,
    nav.nav,
    chains.chains,
    credits.credits,
    status.status,
    health.healthz,
    health.readyz,
)
