"""What the API needs of whoever keeps the keys: who a key belongs to, and what that account subscribed to."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol


class Principal(Protocol):
    """Who is calling: an account, by one of its keys, with what it has been granted."""

    @property
    def account_id(self) -> str:
        """The account."""

    @property
    def key_id(self) -> str:
        """The key, by its id: the key itself is nowhere but in the request."""

    @property
    def plan(self) -> str:
        """FREE, LITE or PRO."""

    @property
    def grants(self) -> Collection[str]:
        """What the operator has granted: `portfolio`, `at-block`, `enterprise`."""


class Keys(Protocol):
    """Where keys are looked up."""

    def authenticate(self, token: str) -> Principal | None:
        """Whose key this is; None where it is no valid key now. Called on the event loop: a quick look-up."""

    async def subscribed(self, account_id: str, addresses: Collection[str], now_us: int) -> set[str]:
        """Those of some addresses that the account has a historical subscription for at a moment."""
