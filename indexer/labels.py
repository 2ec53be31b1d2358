"""Labels of addresses from public lists: exchanges, spenders, phishing, exploits, sanctions."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Final, NamedTuple

from chainfolio.errors import BadSettings

HEADER: Final = "chain,address,label,kind,source"
ANY_EVM: Final = "evm"  # the chain of labels that hold on every EVM chain
SOURCES: Final = {
    "defillama": "DefiLlama",
    "forta-2023": "Forta, 2023",
    "ofac": "OFAC",
    "revoke-whois": "Revoke.cash",
}


class AddressLabel(NamedTuple):
    """The label of one address. `name` is empty if lists give only its kind, as for most phishing."""

    name: str
    kind: str
    source: str

    @property
    def text(self) -> str:
        """The label as it is shown, with the lists that it is from."""
        sources = ", ".join(SOURCES.get(source, source) for source in self.source.split("|"))
        return f"{self.name} ({self.kind}, {sources})" if self.name else f"{self.kind} ({sources})"


class AddressLabels:
    """The labels of `configs/labels.csv`, which is read at the first use; none if the file does not exist."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @cached_property
    def _lines(self) -> dict[tuple[str, str], str]:
        """The rest of each line by chain and address; a line is split when its address is requested.

        Empty without the file.

        Raises:
            BadSettings: The first line is not HEADER.
        """
        if not self._path.exists():
            return {}
        header, *lines = self._path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
        if header != HEADER:
            raise BadSettings(self._path.name, f"the first line is not `{HEADER}`")
        parts = (line.split(",", 2) for line in lines)
        return {(chain, address): rest for chain, address, rest in parts}

    def find(self, address: str, chain: str, kind: str) -> AddressLabel | None:
        """Return the label of an address on a chain of some kind; None if no list names it.

        Without a label for that EVM chain, the one for all EVM chains counts.

        Raises:
            BadSettings: The file has another first line.
        """
        rest = self._lines.get((chain, address)) or (self._lines.get((ANY_EVM, address)) if kind == ANY_EVM else None)
        if rest is None:
            return None
        name, label_kind, source = rest.rsplit(",", 2)
        return AddressLabel(name.strip('"').replace('""', '"'), label_kind, source)
