"""The kind of chain, as `chainfolio.chains` in the package's entry points names it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from chainfolio.addresses import AddressRules
from chainfolio.seams import Seams

from .chain import InventedChain
from .ledger import NOBODY, Ledger

if TYPE_CHECKING:
    from chainfolio.settings import Chain as ChainSettings

HEIGHTS = 300
ADDRESS = "inv1[a-z]{20}"


def canonical(written: str) -> str | None:
    """An address in its one form."""
    return written if re.fullmatch(ADDRESS, written) else None


class Kind:
    """What builds chains of this kind."""

    name = "invented"
    addresses = AddressRules("invented", "Invented", "inv1 + 20 letters", ADDRESS, canonical, frozenset([NOBODY]), 4)

    def build(self, key: str, settings: ChainSettings, seams: Seams, **_: Any) -> InventedChain:
        """The chain of a key: its name is the seed of its history."""
        ledger = Ledger(key, HEIGHTS)
        return InventedChain(key, settings, lambda: ledger)


KIND = Kind()
