"""The kind of chain, as `chainfolio.chains` in the package's entry points names it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from chainfolio.plugins.chain import AddressRules, BadSettings, ChainSettings, EndpointMemory, Environment, doc

from .chain import ENDPOINT, InventedChain
from .ledger import NOBODY, Ledger

ADDRESS = "inv1[a-z]{20}"


class InventedSettings(ChainSettings, forbid_unknown_fields=True, frozen=True):
    """A chain in memory: there is nothing to say but how long it is."""

    heights: Annotated[int, doc("how many heights the chain has, with or without a block")] = 300

    def check(self, section: str) -> None:
        """Check that every setting has a possible value."""
        ChainSettings.check(self, section)
        if self.heights < 1:
            raise BadSettings(f"{section}.heights", "at least 1")


def canonical(address: str) -> str | None:
    """An address in its one form."""
    return address if re.fullmatch(ADDRESS, address) else None


class InventedKind:
    """Builder of chains of this kind."""

    name = "invented"
    settings = InventedSettings
    datasets = InventedChain.datasets
    addresses = AddressRules(name, "Invented", "inv1 + 20 letters", ADDRESS, canonical, frozenset([NOBODY]), prefix=4)

    def build(
        self, key: str, settings: InventedSettings, environment: Environment, *, configs: Path, memory: EndpointMemory
    ) -> InventedChain:
        """The chain of a key, which is the seed of its history."""
        ledger = Ledger(key, settings.heights)
        return InventedChain(key, settings, lambda: ledger)

    def identities(self, settings: InventedSettings) -> Sequence[tuple[str, str]]:
        """The one endpoint."""
        return [(ENDPOINT, ENDPOINT)]


KIND = InventedKind()
