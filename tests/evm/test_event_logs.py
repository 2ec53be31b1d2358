"""Events of contracts: each contract and event is fetched once, with other reads of the blocks."""

from __future__ import annotations

from typing import Any

import pytest

from chainfolio.adapters.evm.chain import EvmChain
from chainfolio.adapters.evm.datasets.decoding import decode, restore
from chainfolio.adapters.evm.settings import EvmSettings
from chainfolio.blocks import Span
from chainfolio.chain_results import SpanTables
from tests.evm.fakes import ALICE, BOB, FakeChain, FakeNode, Wired, topic_of, transfer, wired

ONE, OTHER, THIRD = ("0x" + digit * 40 for digit in "abc")
LENT, STAKED = ("0x" + digit * 64 for digit in "12")
EVERY = [(contract, topic) for contract in (ONE, OTHER, THIRD) for topic in (LENT, STAKED)]
DATASETS = ("blocks", "transfers", "events")


def event(contract: str, topic: str, account: str = ALICE) -> dict[str, Any]:
    return {"address": contract, "topics": [topic, topic_of(account)], "data": "0x" + "00" * 32}


def event_names(*pairs: tuple[str, str]) -> tuple[str, ...]:
    return tuple(f"{contract}/{topic}" for contract, topic in pairs)


@pytest.fixture
def node() -> FakeNode:
    chain = FakeChain()
    for contract, topic in EVERY:
        chain.mine(transfer(), event(contract, topic), transfer(sender=BOB), event(contract, topic, BOB))
    return FakeNode(chain)


def chain_of(those: Wired, integrity: str = "bloom") -> EvmChain:
    return EvmChain(those.node.facts, those.node, EvmSettings(integrity=integrity))


def pairs(fetched: SpanTables) -> list[tuple[str, str]]:
    rows = fetched.tables["logs"].to_pylist() if "logs" in fetched.tables else []
    return [(row["address"], row["topic0"]) for row in rows]


@pytest.mark.parametrize("integrity", ["off", "bloom"])
async def test_each_contract_s_own_events_are_kept_and_no_other_one_s(node: FakeNode, integrity: str) -> None:
    chain = chain_of(wired(node, checked=True), integrity)
    span = Span(0, node.chain.head)
    first = await chain.collect(span, ("events",), events=event_names((ONE, LENT), (OTHER, STAKED)))
    assert pairs(first) == [(ONE, LENT)] * 2 + [(OTHER, STAKED)] * 2
    later = await chain.collect(span, ("events",), events=event_names((ONE, STAKED)))
    assert pairs(later) == [(ONE, STAKED)] * 2


async def test_of_one_event_every_contract_s_that_is_wanted_are_kept(node: FakeNode) -> None:
    chain, requested = chain_of(wired(node, checked=True)), [(ONE, LENT), (OTHER, LENT), (THIRD, STAKED)]
    span_tables = await chain.collect(Span(0, node.chain.head), ("events",), events=event_names(*requested))
    assert pairs(span_tables) == [pair for pair in requested for _ in range(2)]


async def test_they_are_read_beside_transfers_from_the_same_headers(node: FakeNode) -> None:
    chain = chain_of(wired(node, checked=True))
    span = Span(0, node.chain.head)
    both = await chain.collect(span, DATASETS, events=event_names((ONE, LENT)))
    headers = node.count("eth_getBlockByNumber")
    without = await chain.collect(span, DATASETS)
    assert node.count("eth_getBlockByNumber") == 2 * headers
    assert both.tables["transfers"].equals(without.tables["transfers"])
    assert (pairs(both), pairs(without)) == ([(ONE, LENT)] * 2, [])


async def test_no_events_wanted_is_no_question(node: FakeNode) -> None:
    await chain_of(wired(node, checked=True)).collect(Span(0, 3), DATASETS)
    assert node.count("eth_getLogs") == 1


async def test_events_that_a_node_leaves_out_are_asked_for_again(node: FakeNode) -> None:
    def forgetful(params: list[Any]) -> Any:
        honest = FakeNode.eth_getLogs(node, params)
        return honest if "blockHash" in params[0] else [log for log in honest if log["topics"][0] != LENT]

    node.on["eth_getLogs"] = forgetful
    span_tables = await chain_of(wired(node, checked=True)).collect(
        Span(0, 6), DATASETS, events=event_names((ONE, LENT))
    )
    assert (pairs(span_tables), span_tables.restored_count) == ([(ONE, LENT)] * 2, 2)


async def test_what_is_restored_from_raw_logs_is_what_was_fetched(node: FakeNode) -> None:
    chain = chain_of(wired(node, checked=True))
    fetched = await chain.collect(Span(0, node.chain.head), DATASETS, events=event_names(*EVERY))
    stored = {name: fetched.tables[name] for name in ("transfers", "logs")}
    decoded = decode(chain.facts, restore(stored), ("transfers", "approvals"))
    assert decoded["logs"].equals(stored["logs"])
    assert decoded["transfers"].equals(stored["transfers"])
