"""The EVM as a kind of chain: the entry point `chainfolio.chains`. Light, for it is loaded with every settings file."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from adapters.evm.settings import EvmSettings
from chainfolio.kinds import EndpointMemory, Probe

if TYPE_CHECKING:
    from adapters.evm.chain import EvmChain
    from adapters.evm.kit.kit import EvmKit
    from adapters.evm.reads import Call
    from chainfolio.abi import AbiFamilies
    from chainfolio.datasets import Dataset
    from chainfolio.seams import Seams

_QUANTITY: Final = re.compile(r"0x[0-9a-fA-F]{1,16}")


@dataclass(frozen=True, slots=True)
class EvmKind:
    """Ethereum, and every chain with its JSON-RPC."""

    name: str = "evm"
    settings: type[EvmSettings] = EvmSettings

    @property
    def datasets(self) -> Mapping[str, Dataset]:
        """The datasets that its chains may have."""
        from adapters.evm.datasets.every import DATASETS

        return DATASETS

    def build(
        self, key: str, settings: EvmSettings, seams: Seams, *, configs: Path, memory: EndpointMemory
    ) -> EvmChain:
        """One chain, from its settings and its file of facts."""
        from adapters.evm.chain import build

        return build(key, settings, seams, configs=configs, memory=memory)

    def identities(self, settings: EvmSettings) -> Sequence[tuple[str, str]]:
        """The name and the identity of each endpoint."""
        from transport.http_endpoint import identity, name_of

        return [(name_of(url), identity(url)) for url in settings.rpc]

    def call(self, contract: str, function: str, args: tuple[Any, ...] = ()) -> Call:
        """The read of a function of a contract."""
        from adapters.evm.reads import Call

        return Call(contract, function, args)

    @property
    def decoder_kit(self) -> EvmKit:
        """What scaffolds, records and replays decoders."""
        from adapters.evm.kit.kit import KIT

        return KIT

    @property
    def abi_families(self) -> AbiFamilies:
        """Its decoders, for kinds of chain whose contracts understand the same calls."""
        from adapters.evm.families import FAMILIES

        return FAMILIES

    def identity(self, key: str, settings: EvmSettings, *, configs: Path) -> str:
        """Return the chain id in the chain's file of facts."""
        from adapters.evm import facts

        return str(facts.of(key, settings.facts, configs).chain_id)

    async def served(self, node: Probe) -> str | None:
        """Return what a node answers to `eth_chainId`; None if that is no number."""
        number = await node.call("eth_chainId")
        return str(int(number, 16)) if isinstance(number, str) and _QUANTITY.fullmatch(number) else None

    def selector(self, function: str) -> bytes:
        """The first four bytes of the call data of a function such as `transfer(address,uint256)`."""
        from adapters.evm.call import signature

        return signature(f"{function}()").selector


KIND = EvmKind()
