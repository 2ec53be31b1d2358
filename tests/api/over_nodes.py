"""The API over the real engine, store and nodes, and its routes that take addresses."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from chainfolio.engine.service import Engine
from chainfolio.environment import Environment, SystemClock
from chainfolio.indexer.wiring import System
from chainfolio.localchain.node import LocalNode
from chainfolio.settings_file import load
from chainfolio.storage.state import subscriptions, virtual_users
from chainfolio.storage.state.database import Transaction
from tests.api.fakes import ALICE
from tests.api.tenants import ApiResponse, Tenant, World, a_world

MIDNIGHT = 1_700_006_400
DAYS = "startDate=2023-11-15&endDate=2023-11-15"
# By the name of the route: its path, what it needs besides the addresses, and what a call about one address costs.
READS = {
    "portfolio": ("/v1/portfolio", "", 1),
    "wallet": ("/v1/wallet", "", 1),
    "nav": ("/v1/nav", "", 1),
    "historical": ("/v1/historical", "&date=2023-11-15", 1),
    "token_overview": ("/v1/token-overview", "&date=2023-11-15", 1),
    "performance": ("/v1/performance", f"&{DAYS}", 1),
    "gains": ("/v1/gains", "", 1),
    "transactions": ("/v1/transactions", "&limit=10&offset=0", 1),
    "status": ("/v1/status", "", 0),
    "virtual_users_portfolio": ("/v1/virtual-users/portfolio", "", 1),
}
WRITES = {"sync_transactions": ("/v1/sync-transactions", 1), "subscribe_snapshot": ("/v1/subscribe-snapshot", 1200)}


class Hurried(SystemClock):
    """The machine's clock, with no wait between two tries."""

    async def sleep(self, seconds: float) -> None:
        """Let others run."""
        await asyncio.sleep(0)


@contextmanager
def lived() -> Iterator[LocalNode]:
    """A chain that has gone on for long since a midnight; Alice has had three coins since before it."""
    with LocalNode() as running:
        running.rpc("anvil_setBalance", ALICE, hex(3 * 10**18))
        for time in (MIDNIGHT - 1, MIDNIGHT):
            running.rpc("evm_setNextBlockTimestamp", time)
            running.mine()
        running.mine(200)
        yield running


def settings_of(folder: Path, node: LocalNode) -> Path:
    """A file of settings for the chain, on which a coin is 2000 USD."""
    config = folder / "chainfolio.toml"
    chain = f'[chains.local]\nrpc = ["{node.url}"]\n'
    config.write_text(f'data = "{folder}/data"\nprices_file = "{folder}/prices.toml"\n{chain}')
    (folder / "prices.toml").write_text('[fixed]\n"eip155:31337/slip44:60" = "2000"\n')
    return config


@asynccontextmanager
async def served(config: Path, folder: Path) -> AsyncIterator[World]:
    """The API over the engine of some settings."""
    system = System(load(config), Environment(clock=Hurried()))
    try:
        async with a_world(folder, system.settings, Engine(system)) as world:
            yield world
    finally:
        await system.close()


def tenant_of(world: World, *addresses: str) -> tuple[Tenant, str]:
    """A new account, and the id of its group of the addresses."""
    tenant = world.tenant(uuid.uuid4().hex, grants=("portfolio",))
    return tenant, group_of(world, tenant, *addresses)


def group_of(world: World, tenant: Tenant, *addresses: str) -> str:
    """The id of a new virtual user of an account, which is a group of addresses."""
    group, now_us = str(uuid.uuid4()), world.state.clock.now_us()

    def work(tx: Transaction) -> None:
        document = json.dumps({"addresses": addresses}).encode()
        virtual_users.add(tx, tenant.account, group, "GROUP", "All", document, now_us)

    world.state.database.write(work)
    return group


def subscribe(world: World, tenant: Tenant, *addresses: str) -> None:
    """Subscribe an account to the addresses."""
    now_us = world.state.clock.now_us()
    world.state.database.write(lambda tx: subscriptions.add(tx, tenant.account, dict.fromkeys(addresses, ""), now_us))


async def ask(world: World, name: str, *addresses: str, extra: str = "") -> tuple[ApiResponse, int]:
    """Request a route about addresses; return the answer and its cost.

    `extra` replaces parameters of `READS`.
    """
    tenant, group = tenant_of(world, *addresses)
    if name in ("historical", "token_overview", "performance"):
        subscribe(world, tenant, *addresses)
    before = await world.settled_balance(tenant)
    if name in READS:
        path, usual, _ = READS[name]
        targets = f"virtual:{group}" if name == "virtual_users_portfolio" else ",".join(addresses)
        response = await tenant.ask("GET", f"{path}?addresses={targets}{_joined(usual, extra)}")
    else:
        path, _ = WRITES[name]
        items = [{"address": each} for each in addresses] if name == "subscribe_snapshot" else list(addresses)
        response = await tenant.ask("POST", path, {"addresses": items})
    return response, before.available - (await world.settled_balance(tenant)).available


def _joined(usual: str, extra: str) -> str:
    """The parameters of a request: `more` replace those that have the same names."""
    parameters = dict(each.split("=", 1) for each in f"{usual}{extra}".split("&") if each)
    return "".join(f"&{name}={value}" for name, value in parameters.items())


def completeness_of(response: ApiResponse) -> tuple[set[str], str]:
    """Return the completeness values of an answer, and all its issues as one text."""
    headers = {name.lower(): value for name, value in response.headers.items()}
    if "x-completeness" in headers:
        return {headers["x-completeness"]}, headers.get("x-issues", "")
    documents = response.json if isinstance(response.json, list) else [response.json]
    issues = [issue for each in documents for issue in each["issues"]]
    return {each["completeness"] for each in documents}, "\n".join(f"{i['subject']}: {i['reason']}" for i in issues)


def cost_of(name: str) -> int:
    """Return the price of a call about one address."""
    return READS[name][2] if name in READS else WRITES[name][1]
