"""The bounds in what slashed and inactive validators pay: each is reached, and one gwei beside it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import pytest

from chainfolio.adapters.beacon import correlation
from chainfolio.adapters.beacon.accounting import VOTES, missing_inactivity
from chainfolio.adapters.beacon.reader import Reader
from chainfolio.adapters.beacon.responses import Genesis
from chainfolio.adapters.beacon.spec import Spec
from chainfolio.adapters.beacon.validator_table import NEVER, ValidatorTable

ETH = 10**9
VECTOR = 64
NUMBERS = {
    "EFFECTIVE_BALANCE_INCREMENT": ETH,
    "EPOCHS_PER_SLASHINGS_VECTOR": VECTOR,
    "INACTIVITY_SCORE_BIAS": 4,
    "PROPORTIONAL_SLASHING_MULTIPLIER": 1,
    "PROPORTIONAL_SLASHING_MULTIPLIER_ALTAIR": 2,
    "PROPORTIONAL_SLASHING_MULTIPLIER_BELLATRIX": 3,
    "INACTIVITY_PENALTY_QUOTIENT_BELLATRIX": 2**24,
    "INACTIVITY_PENALTY_QUOTIENT_ALTAIR": 3 * 2**24,
}


def spec_of(fork: str) -> Spec:
    """A network that has been of one fork for ever."""
    forks = ("altair", "bellatrix", "capella", "deneb", "electra")
    begun = forks[: forks.index(fork) + 1] if fork != "phase0" else ()
    values = {name: str(each) for name, each in NUMBERS.items()} | {f"{each.upper()}_FORK_EPOCH": "0" for each in begun}
    return Spec("own", Genesis(0, "0x" + "00" * 32, "0x00000000"), values)


# --- by how many were slashed ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fork", "slashed", "total", "tenths"),
    [
        ("phase0", 32, 320, 30),
        ("altair", 32, 320, 60),
        ("deneb", 32, 320, 90),  # three times a tenth of 32, whole ETH
        ("electra", 32, 320, 96),
        ("deneb", 107, 320, 320),  # thrice the slashed stake is more than there is: all is taken, and no more
        ("electra", 107, 320, 320),
        ("deneb", 320, 320, 320),
        ("electra", 320, 320, 320),
        ("deneb", 0, 320, 0),
        ("electra", 0, 0, 0),  # nobody is active any more: an increment is the least to divide by
        ("deneb", 32, 0, 320),
        ("electra", 32, 0, 320),
    ],
)
def test_a_penalty_grows_with_the_slashed_stake_up_to_all_that_there_is(
    fork: str, slashed: int, total: int, tenths: int
) -> None:
    found = correlation.penalties(spec_of(fork), 100, np.array([32 * ETH]), slashed * ETH, total * ETH)
    assert found == [tenths * ETH // 10]


def test_a_penalty_of_the_largest_validator_in_the_largest_network_is_exact() -> None:
    """The products are beyond 64 bits."""
    effective, slashed, total = 2048 * ETH, 10**7 * ETH, 2 * 10**8 * ETH
    assert correlation.penalties(spec_of("deneb"), 100, np.array([effective]), slashed, total) == [
        2048 * (3 * slashed) // total * ETH
    ]
    assert correlation.penalties(spec_of("electra"), 100, np.array([effective]), slashed, total) == [
        2048 * (3 * slashed // (total // ETH))
    ]


@dataclass
class Registry:
    """A network in which each validator was slashed in some epoch, and had as many ETH as that epoch has number."""

    slashed_in: dict[int, int]
    newest: int
    spec: Spec = field(default_factory=lambda: spec_of("deneb"))

    async def select_validators(self, epoch: int, indexes: list[int]) -> ValidatorTable:
        """The validators in an epoch; it is an error to look before the first one, or at one that may not be there."""
        assert 0 <= epoch <= self.newest
        return self.at(epoch, indexes)

    def at(self, epoch: int, indexes: list[int], ends: dict[int, int] | None = None) -> ValidatorTable:
        index = np.array(sorted(indexes), np.int64)
        slashed = np.array([self.slashed_in[each] <= epoch for each in index.tolist()], np.bool_)
        had = np.array([max(1, min(epoch, self.slashed_in[each])) * ETH for each in index.tolist()], np.int64)
        end = np.array([(ends or {}).get(each, NEVER) for each in index.tolist()], np.int64)
        zero, texts = np.zeros(len(index), np.int64), np.zeros(len(index), "V48")
        return ValidatorTable(index, had, had, slashed, zero, zero, end, end, texts, texts)


@pytest.mark.parametrize(
    ("slashed_in", "end", "now", "counted"),
    [
        (50, 50 + VECTOR, 80, 50),
        (50, 50 + 3 * VECTOR, 80, 50),  # exits queue: its end says a later epoch than it was, and than now
        (50, 60 + VECTOR, 80, 50),
        (80, 80 + VECTOR, 80, 80),  # in the epoch itself
        (17, 17 + VECTOR, 80, 17),  # in the first that counts
        (16, 16 + VECTOR, 80, 0),  # a vector ago: forgotten
        (16, 17 + VECTOR, 80, 0),  # and where its end says that it was later
        (16, 40 + VECTOR, 80, 0),
        (17, 40 + VECTOR, 80, 17),
        (0, VECTOR, 40, 1),  # in the first epoch of all
        (0, 9 + VECTOR, 40, 1),
        (1, 9 + VECTOR, 40, 1),
        (30, 3, 40, 30),  # an end that no slashing brings says nothing
    ],
)
async def test_who_was_slashed_counts_with_what_it_had_then_for_a_vector(
    slashed_in: int, end: int, now: int, counted: int
) -> None:
    network = Registry({7: slashed_in}, now)
    found = await correlation._slashed_balance(cast("Reader", network), now, network.at(now, [7], {7: end}))
    assert found == counted * ETH


# --- inactivity ------------------------------------------------------------------------------------------------------


def left_of(score: int, *, number: int, more: int = 0, target: int = -9, told: int = 0) -> tuple[Any, Any]:
    """What is explained of a penalty for inactivity of some score, of which a node tells a part."""
    penalty = 32 * ETH * score // (4 * 2**24)
    paid = np.array([[-3, target, 0, -told, 1]], np.int64)
    left = np.array([told - penalty - more], np.int64)
    return missing_inactivity(spec_of("deneb"), number, np.array([32 * ETH]), paid, left)[0], told - penalty


@pytest.mark.parametrize("told", [0, 100])
@pytest.mark.parametrize(("number", "score"), [(9, 4), (9, 40), (0, 4), (9, 1)])
def test_a_score_that_its_epochs_allow_explains_what_a_node_leaves_out(number: int, score: int, told: int) -> None:
    found, wanted = left_of(score, number=number, told=told)
    assert found == wanted


@pytest.mark.parametrize(
    ("score", "case"),
    [
        (41, {"number": 9}),  # four an epoch, for ten epochs
        (5, {"number": 0}),
        (40, {"number": 9, "more": VOTES + 1}),  # no whole score
        (40, {"number": 9, "more": -VOTES - 1}),
        (40, {"number": 9, "target": 9}),  # who hit its target pays nothing
        (0, {"number": 9, "told": 100}),  # it was told, and nothing was paid
        (-40, {"number": 9}),  # more than there was before
    ],
)
def test_what_no_score_explains_stays(score: int, case: dict[str, int]) -> None:
    found, _ = left_of(score, **case)
    assert found == 0
