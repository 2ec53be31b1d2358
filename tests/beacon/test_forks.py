"""Every fork, both presets, and rare events of validators: the stored rows explain every balance."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from chainfolio.blocks import Span
from chainfolio.localchain.beacon import BeaconRuntime
from tests.beacon.conftest import ETH, chain_at, started

pytestmark = pytest.mark.node
VOTES = ("source", "target", "head", "inactivity")
Tables = dict[str, list[dict[str, Any]]]


@contextmanager
def running(**options: object) -> Iterator[BeaconRuntime]:
    """A chain that runs here."""
    node = started(**options)
    try:
        yield node
    finally:
        node.__exit__(None, None, None)


async def collected(node: BeaconRuntime) -> tuple[int, Tables]:
    """Return the slots per epoch and all rows up to the head, which need not be final."""
    chain = chain_at(node.url)
    head = (await chain.heads()).latest.height
    result = await chain.collect(Span(0, head), chain.default_datasets)
    per_epoch = (await chain.spec()).slots_per_epoch
    await chain.close()
    return per_epoch, {name: rows.to_pylist() for name, rows in result.tables.items()}


def balances(node: BeaconRuntime, slot: int) -> dict[int, int]:
    """Return the balances of the node's state."""
    answer = node.call(f"/eth/v1/beacon/states/{slot}/validator_balances")
    return {int(each["index"]): int(each["balance"]) for each in answer["data"]}


def check_every_balance(node: BeaconRuntime, per_epoch: int, tables: Tables, untold: int = 0) -> int:
    """The balance at the end of each epoch is the one before it with what is stored, of which nothing is unexplained
    but in so many epochs; how many epochs there are."""
    unexplained = {(each["epoch"], each["validator"]) for each in tables["validator_rewards"] if each["unexplained"]}
    assert len({epoch for epoch, _ in unexplained}) == untold, sorted(unexplained)
    changes = defaultdict[tuple[int, int], int](int)
    for each in tables["validator_rewards"]:
        validator, epoch = each["validator"], each["epoch"]
        changes[validator, epoch + 2] += sum(each[vote] for vote in VOTES)
        changes[validator, epoch] += each["sync"] + each["proposals"] + each["slashing"]
        changes[validator, epoch] += each["unexplained"]
    for each in tables["withdrawals"]:
        changes[each["validator"], each["epoch"]] -= each["gwei"]
    for each in tables["stake_changes"]:
        changes[each["validator"], each["epoch"]] += each["gwei"]
    last: int = max(each["epoch"] for each in tables["validator_rewards"])
    before = balances(node, 0)
    for epoch in range(last + 1):
        after = balances(node, (epoch + 1) * per_epoch - 1)
        wrong = {v: b - before.get(v, 0) for v, b in after.items() if b - before.get(v, 0) != changes[v, epoch]}
        assert wrong == {}, epoch
        before = after
    return last + 1


@pytest.mark.parametrize(
    "fork", [pytest.param("capella", marks=pytest.mark.slow("an earlier fork that follows the same rules")), "fulu"]
)
async def test_a_short_history_of_each_fork_explains_every_balance(fork: str) -> None:
    with running(fork=fork, validators=64) as node:
        node.advance(16, miss=[9])
        node.do("offline", validators=[5, 6])
        node.do("exit", validators=[9])
        node.do("slash", validators=[11])
        node.advance(48, miss=[20, 33])
        assert node.call("/eth/v2/beacon/blocks/40")["version"] == fork
        per_epoch, tables = await collected(node)
        assert check_every_balance(node, per_epoch, tables) >= 5
    assert sum(each["slashing"] < 0 for each in tables["validator_rewards"]) == 1
    assert any(each["source"] < 0 for each in tables["validator_rewards"] if each["validator"] == 5)


@pytest.mark.slow("the same rules with longer epochs")
async def test_the_preset_of_mainnet_with_epochs_of_32_slots_explains_every_balance() -> None:
    with running(preset="mainnet", fork="electra", validators=128) as node:
        node.advance(192, miss=[40, 41])
        per_epoch, tables = await collected(node)
        assert (per_epoch, check_every_balance(node, per_epoch, tables)) == (32, 4)
    seats = sum(each["sync_hits"] + each["sync_misses"] for each in tables["validator_rewards"])
    proposed = sum(each["proposed"] for each in tables["validator_rewards"])
    assert proposed == 4 * 32 - 3  # slot 0 has no block either
    assert seats == 512 * proposed, "a validator has several seats, and each counts"


@pytest.mark.slow("a long history of a real node")
@pytest.mark.parametrize(
    "fork", [pytest.param("deneb", marks=pytest.mark.slow("an earlier fork that follows the same rules")), "electra"]
)
async def test_a_leak_of_inactivity_is_told_of_whom_it_costs_and_explains_every_balance(fork: str) -> None:
    offline = list(range(0, 64, 2))
    with running(fork=fork, validators=64) as node:
        node.advance(24)
        node.do("offline", validators=offline)
        node.advance(96)
        node.do("offline", validators=[])
        node.advance(64)
        per_epoch, tables = await collected(node)
        # Of the epoch that ends the leak the node tells the rewards of a leak: none.
        check_every_balance(node, per_epoch, tables, untold=1)
    leaked = {each["validator"] for each in tables["validator_rewards"] if each["inactivity"] < 0}
    assert set(offline) <= leaked
    cost = {
        v: sum(-each["inactivity"] for each in tables["validator_rewards"] if each["validator"] == v) for v in (0, 1)
    }
    assert cost[0] > 5 * cost[1], "who is there pays nearly nothing"


@pytest.mark.slow("a long history of a real node")
async def test_2048_eth_and_stake_that_comes_back_after_an_exit_are_explained() -> None:
    large, exited = 20, 9
    with running(fork="fulu", validators=64) as node:
        node.advance(16)
        node.do("exit", validators=[exited])
        node.do("consolidate", source=large, target=large)
        node.advance(16)
        node.do("deposit", validator=large, amount=2016 * ETH)
        node.advance(150)
        assert balances(node, 180)[exited] == 0
        node.do("deposit", validator=exited, amount=5 * ETH)
        node.advance(260)
        per_epoch, tables = await collected(node)
        check_every_balance(node, per_epoch, tables)
    newest = {each["validator"]: each for each in tables["validators"]}
    assert newest[large]["credentials"].startswith("0x02")
    assert newest[large]["effective"] == 2048 * ETH
    back = [each for each in tables["stake_changes"] if each["validator"] == exited]
    assert [(each["kind"], each["gwei"]) for each in back] == [("deposit", 5 * ETH)]
    withdrawals = [each["gwei"] for each in tables["withdrawals"] if each["validator"] == exited]
    assert len(withdrawals) >= 2
    assert withdrawals[-1] == 5 * ETH, "an exited validator gets its stake back as it came"
