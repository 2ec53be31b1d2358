"""A Starknet devnet with tokens of each kind. Compiling and declaring them takes a minute, so it is written down."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from chainfolio.localchain import install
from chainfolio.localchain.starknet.devnet import CONTRACTS, Devnet, compiled, ensure

SUPPLY: Final = 10**24
# What is deployed: its symbol, its contract, its name.
DEPLOYED: Final = {
    "OLD": ("token", "old token"),
    "YNG": ("young_token", ""),
    "ART": ("collection", "art"),
    "PIECES": ("editions", "pieces"),
}


@dataclass(frozen=True)
class World:
    """A devnet, the addresses of its wallets, and those of its tokens by symbol. The first wallet owns all supply."""

    devnet: Devnet
    accounts: list[str]
    tokens: Mapping[str, str]


def world(devnet: Devnet) -> World:
    """The tokens on a devnet that has just started."""
    accounts, kept = [f"0x{int(each['address'], 16):064x}" for each in devnet.accounts], _kept()
    if kept.exists():
        devnet.load(kept)
        addresses = kept.with_suffix(".tokens").read_text().split()
        return World(devnet, accounts, dict(zip(DEPLOYED, addresses, strict=True)))
    owner = int(accounts[0], 16)
    tokens = {symbol: devnet.deploy(0, name, *_arguments(symbol, owner)) for symbol, (name, _) in DEPLOYED.items()}
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.with_suffix(".tokens").write_text("\n".join(tokens.values()))
    devnet.dump(kept)
    return World(devnet, accounts, tokens)


def _arguments(symbol: str, owner: int) -> list[int]:
    """The arguments of a constructor."""
    name, long = DEPLOYED[symbol]
    texts = [int.from_bytes(each.encode(), "big") for each in (long, symbol)]
    match name:
        case "token":
            return [*texts, 6, SUPPLY, 0, owner, owner]
        case "collection":
            return [*texts, owner]
        case "editions":
            return [texts[0], owner]
    return []


def _kept() -> Path:
    """Where it is written down: by all that it follows from."""
    where = ensure()
    key = repr(sorted(compiled(where, name)[0].name for name in CONTRACTS)).encode() + Path(__file__).read_bytes()
    return install.home() / "starknet" / "worlds" / hashlib.sha256(key).hexdigest()[:16]
