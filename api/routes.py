"""Every operation the API has: one line each."""

from __future__ import annotations

from typing import Final

from api import addressbook, bundles, chains, health, nav, portfolio, status, subscriptions, virtual_users, wallet
from api.router import Route

ROUTES: Final[tuple[Route, ...]] = (
    portfolio.portfolio,
    wallet.wallet,
    nav.nav,
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
    status.status,
    health.healthz,
    health.readyz,
)
