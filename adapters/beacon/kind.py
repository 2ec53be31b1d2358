"""The beacon chain as a kind of chain: the entry point `chainfolio.chains`.

Every command that reads settings loads this module, so large imports stand inside the methods.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from chainfolio.adapters.beacon.facts import read_facts
from chainfolio.adapters.beacon.settings import BeaconSettings
from chainfolio.kinds import EndpointMemory, Probe
from chainfolio.transport.node_kind import NodeKind

if TYPE_CHECKING:
    from chainfolio.adapters.beacon.chain import BeaconChain
    from chainfolio.datasets import Dataset
    from chainfolio.environment import Environment


@dataclass(frozen=True, slots=True)
class BeaconKind(NodeKind):
    """The beacon chain of Ethereum, and other chains with the Beacon API."""

    name: str = "beacon"
    settings: type[BeaconSettings] = BeaconSettings

    @property
    def datasets(self) -> Mapping[str, Dataset]:
        """The datasets of a beacon chain, by name."""
        from chainfolio.adapters.beacon.datasets import DATASETS

        return DATASETS

    def build(
        self, key: str, settings: BeaconSettings, environment: Environment, *, configs: Path, memory: EndpointMemory
    ) -> BeaconChain:
        """Build a chain from its settings and its file of facts.

        Raises:
            BadSettings: A setting or a fact is invalid.
        """
        from chainfolio.adapters.beacon.chain import build

        return build(key, settings, environment, configs=configs)

    def identity(self, key: str, settings: BeaconSettings, *, configs: Path) -> str:
        """Return the root of the first validators in the chain's file of facts, empty if it has none."""
        return read_facts(key, settings, configs).genesis.lower()

    async def served(self, node: Probe) -> str | None:
        """Return the root of the first validators that a node gives; None if it gives none."""
        answer = await node.read("/eth/v1/beacon/genesis")
        genesis = answer.get("data") if isinstance(answer, dict) else None
        root = genesis.get("genesis_validators_root") if isinstance(genesis, dict) else None
        return root.lower() if isinstance(root, str) else None


KIND = BeaconKind()
