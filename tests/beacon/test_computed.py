"""If no node says rewards, they are computed from duties: the rows are those of the node that says them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from chainfolio.adapters.beacon.chain import BeaconChain
from chainfolio.blocks import Span
from chainfolio.errors import BadAnswer, HistoryUnavailable
from chainfolio.localchain.beacon import BeaconRuntime
from tests.beacon.conftest import ETH
from tests.beacon.test_bad_input import unchanged, wrong
from tests.beacon.test_forks import check_every_balance, running

pytestmark = pytest.mark.node
EARLIER = pytest.mark.slow("an earlier fork that follows the same rules")
FORKS = [*(pytest.param(fork, marks=EARLIER) for fork in ("capella", "deneb", "electra")), "fulu"]
ROUNDED = ("source", "target", "head")  # the node that is compared rounds each of them, and the balance corrects it


def untold(path: str, status: int, document: Any) -> tuple[int, Any]:
    """Answer as a node that has no rewards endpoints."""
    return (404, {"message": "Route not found"}) if "/rewards/" in path else (status, document)


async def rows_of(chain: BeaconChain, filters: tuple[str, ...] = ()) -> dict[str, list[dict[str, Any]]]:
    head = (await chain.heads()).latest.height
    result = await chain.collect(Span(0, head), chain.default_datasets, filters)
    await chain.close()
    return {name: rows.to_pylist() for name, rows in result.tables.items()}


def by_votes(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with its votes as one sum: the node's rounding hides which vote it was. What could have been is
    rounded, too."""
    return {name: each for name, each in row.items() if name not in (*ROUNDED, "ideal", "unexplained")} | {
        "votes": sum(row[name] for name in ROUNDED),
        "signs": [row[name] > 0 for name in ROUNDED],
    }


def lived(node: BeaconRuntime, fork: str) -> None:
    """Missed slots, who is away, an exit, a slashing, top-ups, and a leak."""
    node.advance(16, miss=[9])
    node.do("offline", validators=[5, 6])
    node.do("exit", validators=[9])
    node.do("slash", validators=[11, 12])
    if fork in ("electra", "fulu"):
        node.do("deposit", validator=3, amount=5 * ETH)
        node.do("deposit", amount=32 * ETH)
        node.do("consolidate", source=20, target=20)
    node.advance(48, miss=[20, 33])
    node.do("offline", validators=list(range(0, 64, 2)))
    node.advance(64)
    node.do("offline", validators=[])
    node.advance(56)


@pytest.fixture(scope="module", params=FORKS)
def node(request: pytest.FixtureRequest) -> Iterator[BeaconRuntime]:
    """A chain of each fork with that history; tests only read it."""
    with running(fork=request.param, validators=64) as node:
        lived(node, request.param)
        yield node


async def test_what_is_computed_from_duties_is_what_the_node_says_and_closes_every_balance(node: BeaconRuntime) -> None:
    node_rows, computed = await rows_of(wrong(node, unchanged).chain), await rows_of(wrong(node, untold).chain)
    check_every_balance(node, 8, computed)
    chosen_rows = await rows_of(wrong(node, untold, validators=["5", "11", "20"]).chain, ("5", "11", "20"))
    assert chosen_rows["validator_rewards"] == [
        e for e in computed["validator_rewards"] if e["validator"] in (5, 11, 20)
    ]
    for name, rows in node_rows.items():
        if name != "validator_rewards":
            assert computed[name] == rows, name
    assert len(computed["validator_rewards"]) == len(node_rows["validator_rewards"]) > 64 * 18
    leak = {each["epoch"] for each in node_rows["validator_rewards"] if each["inactivity"] < 0}
    ends = {each["epoch"] - 2 for each in node_rows["validator_rewards"] if each["unexplained"]}
    assert len(leak) >= 5
    assert len(ends) <= 2
    for computed_row, theirs in zip(computed["validator_rewards"], node_rows["validator_rewards"], strict=True):
        if theirs["epoch"] not in ends:  # as a leak ends, the node says what a leak pays, which is nothing
            assert by_votes(computed_row) == by_votes(theirs)
            assert abs(computed_row["ideal"] - theirs["ideal"]) <= 3


def silent_of_duties(path: str, status: int, document: Any) -> tuple[int, Any]:
    """Answer as a node that does not say who was to propose in the past."""
    return (400, {"message": "epoch is too old"}) if "/duties/" in path else (status, document)


@pytest.mark.slow("reads a long history of a real node six times")
async def test_who_missed_a_block_is_computed_if_the_node_does_not_say_it(node: BeaconRuntime) -> None:
    def wrong_mix(path: str, status: int, document: Any) -> tuple[int, Any]:
        if "/randao" in path:
            document = {**document, "data": {"randao": "0x" + "11" * 32}}
        return silent_of_duties(path, status, document)

    def without_mix(path: str, status: int, document: Any) -> tuple[int, Any]:
        return (404, {"message": "no"}) if "/randao" in path else silent_of_duties(path, status, document)

    node_rows, computed = [await rows_of(wrong(node, each).chain) for each in (unchanged, silent_of_duties)]
    unknown = [await rows_of(wrong(node, each).chain) for each in (wrong_mix, without_mix)]
    chosen_rows = await rows_of(wrong(node, silent_of_duties, validators=["5", "11"]).chain, ("5", "11"))
    assert computed == node_rows
    missed = {each["epoch"] for each in node_rows["validator_rewards"] if each["missed"]}
    full = {each["epoch"] for each in node_rows["validator_rewards"]} - missed
    assert {1, 2, 4} <= missed, "slots 9, 20 and 33 have no block"
    assert full
    for rows in (*unknown, chosen_rows):
        assert {each["epoch"] for each in rows["validator_rewards"] if each["missed"] is not None} == full
        assert {each["missed"] for each in rows["validator_rewards"]} == {0, None}, "what is not known is never zero"


def without_committees(path: str, document: Any) -> None:
    if "/committees" in path:
        document["data"] = document["data"][1:]


def with_strangers(path: str, document: Any) -> None:
    if "/committees" in path:
        document["data"][0]["validators"][0] = "9999"


def with_fewer_bits(path: str, document: Any) -> None:
    if re.search(r"/v2/beacon/blocks/[0-9]+$", path):
        for vote in document["data"]["message"]["body"]["attestations"]:
            vote["aggregation_bits"] = "0x01"


@pytest.fixture(scope="module")
def short() -> Iterator[BeaconRuntime]:
    """A short chain; tests only read it."""
    with running(fork="electra", validators=64) as node:
        node.advance(40)
        yield node


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (without_committees, "a committee that there is not"),
        (with_strangers, "not in the registry"),
        (with_fewer_bits, "does not fit its committees"),
    ],
)
async def test_votes_that_fit_no_committee_are_refused(
    short: BeaconRuntime, spoil: Callable[[str, Any], None], says: str
) -> None:
    def alter(path: str, status: int, document: Any) -> tuple[int, Any]:
        if status == 200:
            spoil(path, document)
        return untold(path, status, document)

    assert says in await wrong(short, alter).error_message(BadAnswer)


async def test_a_node_without_rewards_that_has_pruned_its_states_has_no_history(short: BeaconRuntime) -> None:
    def pruned(path: str, status: int, document: Any) -> tuple[int, Any]:
        return (404, {"message": "gone"}) if "/committees" in path else untold(path, status, document)

    assert "no state at block" in await wrong(short, pruned).error_message(HistoryUnavailable)
