"""Starknet as a kind of chain: the entry point `chainfolio.chains`. Light: it is loaded with every settings file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from chainfolio.adapters.starknet.settings import StarknetSettings
from chainfolio.addresses import STARKNET, AddressRules
from chainfolio.errors import BadAnswer
from chainfolio.kinds import EndpointMemory, Probe

if TYPE_CHECKING:
    from chainfolio.adapters.starknet.chain import StarknetChain
    from chainfolio.datasets import Dataset
    from chainfolio.environment import Environment


@dataclass(frozen=True, slots=True)
class StarknetKind:
    """Starknet, and every chain with its JSON-RPC."""

    name: str = "starknet"
    settings: type[StarknetSettings] = StarknetSettings
    addresses: AddressRules = STARKNET

    @property
    def datasets(self) -> Mapping[str, Dataset]:
        """The datasets that its chains have."""
        from chainfolio.adapters.starknet.datasets import DATASETS

        return DATASETS

    def build(
        self, key: str, settings: StarknetSettings, environment: Environment, *, configs: Path, memory: EndpointMemory
    ) -> StarknetChain:
        """One chain, from its settings and its file of facts."""
        from chainfolio.adapters.starknet.chain import build

        return build(key, settings, environment, configs=configs, memory=memory)

    def identities(self, settings: StarknetSettings) -> Sequence[tuple[str, str]]:
        """The name and the identity of each endpoint."""
        from chainfolio.transport.http_endpoint import identity, name_of

        return [(name_of(url), identity(url)) for url in settings.rpc]

    def selector(self, function: str) -> bytes:
        """The last four bytes of the number of a function such as `starknet:multi_route_swap()`."""
        from chainfolio.adapters.starknet.functions import selector

        return selector(function)

    def identity(self, key: str, settings: StarknetSettings, *, configs: Path) -> str:
        """Return the name of the network in the chain's file of facts."""
        from chainfolio.adapters.starknet import facts

        return facts.of(key, settings.facts, configs).network

    async def served(self, node: Probe) -> str | None:
        """Return the name of the network that a node gives; None if the node does not say one."""
        from chainfolio.adapters.starknet.felts import felt, short_text

        number = await node.call("starknet_chainId")
        try:
            return short_text(felt("", number)) or None if isinstance(number, str) else None
        except BadAnswer:  # the method means something else there
            return None


KIND = StarknetKind()
