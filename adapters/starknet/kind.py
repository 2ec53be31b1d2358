"""Starknet as a kind of chain: the entry point `chainfolio.chains`.

Every command that reads settings loads this module, so large imports stand inside the methods.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from chainfolio.adapters.starknet.settings import StarknetSettings
from chainfolio.addresses import STARKNET, AddressRules
from chainfolio.errors import BadAnswer
from chainfolio.kinds import EndpointMemory, Probe
from chainfolio.transport.node_kind import NodeKind

if TYPE_CHECKING:
    from chainfolio.adapters.starknet.chain import StarknetChain
    from chainfolio.datasets import Dataset
    from chainfolio.environment import Environment


@dataclass(frozen=True, slots=True)
class StarknetKind(NodeKind):
    """Starknet, and other chains whose nodes have the same JSON-RPC."""

    name: str = "starknet"
    settings: type[StarknetSettings] = StarknetSettings
    addresses: AddressRules = STARKNET

    @property
    def datasets(self) -> Mapping[str, Dataset]:
        """The datasets of a Starknet chain, by name."""
        from chainfolio.adapters.starknet.datasets import DATASETS

        return DATASETS

    def build(
        self, key: str, settings: StarknetSettings, environment: Environment, *, configs: Path, memory: EndpointMemory
    ) -> StarknetChain:
        """Build a chain from its settings and its file of facts.

        Raises:
            BadSettings: A setting or a fact is invalid.
        """
        from chainfolio.adapters.starknet.chain import build

        return build(key, settings, environment, configs=configs, memory=memory)

    def selector(self, function: str) -> bytes:
        """Return the last four bytes of the selector of a function such as `starknet:multi_route_swap()`."""
        from chainfolio.adapters.starknet.functions import selector

        return selector(function)

    def identity(self, key: str, settings: StarknetSettings, *, configs: Path) -> str:
        """Return the name of the network in the chain's file of facts."""
        from chainfolio.adapters.starknet import facts

        return facts.of(key, settings.facts, configs).network

    async def served(self, node: Probe) -> str | None:
        """Return the name of the network that a node gives; None if it gives none."""
        from chainfolio.adapters.starknet.felts import decode_short_string, parse_felt

        number = await node.call("starknet_chainId")
        try:
            return decode_short_string(parse_felt("", number)) or None if isinstance(number, str) else None
        except BadAnswer:  # a node of another kind, whose method has another result
            return None


KIND = StarknetKind()
