"""What the API needs from the engine and from the state store: structural, so that neither has to know the API."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Protocol

import msgspec

from chainfolio.assets import Account
from portfolio.document import Portfolio
from portfolio.facts import Options


class Nav(Protocol):
    """A net asset value in one currency; exact, shown as JSON numbers."""

    @property
    def nav(self) -> Decimal:
        """The value in `currency`."""

    @property
    def currency(self) -> str:
        """The currency that was asked for."""

    @property
    def conversion_price(self) -> Decimal:
        """Fiat: units of it per USD. Crypto: USD per unit."""


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


class Engine(Protocol):
    """Answers about accounts. What fails is raised, typed; what is known in part is said in the answer.

    A call is cancelled when its client goes away, so work that several callers wait for is the engine's to shield.
    """

    async def portfolios(
        self, accounts: Sequence[Account], options: Options, *, wait: bool, wallet_only: bool
    ) -> list[Portfolio]:
        """One portfolio per account, in their order. `wait` wants fresh data; `wallet_only` is always read live."""

    async def nav(self, accounts: Sequence[Account], currency: str, *, wait: bool) -> Nav:
        """One value over all accounts; a currency nobody can convert to is a typed error."""

    def chains(self) -> Sequence[ChainFact]:
        """Every configured chain."""

    async def status(self, accounts: Sequence[Account]) -> Sequence[SyncStatus]:
        """How fresh each account's data is, in their order; starts no work."""

    async def readiness(self) -> Readiness:
        """How far each chain is, without asking any node: it is called every few seconds, by anybody."""
