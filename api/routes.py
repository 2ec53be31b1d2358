"""Every operation the API has: one line each, or one a family."""

from __future__ import annotations

from typing import Final

from api import (
    approvals,
    at_block,
    beacon,
    chains,
    credits,
    health,
    historical,
    nav,
    overview,
    portfolio,
    protocols,
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
    overview.token_overview,
    chains.chains,
    protocols.chain_protocols,
    protocols.contract_protocol,
    credits.credits,
    status.status,
    sync.sync_transactions,
    *beacon.ROUTES,
    health.healthz,
    health.readyz,
)
