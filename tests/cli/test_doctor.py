"""The doctor looks at every endpoint and store, and says of each what it is good for or what ails it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.doctor import LIBRARIES
from localchain.node import LocalNode
from tests.cli.conftest import Run, configure

BLOCKS = 20


@pytest.fixture(scope="module")
def node() -> Iterator[LocalNode]:
    with LocalNode() as node:
        node.mine(BLOCKS)
        yield node


def test_without_chains_the_stores_are_well_and_the_next_step_is_told(run: Run) -> None:
    ran = run("doctor")
    assert ran.code == 0
    assert "lake: ok" in ran.out
    assert "tail: ok" in ran.out
    assert "add [chains.ethereum]" in ran.out
    report = run("doctor", "--json").json
    assert set(report["versions"]) == {"python", *LIBRARIES}
    assert report["endpoints"] == []


@pytest.mark.node
def test_a_node_that_keeps_all_states_is_well(run: Run, here: Path, node: LocalNode) -> None:
    configure(here, node.url, chain="local")
    ran = run("doctor", "--json")
    assert ran.code == 0
    (endpoint,) = ran.json["endpoints"]
    assert endpoint["ok"] is True
    assert endpoint["problem"] == ""
    assert endpoint["chain"] == "local"
    assert endpoint["endpoint"] == node.url.removeprefix("http://")
    assert endpoint["head"] == BLOCKS
    assert endpoint["final"] <= BLOCKS
    assert endpoint["oldestState"] == 0
    assert endpoint["reads"] == "state override"
    assert endpoint["headAgeS"] > 0  # the chain's clock stands in 2023


@pytest.mark.node
def test_each_endpoint_is_judged_alone(run: Run, here: Path, node: LocalNode, dead: str, waited: list[float]) -> None:
    configure(here, f"{dead}/v2/s3cr3t0123456789", node.url, chain="local")
    ran = run("doctor", "--json")
    assert ran.code == 3
    assert [endpoint["ok"] for endpoint in ran.json["endpoints"]] == [False, True]
    assert "cannot be reached" in ran.json["endpoints"][0]["problem"]
    assert "s3cr3t" not in ran.out
    assert sum(waited) < 15


@pytest.mark.node
def test_a_node_of_another_chain_is_of_no_use(run: Run, here: Path, node: LocalNode) -> None:
    configure(here, node.url)
    ran = run("doctor")
    assert ran.code == 3
    assert "serves" in ran.out
    assert "31337" in ran.out


def test_a_chain_that_cannot_even_be_set_up_is_told_beside_the_others(
    run: Run, here: Path, dead: str, waited: list[float]
) -> None:
    configure(here, chain="base", more=f'[chains.mars]\nrpc = ["{dead}"]')
    ran = run("doctor", "--json")
    assert ran.code == 3
    assert [endpoint["chain"] for endpoint in ran.json["endpoints"]] == ["base", "mars"]
    assert "no endpoint is configured" in ran.json["endpoints"][0]["problem"]
    assert "mars is not a chain known here" in ran.json["endpoints"][1]["problem"]


def test_a_tail_that_is_no_database_is_a_store_of_no_use(run: Run, here: Path) -> None:
    (here / "data").mkdir()
    (here / "data" / "tail.db").write_text("this is no database, and it is long enough to be seen as none\n" * 20)
    ran = run("doctor", "--json")
    assert ran.code == 5
    assert {store["store"]: store["ok"] for store in ran.json["stores"]} == {"lake": True, "tail": False}
