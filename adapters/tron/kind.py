"""Tron as a kind of chain: the entry point `chainfolio.chains`.

Every command that reads settings loads this module, so large imports stand inside the methods.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from chainfolio.adapters.tron.settings import TronSettings
from chainfolio.addresses import TRON, AddressRules
from chainfolio.kinds import EndpointMemory, Probe
from chainfolio.transport.node_kind import NodeKind

if TYPE_CHECKING:
    from chainfolio.adapters.tron.chain import TronChain
    from chainfolio.datasets import Dataset
    from chainfolio.environment import Environment


@dataclass(frozen=True, slots=True)
class TronKind(NodeKind):
    """Tron, and other chains whose nodes have the same HTTP API."""

    name: str = "tron"
    settings: type[TronSettings] = TronSettings
    addresses: AddressRules = TRON
    families_of: str = "evm"

    @property
    def datasets(self) -> Mapping[str, Dataset]:
        """The datasets of a Tron chain, by name."""
        from chainfolio.adapters.tron.datasets import DATASETS

        return DATASETS

    def build(
        self, key: str, settings: TronSettings, environment: Environment, *, configs: Path, memory: EndpointMemory
    ) -> TronChain:
        """Build a chain from its settings and its file of facts.

        Raises:
            BadSettings: A setting or a fact is invalid.
        """
        from chainfolio.adapters.tron.chain import build

        return build(key, settings, environment, configs=configs, memory=memory)

    def selector(self, function: str) -> bytes:
        """Return the selector of a function such as `transfer(address,uint256)` or `tron:freezeBalanceV2()`."""
        from chainfolio.adapters.tron.functions import selector

        return selector(function)

    def identity(self, key: str, settings: TronSettings, *, configs: Path) -> str:
        """Return the id of the chain's first block, from its file of facts."""
        from chainfolio.adapters.tron import facts

        return facts.of(key, settings.facts, configs).genesis

    async def served(self, node: Probe) -> str | None:
        """Return the id of the first block that a node gives, None if it gives none."""
        block = await node.read("/wallet/getblock", {"id_or_num": "0", "detail": False})
        genesis = block.get("blockID") if isinstance(block, dict) else None
        return genesis if isinstance(genesis, str) else None


KIND = TronKind()
