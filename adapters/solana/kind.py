"""Solana as a kind of chain: the entry point `chainfolio.chains`. Light, for it is loaded with every settings file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adapters.solana.settings import SolanaSettings
from chainfolio.addresses import SOLANA, AddressRules
from chainfolio.kinds import EndpointMemory, Probe

if TYPE_CHECKING:
    from adapters.solana.account_reads import AccountRead
    from adapters.solana.chain import SolanaChain
    from chainfolio.datasets import Dataset
    from chainfolio.seams import Seams


@dataclass(frozen=True, slots=True)
class SolanaKind:
    """Solana, and every chain with its JSON-RPC."""

    name: str = "solana"
    settings: type[SolanaSettings] = SolanaSettings
    addresses: AddressRules = SOLANA

    @property
    def datasets(self) -> Mapping[str, Dataset]:
        """The datasets that its chains have."""
        from adapters.solana.datasets import DATASETS

        return DATASETS

    def build(
        self, key: str, settings: SolanaSettings, seams: Seams, *, configs: Path, memory: EndpointMemory
    ) -> SolanaChain:
        """One chain, from its settings and its file of facts."""
        from adapters.solana.chain import build

        return build(key, settings, seams, configs=configs, memory=memory)

    def identities(self, settings: SolanaSettings) -> Sequence[tuple[str, str]]:
        """The name and the identity of each endpoint."""
        from transport.http_endpoint import identity, name_of

        return [(name_of(url), identity(url)) for url in settings.rpc]

    def selector(self, function: str) -> bytes:
        """The first four bytes of the data of a function such as `solana:sharedAccountsRoute()`."""
        from adapters.solana.functions import selector

        return selector(function)

    def call(self, contract: str, function: str, args: tuple[Any, ...] = ()) -> AccountRead:
        """The read of an account of a program by its layout; `args` are its address, or the seeds of it."""
        from adapters.solana.account_reads import AccountRead

        return AccountRead(contract, function, args)

    def identity(self, key: str, settings: SolanaSettings, *, configs: Path) -> str:
        """Return the hash of the chain's first block, from its file of facts."""
        from adapters.solana import facts

        return facts.of(key, settings.facts, configs).genesis

    async def served(self, node: Probe) -> str | None:
        """Return the genesis hash that a node gives; None if the node does not say one."""
        genesis = await node.call("getGenesisHash")
        return SOLANA.canonical(genesis) if isinstance(genesis, str) else None


KIND = SolanaKind()
