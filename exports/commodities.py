"""Names of assets that plain-text accounting accepts, unique in one file and the same in every run."""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

MAX_NAME: Final = 24
RESERVED: Final = frozenset({"USD", "TRUE", "FALSE", "NULL"})  # the currency of costs, and words of the language
DIGITS: Final = 8  # of the hash that tells two assets with one symbol apart
PLAIN: Final = re.compile(r"[A-Z][A-Z0-9]{0,14}")


@dataclass(frozen=True, slots=True, order=True)
class AssetKey:
    """An asset of a file: `number` is that of a collectible, else empty."""

    chain: str
    contract: str
    number: str = ""


def commodity_names(symbols: Mapping[AssetKey, str]) -> dict[AssetKey, str]:
    """Return a name for each asset.

    It is the symbol in capitals if only one asset has it, else the symbol with a hash of the asset.
    Characters that no commodity may have are left out. Names begin with a letter and have at most 24 characters.
    """
    by_symbol: defaultdict[str, list[AssetKey]] = defaultdict(list)
    for key, symbol in symbols.items():
        by_symbol[_plain(symbol)].append(key)
    return {
        key: symbol if _may_stand_alone(symbol, keys) else f"{symbol or 'X'}-{_digest(key)}"
        for symbol, keys in by_symbol.items()
        for key in keys
    }


def _may_stand_alone(symbol: str, keys: Iterable[AssetKey]) -> bool:
    (first, *others) = keys
    return len(symbol) > 1 and symbol not in RESERVED and not others and not first.number


def _plain(symbol: str) -> str:
    """Return the part of a symbol that a commodity's name may have; empty if there is none."""
    match = PLAIN.search(re.sub(r"[^A-Z0-9]", "", symbol.upper()))
    return match[0] if match else ""


def _digest(key: AssetKey) -> str:
    text = f"{key.chain}\n{key.contract}\n{key.number}"
    return hashlib.sha256(text.encode()).hexdigest()[:DIGITS].upper()
