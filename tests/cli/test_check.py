"""`chainfolio check`: output and exit codes (checks and repairs are tested in `tests/indexer`)."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from chainfolio.engine.prices.rate_store import RateStore
from chainfolio.pricing.ecb import CURRENCIES
from chainfolio.storage.lake import Lake
from chainfolio.storage.tail import Tail
from chainfolio.tables import BLOCKS, FIAT_RATES, TRANSFERS
from tests.cli.conftest import Run
from tests.storage.conftest import make


@pytest.fixture
def lake(here: Path) -> Lake:
    """A lake with two tables, where the settings look for it."""
    lake = Lake(str(here / "data" / "lake"))
    for table in (BLOCKS, TRANSFERS):
        lake.append(table, make(table, "a", range(20)), stream="s", batch=1)
    return lake


def test_a_sound_lake_ends_with_0(run: Run, lake: Lake) -> None:
    ran = run("check", "--json")
    assert ran.code == 0
    assert (ran.json["files"], ran.json["sound"], ran.json["damaged"]) == (2, 2, [])
    output = run("check")
    assert (output.code, output.out.splitlines()[-1].partition(": ")[2]) == (0, "2 match their checksums")


@pytest.mark.parametrize("chosen", [(), ("a",), ("--tables", "transfers")])
def test_a_damaged_file_is_named_with_its_blocks_and_ends_with_5(run: Run, lake: Lake, chosen: tuple[str, ...]) -> None:
    (file,) = map(Path, lake.files(TRANSFERS))
    content = bytearray(file.read_bytes())
    content[100] ^= 1
    file.write_bytes(content)
    ran = run("check", *chosen, "--json")
    (damaged,) = ran.json["damaged"]
    assert ran.code == 5
    assert (damaged["table"], damaged["fromBlock"], damaged["toBlock"]) == ("transfers", 0, 19)
    assert file.name in damaged["file"]
    output = run("check", *chosen)
    assert f"DAMAGED transfers/chain=a/{file.name} (blocks 0 to 19)" in output.out
    assert (output.code, "check --repair" in output.err) == (5, True)
    assert run("check", "--tables", "blocks", "--json").code == 0


def test_a_file_that_is_gone_is_damaged(run: Run, lake: Lake) -> None:
    Path(lake.files(BLOCKS)[0]).unlink()
    assert [each["table"] for each in run("check", "--json").json["damaged"]] == ["blocks"]


def test_a_damaged_file_of_rates_is_dropped_by_a_repair_and_they_are_asked_for_again(run: Run, here: Path) -> None:
    tail = Tail(here / "data" / "tail.sqlite")
    store = RateStore(Lake(str(here / "data" / "lake")), tail)
    store.add({date(2024, 3, 28): dict.fromkeys(CURRENCIES, Decimal("1.1"))}, datetime(2024, 5, 2, tzinfo=UTC))
    Path(store.lake.files(FIAT_RATES)[0]).write_bytes(b"torn")
    assert run("check", "--json").code == 5
    ran = run("check", "--repair", "--json")
    assert (ran.code, ran.json["repaired"]) == (0, {"ecb": {"fiat_rates": 0}})
    assert store.load() == {}
    assert run("check", "--json").code == 0
    tail.close()


def test_an_unknown_table_is_refused_with_those_that_there_are(run: Run) -> None:
    ran = run("check", "--tables", "gossip", "--json")
    assert (ran.code, ran.error["field"]) == (2, "tables")
    assert "transfers" in ran.error["remedy"]


def test_an_unknown_chain_is_refused(run: Run) -> None:
    ran = run("check", "etherum", "--json")
    assert (ran.code, ran.error["field"]) == (2, "chain")
