"""What the API needs from the engine and from the state store: structural, so that neither has to know the API."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Protocol

from chainfolio.assets import Account
from chainfolio.contracts import VirtualUser
from indexer.answers import ChainFact, Readiness, SyncStatus
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


class Engine(Protocol):
    """Answers about accounts. What fails is raised, typed; what is known in part is said in the answer.

    A call is cancelled when its client goes away, so work that several callers wait for is the engine's to shield.
    """

    async def portfolios(
        self, accounts: Sequence[Account], options: Options, *, wait: bool, wallet_only: bool
    ) -> list[Portfolio]:
        """One portfolio per account, in their order. `wait` wants fresh data; `wallet_only` is always read live."""

    async def virtual(
        self, users: Sequence[VirtualUser], options: Options, *, wait: bool, aggregated: bool
    ) -> list[Portfolio]:
        """One portfolio per virtual user, in their order; `aggregated` gives one over all of them."""

    async def nav(self, accounts: Sequence[Account], currency: str, *, wait: bool) -> Nav:
        """One value over all accounts; a currency nobody can convert to is a typed error."""

    def chains(self) -> Sequence[ChainFact]:
        """Every configured chain."""

    async def status(self, accounts: Sequence[Account]) -> Sequence[SyncStatus]:
        """How fresh each account's data is, in their order; starts no work."""

    async def readiness(self) -> Readiness:
        """How far each chain is, without asking any node: it is called every few seconds, by anybody."""
