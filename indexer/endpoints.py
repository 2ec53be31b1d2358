"""Settings from endpoints alone: each says which chain it serves, and the configs say what that chain is like."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from chainfolio.chain_settings import ACCOUNTS, DEFAULT_KIND, ChainSettings, is_http, masked
from chainfolio.errors import BadRequest, BadSettings
from chainfolio.kinds import IdentifiesChains, kind_of
from chainfolio.seams import Seams
from chainfolio.settings import Settings, check

FIELD = "rpc"


async def at_endpoints(
    settings: Settings, urls: Sequence[str], seams: Seams, *, configs: Path, env: Mapping[str, str] = os.environ
) -> Settings:
    """The settings with the chains of these endpoints alone. What the settings say of such a chain besides its
    endpoints stays. BadRequest for what is no address, and for a chain that nothing here describes."""
    addresses = [_address(written, env) for written in dict.fromkeys(urls)]
    kind = kind_of(DEFAULT_KIND)
    assert isinstance(kind, IdentifiesChains), "the kind of chain that settings mean says which chain it serves"
    alone = [msgspec.structs.replace(kind.settings(), **{kind.settings.ENDPOINTS: [url]}) for url in addresses]
    numbers = await asyncio.gather(*(kind.served(each, seams) for each in alone))
    known = _by_number(kind, settings, configs)
    served: dict[str, list[str]] = {}
    for url, number in zip(addresses, numbers, strict=True):
        if number not in known:
            remedy = "describe it in a file (docs/how-to/add-a-chain.md) and name the file in the settings"
            raise BadRequest(FIELD, f"{masked(url)} serves chain {number}, which is not known here", remedy=remedy)
        served.setdefault(known[number], []).append(url)
    chains: dict[str, ChainSettings] = {
        # Who names a node on the command line wants some accounts, not days of indexing.
        key: msgspec.structs.replace(
            settings.chains.get(key) or kind.settings(index=ACCOUNTS), **{kind.settings.ENDPOINTS: several}
        )
        for key, several in served.items()
    }
    found = msgspec.structs.replace(settings, chains=chains)
    check(found)
    return found


def _address(written: str, env: Mapping[str, str]) -> str:
    name = written.removeprefix("env:")
    if name != written and name not in env:
        raise BadRequest(FIELD, f"the environment variable {name} is not set")
    url = env[name] if name != written else written
    if not is_http(url):
        shown = masked(url) or written
        raise BadRequest(FIELD, f"{shown} is not an http:// or https:// address", remedy="--rpc http://127.0.0.1:8545")
    return url


def _by_number(kind: IdentifiesChains, settings: Settings, configs: Path) -> dict[int, str]:
    """The key of each chain by its number: those of the settings first, then those of the configs."""
    found: dict[int, str] = {}
    for key, chain in settings.chains.items():
        if chain.adapter == DEFAULT_KIND:
            found.setdefault(kind.chain_id(key, chain, configs=configs), key)
    for path in sorted((configs / "chains").glob("*.toml")):
        try:
            number = kind.chain_id(path.stem, kind_of(DEFAULT_KIND).settings(), configs=configs)
        except BadSettings:
            continue  # a chain of another kind, or a file whose mistake is told to whoever asks for that chain
        if path.stem not in settings.chains:
            found.setdefault(number, path.stem)
    return found
