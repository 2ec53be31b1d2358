"""The doctor looks at every endpoint and store, and says of each what it is good for or what ails it."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from chainfolio.capabilities import REQUESTED_CAPABILITIES, Capability
from chainfolio.cli.doctor import LIBRARIES
from chainfolio.cli.state_store import open_state
from chainfolio.engine.results import ChainReadiness
from chainfolio.engine.service import Engine
from chainfolio.errors import StoreError
from chainfolio.indexer.wiring import System
from chainfolio.localchain.node import LocalNode
from chainfolio.settings import Settings
from chainfolio.settings_file import load
from chainfolio.storage.tail import Tail
from chainfolio.transport.health import Evidence
from chainfolio.transport.http_endpoint import identity
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
def test_what_a_chain_has_and_lacks_is_shown_by_doctor_and_by_status(run: Run, here: Path, node: LocalNode) -> None:
    configure(here, node.url, chain="local")
    (doctor,), (status,) = run("doctor", "--json").json["chains"], run("status", "--json").json["chains"]
    for report in (doctor, status):
        assert report["kind"] == "evm"
        assert report["lacks"] == []
        assert set(report["capabilities"]) >= set(REQUESTED_CAPABILITIES)
        assert set(report["capabilities"]) <= set(Capability)
        assert "names" in report["capabilities"]
    assert {"blocks", "transfers"} <= set(doctor["datasets"])
    assert f"local (evm): has {', '.join(doctor['capabilities'])}" in (text := run("doctor").out)
    assert "lacks" not in text
    assert "it lacks" not in run("status").out


@pytest.mark.node
def test_a_chain_whose_clock_is_years_ahead_is_not_well(run: Run, here: Path) -> None:
    with LocalNode(timestamp=4_000_000_000) as node:
        node.mine()
        configure(here, node.url, chain="local")
        ran = run("doctor", "--json")
        system = System(load(here / "chainfolio.toml"))

        async def ready() -> ChainReadiness:
            await system.chain("local").heads()
            (readiness,) = (await Engine(system).readiness()).chains
            await system.close()
            return readiness

        chain = asyncio.run(ready())
    (endpoint,) = ran.json["endpoints"]
    assert (ran.code, endpoint["ok"], chain.healthy) == (3, False, False)
    for problem in (endpoint["problem"], chain.reason or ""):
        assert "ahead of this machine's clock" in problem


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
    configure(here, dead, chain="base", more='facts = "lost.toml"')
    (endpoint,) = run("doctor", "--json").json["endpoints"]
    assert "chains.base.facts: there is no file lost.toml" in endpoint["problem"]


def test_a_tail_that_is_no_database_is_a_store_of_no_use(run: Run, here: Path) -> None:
    (here / "data").mkdir()
    (here / "data" / "tail.db").write_text("this is no database, and it is long enough to be seen as none\n" * 20)
    ran = run("doctor", "--json")
    assert ran.code == 5
    assert {store["store"]: store["ok"] for store in ran.json["stores"]} == {
        "lake": True,
        "tail": False,
        "state": True,
    }


def broken(run: Run) -> dict[str, str]:
    """Return the problem and the remedy of each store or file that the doctor reports."""
    ran = run("doctor", "--json")
    rows = [*ran.json["stores"], *ran.json["files"]]
    problems = {row["store"]: f"{row['problem']} ({row['remedy']})" for row in rows if not row["ok"]}
    assert ran.code == (0 if not problems else 5 if set(problems) & {"lake", "tail", "state"} else 2)
    return problems


def test_a_lost_secret_is_told_and_no_command_makes_it_anew(run: Run, here: Path) -> None:
    assert broken(run) == {}
    assert not (here / "data" / "state.db").exists()  # no command needed one yet
    account = run("account", "create", "--name", "me", "--json").json
    assert broken(run) == {}
    secret = here / "data" / "pepper"
    pepper = secret.read_bytes()
    secret.unlink()
    assert "pepper, the secret of their keys, is missing" in broken(run)["state"]
    assert "put it back from the backup" in broken(run)["state"]
    for command in (("account", "list"), ("key", "create", "--account", account["accountId"], "--name", "new")):
        assert run(*command).code == 5
    assert not secret.exists()
    secret.write_bytes(pepper)
    assert broken(run) == {}
    (here / "data" / "state.db").unlink()
    assert "state.db is missing, although" in broken(run)["state"]


def test_another_secret_is_told_with_its_remedy_and_refused_until_it_is_accepted(run: Run, here: Path) -> None:
    account = run("account", "create", "--name", "me", "--json").json
    secret = here / "data" / "pepper"
    pepper = secret.read_bytes()
    secret.write_bytes(bytes(32))
    assert "pepper is not the secret under which the keys of this store are hashed" in broken(run)["state"]
    assert "put the right one back from the backup" in broken(run)["state"]
    key = ("key", "create", "--account", account["accountId"], "--name", "new")
    for command in (("account", "list"), key):
        ran = run(*command, "--json")
        assert (ran.code, "accept-secret" in ran.error["remedy"]) == (5, True)
    with pytest.raises(StoreError, match="every key would be refused"):
        open_state(Settings(data=str(here / "data")))
    secret.write_bytes(pepper)
    assert broken(run) == {}
    secret.write_bytes(bytes(32))
    assert run("key", "accept-secret", "--json").json == {"accepted": "data/pepper"}
    assert broken(run) == {}
    assert run(*key).code == 0


def test_a_database_that_is_away_is_told(run: Run, here: Path, dead: str) -> None:
    url = dead.replace("http://", "postgresql://me:s3cr3t@") + "/name"
    (here / "chainfolio.toml").write_text(f'[state]\nurl = "{url}"\n')
    assert "state" in broken(run)
    assert "s3cr3t" not in run("doctor").out


def test_files_that_the_settings_name_are_opened(run: Run, here: Path) -> None:
    (here / "chainfolio.toml").write_text('prices_file = "p.toml"\nprotocols = "mine"\n')
    assert set(broken(run)) == {"prices_file", "protocols"}
    (here / "p.toml").write_text("[chainlink")
    (here / "mine").mkdir()
    assert "not valid TOML" in broken(run)["prices_file"]
    (here / "p.toml").write_text("")
    assert broken(run) == {}


@pytest.mark.node
def test_a_lake_that_was_deleted_is_told(run: Run, here: Path, node: LocalNode) -> None:
    configure(here, node.url, chain="local")
    assert run("index", "local").code == 0
    assert broken(run) == {}
    shutil.rmtree(here / "data" / "lake")
    assert "says that blocks are indexed" in broken(run)["lake"]


@pytest.mark.node
def test_a_cordoned_endpoint_is_shown_with_the_evidence_until_it_is_readmitted(
    run: Run, here: Path, node: LocalNode, dead: str
) -> None:
    """The evidence is stored in the tail and survives restarts; no address and no secret is shown."""
    secret = f"{dead}/v2/s3cr3t0123456789"
    configure(here, node.url, secret, chain="local")
    name = dead.removeprefix("http://")
    evidence = Evidence("local", name, "the balance of 0xaa at block 5 0xbb", "0", "7 by a majority", 1_000_000)
    tail = Tail(here / "data" / "tail.db")
    tail.quarantine(identity(secret), msgspec.json.encode(evidence))
    tail.close()
    ran = run("doctor", "--json")
    assert ran.code == 3
    good, bad = ran.json["endpoints"]
    assert (good["quarantined"], good["evidence"], good["lagBlocks"], good["faults"]) == (False, None, 0, 0)
    assert (bad["ok"], bad["quarantined"], bad["lagBlocks"]) == (False, True, None)
    assert bad["problem"] == "quarantined: the balance of 0xaa at block 5 0xbb: gave 0; 7 by a majority"
    assert bad["evidence"] == {
        "chain": "local",
        "endpoint": name,
        "asked": "the balance of 0xaa at block 5 0xbb",
        "given": "0",
        "truth": "7 by a majority",
        "timeUs": 1_000_000,
    }
    assert "s3cr3t" not in ran.out
    assert run("doctor", "--reinstate", "nobody.test").code == 2
    reinstated = run("doctor", "--reinstate", name, "--json").json["endpoints"][1]
    assert (reinstated["quarantined"], reinstated["ok"]) == (False, False)
    assert "cannot be reached" in reinstated["problem"]


@pytest.mark.node
def test_what_a_chain_hashes_in_its_own_way_is_said_and_no_problem(run: Run, here: Path, node: LocalNode) -> None:
    configure(here, node.url, chain="local")
    (endpoint,) = run("doctor", "--json").json["endpoints"]
    assert (endpoint["ok"], endpoint["unproven"]) == (True, [])


MINE = """key = "mine"
name = "Mine"
families = ["erc4627"]
[contracts.local]
vault = ["0x{address}"]
"""


def test_a_file_that_names_a_family_which_is_not_installed_is_named_with_its_cure(
    run: Run, here: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (here / "mine").mkdir()
    (here / "mine" / "mine.toml").write_text(MINE.format(address="ab" * 20))
    (here / "chainfolio.toml").write_text('protocols = "mine"\n')
    ran = run("doctor", "--json")
    assert ran.code == 7
    (unread,) = ran.json["unread"]
    assert (unread["protocol"], unread["families"]) == ("mine", ["erc4627"])
    assert "did you mean `erc4626`?" in unread["remedy"]
    assert f"protocol mine: {unread['problem']}; {unread['remedy']}" in run("doctor").out
    assert caplog.messages == []
    system = System(load(here / "chainfolio.toml", {}))
    system.log_problems()
    assert caplog.messages == [f"protocol mine: {unread['problem']} ({unread['remedy']})"]
