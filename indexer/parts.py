"""Parts of a process that readers of chains and of the index take; `wiring.System` has all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from chainfolio.chains import Chain
    from chainfolio.environment import Environment
    from chainfolio.indexer.registry import Registry
    from chainfolio.indexer.scopes import Scope
    from chainfolio.protocols import ProtocolFamily
    from chainfolio.settings import Settings
    from chainfolio.storage.lake import Lake
    from chainfolio.storage.tail import Tail


class Chains(Protocol):
    """The chains of the settings. Each is built when it is first used."""

    @property
    def settings(self) -> Settings:
        """The settings of the process."""

    @property
    def environment(self) -> Environment:
        """The clock and the other surroundings of the process."""

    @property
    def chains(self) -> list[Chain]:
        """All configured chains, by key."""

    @property
    def account_chains(self) -> list[Chain]:
        """The configured chains that have accounts, by key."""

    @property
    def used_chains(self) -> list[Chain]:
        """The chains that were used so far, by key."""

    def chain(self, key: str, /) -> Chain:
        """Return a chain by its key; BadRequest if it is not configured."""


class IndexedChains(Chains, Protocol):
    """The configured chains with what is stored of them."""

    @property
    def keeps_nothing(self) -> bool:
        """True if no file is written: the lake is empty and the tail is in memory."""

    @property
    def lake(self) -> Lake:
        """The lake of the settings."""

    @property
    def tail(self) -> Tail:
        """The tail of the settings."""

    def scope(self, chain: Chain, /) -> Scope:
        """Return the accounts to index on a chain."""


class DecodedChains(IndexedChains, Protocol):
    """The indexed chains with the protocols that decode their transactions. Protocols are loaded at the first use."""

    @property
    def registry(self) -> Registry:
        """The protocols of all files."""

    @property
    def families(self) -> Mapping[str, ProtocolFamily]:
        """The usable families of protocols, by name."""

    def response_datasets(self, chain: Chain, accounts: Sequence[str] = (), /) -> tuple[str, ...]:
        """Return the datasets on which responses about accounts are based."""
