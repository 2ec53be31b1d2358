"""The EVM as a kind of chain: the entry point `chainfolio.chains`.

It imports little, because it is loaded with every settings file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from chainfolio.adapters.evm.settings import EvmSettings
from chainfolio.kinds import EndpointMemory, Probe
from chainfolio.transport.node_kind import NodeKind

if TYPE_CHECKING:
    from chainfolio.abi import AbiFamilies
    from chainfolio.adapters.evm.chain import EvmChain
    from chainfolio.adapters.evm.kit.kit import EvmKit
    from chainfolio.adapters.evm.reads import AbiValue, Call
    from chainfolio.datasets import Dataset
    from chainfolio.environment import Environment

_QUANTITY: Final = re.compile(r"0x[0-9a-fA-F]{1,16}")


@dataclass(frozen=True, slots=True)
class EvmKind(NodeKind):
    """Ethereum, and every chain with its JSON-RPC."""

    name: str = "evm"
    settings: type[EvmSettings] = EvmSettings

    @property
    def datasets(self) -> Mapping[str, Dataset]:
        """The datasets that EVM chains may have."""
        from chainfolio.adapters.evm.datasets.registry import DATASETS

        return DATASETS

    def build(
        self, key: str, settings: EvmSettings, environment: Environment, *, configs: Path, memory: EndpointMemory
    ) -> EvmChain:
        """Build one chain from its settings and its file of facts."""
        from chainfolio.adapters.evm.chain import build

        return build(key, settings, environment, configs=configs, memory=memory)

    def call(self, contract: str, function: str, args: tuple[AbiValue, ...] = ()) -> Call:
        """Return the read of a contract's function."""
        from chainfolio.adapters.evm.reads import Call

        return Call(contract, function, args)

    @property
    def decoder_kit(self) -> EvmKit:
        """The kit that scaffolds, records and replays decoders."""
        from chainfolio.adapters.evm.kit.kit import KIT

        return KIT

    @property
    def abi_families(self) -> AbiFamilies:
        """The EVM's decoders, for kinds of chain whose contracts take the same calls."""
        from chainfolio.adapters.evm.families import FAMILIES

        return FAMILIES

    def identity(self, key: str, settings: EvmSettings, *, configs: Path) -> str:
        """Return the chain id in the chain's file of facts, as decimal text."""
        from chainfolio.adapters.evm import facts

        return str(facts.of(key, settings.facts, configs).chain_id)

    async def served(self, node: Probe) -> str | None:
        """Return the chain id that a node reports, as decimal text; None if it is no number."""
        number = await node.call("eth_chainId")
        return str(int(number, 16)) if isinstance(number, str) and _QUANTITY.fullmatch(number) else None

    def selector(self, function: str) -> bytes:
        """Return the first four bytes of the call data of a function such as `transfer(address,uint256)`."""
        from chainfolio.adapters.evm.call import signature

        return signature(f"{function}()").selector


KIND = EvmKind()
