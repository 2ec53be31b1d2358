"""Rows of epochs that are made together are those of each epoch alone."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest

from chainfolio.adapters.beacon import rows
from chainfolio.adapters.beacon.epoch_balances import BalanceChange
from chainfolio.adapters.beacon.epochs import SettledEpoch
from chainfolio.adapters.beacon.validator_table import ValidatorTable
from chainfolio.staking_tables import VALIDATOR_REWARDS

NOT_PLAIN = ("chain", "bucket", "validator", "ideal", "missed")
PLAIN = [each.name for each in VALIDATOR_REWARDS.schema() if each.name not in NOT_PLAIN]


def epoch(number: int, validators: list[int], missed: Any, changes: tuple[BalanceChange, ...] = ()) -> SettledEpoch:
    """Return an epoch in which `missed` is known or not, with the ideal reward of every second validator."""
    count = len(validators)
    columns: dict[str, Any] = {name: np.arange(count) * 7 - number for name in PLAIN}
    columns |= {"epoch": np.full(count, number), "missed": missed}
    columns["height"] = np.full(count, 32 * (number + 3))
    columns["effective"] = np.full(count, 32 * 10**9)
    columns["ideal"] = (np.arange(count) + 9, np.arange(count) % 2 == 0)
    return SettledEpoch(
        number, 32 * (number + 3), np.array(validators, np.int64), columns, changes, cast("ValidatorTable", None)
    )


@pytest.mark.parametrize(
    "known_misses", [(True, True, True), (False, False, False), (False, True, False), (True, False, True)]
)
def test_epochs_of_which_different_things_are_known_keep_what_is_known_of_each(known_misses: tuple[bool, ...]) -> None:
    sizes: tuple[list[int], ...] = ([3, 65, 70], [], [1, 2])
    epochs = [
        epoch(number, size, np.arange(len(size)) if is_known else None)
        for number, (size, is_known) in enumerate(zip(sizes, known_misses, strict=True), 5)
    ]
    alone = pa.concat_tables([rows.rewards("own", [each]) for each in epochs])
    assert rows.rewards("own", epochs).equals(alone)
    assert [each is None for each in alone["missed"].to_pylist()] == [not known_misses[0]] * 3 + [
        not known_misses[2]
    ] * 2


def test_changes_of_one_validator_are_numbered_in_each_epoch_anew() -> None:
    change = BalanceChange(7, 170, "deposit", 10**9)
    epochs = [epoch(5, [7], None, (change, change)), epoch(6, [7], None), epoch(7, [7], None, (change,))]
    changes = rows.changes("own", epochs).to_pylist()
    assert [(each["epoch"], each["height"], each["item"]) for each in changes] == [
        (5, 256, 0),
        (5, 256, 1),
        (7, 320, 0),
    ]
    assert pa.Table.from_pylist(changes, rows.changes("own", []).schema).equals(rows.changes("own", epochs))
