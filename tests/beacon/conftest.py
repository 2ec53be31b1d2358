"""A beacon chain that runs here, with a history of every event that can happen to a validator."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from chainfolio.adapters.beacon.chain import BeaconChain, build
from chainfolio.adapters.beacon.settings import BeaconSettings
from chainfolio.cli.main import main
from chainfolio.engine.rows import in_tail
from chainfolio.environment import Environment
from chainfolio.indexer.wiring import System
from chainfolio.localchain.beacon import BeaconRuntime
from chainfolio.localchain.errors import InstallFailed, NodeJsMissing
from chainfolio.settings import Settings
from chainfolio.settings_file import load
from chainfolio.staking_tables import BEACON
from chainfolio.table import Table

CONFIGS = Path(__file__).parents[2] / "configs"
ETH = 10**9  # gwei
OFFLINE = (5, 6)
EXITED, SLASHED, TOPPED_UP, COMPOUNDING, LEFT, MERGED = 9, 11, 3, 20, 21, 22


def started(**options: object) -> BeaconRuntime:
    """A running chain; skips where npm cannot install it."""
    try:
        return BeaconRuntime(**options).__enter__()  # type: ignore[arg-type]
    except (InstallFailed, NodeJsMissing) as error:
        pytest.skip(f"the beacon runtime cannot be installed here: {error}")


def chain_at(*urls: str, key: str = "own", **settings: object) -> BeaconChain:
    """The adapter at some nodes."""
    chain_settings = BeaconSettings(adapter="beacon", rpc=list(urls), **settings)  # type: ignore[arg-type]
    return build(key, chain_settings, Environment(), configs=CONFIGS)


@dataclass(frozen=True, slots=True)
class Lived:
    """A chain with a history."""

    node: BeaconRuntime
    fork: str


def live(node: BeaconRuntime, fork: str) -> None:
    """Make missed slots, offline validators, an exit, a slashing and what only Electra has, up to the
    penalty that who was slashed pays half-way through its stay."""
    node.advance(32, miss=[13, 14])
    node.do("offline", validators=list(OFFLINE))
    node.advance(16, miss=[40])
    node.do("offline", validators=[])
    node.do("exit", validators=[EXITED])
    node.do("slash", validators=[SLASHED])
    if fork == "electra":
        node.do("deposit", validator=TOPPED_UP, amount=5 * ETH)
        node.do("deposit", amount=32 * ETH)
        node.do("consolidate", source=COMPOUNDING, target=COMPOUNDING)
        node.do("withdraw", validator=LEFT, amount=0)
    node.advance(100, miss=list(range(64, 75)))
    if fork == "electra":
        node.do("deposit", validator=COMPOUNDING, amount=1000 * ETH)
        node.do("consolidate", source=MERGED, target=COMPOUNDING)
        node.advance(80)
        node.do("withdraw", validator=COMPOUNDING, amount=3 * ETH)
    node.advance(260)


@pytest.fixture(
    scope="session",
    params=["electra", pytest.param("deneb", marks=pytest.mark.slow("an earlier fork that follows the same rules"))],
)
def lived(request: pytest.FixtureRequest) -> Iterator[Lived]:
    """A chain of each fork with its history; tests only read it."""
    node = started(fork=request.param, validators=192 if request.param == "electra" else 64)
    try:
        live(node, request.param)
        yield Lived(node, request.param)
    finally:
        node.__exit__(None, None, None)


@dataclass(frozen=True)
class IndexedBeacon:
    """A chain, the settings of its index, and the rows that the index has."""

    lived: Lived
    config: Path
    settings: Settings
    rows: dict[str, list[dict[str, Any]]]

    @property
    def last(self) -> int:
        """The last epoch with rewards."""
        return max(int(each["epoch"]) for each in self.rows["validator_rewards"])


@pytest.fixture(scope="session")
def indexed(lived: Lived, tmp_path_factory: pytest.TempPathFactory) -> IndexedBeacon:
    folder = tmp_path_factory.mktemp("beacon")
    config = folder / "chainfolio.toml"
    config.write_text(f'[chains.own]\nadapter = "beacon"\nrpc = ["{lived.node.url}"]\n')
    assert main(["index", "own", "--config", str(config), "--json"]) == 0
    settings = load(config)
    system = System(settings)
    rows = {table.name: stored(system, table) for table in BEACON}
    return IndexedBeacon(lived, config, settings, rows)


def stored(system: System, table: Table, key: str = "own") -> list[dict[str, Any]]:
    """Return all rows of a table, of the lake and of the tail."""
    import polars as pl

    parts = [in_tail(system.tail, key, table)]
    if system.lake.exists(table):
        parts.append(system.lake.scan(table, chain=key).select(table.names).collect())
    return pl.concat(parts).unique(list(table.key)).to_dicts()
