"""The beacon chain as a kind of chain: the entry point `chainfolio.chains`. Light: every settings file loads it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from adapters.beacon.settings import BeaconSettings
from chainfolio.kinds import EndpointMemory

if TYPE_CHECKING:
    from adapters.beacon.chain import BeaconChain
    from chainfolio.datasets import Dataset
    from chainfolio.seams import Seams


@dataclass(frozen=True, slots=True)
class BeaconKind:
    """The beacon chain of Ethereum, and every chain with its Beacon API."""

    name: str = "beacon"
    settings: type[BeaconSettings] = BeaconSettings

    @property
    def datasets(self) -> Mapping[str, Dataset]:
        """The datasets that its chains have."""
        from adapters.beacon.datasets import DATASETS

        return DATASETS

    def build(
        self, key: str, settings: BeaconSettings, seams: Seams, *, configs: Path, memory: EndpointMemory
    ) -> BeaconChain:
        """One chain, from its settings and its file of facts."""
        from adapters.beacon.chain import build

        return build(key, settings, seams, configs=configs)

    def identities(self, settings: BeaconSettings) -> Sequence[tuple[str, str]]:
        """The name and the identity of each node."""
        from transport.http_endpoint import identity, name_of

        return [(name_of(url), identity(url)) for url in settings.rpc]


KIND = BeaconKind()
