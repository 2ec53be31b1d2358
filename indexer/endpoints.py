"""Make settings from endpoints alone: the node tells its chain, and the configs describe the chain."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from chainfolio.chain_settings import ACCOUNTS, DEFAULT_KIND, ChainSettings, is_http, masked
from chainfolio.environment import Environment
from chainfolio.errors import BadRequest, BadSettings
from chainfolio.kinds import IdentifiesChains, builtin_kinds, kind_of, readable_kinds
from chainfolio.settings import Settings
from chainfolio.settings_checks import check
from chainfolio.transport.http import HttpTransport
from chainfolio.transport.probe import Probe, unrecognised

FIELD = "rpc"
TIMEOUT_S = 60


class ServedChain(NamedTuple):
    """The chain behind a node: the name of its kind, and what identifies it among the chains of that kind."""

    kind: str
    identity: str


async def at_endpoints(
    settings: Settings,
    urls: Sequence[str],
    environment: Environment,
    *,
    configs: Path,
    env: Mapping[str, str] = os.environ,
) -> Settings:
    """Return the settings with the chains of these endpoints alone; other settings of such a chain stay.

    Raises:
        BadRequest: a URL is malformed, or the node serves a chain that no file describes.
        SourceError: a node cannot be reached, or is no node of any installed kind.
    """
    addresses = [_address(address, env) for address in dict.fromkeys(urls)]
    kinds = _kinds(settings)
    chains = await asyncio.gather(*(_served(kinds, url, environment) for url in addresses))
    keys = {kind: _keys(kind, kinds[kind], settings, configs) for kind in {chain.kind for chain in chains}}
    endpoints: dict[str, list[str]] = {}
    kind_by_key: dict[str, str] = {}
    for url, (kind, identity) in zip(addresses, chains, strict=True):
        if identity not in keys[kind]:
            remedy = "describe it in a file (docs/how-to/add-a-chain.md) and name the file in the settings"
            reason = f"{masked(url)} serves chain {identity} of the kind `{kind}`, which is not known here"
            raise BadRequest(FIELD, reason, remedy=remedy)
        key = keys[kind][identity]
        kind_by_key[key] = kind
        endpoints.setdefault(key, []).append(url)
    configured = {key: _settings(key, kind_by_key[key], settings, endpoints[key]) for key in endpoints}
    narrowed = msgspec.structs.replace(settings, chains=configured)
    check(narrowed)
    return narrowed


def family_kinds(settings: Settings) -> frozenset[str]:
    """Return the kinds whose protocol families read the chains of some settings."""
    return frozenset().union(*(readable_kinds(chain.adapter) for chain in settings.chains.values()))


def _settings(key: str, kind: str, settings: Settings, endpoints: list[str]) -> ChainSettings:
    """Return the settings of one chain at some endpoints."""
    of_kind = kind_of(kind).settings
    # A node on the command line is for some accounts, not for days of indexing.
    chain = settings.chains.get(key) or of_kind(adapter=kind, index=ACCOUNTS)
    return msgspec.structs.replace(chain, **{of_kind.ENDPOINTS: endpoints})


def _kinds(settings: Settings) -> dict[str, IdentifiesChains]:
    """Return the kinds of chain that a node may have: the default one, ours, and those of the settings."""
    names = {*builtin_kinds(), *(chain.adapter for chain in settings.chains.values())} - {DEFAULT_KIND}
    kinds = ((name, kind_of(name)) for name in [DEFAULT_KIND, *sorted(names)])
    return {name: kind for name, kind in kinds if isinstance(kind, IdentifiesChains)}


async def _served(kinds: Mapping[str, IdentifiesChains], url: str, environment: Environment) -> ServedChain:
    """Ask a node for its chain, with the request of each kind in turn; return the first that answers.

    Raises:
        SourceError: It cannot be reached, or is a node of no installed kind.
    """
    transport = HttpTransport(environment.answers)
    probe = Probe(url, transport, environment, timeout_s=TIMEOUT_S, concurrency=1)
    try:
        for name, kind in kinds.items():
            if (identity := await kind.served(probe)) is not None:
                return ServedChain(name, identity)
    finally:
        await transport.close()
    raise unrecognised(url)


def _address(argument: str, env: Mapping[str, str]) -> str:
    """Return the URL of an argument, from a variable if it is `env:NAME`; raise BadRequest if invalid."""
    name = argument.removeprefix("env:")
    if name != argument and name not in env:
        raise BadRequest(FIELD, f"the environment variable {name} is not set")
    url = env[name] if name != argument else argument
    if not is_http(url):
        display = masked(url) or argument
        raise BadRequest(
            FIELD, f"{display} is not an http:// or https:// address", remedy="--rpc http://127.0.0.1:8545"
        )
    return url


def _keys(name: str, kind: IdentifiesChains, settings: Settings, configs: Path) -> dict[str, str]:
    """Return chain keys by identity for one kind; settings take precedence over configs.

    Files of other kinds, and invalid ones, are left out.
    """
    keys: dict[str, str] = {}
    for key, chain in settings.chains.items():
        if chain.adapter == name:
            keys.setdefault(kind.identity(key, chain, configs=configs), key)
    for path in sorted((configs / "chains").glob("*.toml")):
        try:
            identity = kind.identity(path.stem, kind_of(name).settings(adapter=name), configs=configs)
        except BadSettings:
            continue  # a chain of another kind, or an invalid file: using that chain reports it
        if path.stem not in settings.chains:
            keys.setdefault(identity, path.stem)
    return keys
