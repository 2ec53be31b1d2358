"""Tron as a kind of chain: the entry point `chainfolio.chains`. Light: it is loaded with every settings file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from adapters.tron.settings import TronSettings
from chainfolio.addresses import TRON, AddressRules
from chainfolio.kinds import EndpointMemory, Probe

if TYPE_CHECKING:
    from adapters.tron.chain import TronChain
    from chainfolio.datasets import Dataset
    from chainfolio.seams import Seams


@dataclass(frozen=True, slots=True)
class TronKind:
    """Tron, and every chain with the HTTP API of its nodes."""

    name: str = "tron"
    settings: type[TronSettings] = TronSettings
    addresses: AddressRules = TRON
    families_of: str = "evm"

    @property
    def datasets(self) -> Mapping[str, Dataset]:
        """The datasets that its chains have."""
        from adapters.tron.datasets import DATASETS

        return DATASETS

    def build(
        self, key: str, settings: TronSettings, seams: Seams, *, configs: Path, memory: EndpointMemory
    ) -> TronChain:
        """One chain, from its settings and its file of facts."""
        from adapters.tron.chain import build

        return build(key, settings, seams, configs=configs, memory=memory)

    def identities(self, settings: TronSettings) -> Sequence[tuple[str, str]]:
        """The name and the identity of each endpoint."""
        from transport.http_endpoint import identity, name_of

        return [(name_of(url), identity(url)) for url in settings.rpc]

    def selector(self, function: str) -> bytes:
        """The first four bytes of the input of a function such as `transfer(address,uint256)`, or of a contract of the
        system such as `tron:freezeBalanceV2()`."""
        from adapters.tron.functions import selector

        return selector(function)

    def identity(self, key: str, settings: TronSettings, *, configs: Path) -> str:
        """Return the id of the chain's first block, from its file of facts."""
        from adapters.tron import facts

        return facts.of(key, settings.facts, configs).genesis

    async def served(self, node: Probe) -> str | None:
        """Return the id of the first block that a node gives; None if the node does not say one."""
        block = await node.read("/wallet/getblock", {"id_or_num": "0", "detail": False})
        genesis = block.get("blockID") if isinstance(block, dict) else None
        return genesis if isinstance(genesis, str) else None


KIND = TronKind()
