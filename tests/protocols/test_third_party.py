"""A third-party package from `new-protocol`, built as a wheel, is found, run, recorded and replayed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from chainfolio.indexer.wiring import System
from tests.protocols.world import World

pytestmark = pytest.mark.node
ROOT = Path(__file__).resolve().parents[2]
KEY = "strange_farm"


@dataclass(frozen=True)
class Operator:
    """Settings in which nothing reads the farm, and an environment with a third-party package."""

    config: Path
    package: Path
    site: Path
    farm: str
    account: str

    def command(self, *args: str, site: Path | None = None, config: Path | None = None) -> tuple[int, Any]:
        """Exit code and JSON of a command."""
        env = {name: value for name, value in os.environ.items() if not name.startswith("CHAINFOLIO_")}
        env["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(site or self.site)])
        command = [
            sys.executable,
            "-m",
            "chainfolio.cli.main",
            *args,
            "--json",
            "--config",
            str(config or self.config),
        ]
        process = subprocess.run(command, cwd=self.config.parent, env=env, capture_output=True, text=True, check=False)
        assert process.stdout, process.stderr
        return process.returncode, json.loads(process.stdout)

    def positions(self, **where: Path) -> dict[str, Any]:
        """Protocols of the farmer's portfolio, and its issues under an empty key."""
        code, (document,) = self.command("portfolio", self.account, "--chain", "local", **where)
        assert code == 0
        return {**document["assetByProtocols"], "": document["issues"]}


@pytest.fixture(scope="module")
def operator(demo_world: World, tmp_path_factory: pytest.TempPathFactory) -> Operator:
    async def index_only(system: System) -> None:
        pass

    demo_world.run(index_only)
    data, folder = demo_world.folder / "data", tmp_path_factory.mktemp("operator")
    (data / "protocols" / "synthetix.toml").unlink()  # so that nothing of the operator's reads the farm
    farm = demo_world.deployment.contracts["StakingRewards"].lower()
    account = next(
        address.lower()
        for name, address in demo_world.deployment.accounts.items()
        if name != "deployer" and demo_world.node.call(farm, "balanceOf(address)(uint256)", address)
    )
    operator = Operator(data / "chainfolio.toml", folder / "chainfolio-strange-farm", folder / "site", farm, account)
    code, document = operator.command(
        "new-protocol",
        KEY,
        "--like",
        "staking_rewards",
        "--chain",
        "local",
        "--contract",
        f"staking_rewards={farm}",
        "--dir",
        str(folder),
    )
    assert code == 0, document
    installed(operator.package, operator.site)
    return operator


def installed(package: Path, site: Path) -> None:
    """Build a wheel and install it in a folder, without any network."""
    dist = package / "dist"
    for command in (
        ["hatchling", "build", "-t", "wheel", "-d", str(dist)],
        ["pip", "install", "--quiet", "--no-index", "--no-deps", "--target", str(site), f"{dist}{os.sep}*.whl"],
    ):
        arguments = [str(next(dist.glob("*.whl"))) if word.endswith("*.whl") else word for word in command]
        process = subprocess.run(
            [sys.executable, "-m", *arguments], cwd=package, capture_output=True, text=True, check=False
        )
        assert process.returncode == 0, process.stdout + process.stderr


@pytest.mark.slow("takes seconds, and faster tests take its branches")
def test_the_wheel_is_all_that_it_takes(operator: Operator, tmp_path: Path) -> None:
    assert KEY not in operator.positions(site=tmp_path)
    portfolio = operator.positions()
    (position,) = portfolio[KEY]["chains"]["local"]["protocolPositions"]["FARMING"]["protocolPositions"]
    assert {asset["symbol"] for asset in position["supplyAssets"]} == {"weth", "usdc"}  # unfolded by the core
    assert not any("protocol" in issue["adapter"] for issue in portfolio[""])
    report = operator.command("doctor")[1]
    (package,) = [each for each in report["protocols"] if each["module"] == f"chainfolio_{KEY}"]
    assert (package["ok"], package["families"]) == (True, [KEY])
    assert package["provider"] == "chainfolio-strange-farm 0.1.0"


@pytest.mark.slow("takes seconds, and faster tests take its branches")
def test_a_package_that_cannot_be_loaded_is_an_issue_of_every_answer_and_stops_no_other(
    operator: Operator, tmp_path: Path
) -> None:
    site = tmp_path / "site"
    shutil.copytree(operator.site, site)
    (site / "p_torn.py").write_text("raise RuntimeError('torn')")
    (site / "p_torn-2.0.dist-info").mkdir()
    (site / "p_torn-2.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: p-torn\nVersion: 2.0\n")
    (site / "p_torn-2.0.dist-info" / "entry_points.txt").write_text("[chainfolio.protocols]\ntorn = p_torn\n")
    expected, portfolio = operator.positions(), operator.positions(site=site)
    (issue,) = [each for each in portfolio[""] if each not in expected[""]]
    assert (issue["adapter"], issue["subject"]) == ("protocols", "p_torn")
    assert "p-torn 2.0 is not used" in issue["reason"]
    assert portfolio[KEY] == expected[KEY]
    assert portfolio.keys() == expected.keys()


@pytest.mark.slow("runs commands and tests of a package as processes")
def test_it_is_recorded_on_a_node_and_replayed_without_one(
    operator: Operator, demo_world: World, tmp_path: Path
) -> None:
    file = tmp_path / "recordings" / "farmer.json"
    arguments = ("record", operator.account, "--chain", "local", "--protocol", KEY, "--to", str(file))
    code, document = operator.command(*arguments)
    assert code == 0, document
    (position,) = document["found"]["positions"]
    staked = demo_world.node.call(
        operator.farm, "balanceOf(address)(uint256)", operator.account, block=document["block"]["height"]
    )
    assert [part["raw"] for part in position["supplied"]] == [str(staked)]
    first = file.read_bytes()
    assert demo_world.node.url.removeprefix("http://").encode() not in first
    assert operator.command(*arguments, "--block", str(document["block"]["height"]))[0] == 0
    assert file.read_bytes() == first

    alone = tmp_path / "chainfolio.toml"
    alone.write_text("")
    code, report = operator.command("test-protocol", str(file.parent), config=alone)
    assert (code, [each["status"] for each in report["recordings"]]) == (0, ["same"])
    recordings = operator.package / "tests" / "recordings"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(operator.site)])}
    for copied in (False, True):  # the package's own test wants a recording
        if copied:
            recordings.mkdir()
            shutil.copy(file, recordings)
        tested = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"]
        process = subprocess.run(tested, cwd=operator.package, env=env, capture_output=True, text=True, check=False)
        assert process.returncode == (0 if copied else 1), process.stdout
    code, report = operator.command("test-protocol", str(file.parent), config=alone, site=tmp_path)
    assert code == 11
    assert report["recordings"][0]["reason"] == f"no protocol family `{KEY}` is installed"


@pytest.mark.slow("records and replays with a decoder once more")
def test_a_decoder_that_changed_is_told_by_what_it_finds_and_what_it_asks(operator: Operator, tmp_path: Path) -> None:
    file = tmp_path / "farmer.json"
    assert (
        operator.command("record", operator.account, "--chain", "local", "--protocol", KEY, "--to", str(file))[0] == 0
    )
    recorded = json.loads(file.read_text())
    module = operator.site / f"chainfolio_{KEY}" / f"{KEY}.py"
    source = module.read_text()
    share = recorded["found"]["positions"][0]["supplied"][0]
    try:
        module.write_text(
            source.replace("TokenAmount(staking_token, staked)", "TokenAmount(staking_token, staked // 2)")
        )
        code, report = operator.command("test-protocol", str(file))
        assert code == 10
        half_raw = int(share["raw"]) // 2
        (line,) = report["recordings"][0]["differences"]
        assert line.endswith(f"supplied {share['token']}: {half_raw}, recorded {share['raw']}")

        code, report = operator.command("test-protocol", str(file), "--update")
        assert (code, report["recordings"][0]["status"]) == (0, "updated")
        assert operator.command("test-protocol", str(file))[0] == 0
        now = json.loads(file.read_text())
        assert now["found"]["positions"][0]["supplied"] == [{"token": share["token"], "raw": str(half_raw)}]
        assert now["calls"] == recorded["calls"]

        module.write_text(source.replace("stakingToken()(address)", "stakedToken()(address)"))
        before = file.read_bytes()
        code, report = operator.command("test-protocol", str(file), "--update")
        assert code == 11
        assert report["recordings"][0]["missing"] == [f"stakedToken()(address) of {operator.farm} with ()"]
        assert file.read_bytes() == before
    finally:
        module.write_text(source)


@pytest.mark.slow("takes seconds, and faster tests take its branches")
def test_a_recording_needs_no_index_where_it_is_told_what_was_met(
    operator: Operator, demo_world: World, tmp_path: Path
) -> None:
    # Next to the other settings, whose paths are relative to their folder.
    empty, file = operator.config.with_name("empty.toml"), tmp_path / "farmer.json"
    empty.write_text(operator.config.read_text().replace('data = "', f'data = "{tmp_path}/empty" #'))
    arguments = ("record", operator.account, "--chain", "local", "--protocol", KEY, "--to", str(file))
    code, document = operator.command(*arguments, config=empty)
    assert code == 9
    assert "--met" in document["error"]["remedy"]
    assert not file.exists()
    code, document = operator.command(*arguments, "--met", operator.farm, config=empty)
    assert code == 0
    assert len(document["found"]["positions"]) == 1


def test_recordings_of_all_protocols_replay_as_what_was_found(demo_world: World, tmp_path: Path) -> None:
    """Built-in protocols replay too, for each account of the demo."""
    from chainfolio.cli.main import main

    async def index_only(system: System) -> None:
        pass

    demo_world.run(index_only)
    config = str(demo_world.folder / "data" / "chainfolio.toml")
    protocols, events = set(), set[str]()
    for name, address in demo_world.deployment.accounts.items():
        file = tmp_path / f"{name}.json"
        if main(["record", address, "--chain", "local", "--to", str(file), "--config", config]) == 0:
            recording = json.loads(file.read_text())
            protocols |= {each["protocol"] for each in recording["found"]["positions"]}
            events |= recording["interactions"].get("events", {}).keys()
    assert protocols == {"aave3", "erc4626", "sushi", "synthetix", "uniswap2", "uniswap3"}
    assert {each.partition("/")[0] for each in events} == {demo_world.deployment.contracts["MasterChef"].lower()}
    assert main(["test-protocol", str(tmp_path), "--config", config]) == 0
