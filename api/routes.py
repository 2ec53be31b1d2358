"""The routes of the API, one per line."""

from __future__ import annotations

from typing import Final

from chainfolio.api import (
    addressbook,
    approvals,
    at_block,
    beacon,
    bundles,
    chains,
    credits,
    health,
    historical,
    nav,
    overview,
    performance,
    portfolio,
    protocols,
    status,
    subscriptions,
    sync,
    transactions,
    virtual_users,
    wallet,
)
from chainfolio.api.router import Route

ROUTES: Final[tuple[Route, ...]] = (
    portfolio.portfolio,
    at_block.portfolio_at_block,
    historical.historical,
    wallet.wallet,
    nav.nav,
    transactions.transactions,
    approvals.approvals,
    overview.token_overview,
    performance.performance,
    subscriptions.subscribe_snapshot,
    virtual_users.virtual_users,
    virtual_users.virtual_users_portfolio,
    addressbook.addressbook,
    addressbook.add_entries,
    addressbook.rename_entry,
    addressbook.remove_entry,
    bundles.bundles,
    bundles.create_bundle,
    bundles.bundle,
    bundles.rename_bundle,
    bundles.delete_bundle,
    bundles.add_member,
    bundles.remove_member,
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
