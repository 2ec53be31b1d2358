"""What the engine says about chains and accounts, beside portfolios: the API shows these as they are."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec


class ChainFact(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One chain as clients know it: how it is named, drawn and linked, and what is answered about it."""

    chain_id: int
    key: str
    name: str
    symbol: str
    color: str | None = None
    img_small: str | None = None
    img_large: str | None = None
    explorer_token_url: str | None = None
    explorer_transaction_url: str | None = None
    explorer_address_url: str | None = None
    blockscout_explorer_token_url: str | None = None
    blockscout_explorer_transaction_url: str | None = None
    blockscout_explorer_address_url: str | None = None
    is_portfolio_supported: bool
    is_transactions_supported: bool


@dataclass(frozen=True, slots=True)
class SyncStatus:
    """How fresh what is kept of one account is; a time is None where it was never read."""

    address: str
    portfolio_us: int | None
    transactions_us: int | None
    in_progress: bool


class ChainReadiness(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How far one chain is indexed. `reason` says in a user's words why it is not healthy, and holds no secret."""

    key: str
    healthy: bool
    head: int | None = None
    indexed: int | None = None
    lag_blocks: int | None = None
    reason: str | None = None


class Readiness(msgspec.Struct, frozen=True, kw_only=True):
    """Whether requests should be sent here, and the chains one by one: one that halted need not close the others."""

    ready: bool
    chains: list[ChainReadiness]
