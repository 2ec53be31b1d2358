"""The facts of a beacon chain: its file in `configs/chains/`."""

from __future__ import annotations

import tomllib
from pathlib import Path

import msgspec

from chainfolio.adapters.beacon.settings import BeaconSettings
from chainfolio.errors import BadSettings


class Facts(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """One beacon chain as its file describes it.

    Attributes:
        genesis: Root of the genesis validators. If empty, the network of the first node is used.
        execution: Key of the chain to which validators withdraw.
    """

    key: str
    kind: str = "beacon"
    chain_id: int = 0
    name: str = ""
    genesis: str = ""
    execution: str = ""


def read_facts(key: str, settings: BeaconSettings, configs: Path) -> Facts:
    """Read the facts of a chain; without a file, facts with the key as its name and nothing else.

    Raises:
        BadSettings: The file is invalid, or the file named in the settings is missing.
    """
    path = Path(settings.facts) if settings.facts else configs / "chains" / f"{key}.toml"
    if not path.exists() and not settings.facts:
        return Facts(key, name=key)
    try:
        return msgspec.convert(tomllib.loads(path.read_text()), Facts)
    except (OSError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise BadSettings(str(path), f"these are no facts of a beacon chain: {error}") from None
