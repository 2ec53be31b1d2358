"""The demo with a Solana and an EVM chain: real nodes, a week of trading, portfolios of both chains."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from solders.keypair import Keypair

from chainfolio.api.example_addresses import WALLET as EXAMPLE
from chainfolio.cli.demo_days import DAY_S, PAST_DAYS
from chainfolio.cli.demo_solana import trade_times
from chainfolio.cli.main import main
from chainfolio.localchain.errors import InstallFailed
from chainfolio.localchain.solana.node import SolanaNode
from chainfolio.settings_file import load

pytestmark = pytest.mark.node
CHAINFOLIO = str(Path(sys.executable).with_name("chainfolio"))


def demo(folder: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run the demo once and return its JSON document and what it wrote to stderr."""
    arguments = ("demo", "--once", "--chains", "ethereum,solana", "--blocks", "40", "--data", str(folder), "--json")
    code = main(arguments)
    captured = capsys.readouterr()
    assert code == 0, captured.out + captured.err
    return json.loads(captured.out), captured.err


@pytest.mark.slow("takes seconds, and faster tests take its branches")
def test_the_demo_shows_wallets_of_both_chains(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document, stderr = demo(tmp_path / "demo", capsys)
    if "Solana is left out" in stderr:
        pytest.skip(stderr)
    portfolios = dict(zip(document["wallets"], document["portfolios"], strict=True))
    alice, bob = portfolios["alice (Solana)"], portfolios["bob (Solana)"]
    assert (alice["networth"], alice["completeness"]) == ("9391.3", "complete")  # 71 SOL, 10 in stake, 4,750 dollars
    assert bob["spamAssets"] == 1
    assert "cannot be" not in stderr
    assert "alice" in portfolios


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """The folder of a demo that serves both chains, and what it printed."""
    folder, printed = tmp_path_factory.mktemp("demo") / "demo", ""
    command = ["demo", "--chains", "ethereum,solana", "--blocks", "40", "--port", "0", "--data", str(folder)]
    environment = {**os.environ, "PATH": os.pathsep.join([str(Path(CHAINFOLIO).parent), os.environ.get("PATH", "")])}
    with subprocess.Popen(
        [CHAINFOLIO, *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as demo:
        try:
            assert demo.stdout is not None
            for line in demo.stdout:
                printed += line
                if "Ctrl-C" in line:
                    break
            if "Solana is left out" in printed:
                pytest.skip(printed)
            yield folder, printed
        finally:
            demo.terminate()


@pytest.mark.slow("starts the demo of all chains and runs its commands as processes")
def test_every_command_that_the_demo_prints_works(served: tuple[Path, str], tmp_path: Path) -> None:
    commands = [line.strip() for line in served[1].splitlines() if line.strip().startswith(("chainfolio ", "curl "))]
    assert len(commands) == 5
    for command in commands:
        arguments = shlex.split(command.partition("    ")[0])
        arguments[0] = CHAINFOLIO if arguments[0] == "chainfolio" else arguments[0]
        ran = subprocess.run(arguments, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
        assert ran.returncode == 0, command + ran.stderr
        assert "error" not in ran.stdout


@pytest.mark.slow("starts the demo of all chains; test_days.py starts one node")
def test_days_and_flows_of_both_solana_wallets_are_known(
    served: tuple[Path, str], capsys: pytest.CaptureFixture[str]
) -> None:
    config = str(served[0] / "chainfolio.toml")
    addresses = re.findall(r" \((\w{32,44})\): ", served[1])[-2:]
    begin = (datetime.now(UTC) - timedelta(days=PAST_DAYS - 1)).strftime("%Y-%m-%d")
    for address in addresses:
        capsys.readouterr()
        assert main(["performance", address, "--from", begin, "--config", config, "--json"]) == 0
        performance = json.loads(capsys.readouterr().out)
        assert (performance["gain"], performance["reasons"]) == ("0", []), performance
    assert "cannot be" not in served[1]


def test_an_account_of_one_kind_is_not_looked_for_on_chains_of_another(
    served: tuple[Path, str], capsys: pytest.CaptureFixture[str]
) -> None:
    config = str(served[0] / "chainfolio.toml")
    settings = load(Path(config), {})
    ethereum, solana = settings.examples[EXAMPLE], re.findall(r" \((\w{32,44})\): ", served[1])[-1]

    def chains(address: str) -> set[str]:
        capsys.readouterr()
        assert main(["transactions", address, "--config", config, "--json"]) == 0
        records = json.loads(capsys.readouterr().out)["transactions"]
        return {record["chain"]["key"] for record in records}

    assert chains(ethereum) == {"local"}
    assert chains(solana) == {"solana"}
    assert main(["pnl", ethereum, solana, "--config", config, "--json"]) == 0
    # A moment of the past, of a chain whose nodes have no old blocks: from Python 3.12 on, block 0 was asked for.
    yesterday = (datetime.now(UTC) - timedelta(days=1)).strftime("%Y-%m-%d")
    assert main(["price", "solana:sol", "--at", yesterday, "--config", config]) == 0
    # An unread wallet on a node without old blocks is neither empty nor a failure of the node.
    assert main(["transactions", str(Keypair().pubkey()), "--config", config]) == 4
    assert "chainfolio watch" in capsys.readouterr().err


def test_without_the_node_of_solana_the_demo_says_so_and_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(self: SolanaNode) -> SolanaNode:
        raise InstallFailed("npm install", "no network")

    monkeypatch.setattr(SolanaNode, "start", fails)
    document, stderr = demo(tmp_path / "demo", capsys)
    assert "Solana is left out: npm install failed: no network" in stderr
    assert "alice" in document["wallets"]


@pytest.mark.parametrize("chains", ["solana", "ethereum,moon", ""])
def test_chains_that_the_demo_does_not_have_are_refused(chains: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--chains", chains]) == 2
    assert "neither ethereum nor ethereum,solana" in capsys.readouterr().err


@given(st.integers(1_700_000_000, 1_900_000_000))
def test_trades_of_the_demo_are_hours_away_from_midnights_and_from_its_begin(begun_s: int) -> None:
    times = trade_times(begun_s)
    assert len(times) == PAST_DAYS
    assert begun_s + 6 * 3600 <= times[0]
    assert times[-1] <= begun_s + PAST_DAYS * DAY_S - 6 * 3600
    assert all(6 * 3600 <= each % DAY_S <= 18 * 3600 for each in times)
