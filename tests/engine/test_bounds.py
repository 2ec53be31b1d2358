"""Caches of a process stay within the bounds that metrics and a table of the documentation name."""

from __future__ import annotations

import asyncio
import random
import re
import socket
from contextlib import AsyncExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from urllib.request import urlopen

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from chainfolio.adapters.solana import stake_histories
from chainfolio.adapters.solana.stake_histories import StakeHistories
from chainfolio.api.state_bounds import state_bounds
from chainfolio.assets import Asset
from chainfolio.blocks import Block, Span
from chainfolio.cli.serve import answering
from chainfolio.contracts import Token
from chainfolio.engine.bounds import Bound, BoundMetrics
from chainfolio.engine.gains.account_gains import MAX_ROWS
from chainfolio.engine.service import Engine
from chainfolio.engine.snapshots import token_book
from chainfolio.engine.snapshots.token_book import TokenBook
from chainfolio.environment import SystemClock
from chainfolio.errors import StoreUnavailable
from chainfolio.indexer.wiring import System
from chainfolio.kinds import EndpointMemory
from chainfolio.settings import Server, Settings
from chainfolio.storage.lake import Lake
from chainfolio.storage.state import State
from chainfolio.tables import TOKENS

OPERATE = Path(__file__).parents[2] / "docs" / "how-to" / "operate.md"


def described(first: int, count: int) -> dict[Any, Token]:
    """Tokens of consecutive contracts."""
    assets = [Asset("eip155:1", "erc20", f"0x{number:040x}") for number in range(first, first + count)]
    return {asset: Token(asset, "X", "X", 6) for asset in assets}


def test_known_contracts_are_bounded_and_each_is_stored_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_book, "MAX_SEEN", 50)
    lake = Lake(str(tmp_path))
    book = TokenBook("ethereum", lake, {})
    for height in range(8):
        book.add(described(height * 20, 30), Block(height, f"0x{height}", "", 0))
        assert book.seen_count <= 50
    book.add(described(0, 30), Block(9, "0x9", "", 0))
    assert book.seen_count == 50
    stored = lake.scan(TOKENS).collect()["token"]
    assert (stored.len(), stored.n_unique()) == (170, 170)
    later = TokenBook("ethereum", lake, {})
    later.add(described(165, 10), Block(10, "0xa", "", 0))
    assert later.seen_count == 50
    assert lake.count(TOKENS) == 175


def test_stake_histories_keep_a_bounded_number_of_accounts_and_load_others_again() -> None:
    stored: dict[str, dict[str, int]] = {}

    def store(name: str, capability: str, value: int) -> None:
        stored.setdefault(name, {})[capability] = value

    memory = EndpointMemory(lambda name: stored.get(name, {}), store)
    histories = StakeHistories(cast("Any", SimpleNamespace(key="solana")), memory)
    for number in range(stake_histories.MAX_ACCOUNTS + 200):
        histories.add_scanned(f"account {number}", Span(0, number), [])
        assert len(histories._scanned) == len(histories._stakes) <= stake_histories.MAX_ACCOUNTS
    histories.add_scanned("account 0", Span(1, 5), [])
    assert list(histories._scanned["account 0"]) == [Span(0, 5)], "what was scanned before is loaded again"


def bounds_in(folder: Path) -> list[Bound]:
    """The bounds of a process with one chain."""
    system = System(Settings(data=str(folder)))
    quoting = cast("Any", SimpleNamespace(book=TokenBook("ethereum", None, {})))
    state = State.open(f"sqlite:///{folder / 'state.db'}", bytes(32), SystemClock(), random.Random(1))
    try:
        of_state = state_bounds(state, 3, system.settings.alerts.keep_days)
        return [*Engine(system, _snapshotters={"ethereum": quoting}).bounds(), *of_state]
    finally:
        state.close()
        system.tail.close()


def test_a_store_that_does_not_answer_takes_no_other_metric_along(tmp_path: Path) -> None:
    state = State.open(f"sqlite:///{tmp_path / 'state.db'}", bytes(32), SystemClock(), random.Random(1))

    def failing_read(_: object) -> None:
        raise StoreUnavailable("state", "the database does not answer")

    database = cast("Any", SimpleNamespace(read=failing_read))
    assert [each.name for each in state_bounds(cast("Any", SimpleNamespace(database=database)), 3, 30)] == [
        "event_streams"
    ]
    assert len(state_bounds(state, 3, 30)) > 3
    state.close()


def test_each_bound_has_a_metric_and_a_row_in_the_table(tmp_path: Path) -> None:
    bounds = bounds_in(tmp_path)
    registry = CollectorRegistry()
    registry.register(cast("Any", BoundMetrics(lambda: bounds)))
    metrics = generate_latest(registry).decode()
    rows = re.findall(r"^\| [^|]* \| ([\d,]+) [^|]*\| `(\w+)` \|", OPERATE.read_text(), re.MULTILINE)
    table = {name: int(maximum.replace(",", "")) for maximum, name in rows}
    for each in bounds:
        assert f'chainfolio_bound_used{{bound="{each.name}",chain="{each.chain}"}}' in metrics
        assert 0 <= each.used <= each.maximum
        unit = 2**20 if each.name.endswith("bytes") else 1
        assert each.name in ("open_files", "state_bytes") or table[each.name] * unit == each.maximum
    assert set(table) <= {each.name for each in bounds}
    assert {"kept_rows", "gains_rows", "token_contracts", "state_journal_bytes", "threads"} <= set(table)
    assert table["gains_rows"] == MAX_ROWS


async def test_a_process_that_serves_shows_its_bounds(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    app = await answering(Settings(data=str(tmp_path), server=Server(metrics_port=port)))
    async with AsyncExitStack() as stack:
        for lifespan in app.lifespan:
            await stack.enter_async_context(lifespan())
        url = f"http://127.0.0.1:{port}/metrics"
        metrics = (await asyncio.to_thread(lambda: urlopen(url).read())).decode()
    used = dict(re.findall(r'^chainfolio_bound_used{bound="(\w+)",chain=""} (\S+)', metrics, re.MULTILINE))
    assert {"tail_journal_bytes", "state_journal_bytes", "threads", "event_streams", "idempotent_answer_s"} <= set(used)
    assert float(used["threads"]) > 0
    assert float(used["state_bytes"]) > 4096
