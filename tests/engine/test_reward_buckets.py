"""Rewards in buckets, beside a plain sum over rows, bucket by bucket."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from fractions import Fraction
from random import Random
from typing import Any

import msgspec
import polars as pl
import pytest

from chainfolio.engine.validators.results import Granularity, Window
from chainfolio.engine.validators.reward_buckets import Buckets, RewardHistory, reward_buckets
from chainfolio.staking_tables import VALIDATOR_REWARDS
from chainfolio.validators import SlotClock, ValidatorNow

GENESIS_S = 1_606_824_023
CLOCK = SlotClock(GENESIS_S, 720, 8)  # fifteen epochs a day, so that a year is short
GWEI = 10**9
OWN = ("source", "target", "head", "inactivity", "sync", "proposals", "slashing")
BUCKETS: tuple[Granularity, ...] = ("epoch", "day", "week", "month")


def validator(exited: int | None = None) -> ValidatorNow:
    return ValidatorNow(7, "0x" + "ab" * 48, "active_ongoing", False, 0, 0, "0x01", 0, exited, None)


def row(epoch: int, **fields: int | None) -> dict[str, Any]:
    """Return a reward row of an epoch, with zeros in all fields that are not given."""
    columns = {each.name: 0 for each in VALIDATOR_REWARDS.columns if each.name not in ("chain", "bucket")}
    return columns | {"epoch": epoch, "effective": 32 * GWEI} | fields


def lived(random: Random, begin: int, end: int) -> list[dict[str, Any]]:
    """Return random reward rows with losses, blocks, seats, missing epochs and unknown fields."""
    return [
        row(
            epoch,
            source=random.choice((-2500, 0, 2480)),
            target=random.choice((-4600, 4589)),
            head=random.choice((0, 2440)),
            inactivity=random.choice((0, 0, 0, -7)),
            ideal=None if random.random() < 0.001 else 9509,
            sync=random.choice((0, 0, -20_000, 20_000)),
            sync_ideal=random.choice((0, 20_000)),
            sync_hits=random.randrange(3),
            sync_misses=random.randrange(3),
            proposals=random.choice((0, 0, 0, 40_000_000)),
            proposed=random.choice((0, 0, 0, 1)),
            missed=None if random.random() < 0.001 else random.randrange(2),
            slashing=random.choice((0, 0, 0, -(10**9))),
            effective=random.choice((31, 32)) * GWEI,
        )
        for epoch in range(begin, end + 1)
        if random.random() > 0.02
    ]


def history_of(rows: list[dict[str, Any]], balances: list[tuple[int, int]], exited: int | None = None) -> RewardHistory:
    types = {each.name: pl.Int64 for each in VALIDATOR_REWARDS.columns if each.name not in ("chain", "bucket")}
    registry = pl.DataFrame(balances, schema={"epoch": pl.Int64, "effective": pl.Int64}, orient="row")
    return RewardHistory(validator(exited), CLOCK, pl.DataFrame(rows, schema=types), registry)


def monday(day: datetime) -> datetime:
    return day - timedelta(days=day.weekday())


def name_of(epoch: int, granularity: Granularity) -> object:
    """Return a key that epochs of the same bucket share."""
    day = datetime.fromtimestamp(GENESIS_S + epoch * 5760, UTC).replace(hour=0, minute=0, second=0)
    names = {"epoch": epoch, "day": day, "week": monday(day), "month": (day.year, day.month)}
    return names[granularity]


def plainly(rows: list[dict[str, Any]], epochs: range, exited: int | None) -> dict[str, Any]:
    """Add up the rows of a bucket one by one."""
    own_rows = [each for each in rows if each["epoch"] in epochs]
    reward = sum(each[name] for each in own_rows for name in OWN)
    told_all = all(each["ideal"] is not None for each in own_rows)
    could = sum((each["ideal"] or 0) + each["sync_ideal"] + each["proposals"] for each in own_rows)
    duties = [each for each in own_rows if exited is None or each["epoch"] < exited]
    missed = sum(each["source"] < 0 and each["target"] < 0 for each in duties)
    blocks = sum(each["proposed"] for each in own_rows)
    knows_missed = all(each["missed"] is not None for each in own_rows)
    return {
        "epochStart": epochs[0],
        "epochEnd": epochs[-1],
        "consensusReward": str(reward * GWEI),
        "consensusPotentialReward": str(could * GWEI) if told_all else "N/A",
        "efficiency": min(max(Fraction(reward, could), Fraction(0)), Fraction(1)) if told_all and could > 0 else None,
        "attestationsIncluded": len(duties) - missed,
        "attestationsMissed": missed,
        "syncParticipations": sum(each["sync_hits"] for each in own_rows),
        "syncMissed": sum(each["sync_misses"] for each in own_rows),
        "proposedBlocks": blocks,
        "executionReward": "N/A" if blocks else "0",
        "missedBlocks": sum(each["missed"] for each in own_rows) if knows_missed else None,
    }


@pytest.mark.parametrize("granularity", BUCKETS)
@pytest.mark.parametrize("exited", [None, 1500])
def test_each_bucket_is_the_plain_sum_of_its_rows(granularity: Granularity, exited: int | None) -> None:
    begin, end = 77, 77 + 15 * 120
    rows = lived(Random(7), begin, end)
    balances = [(0, 32 * GWEI), (1000, 17 * GWEI)]
    buckets = reward_buckets(
        history_of(rows, balances, exited), Buckets(CLOCK, granularity, begin, end), Window(0, 10_000)
    )
    expected: dict[object, list[int]] = {}
    for epoch in range(begin, end + 1):
        expected.setdefault(name_of(epoch, granularity), []).append(epoch)
    assert buckets.total == len(buckets.rows) == len(expected)
    by_epoch = {each["epoch"]: each for each in rows}
    for bucket, epochs in zip(buckets.rows, expected.values(), strict=True):
        document = msgspec.json.decode(msgspec.json.encode(bucket))
        plain = plainly(rows, range(epochs[0], epochs[-1] + 1), exited)
        share = plain.pop("efficiency")
        assert {name: document[name] for name in plain} == plain
        assert (document["consensusEfficiency"] is None) == (share is None)
        if share is not None and bucket.consensus_efficiency is not None:
            assert 0 <= share - Fraction(bytes(bucket.consensus_efficiency).decode()) < Fraction(1, 10**18)
        last = by_epoch.get(epochs[-1])
        registry = 17 if epochs[-1] >= 1000 else 32
        assert document["endEffectiveBalance"] == str((last["effective"] if last else registry * GWEI) * GWEI)


@pytest.mark.parametrize("window", [Window(0, 10), Window(3, 5), Window(116, 10), Window(2**63 - 1, 10)])
def test_a_window_shows_the_buckets_that_the_whole_has_there(window: Window) -> None:
    rows = lived(Random(8), 0, 15 * 120)
    facts, buckets = history_of(rows, [(0, 32 * GWEI)]), Buckets(CLOCK, "day", 0, 15 * 120)
    all_rows, window_rows = reward_buckets(facts, buckets, Window(0, 10_000)), reward_buckets(facts, buckets, window)
    assert window_rows.total == all_rows.total
    assert list(window_rows.rows) == list(all_rows.rows)[window.offset : window.offset + window.limit]


def test_a_bucket_without_a_row_has_nothing_and_the_balance_that_the_registry_told() -> None:
    facts = history_of([row(40, source=5, ideal=10)], [(0, 32 * GWEI), (30, 31 * GWEI)])
    empty, full = reward_buckets(facts, Buckets(CLOCK, "epoch", 39, 40), Window(0, 10)).rows
    assert (empty.consensus_reward, empty.consensus_potential_reward, empty.consensus_efficiency) == ("0", "0", None)
    assert (empty.missed_blocks, empty.attestations_included, empty.end_effective_balance) == (0, 0, str(31 * 10**18))
    assert (full.consensus_reward, full.consensus_efficiency) == (str(5 * GWEI), msgspec.Raw(b"0.5"))
    unknown = reward_buckets(history_of([], []), Buckets(CLOCK, "all", 39, 40), Window(0, 10)).rows
    assert [each.end_effective_balance for each in unknown] == ["N/A"]
