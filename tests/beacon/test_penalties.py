"""Penalties of slashed and inactive validators: each bound exactly, one gwei off it, and on a node to the gwei."""

from __future__ import annotations

from collections import defaultdict
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
from chainfolio.blocks import Span
from tests.beacon.test_bad_input import wrong
from tests.beacon.test_forks import Tables, check_every_balance, collected, running

ETH = 10**9
VECTOR = 64
EARLY, LATE = 11, (12, 30)
HALF = 32  # epochs of half a vector of the minimal preset
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
    started_forks = forks[: forks.index(fork) + 1] if fork != "phase0" else ()
    values = {name: str(each) for name, each in NUMBERS.items()} | {
        f"{each.upper()}_FORK_EPOCH": "0" for each in started_forks
    }
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
        ("electra", 0, 0, 0),  # no validator is active any more: an increment is the least to divide by
        ("deneb", 32, 0, 320),
        ("electra", 32, 0, 320),
    ],
)
def test_a_penalty_grows_with_the_slashed_stake_up_to_all_that_there_is(
    fork: str, slashed: int, total: int, tenths: int
) -> None:
    penalties = correlation.penalties(spec_of(fork), 100, np.array([32 * ETH]), slashed * ETH, total * ETH)
    assert penalties == [tenths * ETH // 10]


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
    """A network whose validators were slashed one an epoch; each has as many ETH as its epoch has number."""

    slashed_in: dict[int, int]
    newest: int
    spec: Spec = field(default_factory=lambda: spec_of("deneb"))

    async def select_validators(self, epoch: int, indexes: list[int]) -> ValidatorTable:
        """Return the validators in an epoch; fail before the first one, or at one that may not be there."""
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
    ("slashed_in", "end", "now", "expected_eth"),
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
    slashed_in: int, end: int, now: int, expected_eth: int
) -> None:
    network = Registry({7: slashed_in}, now)
    slashed_balance = await correlation._slashed_balance(cast("Reader", network), now, network.at(now, [7], {7: end}))
    assert slashed_balance == expected_eth * ETH


# --- inactivity ------------------------------------------------------------------------------------------------------


def left_of(score: int, *, number: int, rest: int = 0, target: int = -9, reported: int = 0) -> tuple[Any, Any]:
    """Return the unexplained rest of a penalty for inactivity and the expected one; the node tells a part of it."""
    penalty = 32 * ETH * score // (4 * 2**24)
    rewards = np.array([[-3, target, 0, -reported, 1]], np.int64)
    unexplained = np.array([reported - penalty - rest], np.int64)
    return missing_inactivity(spec_of("deneb"), number, np.array([32 * ETH]), rewards, unexplained)[
        0
    ], reported - penalty


@pytest.mark.parametrize("reported", [0, 100])
@pytest.mark.parametrize(("number", "score"), [(9, 4), (9, 40), (0, 4), (9, 1)])
def test_a_score_that_its_epochs_allow_explains_what_a_node_leaves_out(number: int, score: int, reported: int) -> None:
    penalty, expected = left_of(score, number=number, reported=reported)
    assert penalty == expected


@pytest.mark.parametrize(
    ("score", "case"),
    [
        (41, {"number": 9}),  # four an epoch, for ten epochs
        (5, {"number": 0}),
        (40, {"number": 9, "rest": VOTES + 1}),  # no whole score
        (40, {"number": 9, "rest": -VOTES - 1}),
        (40, {"number": 9, "target": 9}),  # who hit its target pays nothing
        (0, {"number": 9, "reported": 100}),  # the node reports it, and nothing was paid
        (-40, {"number": 9}),  # more than there was before
    ],
)
def test_what_no_score_explains_stays(score: int, case: dict[str, int]) -> None:
    penalty, _ = left_of(score, **case)
    assert penalty == 0


# --- on a node: at once, and half-way by how many others were ---------------------------------------------------------


def penalties(tables: Tables) -> dict[int, dict[int, int]]:
    """By validator, what each epoch took."""
    penalties_by_validator = defaultdict[int, dict[int, int]](dict)
    for each in tables["validator_rewards"]:
        if each["slashing"]:
            penalties_by_validator[each["validator"]][each["epoch"]] = each["slashing"]
    return dict(penalties_by_validator)


@pytest.mark.node
@pytest.mark.slow("a long history of a real node, for the rules above")
@pytest.mark.parametrize(
    "fork", [pytest.param("deneb", marks=pytest.mark.slow("an earlier fork with other penalties")), "electra"]
)
async def test_several_slashed_validators_pay_by_how_many_they_are(fork: str) -> None:
    with running(fork=fork, validators=64) as node:
        node.advance(20)
        node.do("slash", validators=[EARLY])
        node.advance(60, miss=[40])
        node.do("slash", validators=list(LATE))
        node.advance(HALF * 8 + 48)
        per_epoch, tables = await collected(node)
        check_every_balance(node, per_epoch, tables)
    slashings = penalties(tables)
    assert sorted(slashings) == [EARLY, *LATE]
    for validator, slashed in ((EARLY, 2), *((each, 10) for each in LATE)):
        first, second = sorted(slashings[validator])
        assert (first, second - first) == (slashed, HALF + 1), "in the epoch after the transition that takes it"
        # All three count for each, whenever they were slashed: three times 96 of not quite 64 * 32 ETH.
        assert 4 * 10**9 <= -slashings[validator][second] < 5 * 10**9
    assert slashings[LATE[0]][second] == slashings[LATE[1]][second]


@pytest.mark.node
@pytest.mark.slow("a long history in long epochs of a real node")
@pytest.mark.parametrize(
    "fork", [pytest.param("deneb", marks=pytest.mark.slow("an earlier fork with other penalties")), "electra"]
)
async def test_the_preset_of_mainnet_takes_what_its_rules_say_of_who_stays_longer_than_a_vector(fork: str) -> None:
    """Move the ends earlier in the state, as half of the vector is 18 days; queued exits make them later."""
    half_vector = 4096
    with running(preset="mainnet", fork=fork, validators=128) as node:
        node.advance(40)
        node.do("slash", validators=[EARLY, *LATE])
        node.advance(1)
        while node.call("/eth/v1/beacon/states/head/validators/30")["data"]["validator"]["slashed"] is False:
            node.advance(1)
        node.do("withdrawable", validator=EARLY, epoch=2 + half_vector)
        node.do("withdrawable", validator=LATE[0], epoch=3 + half_vector)
        node.advance(32 * 7)
        per_epoch, tables = await collected(node)
        check_every_balance(node, per_epoch, tables)
    assert {v: sorted(epochs) for v, epochs in penalties(tables).items()} == {
        EARLY: [1, 3],
        LATE[0]: [1, 4],
        LATE[1]: [1],
    }


@pytest.mark.node
@pytest.mark.slow("a long history of a real node")
async def test_what_the_rules_do_not_take_stays_unexplained_and_without_old_states_it_is_the_difference() -> None:
    with running(fork="electra", validators=64) as node:
        node.advance(20)
        node.do("slash", validators=[EARLY])
        node.advance(HALF * 8 + 40)
        end, slashing = (3 + HALF) * 8 + 7, {}
        for lie, has_old_states in ((0, True), (1000, True), (3 * 10**9 // 2, True), (1000, False)):

            def lies(
                path: str, status: int, document: Any, lie: int = lie, has_old_states: bool = has_old_states
            ) -> tuple[int, Any]:
                at = path.split("/")[5] if path.startswith("/eth/v1/beacon/states/") else ""
                if at == str(end) and path.endswith(("/validators", "/validator_balances")):
                    for each in document["data"]:
                        each["balance"] = str(int(each["balance"]) - (lie if each["index"] == str(EARLY) else 0))
                if not has_old_states and at in ("7", "15", "23"):  # the slashing was before slot 23
                    return 404, {"code": 404, "message": "pruned"}
                return status, document

            chain = wrong(node, lies).chain
            before = await chain.block(10 * 8)
            span = Span(10 * 8 + 1, (await chain.heads()).latest.height)
            result = await chain.collect(span, ["validator_rewards"], before=before)
            await chain.close()
            rows = result.tables["validator_rewards"].to_pylist()
            (reward,) = (each for each in rows if (each["validator"], each["epoch"]) == (EARLY, 3 + HALF))
            slashing[lie, has_old_states] = (reward["slashing"], reward["unexplained"])
    penalty, _ = slashing[0, True]
    assert penalty < -(10**9)
    assert slashing == {
        (0, True): (penalty, 0),
        (1000, True): (penalty, -1000),
        # A score of inactivity would explain it that no validator reaches in so few epochs.
        (3 * 10**9 // 2, True): (penalty, -3 * 10**9 // 2),
        (1000, False): (penalty - 1000, 0),
    }
