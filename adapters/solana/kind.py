"""Solana as a kind of chain: the entry point `chainfolio.chains`, loaded with every settings file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chainfolio.adapters.solana.settings import SolanaSettings
from chainfolio.addresses import SOLANA, AddressRules
from chainfolio.kinds import EndpointMemory, Probe
from chainfolio.transport.node_kind import NodeKind

if TYPE_CHECKING:
    from chainfolio.adapters.solana.account_reads import AccountRead
    from chainfolio.adapters.solana.chain import SolanaChain
    from chainfolio.datasets import Dataset
    from chainfolio.environment import Environment


@dataclass(frozen=True, slots=True)
class SolanaKind(NodeKind):
    """Solana, and other chains with its JSON-RPC."""

    name: str = "solana"
    settings: type[SolanaSettings] = SolanaSettings
    addresses: AddressRules = SOLANA

    @property
    def datasets(self) -> Mapping[str, Dataset]:
        """The datasets of its chains."""
        from chainfolio.adapters.solana.datasets import DATASETS

        return DATASETS

    def build(
        self, key: str, settings: SolanaSettings, environment: Environment, *, configs: Path, memory: EndpointMemory
    ) -> SolanaChain:
        """Build one chain from its settings and its facts."""
        from chainfolio.adapters.solana.chain import build

        return build(key, settings, environment, configs=configs, memory=memory)

    def selector(self, function: str) -> bytes:
        """Return the first four data bytes of an instruction such as `solana:sharedAccountsRoute()`."""
        from chainfolio.adapters.solana.functions import selector

        return selector(function)

    def call(self, contract: str, function: str, args: tuple[Any, ...] = ()) -> AccountRead:
        """Return the read of a program's account.

        Args:
            contract: The program.
            function: The layout.
            args: The address of the account, or the seeds from which the program derives it.
        """
        from chainfolio.adapters.solana.account_reads import AccountRead

        return AccountRead(contract, function, args)

    def identity(self, key: str, settings: SolanaSettings, *, configs: Path) -> str:
        """Return the hash of the chain's first block, from its file of facts."""
        from chainfolio.adapters.solana import facts

        return facts.of(key, settings.facts, configs).genesis

    async def served(self, node: Probe) -> str | None:
        """Return the genesis hash that a node gives; None if the node does not say one."""
        genesis = await node.call("getGenesisHash")
        return SOLANA.canonical(genesis) if isinstance(genesis, str) else None


KIND = SolanaKind()
