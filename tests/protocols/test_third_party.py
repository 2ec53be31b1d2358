"""A third-party package, written by `new-protocol` and built as a wheel, is found, run, recorded and replayed."""

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
    """An operator's settings in which nothing reads the farm, and an environment with a third-party package."""

    config: Path
    package: Path
    site: Path
    farm: str
    account: str

    def command(self, *words: str, site: Path | None = None, config: Path | None = None) -> tuple[int, Any]:
        """Exit code and JSON of a command."""
        env = {name: value for name, value in os.environ.items() if not name.startswith("CHAINFOLIO_")}
        env["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(site or self.site)])
        command = [
            sys.executable,
            "-m",
            "chainfolio.cli.main",
            *words,
            "--json",
            "--config",
            str(config or self.config),
        ]
        done = subprocess.run(command, cwd=self.config.parent, env=env, capture_output=True, text=True, check=False)
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)

    def positions(self, **where: Path) -> dict[str, Any]:
        """Protocols of the farmer's portfolio, and its issues under an empty key."""
        code, (document,) = self.command("portfolio", self.account, "--chain", "local", **where)
        assert code == 0
        return {**document["assetByProtocols"], "": document["issues"]}


@pytest.fixture(scope="module")
def operator(demo_world: World, tmp_path_factory: pytest.TempPathFactory) -> Operator:
    async def nothing(system: System) -> None:
        pass

    demo_world.run(nothing)
    data, folder = demo_world.folder / "data", tmp_path_factory.mktemp("operator")
    (data / "protocols" / "synthetix.toml").unlink()  # so that nothing of the operator's reads the farm
    farm = demo_world.deployment.contracts["StakingRewards"].lower()
    account = next(
        address.lower()
        for name, address in demo_world.deployment.accounts.items()
        if name != "deployer" and demo_world.node.call(farm, "balanceOf(address)(uint256)", address)
    )
    operator = Operator(data / "chainfolio.toml", folder / "chainfolio-strange-farm", folder / "site", farm, account)
    code, made = operator.command(
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
    assert code == 0, made
    installed(operator.package, operator.site)
    return operator


def installed(package: Path, site: Path) -> None:
    """Build a wheel and install it in a folder, without any network."""
    dist = package / "dist"
    for command in (
        ["hatchling", "build", "-t", "wheel", "-d", str(dist)],
        ["pip", "install", "--quiet", "--no-index", "--no-deps", "--target", str(site), f"{dist}{os.sep}*.whl"],
    ):
        words = [str(next(dist.glob("*.whl"))) if word.endswith("*.whl") else word for word in command]
        done = subprocess.run([sys.executable, "-m", *words], cwd=package, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_wheel_is_all_that_it_takes(operator: Operator, tmp_path: Path) -> None:
    assert KEY not in operator.positions(site=tmp_path)
    found = operator.positions()
    (position,) = found[KEY]["chains"]["local"]["protocolPositions"]["FARMING"]["protocolPositions"]
    assert {asset["symbol"] for asset in position["supplyAssets"]} == {"weth", "usdc"}  # unfolded by the core
    assert not any("protocol" in issue["adapter"] for issue in found[""])
    report = operator.command("doctor")[1]
    (package,) = [each for each in report["protocols"] if each["module"] == f"chainfolio_{KEY}"]
    assert (package["ok"], package["families"]) == (True, [KEY])
    assert package["provider"] == "chainfolio-strange-farm 0.1.0"


def test_a_package_that_cannot_be_loaded_is_an_issue_of_every_answer_and_stops_no_other(
    operator: Operator, tmp_path: Path
) -> None:
    site = tmp_path / "site"
    shutil.copytree(operator.site, site)
    (site / "p_torn.py").write_text("raise RuntimeError('torn')")
    (site / "p_torn-2.0.dist-info").mkdir()
    (site / "p_torn-2.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: p-torn\nVersion: 2.0\n")
    (site / "p_torn-2.0.dist-info" / "entry_points.txt").write_text("[chainfolio.protocols]\ntorn = p_torn\n")
    whole, found = operator.positions(), operator.positions(site=site)
    (issue,) = [each for each in found[""] if each not in whole[""]]
    assert (issue["adapter"], issue["subject"]) == ("protocols", "p_torn")
    assert "p-torn 2.0 is not used" in issue["reason"]
    assert found[KEY] == whole[KEY]
    assert found.keys() == whole.keys()


@pytest.mark.slow("runs commands and tests of a package as processes")
def test_it_is_recorded_on_a_node_and_replayed_without_one(
    operator: Operator, demo_world: World, tmp_path: Path
) -> None:
    file = tmp_path / "recordings" / "farmer.json"
    words = ("record", operator.account, "--chain", "local", "--protocol", KEY, "--to", str(file))
    code, told = operator.command(*words)
    assert code == 0, told
    (position,) = told["found"]["positions"]
    staked = demo_world.node.call(
        operator.farm, "balanceOf(address)(uint256)", operator.account, block=told["block"]["height"]
    )
    assert [part["raw"] for part in position["supplied"]] == [str(staked)]
    first = file.read_bytes()
    assert demo_world.node.url.removeprefix("http://").encode() not in first
    assert operator.command(*words, "--block", str(told["block"]["height"]))[0] == 0
    assert file.read_bytes() == first

    alone = tmp_path / "chainfolio.toml"
    alone.write_text("")
    code, report = operator.command("test-protocol", str(file.parent), config=alone)
    assert (code, [each["status"] for each in report["recordings"]]) == (0, ["same"])
    own = operator.package / "tests" / "recordings"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(operator.site)])}
    for copied in (False, True):  # the package's own test wants a recording
        if copied:
            own.mkdir()
            shutil.copy(file, own)
        tested = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"]
        done = subprocess.run(tested, cwd=operator.package, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == (0 if copied else 1), done.stdout
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
        half = int(share["raw"]) // 2
        (line,) = report["recordings"][0]["differences"]
        assert line.endswith(f"supplied {share['token']}: {half}, recorded {share['raw']}")

        code, report = operator.command("test-protocol", str(file), "--update")
        assert (code, report["recordings"][0]["status"]) == (0, "updated")
        assert operator.command("test-protocol", str(file))[0] == 0
        now = json.loads(file.read_text())
        assert now["found"]["positions"][0]["supplied"] == [{"token": share["token"], "raw": str(half)}]
        assert now["calls"] == recorded["calls"]

        module.write_text(source.replace("stakingToken()(address)", "stakedToken()(address)"))
        before = file.read_bytes()
        code, report = operator.command("test-protocol", str(file), "--update")
        assert code == 11
        assert report["recordings"][0]["missing"] == [f"stakedToken()(address) of {operator.farm} with ()"]
        assert file.read_bytes() == before
    finally:
        module.write_text(source)


def test_a_recording_needs_no_index_where_it_is_told_what_was_met(
    operator: Operator, demo_world: World, tmp_path: Path
) -> None:
    # Beside the other settings, whose paths are relative to where they lie.
    empty, file = operator.config.with_name("empty.toml"), tmp_path / "farmer.json"
    empty.write_text(operator.config.read_text().replace('data = "', f'data = "{tmp_path}/empty" #'))
    words = ("record", operator.account, "--chain", "local", "--protocol", KEY, "--to", str(file))
    code, told = operator.command(*words, config=empty)
    assert code == 9
    assert "--met" in told["error"]["remedy"]
    assert not file.exists()
    code, told = operator.command(*words, "--met", operator.farm, config=empty)
    assert code == 0
    assert len(told["found"]["positions"]) == 1


def test_recordings_of_all_protocols_replay_as_what_was_found(demo_world: World, tmp_path: Path) -> None:
    """Ours too: whoever has most of them."""
    from chainfolio.cli.main import main

    async def nothing(system: System) -> None:
        pass

    demo_world.run(nothing)
    config = str(demo_world.folder / "data" / "chainfolio.toml")
    seen, events = set(), set[str]()
    for name, address in demo_world.deployment.accounts.items():
        file = tmp_path / f"{name}.json"
        if main(["record", address, "--chain", "local", "--to", str(file), "--config", config]) == 0:
            recording = json.loads(file.read_text())
            seen |= {each["protocol"] for each in recording["found"]["positions"]}
            events |= recording["interactions"].get("events", {}).keys()
    assert seen == {"aave3", "erc4626", "sushi", "synthetix", "uniswap2", "uniswap3"}
    assert {each.partition("/")[0] for each in events} == {demo_world.deployment.contracts["MasterChef"].lower()}
    assert main(["test-protocol", str(tmp_path), "--config", config]) == 0
