"""The datasets that are indexed by default: those inside transactions too, if the node traces."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from chainfolio.assets import account
from chainfolio.blocks import Span
from chainfolio.cli.main import main
from chainfolio.engine.results import TransactionFilter
from chainfolio.engine.service import Engine
from chainfolio.indexer.wiring import System
from chainfolio.portfolio.facts import Options
from chainfolio.settings import Settings
from tests.e2e.byzantine_node import byzantine
from tests.e2e.conftest import World, configured

pytestmark = pytest.mark.node


def no_traces(method: str, params: list[Any], result: Any) -> Any:
    """Answer as a node that keeps no traces."""
    return None if method.startswith(("trace_", "debug_")) else result


@contextmanager
def indexed(world: World, folder: Path, url: str) -> Iterator[System]:
    """The whole chain, by `chainfolio index` with settings that name no datasets."""
    settings = configured(world, folder)
    path = folder / "chainfolio.toml"
    lines = path.read_text().replace(world.node.url, url).splitlines()
    path.write_text("\n".join(line for line in lines if not line.startswith("datasets")))
    before = world.node.snapshot()
    world.node.rpc("anvil_mine", hex(16))  # so that all that happened is final
    assert main(["index", "local", "--config", str(path), "--json"]) == 0
    chain = msgspec.structs.replace(settings.chains["local"], rpc=[url], datasets=[])
    system = System(msgspec.structs.replace(settings, chains={"local": chain}))
    asyncio.run(followed(system))
    yield system
    world.node.revert(before)


async def followed(system: System) -> None:
    """Index what is not final too, as a worker does."""
    chain = system.chain("local")
    await chain.probe(0)
    with system.tail.lock(chain.key):
        await system.follower(chain).step()
    await system.close()


def portfolio_and_transactions(settings: Settings, wallet: str) -> tuple[Any, Any]:
    """The portfolio and the transactions of a wallet, by a process that has tried nothing itself."""

    async def both() -> tuple[Any, Any]:
        system = System(settings)
        engine, wallets = Engine(system), [account(wallet)]
        (portfolio,) = await engine.portfolios(wallets, Options(), wait=True, wallet_only=False)
        page = await engine.transactions(wallets, TransactionFilter(limit=10, offset=0))
        await system.close()
        return portfolio, page.document

    return asyncio.run(both())


@pytest.mark.slow("indexes the same chain at a node that traces")
def test_where_the_node_traces_a_day_is_known_and_transactions_are_complete(world: World, tmp_path: Path) -> None:
    with indexed(world, tmp_path / "data", world.node.url) as system:
        portfolio, transactions = portfolio_and_transactions(system.settings, world.wallets["carol"])
        assert System(system.settings).tail.indexed_ranges("local", "internal").covers(Span(0, world.node.height - 16))
        assert transactions.completeness == "complete"
        assert {each.adapter for each in transactions.issues} == {"pnl"}  # coins of the first block have no transaction
        assert "N/A" not in (portfolio.daily_income, portfolio.daily_expense)
        assert "daily" not in {issue.adapter for issue in portfolio.issues}


def test_where_no_node_traces_the_rest_is_indexed_and_the_answer_says_what_is_missing(
    world: World, tmp_path: Path
) -> None:
    with byzantine(world.node.url, no_traces) as url, indexed(world, tmp_path / "data", url) as system:
        portfolio, transactions = portfolio_and_transactions(system.settings, world.wallets["carol"])
        assert transactions.transactions
        assert transactions.completeness == "partial"
        assert ["internal" in each.reason for each in transactions.issues if each.adapter != "pnl"] == [True]
        assert (portfolio.daily_income, portfolio.daily_expense) == ("N/A", "N/A")
        reason = "dailyIncome and dailyExpense are not known: `internal` is not indexed from block 0 on"
        assert [(each.subject, each.reason) for each in portfolio.issues if each.adapter == "daily"] == [
            ("local", reason)
        ]
        assert portfolio.completeness == "complete"
