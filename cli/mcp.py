"""`chainfolio mcp`: answer questions of a language model over standard input and output."""

from __future__ import annotations

import argparse
import asyncio
from typing import TYPE_CHECKING, Any

from chainfolio import __version__
from chainfolio.agents.server import build_server
from chainfolio.agents.tools import Services, Tools
from chainfolio.cli import sql
from chainfolio.cli.common import Commands, add_rpc, with_system
from chainfolio.cli.groups import GROUPS
from chainfolio.cli.status import examine
from chainfolio.engine.service import Engine

if TYPE_CHECKING:
    from chainfolio.indexer.wiring import System


def add(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Register the command."""
    command = commands.add_parser("mcp", parents=[common], help=GROUPS["mcp"], description=__doc__)
    add_rpc(command)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Serve the Model Context Protocol until standard input ends; return 0."""

    async def serve(system: System) -> None:
        async def status() -> dict[str, Any]:
            return await examine(system)

        async def ask(query: str, limit: int, seconds: int) -> dict[str, Any]:
            return await ask_lake(system, query, limit, seconds)

        tools = Tools(Engine(system), Services(status, ask))
        await build_server(tools, __version__).run_stdio_async()

    with_system(options, serve)
    return 0


async def ask_lake(system: System, query: str, limit: int, seconds: int) -> dict[str, Any]:
    """Return the answer of `sql.ask`; files of an object store are copied first.

    Raises:
        BadRequest: The query is wrong, took too long, or reads a refused table.
        CorruptFile: A file of the object store does not match its checksums.
        StoreError: The object store does not answer.
    """
    readable = sql.sources(system.lake, sql.tables_in(query))
    if not system.lake.is_local:
        readable = await asyncio.to_thread(sql.downloaded, system, readable, is_quiet=True)
    return await asyncio.to_thread(sql.ask, query, readable, limit=limit, seconds=seconds)
