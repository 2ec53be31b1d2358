"""Commands for people on the demo's chain: at any width a row is one line, and no line is wider than the terminal."""

from __future__ import annotations

from contextlib import redirect_stdout
from io import StringIO
from itertools import takewhile

import pytest
from rich.cells import cell_len

from chainfolio.cli.main import main
from tests.e2e.running import ALICE, BOB, Demo

REMARKS = ("  …", "  without", "  in no sum", "  gains")  # what follows the rows of a table
pytestmark = [pytest.mark.node, pytest.mark.xdist_group("demo")]


def printed(demo: Demo, width: int, *arguments: str) -> list[str]:
    """The lines that a command prints in a terminal of a width."""
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(StringIO()) as output:
        patch.setenv("COLUMNS", str(width))
        code = main([*arguments, "--config", str(demo.config)])
    assert code in (0, 12)  # 12: tokens that grow without events differ
    return output.getvalue().splitlines()


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize(
    "arguments",
    [
        ("portfolio", ALICE),
        ("portfolio", ALICE, BOB),
        ("pnl", ALICE),
        ("pnl", ALICE, BOB, "--per-wallet"),
        ("approvals", ALICE),
        ("reconcile", ALICE),
        ("history", ALICE, BOB),
    ],
    ids=" ".join,
)
def test_no_line_is_wider_than_the_terminal(demo: Demo, width: int, arguments: tuple[str, ...]) -> None:
    lines = printed(demo, width, *arguments)
    assert lines
    assert [line for line in lines if cell_len(line) > width] == []


@pytest.mark.parametrize("width", [80, 120])
def test_each_asset_of_several_wallets_is_one_line_below_one_total(demo: Demo, width: int) -> None:
    documents = demo.command("portfolio", ALICE, BOB)
    assets = sum(
        len(position["assets"])
        + sum(
            len(nested[side])
            for nested in position["protocolPositions"]
            for side in ("supplyAssets", "borrowAssets", "rewardAssets")
        )
        for document in documents
        for protocol in document["assetByProtocols"].values()
        for chain in protocol["chains"].values()
        for position in chain["protocolPositions"].values()
    )
    lines = printed(demo, width, "portfolio", ALICE, BOB)
    assert lines[0].startswith("2 wallets: ")
    rule = next(at for at, line in enumerate(lines) if line.lstrip().startswith("─"))
    table = list(takewhile(lambda line: not line.startswith(REMARKS), lines[rule + 1 :]))
    assert len([line for line in table if line.startswith("  ")]) == assets
    assert sum(line.endswith(" USD") for line in (lines[0], *table)) == 3
