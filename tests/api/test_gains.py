"""Gains of wallets: options reach the engine, and the answer is that of `chainfolio pnl --json`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args
from zoneinfo import ZoneInfo

import pytest

from chainfolio.api.gains import Method, gains
from chainfolio.assets import Account
from chainfolio.cli.main import main
from chainfolio.contracts import GAIN_METHODS
from chainfolio.engine.gains.pnl import PnlRequest
from chainfolio.errors import NotFound
from chainfolio.localchain.node import LocalNode
from tests.api.fakes import ALICE, BOB, FakeEngine
from tests.api.over_nodes import served, settings_of, tenant_of

PATH = f"/v1/gains?addresses={ALICE}"


def test_it_needs_the_portfolio_grant_and_costs_one() -> None:
    assert (gains.needs, gains.cost, gains.units({})) == ("portfolio", 1, 1)
    assert get_args(Method) == GAIN_METHODS


async def test_the_rules_reach_the_engine(ask: Any, engine: FakeEngine) -> None:
    assert (await ask(PATH)).status == 200
    rules = "&method=hifo&perWallet=true&depositsAreDisposals=true&receivedAt=unknown"
    assert (await ask(f"{PATH},{BOB}{rules}")).status == 200
    assert (await ask(f"{PATH}&method=uk")).status == 200
    alice, bob = Account("evm", ALICE), Account("evm", BOB)
    assert engine.calls == [
        ("gains", ((alice,), PnlRequest(zone=ZoneInfo("UTC")))),
        ("gains", ((alice, bob), PnlRequest("hifo", True, True, False, ZoneInfo("UTC")))),
        ("gains", ((alice,), PnlRequest("uk", zone=ZoneInfo("Europe/London")))),
    ]


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ("method=FIFO", "it is one of average, ca, fifo"),
        ("method=ca&perWallet=true", "`perWallet` cannot be `true`: the rules of 'ca' pool"),
        ("receivedAt=", "spot, unknown"),
        ("year=2024", "unknown parameter 'year'"),
    ],
)
async def test_rules_that_cannot_be_are_refused(ask: Any, engine: FakeEngine, rules: str, message: str) -> None:
    answer = await ask(f"{PATH}&{rules}")
    assert answer.status == 400
    assert message in (await answer.json())["message"]
    assert engine.calls == []


async def test_an_account_with_too_many_transactions_is_404(ask: Any, engine: FakeEngine) -> None:
    engine.failure = NotFound("it has more than 1,000 transactions", remedy="the operator raises pnl.max_transactions")
    assert (await ask(PATH)).status == 404


@pytest.fixture
def config(tmp_path: Path) -> Iterator[Path]:
    """Settings of an indexed chain on which Alice has paid Bob."""
    with LocalNode() as node:
        node.rpc("anvil_setBalance", ALICE, hex(3 * 10**18))
        node.rpc("anvil_impersonateAccount", ALICE)
        node.rpc("eth_sendTransaction", {"from": ALICE, "to": BOB, "value": hex(10**18)})
        node.mine(200)
        path = settings_of(tmp_path, node)
        assert main(["index", "local", "--config", str(path), "--json"]) == 0
        yield path


def allow_none(config: Path) -> None:
    """Let no account have gains that are served."""
    config.write_text(config.read_text() + "[pnl]\nmax_transactions = 0\n")
    (config.parent / "state.db").unlink()  # its accounts have the same ids


@pytest.mark.node
async def test_the_answer_is_that_of_the_command(config: Path, tmp_path: Path, capsys: Any) -> None:
    capsys.readouterr()
    assert await asyncio.to_thread(main, ["pnl", ALICE, "--config", str(config), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["gains"]
    async with served(config, tmp_path) as world:
        tenant, _ = tenant_of(world, ALICE)
        response = await tenant.ask("GET", PATH)
    assert (response.status, response.json) == (200, printed)
    allow_none(config)
    async with served(config, tmp_path) as world:
        tenant, _ = tenant_of(world, ALICE)
        response = await tenant.ask("GET", PATH)
    assert response.status == 404
    assert f"chainfolio pnl {ALICE}" in response.json["message"]
