"""Hints of `chainfolio status`: the command that indexes missing blocks, and unreadable tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from chainfolio.cli.status import hints
from chainfolio.tables import TRANSFERS
from tests.cli.conftest import Run, configure


def dataset(missing: int) -> dict[str, Any]:
    return {"missingBlocks": missing}


def account(name: str, *missing: list[int]) -> dict[str, Any]:
    return {"account": name, "datasets": [{"missing": []}, {"missing": list(missing)}]}


@pytest.mark.parametrize(
    ("datasets", "accounts", "is_whole", "expected"),
    [
        pytest.param([dataset(0)], [], True, [], id="whole-and-complete"),
        pytest.param([dataset(5)], [], True, ["chainfolio index x"], id="whole-with-a-gap"),
        pytest.param([dataset(5)], [account("0xa")], False, [], id="headers-of-accounts-have-no-gap"),
        pytest.param([], [], False, ["chainfolio watch ADDRESS --chain x"], id="no-account"),
        pytest.param([], [account("0xa", [1, 2])], False, ["chainfolio watch 0xa --chain x"], id="account-with-a-gap"),
        pytest.param(
            [dataset(1)],
            [account(name, [1, 2]) for name in "abcd"],
            True,
            ["chainfolio index x", "chainfolio watch a b c … --chain x"],
            id="both",
        ),
    ],
)
def test_the_hint_names_the_command_that_fits_the_index(
    datasets: list[dict[str, Any]], accounts: list[dict[str, Any]], is_whole: bool, expected: list[str]
) -> None:
    commands = [hint.partition(": ")[2] for hint in hints("x", datasets, accounts, is_whole=is_whole)]
    assert commands == expected


def test_a_table_that_cannot_be_read_leaves_the_state_of_the_chains(
    run: Run, here: Path, dead: str, waited: list[float]
) -> None:
    configure(here, dead, chain="local")
    assert run("status", "--json").json["disk"]["bytesPerDay"] == 0
    log = here / "data" / "lake" / TRANSFERS.name / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020}.json").write_text("{")
    report = run("status", "--json").json
    assert [chain["chain"] for chain in report["chains"]] == ["local"]
    assert report["disk"]["bytesPerDay"] is None
    assert f"the growth is unknown: lake: table {TRANSFERS.name}" in report["disk"]["warning"]
    assert "the growth is unknown" in run("status").out
