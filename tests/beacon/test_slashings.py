"""What slashed validators pay is what the rules take, to the gwei: at once, and half-way by how many others were."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest

from chainfolio.blocks import Span
from tests.beacon.test_bad_input import wrong
from tests.beacon.test_forks import Tables, check_every_balance, collected, running

pytestmark = [pytest.mark.node, pytest.mark.xdist_group("beacon")]
EARLY, LATE = 11, (12, 30)
HALF = 32  # epochs of half a vector of the minimal preset


def penalties(tables: Tables) -> dict[int, dict[int, int]]:
    """By validator, what each epoch took."""
    found = defaultdict[int, dict[int, int]](dict)
    for each in tables["validator_rewards"]:
        if each["slashing"]:
            found[each["validator"]][each["epoch"]] = each["slashing"]
    return dict(found)


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
    found = penalties(tables)
    assert sorted(found) == [EARLY, *LATE]
    for validator, slashed in ((EARLY, 2), *((each, 10) for each in LATE)):
        first, second = sorted(found[validator])
        assert (first, second - first) == (slashed, HALF + 1), "in the epoch after the transition that takes it"
        # All three count for each, whenever they were slashed: three times 96 of not quite 64 * 32 ETH.
        assert 4 * 10**9 <= -found[validator][second] < 5 * 10**9
    assert found[LATE[0]][second] == found[LATE[1]][second]


@pytest.mark.slow("a long history in long epochs of a real node")
@pytest.mark.parametrize(
    "fork", [pytest.param("deneb", marks=pytest.mark.slow("an earlier fork with other penalties")), "electra"]
)
async def test_the_preset_of_mainnet_takes_what_its_rules_say_of_who_stays_longer_than_a_vector(fork: str) -> None:
    """Half of its vector is 18 days: so the state says earlier ends, as it says later ones where exits queue."""
    half = 4096
    with running(preset="mainnet", fork=fork, validators=128) as node:
        node.advance(40)
        node.do("slash", validators=[EARLY, *LATE])
        node.advance(1)
        while node.call("/eth/v1/beacon/states/head/validators/30")["data"]["validator"]["slashed"] is False:
            node.advance(1)
        node.do("withdrawable", validator=EARLY, epoch=2 + half)
        node.do("withdrawable", validator=LATE[0], epoch=3 + half)
        node.advance(32 * 7)
        per_epoch, tables = await collected(node)
        check_every_balance(node, per_epoch, tables)
    assert {v: sorted(epochs) for v, epochs in penalties(tables).items()} == {
        EARLY: [1, 3],
        LATE[0]: [1, 4],
        LATE[1]: [1],
    }


@pytest.mark.slow("a long history of a real node")
async def test_what_the_rules_do_not_take_stays_unexplained_and_without_old_states_it_is_the_difference() -> None:
    with running(fork="electra", validators=64) as node:
        node.advance(20)
        node.do("slash", validators=[EARLY])
        node.advance(HALF * 8 + 40)
        end, slashing = (3 + HALF) * 8 + 7, {}
        for lie, kept in ((0, True), (1000, True), (3 * 10**9 // 2, True), (1000, False)):

            def lies(path: str, status: int, found: Any, lie: int = lie, kept: bool = kept) -> tuple[int, Any]:
                at = path.split("/")[5] if path.startswith("/eth/v1/beacon/states/") else ""
                if at == str(end) and path.endswith(("/validators", "/validator_balances")):
                    for each in found["data"]:
                        each["balance"] = str(int(each["balance"]) - (lie if each["index"] == str(EARLY) else 0))
                if not kept and at in ("7", "15", "23"):  # the slashing was before slot 23
                    return 404, {"code": 404, "message": "pruned"}
                return status, found

            chain = wrong(node, lies).chain
            before = await chain.block(10 * 8)
            span = Span(10 * 8 + 1, (await chain.heads()).latest.height)
            found = await chain.collect(span, ["validator_rewards"], before=before)
            await chain.close()
            rows = found.tables["validator_rewards"].to_pylist()
            (told,) = (each for each in rows if (each["validator"], each["epoch"]) == (EARLY, 3 + HALF))
            slashing[lie, kept] = (told["slashing"], told["unexplained"])
    penalty, _ = slashing[0, True]
    assert penalty < -(10**9)
    assert slashing == {
        (0, True): (penalty, 0),
        (1000, True): (penalty, -1000),
        # A score of inactivity would explain it that nobody reaches in so few epochs.
        (3 * 10**9 // 2, True): (penalty, -3 * 10**9 // 2),
        (1000, False): (penalty - 1000, 0),
    }
