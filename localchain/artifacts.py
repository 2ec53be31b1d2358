"""The contracts that the installation gathered."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from chainfolio.localchain import install


@dataclass(frozen=True)
class Artifact:
    """A contract's interface and the code that creates it."""

    name: str
    abi: list[dict[str, Any]]
    bytecode: str
    links: Mapping[str, tuple[int, ...]]  # library -> the places, in bytes, where its address belongs

    def creation(self, arguments: str = "", libraries: Mapping[str, str] | None = None) -> str:
        """Return the data of the creating transaction, in hex with 0x; KeyError without a needed library.

        `arguments` are encoded, in hex without a prefix; `libraries` are addresses by name.
        """
        code = self.bytecode
        for library, positions in self.links.items():
            address = (libraries or {})[library].removeprefix("0x").lower()
            for position in positions:
                start = 2 + 2 * position
                code = code[:start] + address + code[start + 40 :]
        return code + arguments


@lru_cache(maxsize=128)
def artifact(name: str) -> Artifact:
    """Return an installed contract by its name, such as `UniswapV2Pair`; cached."""
    content = json.loads((install.home() / "compiled" / f"{name}.json").read_text())
    links = {library: tuple(positions) for library, positions in content["links"].items()}
    return Artifact(name, content["abi"], content["bytecode"], links)
