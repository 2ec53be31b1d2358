"""The stored rows of validators explain every balance, on a local chain that is read without our code."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter, defaultdict
from typing import Any

import pytest

from chainfolio.adapters.beacon.chain import BeaconChain, build
from chainfolio.adapters.beacon.reader import Reader
from chainfolio.adapters.beacon.selection import ValidatorSelector
from chainfolio.adapters.beacon.settings import BeaconSettings
from chainfolio.blocks import Span
from chainfolio.environment import Environment
from chainfolio.transport.exchange import HttpResponse
from chainfolio.transport.http import HttpTransport
from tests.beacon.conftest import (
    COMPOUNDING,
    CONFIGS,
    EXITED,
    LEFT,
    MERGED,
    OFFLINE,
    SLASHED,
    TOPPED_UP,
    Lived,
    chain_at,
)

pytestmark = [pytest.mark.node, pytest.mark.xdist_group("beacon")]
VOTES = ("source", "target", "head", "inactivity")


@pytest.fixture(scope="module")
def tables(lived: Lived) -> dict[str, list[dict[str, Any]]]:
    """Return all rows up to the last final slot."""

    async def collect() -> dict[str, list[dict[str, Any]]]:
        chain = chain_at(lived.node.url)
        heads = await chain.heads()
        result = await chain.collect(Span(0, heads.finalized), (*chain.default_datasets, "blocks"))
        await chain.close()
        return {name: rows.to_pylist() for name, rows in result.tables.items()}

    return asyncio.run(collect())


def balances(lived: Lived, slot: int) -> dict[int, int]:
    """Return the balances of the node's state."""
    answer = lived.node.call(f"/eth/v1/beacon/states/{slot}/validator_balances")
    return {int(each["index"]): int(each["balance"]) for each in answer["data"]}


async def earned_by_slot(chain: BeaconChain, last: int) -> dict[int, dict[int, int]]:
    """Return the income from blocks, slot by slot."""
    spec = await chain.spec()
    reader = Reader(chain.nodes, spec, None)
    rewards_by_slot: dict[int, dict[int, int]] = {}
    for slot in range(1, last + 1):
        if (block := await reader.block(slot)) is not None:
            (rewards,), slot_rewards = await reader.block_rewards([block]), defaultdict[int, int](int)
            assert rewards.proposer is not None
            slot_rewards[rewards.proposer] += rewards.proposal
            for validator, reward in rewards.sync:
                slot_rewards[validator] += reward
            rewards_by_slot[slot] = slot_rewards
    return rewards_by_slot


@pytest.mark.slow("reads each state of a long history; test_forks.py explains every balance of a short one")
async def test_every_balance_after_every_slot_is_the_one_before_with_what_is_stored(
    lived: Lived, tables: dict[str, list[dict[str, Any]]]
) -> None:
    chain = chain_at(lived.node.url)
    per_epoch = (await chain.spec()).slots_per_epoch
    rewards = tables["validator_rewards"]
    last = (max(each["epoch"] for each in rewards) + 1) * per_epoch - 1
    changes = defaultdict[int, dict[int, int]](lambda: defaultdict(int), await earned_by_slot(chain, last))
    await chain.close()
    accusing = {slot: _accused(lived, slot) for slot in range(1, last + 1)}
    for each in rewards:
        paid_epoch = (each["epoch"] + 2) * per_epoch
        changes[paid_epoch][each["validator"]] += sum(each[vote] for vote in VOTES)
        if each["slashing"]:
            first = each["epoch"] * per_epoch
            at = (slot for slot in range(first, first + per_epoch) if each["validator"] in accusing[slot])
            changes[next(at, first)][each["validator"]] += each["slashing"]
    for each in tables["withdrawals"]:
        changes[each["height"]][each["validator"]] -= each["gwei"]
    for each in tables["stake_changes"]:
        changes[each["slot"]][each["validator"]] += each["gwei"]
    before, wrong = balances(lived, 0), list[Any]()
    for slot in range(1, last + 1):
        after = balances(lived, slot)
        wrong += [
            (slot, validator, balance - before.get(validator, 0), changes[slot].get(validator, 0))
            for validator, balance in after.items()
            if balance - before.get(validator, 0) != changes[slot].get(validator, 0)
        ]
        before = after
    assert wrong == []
    assert [each for each in rewards if each["unexplained"]] == []


def _accused(lived: Lived, slot: int) -> set[int]:
    import urllib.error

    try:
        body = lived.node.call(f"/eth/v2/beacon/blocks/{slot}")["data"]["message"]["body"]
    except urllib.error.HTTPError as error:
        error.close()
        return set()
    return {int(each["signed_header_1"]["message"]["proposer_index"]) for each in body["proposer_slashings"]}


def test_one_row_tells_each_epoch_of_each_validator_that_had_duties(
    lived: Lived, tables: dict[str, list[dict[str, Any]]]
) -> None:
    rows = {(each["validator"], each["epoch"]): each for each in tables["validator_rewards"]}
    assert len(rows) == len(tables["validator_rewards"])
    newest = max(epoch for _, epoch in rows)
    assert all((0, epoch) in rows for epoch in range(newest + 1))
    offline_row = rows[OFFLINE[0], 5]
    assert offline_row["source"] < 0
    assert offline_row["target"] < 0
    assert offline_row["head"] == 0
    answer = lived.node.call(f"/eth/v1/beacon/states/head/validators/{EXITED}")["data"]["validator"]
    assert (EXITED, int(answer["exit_epoch"]) - 1) in rows
    assert (EXITED, int(answer["exit_epoch"])) not in rows or rows[EXITED, int(answer["exit_epoch"])]["source"] == 0
    assert sum(each["slashing"] != 0 for each in rows.values() if each["validator"] == SLASHED) == 2
    assert sum(each["missed"] for each in rows.values()) > 0
    assert sum(each["proposed"] for each in rows.values()) == sum(
        each["epoch"] <= newest for each in tables["proposals"]
    )


def test_what_attesting_brings_is_never_more_than_what_it_could_bring(
    tables: dict[str, list[dict[str, Any]]],
) -> None:
    for each in tables["validator_rewards"]:
        assert sum(each[vote] for vote in VOTES) <= each["ideal"]
        assert each["sync"] <= each["sync_ideal"]


def test_the_registry_is_told_where_it_changes(lived: Lived, tables: dict[str, list[dict[str, Any]]]) -> None:
    last = {each["validator"]: each for each in tables["validators"]}
    count = 192 if lived.fork == "electra" else 64
    assert set(range(count)) <= set(last)
    assert last[SLASHED]["slashed"]
    assert last[EXITED]["exited"] is not None
    assert last[0]["exited"] is None
    if lived.fork == "electra":
        assert last[COMPOUNDING]["credentials"].startswith("0x02")
        assert last[COMPOUNDING]["effective"] > 1000 * 10**9
        assert last[LEFT]["exited"] is not None


def test_deposits_and_consolidations_are_told_twice_as_asked_for_and_as_carried_out(
    lived: Lived, tables: dict[str, list[dict[str, Any]]]
) -> None:
    if lived.fork != "electra":
        assert (tables["deposits"], tables["stake_requests"], tables["stake_changes"]) == ([], [], [])
        return
    assert [(each["gwei"] // 10**9, each["kind"]) for each in tables["deposits"]] == [
        (5, "request"),
        (32, "request"),
        (1000, "request"),
    ]
    assert [each["kind"] for each in tables["stake_requests"]] == [
        "exit",
        "consolidation",
        "consolidation",
        "withdrawal",
    ]
    carried = {(each["validator"], each["kind"]) for each in tables["stake_changes"]}
    assert {(TOPPED_UP, "deposit"), (192, "deposit"), (COMPOUNDING, "queued"), (COMPOUNDING, "deposit")} <= carried
    consolidations = {each["validator"]: each for each in tables["stake_changes"] if each["kind"] == "consolidation"}
    assert consolidations[MERGED]["gwei"] == -consolidations[COMPOUNDING]["gwei"] == -32 * 10**9
    assert (consolidations[MERGED]["other"], consolidations[COMPOUNDING]["other"]) == (COMPOUNDING, MERGED)


@pytest.mark.slow("collects a long history again; test_computed.py compares some validators with all")
async def test_some_validators_alone_have_the_rows_that_they_have_among_all(
    lived: Lived, tables: dict[str, list[dict[str, Any]]]
) -> None:
    answer = lived.node.call("/eth/v1/beacon/states/head/validators/3")["data"]["validator"]
    chosen = ["5", str(COMPOUNDING), answer["pubkey"], "0x" + "aa".ljust(38, "0") + "0b"]
    chain = chain_at(lived.node.url, validators=chosen)
    heads = await chain.heads()
    result = await chain.collect(Span(0, heads.finalized), chain.default_datasets, chain.settings.chosen)
    await chain.close()
    chosen_indexes = {3, 5, SLASHED, COMPOUNDING}
    for name in ("validator_rewards", "withdrawals", "proposals", "validators", "stake_changes"):
        expected = [each for each in tables[name] if each["validator"] in chosen_indexes]
        assert sorted(map(str, result.tables[name].to_pylist())) == sorted(map(str, expected)), name


@pytest.mark.slow("reads a long history of a real node in many pieces")
async def test_pieces_of_any_size_give_the_rows_of_the_whole(
    lived: Lived, tables: dict[str, list[dict[str, Any]]]
) -> None:
    chain = chain_at(lived.node.url)
    heads = await chain.heads()
    parts = defaultdict[str, list[Any]](list)
    for size, span in ((37, Span(0, 110)), (75, Span(111, heads.finalized))):
        for piece in span.cut(size):
            result = await chain.collect(piece, (*chain.default_datasets, "blocks"))
            for name, rows in result.tables.items():
                parts[name] += rows.to_pylist()
    await chain.close()
    for name, rows in parts.items():
        assert sorted(map(str, rows)) == sorted(map(str, tables[name])), name


class CountingTransport(HttpTransport):
    """The real transport; it counts what is asked."""

    def __init__(self) -> None:
        super().__init__(connections=8)
        self.asked = Counter[tuple[str, bytes]]()

    async def get(self, source: str, url: str, timeout_s: float) -> HttpResponse:
        """The node's answer."""
        self.asked[url, b""] += 1
        return await super().get(source, url, timeout_s)

    async def post(self, source: str, url: str, body: bytes, timeout_s: float) -> HttpResponse:
        """The node's answer."""
        self.asked[url, body] += 1
        return await super().post(source, url, body, timeout_s)


async def test_the_registry_is_looked_through_once_by_pieces_that_are_on_their_way_together(lived: Lived) -> None:
    transport = CountingTransport()
    chain_settings = BeaconSettings(adapter="beacon", rpc=[lived.node.url])
    chain = build("registry", chain_settings, Environment(), configs=CONFIGS, transport=transport)
    states = lived.node.call("/eth/v1/beacon/states/head/validators")["data"]
    withdrawing = [each for each in states if not each["validator"]["withdrawal_credentials"].startswith("0x00")]
    address = f"0x{withdrawing[-1]['validator']['withdrawal_credentials'][26:]}"
    expected = [
        int(each["index"]) for each in withdrawing if each["validator"]["withdrawal_credentials"][26:] == address[2:]
    ]
    chosen = ValidatorSelector(chain.nodes)
    assert await asyncio.gather(*(chosen.indexes([address]) for _ in range(3))) == [tuple(sorted(expected))] * 3
    firsts = [json.loads(body)["ids"][0] for url, body in transport.asked.elements() if url.endswith("/validators")]
    assert firsts == ["0", *[str(len(states))] * 3], "only the end is read again, nothing is skipped"
    await chain.close()


@pytest.mark.slow("collects a long history again, in many pieces")
async def test_pieces_of_some_validators_on_their_way_together_ask_nothing_twice(
    lived: Lived, tables: dict[str, list[dict[str, Any]]]
) -> None:
    chosen_indexes, transport = {3, 5, SLASHED, COMPOUNDING}, CountingTransport()
    chain_settings = BeaconSettings(
        adapter="beacon", rpc=[lived.node.url], validators=[str(each) for each in chosen_indexes]
    )
    chain = build("own", chain_settings, Environment(), configs=CONFIGS, transport=transport)
    pieces, parts = list(Span(0, (await chain.heads()).finalized).cut(30)), defaultdict[str, list[Any]](list)
    for at in range(0, len(pieces), 2):
        asks = (chain.collect(each, chain.default_datasets, chain_settings.chosen) for each in pieces[at : at + 2])
        for result in await asyncio.gather(*asks):
            for name, rows in result.tables.items():
                parts[name] += rows.to_pylist()
    await chain.close()
    for name in ("validator_rewards", "withdrawals", "proposals", "validators", "stake_changes"):
        expected = [each for each in tables[name] if each["validator"] in chosen_indexes]
        assert sorted(map(str, parts[name])) == sorted(map(str, expected)), name
    # Block 1 names the root of genesis, too.
    unique_paths = re.compile(r"/blocks/(?!1$)|/rewards/|/duties/|/sync_committees|/validators$")
    assert [each for each, count in transport.asked.items() if count > 1 and unique_paths.search(each[0])] == []
