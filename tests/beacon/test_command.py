"""`chainfolio validators` and `doctor`, on the index of a chain that runs here."""

from __future__ import annotations

import csv
import io
import json

import pytest

from chainfolio.cli.main import main
from tests.beacon.conftest import COMPOUNDING, OFFLINE, TOPPED_UP, IndexedBeacon

pytestmark = [pytest.mark.node, pytest.mark.xdist_group("beacon")]
VOTES = ("source", "target", "head", "inactivity", "sync", "proposals", "slashing")


def command_output(indexed: IndexedBeacon, capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> str:
    """Return what the command prints."""
    capsys.readouterr()
    assert main([*words, "--config", str(indexed.config)]) == status
    output, err = capsys.readouterr()
    return output if status == 0 else err


def total_reward(indexed: IndexedBeacon, index: int) -> int:
    rows = (each for each in indexed.rows["validator_rewards"] if each["validator"] == index)
    return sum(int(each[name]) for each in rows for name in VOTES)


def test_a_validator_is_told_with_what_it_earned_and_a_chart(
    indexed: IndexedBeacon, capsys: pytest.CaptureFixture[str]
) -> None:
    text = command_output(indexed, capsys, "validators", "0")
    gwei = total_reward(indexed, 0)
    assert text.startswith("validator 0  0x")
    assert f"2020-12-01 to 2020-12-01: {gwei / 10**9:.9f} ETH" in text
    assert text.splitlines()[-1].endswith("█" * 40)
    by_epoch = command_output(indexed, capsys, "validators", str(OFFLINE[0]), "--by", "epoch").splitlines()
    assert any("░" in line for line in by_epoch), "a loss is drawn"
    assert sum(line.lstrip()[:1].isdigit() and "ETH" not in line for line in by_epoch) == indexed.last + 1


def test_the_same_validator_is_found_by_its_key_and_by_its_withdrawal_address(
    indexed: IndexedBeacon, capsys: pytest.CaptureFixture[str]
) -> None:
    node = indexed.lived.node.call("/eth/v1/beacon/states/head/validators/7")["data"]["validator"]
    by_index = command_output(indexed, capsys, "validators", "7", "--json")
    for identifier in (
        node["pubkey"],
        node["pubkey"].upper().replace("X", "x"),
        f"0x{node['withdrawal_credentials'][26:]}",
    ):
        assert command_output(indexed, capsys, "validators", identifier, "--json") == by_index
    (document,) = json.loads(by_index)
    assert document["details"]["validator"]["index"] == 7
    assert document["total"]["consensusReward"] == str(total_reward(indexed, 7) * 10**9)


def test_several_are_compared_the_best_first(indexed: IndexedBeacon, capsys: pytest.CaptureFixture[str]) -> None:
    text = command_output(indexed, capsys, "validators", "compare", str(OFFLINE[0]), str(TOPPED_UP), "12")
    shown_order = [line.split("│")[1].strip() for line in text.splitlines() if line.startswith("│")]
    expected_order = sorted((OFFLINE[0], TOPPED_UP, 12), key=lambda index: total_reward(indexed, index), reverse=True)
    if not shown_order:  # a narrow terminal has a block of lines for each
        shown_order = [line.split()[1] for line in text.splitlines() if line.startswith("validator ")]
    assert shown_order == [str(index) for index in expected_order]


def test_a_spreadsheet_gets_exact_rows(indexed: IndexedBeacon, capsys: pytest.CaptureFixture[str]) -> None:
    text = command_output(indexed, capsys, "validators", str(COMPOUNDING), "--by", "epoch", "--csv")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["epochStart"] for row in rows] == [str(epoch) for epoch in range(indexed.last + 1)]
    assert sum(int(row["consensusReward"]) for row in rows) == total_reward(indexed, COMPOUNDING) * 10**9


@pytest.mark.parametrize(
    ("identifier", "status"), [("12345", 9), ("0x" + "00" * 20, 9), ("seven", 2), ("-0", 2), ("07", 2)]
)
def test_what_is_no_validator_is_refused_with_its_kind(
    indexed: IndexedBeacon, capsys: pytest.CaptureFixture[str], identifier: str, status: int
) -> None:
    arguments = ("validators", "--", identifier) if identifier.startswith("-") else ("validators", identifier)
    capsys.readouterr()
    assert main([arguments[0], "--config", str(indexed.config), *arguments[1:]]) == status


def test_doctor_says_how_far_a_node_is_and_what_it_keeps(
    indexed: IndexedBeacon, capsys: pytest.CaptureFixture[str]
) -> None:
    report = json.loads(command_output(indexed, capsys, "doctor", "--json"))
    (row,) = report["endpoints"]
    assert (row["ok"], row["problem"], row["reads"], row["oldestState"]) == (True, "", "rewards", "archive")
    assert row["version"].startswith("Lodestar")
    (chain,) = report["chains"]
    assert "validator_rewards" in chain["datasets"]
