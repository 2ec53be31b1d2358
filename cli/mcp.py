"""`chainfolio mcp`: answer questions of a language model over standard input and output."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from chainfolio import __version__
from chainfolio.agents.server import build_server
from chainfolio.agents.tools import Services, Tools
from chainfolio.cli.common import Commands, add_rpc, with_system
from chainfolio.cli.groups import GROUPS
from chainfolio.cli.status import examine
from chainfolio.engine.lake_sql import LakeSql
from chainfolio.engine.service import Engine
from chainfolio.storage.sql_task import JsonResult, Task

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

        lake = LakeSql(system.lake, system.tail, system.settings.data_dir, system.settings.chains)

        async def ask(query: str, limit: int, seconds: int) -> JsonResult:
            return await ask_lake(lake, query, limit, seconds)

        tools = Tools(Engine(system), Services(status, ask))
        await build_server(tools, __version__).run_stdio_async()

    with_system(options, serve)
    return 0


async def ask_lake(lake: LakeSql, query: str, limit: int, seconds: int) -> JsonResult:
    """Return the rows of a query over all tables.

    Raises:
        BadRequest: The query is wrong, took too long, or reads a refused table.
        CorruptFile: A file does not match its checksums.
        StoreError: The object store does not answer.
    """
    return (await lake.run(Task(query=query, limit=limit, seconds=seconds))).document()
