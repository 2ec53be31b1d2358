"""Hints of `chainfolio status`: the command that indexes what is missing."""

from __future__ import annotations

from typing import Any

import pytest

from chainfolio.cli.status import hints


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
