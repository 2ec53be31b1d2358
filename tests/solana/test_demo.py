"""The demo with a Solana chain beside the EVM one: real nodes, a week of trading, portfolios of both."""

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
    """What the demo shows, once."""
    arguments = ("demo", "--once", "--chains", "ethereum,solana", "--blocks", "40", "--data", str(folder), "--json")
    code = main(arguments)
    said = capsys.readouterr()
    assert code == 0, said.out + said.err
    return json.loads(said.out), said.err


def test_the_demo_shows_wallets_of_both_chains(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown, said = demo(tmp_path / "demo", capsys)
    if "Solana is left out" in said:
        pytest.skip(said)
    portfolios = dict(zip(shown["wallets"], shown["portfolios"], strict=True))
    alice, bob = portfolios["alice (Solana)"], portfolios["bob (Solana)"]
    assert (alice["networth"], alice["completeness"]) == ("9391.3", "complete")  # 71 SOL, 10 in stake, 4,750 dollars
    assert bob["spamAssets"] == 1
    assert "cannot be" not in said
    assert "alice" in portfolios


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """The folder of a demo that serves both chains, and what it printed."""
    folder, printed = tmp_path_factory.mktemp("demo") / "demo", ""
    command = ["demo", "--chains", "ethereum,solana", "--blocks", "40", "--port", "0", "--data", str(folder)]
    found = {**os.environ, "PATH": os.pathsep.join([str(Path(CHAINFOLIO).parent), os.environ.get("PATH", "")])}
    with subprocess.Popen(
        [CHAINFOLIO, *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=found
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
        words = shlex.split(command.partition("    ")[0])
        words[0] = CHAINFOLIO if words[0] == "chainfolio" else words[0]
        ran = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
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
        found = json.loads(capsys.readouterr().out)
        assert (found["gain"], found["reasons"]) == ("0", []), found
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
    # A wallet that nobody read, on a node that has no old blocks: not "nothing", and no failure of the node.
    assert main(["transactions", str(Keypair().pubkey()), "--config", config]) == 4
    assert "chainfolio watch" in capsys.readouterr().err


def test_without_the_node_of_solana_the_demo_says_so_and_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(self: SolanaNode) -> SolanaNode:
        raise InstallFailed("npm install", "no network")

    monkeypatch.setattr(SolanaNode, "start", fails)
    shown, said = demo(tmp_path / "demo", capsys)
    assert "Solana is left out: npm install failed: no network" in said
    assert "alice" in shown["wallets"]


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
