"""Every operation the API has: one line each."""

from __future__ import annotations

from typing import Final

from api import (
    approvals,
    at_block,
    chains,
    credits,
    health,
    historical,
    nav,
    portfolio,
    status,
    sync,
    transactions,
    wallet,
)
from api.router import Route

ROUTES: Final[tuple[Route, ...]] = (
    portfolio.portfolio,
    at_block.portfolio_at_block,
    historical.historical,
    wallet.wallet,
    nav.nav,
    transactions.transactions,
    approvals.approvals,
    chains.chains,
    credits.credits,
    status.status,
    sync.sync_transactions,
    health.healthz,
    health.readyz,
)
