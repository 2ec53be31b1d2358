"""Check an endpoint, show a portfolio and add the chain for the dashboard's page *Start*."""

from __future__ import annotations

import asyncio
import tomllib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from chainfolio.api.errors import Problem
from chainfolio.api.first_run import Change, CheckedAccount, Endpoint, KnownChain, Preview, Report, Request, Start
from chainfolio.api.keys import Principal
from chainfolio.assets import Account
from chainfolio.capabilities import missing_capabilities
from chainfolio.chain_settings import is_http, masked
from chainfolio.cli import added_chain
from chainfolio.cli.dashboard_link import OWNER
from chainfolio.engine.named_accounts import accounts_of
from chainfolio.engine.service import Engine
from chainfolio.environment import Environment
from chainfolio.errors import BadRequest, ChainfolioError
from chainfolio.indexer.endpoints import at_endpoints, family_kinds
from chainfolio.indexer.wiring import CONFIGS, System
from chainfolio.portfolio.facts import Options
from chainfolio.settings import Settings
from chainfolio.storage.state import State, accounts
from chainfolio.storage.state.accounts import SESSION_NAME
from chainfolio.storage.state.database import Transaction

CHECK_S: Final = 30.0
OTHER_ENDPOINT: Final = "try again, or take another endpoint"
LOCAL_NODES: Final = {  # the default ports of geth, solana-validator, pathfinder, java-tron and lighthouse
    "evm": "http://127.0.0.1:8545",
    "solana": "http://127.0.0.1:8899",
    "starknet": "http://127.0.0.1:9545",
    "tron": "http://127.0.0.1:8090",
    "beacon": "http://127.0.0.1:5052",
}
HIDDEN: Final = ("endpoint", "evidence", "unproven", "problem", "ok", "quarantined")  # of doctor's rows
SHOWN: Final = {"images": True, "explorer_urls": True, "sources": True, "spam": False, "nfts": False}


@dataclass(eq=False, slots=True)
class FirstRun:
    """Adds chains for the machine's owner. Nothing is stored before `keep`.

    Attributes:
        settings: Those of the server.
        path: The settings file, which may be missing.
        state: Its accounts.
        environment: That of the server.
        restart: Set after the settings file has changed.
    """

    settings: Settings
    path: Path
    state: State
    environment: Environment
    restart: asyncio.Event
    _writing: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def is_owner(self, principal: Principal) -> bool:
        """Return True for a valid session of the machine's owner that began with a link, and not with a key."""
        now_us = self.state.clock.now_us()

        def is_valid(tx: Transaction) -> bool:
            owner = next((each for each in accounts.every(tx) if each.name == OWNER), None)
            if owner is None or owner.id != principal.account_id:
                return False
            keys = accounts.keys(tx, owner.id)
            key = next((each for each in keys if each.id == principal.key_id and each.name == SESSION_NAME), None)
            return key is not None and key.revoked_us is None and (key.expires_us or 0) > now_us

        return await self.state.read(is_valid)

    def start(self) -> Start:
        """Return the path of the settings file, and the chains that can be added or are configured."""
        own = [(key, each.adapter, key) for key, each in self.settings.chains.items() if key not in _described()]
        chains = [*((key, *facts) for key, facts in _described().items()), *own]
        known = [KnownChain(key, kind, name, key in self.settings.chains) for key, kind, name in chains]
        return Start(allowed=True, settings=str(self.path.resolve()), chains=known, nodes=LOCAL_NODES)

    async def check(self, request: Request) -> Report:
        """Read an endpoint as `doctor` does, within `CHECK_S`. Its errors are in the report."""
        name = _display(request.rpc)
        try:
            async with asyncio.timeout(CHECK_S), self._system(request) as system:
                return await _report(system, name, request.addresses, set(self.settings.chains))
        except TimeoutError:
            problem = f"no complete answer within {CHECK_S:.0f} s"
            return Report(name, problem=problem, remedy=OTHER_ENDPOINT)
        except ChainfolioError as error:
            return Report(name, problem=error.message, remedy=error.remedy or OTHER_ENDPOINT)

    async def portfolios(self, request: Request) -> bytes:
        """Return the portfolios of accounts of the endpoint's chain, as JSON. Raises ChainfolioError."""
        async with self._system(request) as system:
            checked = [await _account(system, text) for text in request.addresses]
            owners = list(dict.fromkeys(owner for _, owner in checked if owner is not None))
            if not owners:
                reasons = "; ".join(each.problem for each, _ in checked)
                raise BadRequest("addresses", reasons or "at least one address is needed")
            if len(owners) > (limit := self.settings.server.max_addresses):
                raise BadRequest("addresses", f"at most {limit} addresses can be read at once")
            await asyncio.to_thread(lambda: system.registry)  # half a second of parsing, which would block the loop
            engine = Engine(system)
            options = Options(**SHOWN, zero=self.settings.server.unpriced == "zero", rates=True)
            try:
                documents = await engine.encoded_portfolios(owners, options, wait=True)
            finally:
                await engine.supervisor.close()
            return b"".join((b"[", b",".join(documents), b"]"))

    async def preview(self, endpoint: Endpoint) -> Preview:
        """Return the file as it is, and the lines of the endpoint's chain; 409 if it is configured."""
        key, kind = await self._new_chain(endpoint)
        return added_chain.preview(self.path, key, kind, endpoint.rpc)

    async def keep(self, change: Change) -> Preview:
        """Add the endpoint's chain to the file that the user has seen, and have the server start again.

        Raises a 409 Problem if the file has changed since then, and a ChainfolioError if the endpoint cannot be used.
        """
        async with self._writing:
            if self.restart.is_set():  # another tab was faster
                raise Problem(409, added_chain.CHANGED)
            key, kind = await self._new_chain(change)
            added_chain.write(self.path, key, kind, change.rpc, change.seen)
            self.restart.set()
            return added_chain.preview(self.path, key, kind, change.rpc)

    async def _new_chain(self, endpoint: Endpoint) -> tuple[str, str]:
        """Return key and kind of an endpoint's chain. Raises a 409 Problem if the chain is configured already."""
        async with self._system(endpoint) as system:
            [(key, chain)] = system.settings.chains.items()
        if key in self.settings.chains:
            raise Problem(409, f"{key} is configured already: change its endpoints in {self.path.resolve()}")
        return key, chain.adapter

    @asynccontextmanager
    async def _system(self, endpoint: Endpoint) -> AsyncIterator[System]:
        """Yield a system of the endpoint's chain alone, which stores nothing. Raises ChainfolioError."""
        await self._check_url(endpoint.rpc)
        config = await at_endpoints(self.settings, [endpoint.rpc], self.environment, configs=CONFIGS)
        [key] = config.chains
        if endpoint.chain not in ("", key):
            reason = f"{_display(endpoint.rpc)} serves {key}, and not {endpoint.chain}"
            raise BadRequest("rpc", reason, remedy="choose that chain, or take another endpoint")
        system = System(config, self.environment, keeps_nothing=True, kinds=family_kinds(config))
        try:
            yield system
        finally:
            await system.close()

    async def _check_url(self, rpc: str) -> None:
        """Raise BadRequest for an address of another scheme, or for this server's own."""
        if rpc.startswith("env:"):
            return
        if rpc.lower().startswith(("ws://", "wss://")):
            remedy = "take the https:// or http:// address of the same node"
            raise BadRequest("rpc", f"{_display(rpc)}: WebSocket endpoints are not read", remedy=remedy)
        if not is_http(rpc):
            remedy = "for example http://127.0.0.1:8545, or env:NAME for a variable of the server"
            raise BadRequest("rpc", f"{_display(rpc)} is not an http:// or https:// address", remedy=remedy)
        parts = urlsplit(rpc)
        if (parts.port or 80) == self.settings.server.port and await _is_here(parts.hostname or ""):
            raise BadRequest("rpc", "this is the address of the dashboard's own server", remedy="give that of a node")


async def _report(system: System, name: str, texts: list[str], configured: set[str]) -> Report:
    """Return the report of a system's only chain, and of the accounts behind some texts."""
    [chain] = system.chains
    [row] = await chain.examine()
    [health] = chain.health()
    shown = {key: value for key, value in row.items() if key not in HIDDEN} | {"maxBatch": health.max_batch}
    known = KnownChain(chain.key, chain.kind, chain.info.name, chain.key in configured)
    checked = [(await _account(system, text))[0] for text in texts]
    is_usable, problem = bool(row["ok"]), str(row["problem"])
    return Report(
        name,
        is_usable,
        problem,
        "" if is_usable else OTHER_ENDPOINT,
        known,
        shown,
        missing_capabilities(chain),
        checked,
    )


async def _account(system: System, text: str) -> tuple[CheckedAccount, Account | None]:
    """Return what a text of the form stands for on the system's chain; None if it is no account of it."""
    notes: list[str] = []
    try:
        [owner] = await accounts_of(system, [text], [], notes.append)
    except ChainfolioError as error:
        return CheckedAccount(text, problem=error.message), None
    return CheckedAccount(text, owner.address, [note.strip() for note in notes]), owner


def _display(rpc: str) -> str:
    """Return an endpoint as it may be shown."""
    return rpc if rpc.startswith("env:") else masked(rpc)


async def _is_here(host: str) -> bool:
    """Return True if a host name stands for this machine's loopback. Unknown hosts do not."""
    try:
        infos = await asyncio.get_running_loop().getaddrinfo(host, None)
    except (OSError, UnicodeError):
        return False
    addresses = [ip_address(str(each[4][0]).partition("%")[0]) for each in infos]
    plain = [getattr(each, "ipv4_mapped", None) or each for each in addresses]
    return any(each.is_loopback or each.is_unspecified for each in plain)


@cache
def _described() -> dict[str, tuple[str, str]]:
    """Return kind and name of each chain that a file of the configs describes, by key."""
    files: dict[str, Any] = {path.stem: tomllib.loads(path.read_text()) for path in (CONFIGS / "chains").glob("*.toml")}
    return {key: (str(file["kind"]), str(file["name"])) for key, file in sorted(files.items())}
