"""A Starknet devnet with tokens of each kind. Deploying them takes a minute, so the state is stored."""

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
    """A devnet, its wallets, and its token addresses by symbol. The first wallet owns all supply."""

    devnet: Devnet
    accounts: list[str]
    tokens: Mapping[str, str]


def world(devnet: Devnet) -> World:
    """Load the stored tokens into a devnet that has just started, or deploy and store them."""
    accounts, dump = [f"0x{int(each['address'], 16):064x}" for each in devnet.accounts], _dump_path()
    if dump.exists():
        devnet.load(dump)
        addresses = dump.with_suffix(".tokens").read_text().split()
        return World(devnet, accounts, dict(zip(DEPLOYED, addresses, strict=True)))
    owner = int(accounts[0], 16)
    tokens = {symbol: devnet.deploy(0, name, *_arguments(symbol, owner)) for symbol, (name, _) in DEPLOYED.items()}
    dump.parent.mkdir(parents=True, exist_ok=True)
    dump.with_suffix(".tokens").write_text("\n".join(tokens.values()))
    devnet.dump(dump)
    return World(devnet, accounts, tokens)


def _arguments(symbol: str, owner: int) -> list[int]:
    """Return the arguments of a token's constructor."""
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


def _dump_path() -> Path:
    """Return the file of the stored state, named by a hash of its inputs."""
    folder = ensure()
    key = repr(sorted(compiled(folder, name)[0].name for name in CONTRACTS)).encode() + Path(__file__).read_bytes()
    return install.home() / "starknet" / "worlds" / hashlib.sha256(key).hexdigest()[:16]
