"""The demo with a Solana chain beside the EVM one: real nodes, a week of trading, portfolios of both."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli.main import main
from localchain.errors import InstallFailed
from localchain.solana.node import SolanaNode

pytestmark = pytest.mark.node


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
    assert "alice" in portfolios


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
