"""A quorum of endpoints: the majority's value counts, dissenters are quarantined, else no value."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from chainfolio.adapters.evm import scan
from chainfolio.adapters.evm.chain import build
from chainfolio.adapters.evm.reads import NativeBalance
from chainfolio.adapters.evm.settings import EvmSettings
from chainfolio.adapters.evm.spans import Chunk
from chainfolio.blocks import Span
from chainfolio.environment import Environment
from chainfolio.errors import BadSettings, NodeBehind, NoQuorum, Unavailable
from chainfolio.kinds import EndpointMemory
from chainfolio.plans import Unknown
from chainfolio.settings import Settings
from chainfolio.settings_checks import check
from chainfolio.storage.tail import Tail
from chainfolio.transport.http_endpoint import identity
from chainfolio.transport.quorum import count_votes
from tests.evm.contracts import Contracts, RpcRefusal
from tests.evm.fakes import (
    ALICE,
    BOB,
    TRANSFERS,
    FakeChain,
    FakeNode,
    Wired,
    errors_of,
    transfer,
    wired,
)

URLS = [f"http://{name}.test" for name in ("one", "two", "three")]
LIAR = 0


def keyed(item: str) -> str | None:
    return None if item == "-" else item


@pytest.mark.parametrize(
    ("answers", "items", "left_open", "disputed", "against"),
    [
        (["a", "a"], "a", [], [], []),
        (["a", "b"], "a", [0], [0], []),
        (["b", "a", "a"], "a", [], [], [(0, 0, 1)]),
        (["a", "b", "c"], "a", [0], [0], []),
        (["a", "a", "b", "b"], "a", [0], [0], []),
        (["a", "-"], "-", [0], [], []),
        (["-", "a", "a"], "a", [], [], []),
        (["-", "-"], "-", [], [], []),
    ],
)
def test_the_vote(
    answers: list[str], items: str, left_open: list[int], disputed: list[int], against: list[tuple[int, int, int]]
) -> None:
    tally = count_votes([[answer] for answer in answers], keyed, 2)
    assert (tally.items, tally.open, tally.disputed, tally.against) == ([items], left_open, disputed, against)


def test_the_vote_is_question_by_question() -> None:
    tally = count_votes([["a", "x"], ["b", "y"], ["a", "y"]], keyed, 2)
    assert tally.items == ["a", "y"]
    assert tally.against == [(1, 0, 0), (0, 1, 1)]


def honest(chain: FakeChain) -> FakeNode:
    contracts = Contracts()
    contracts.native |= {ALICE: 10**18, BOB: 7}
    return FakeNode(chain, contracts)


def witnessed(*nodes: FakeNode) -> Wired:
    pool = wired(*nodes, checked=True)
    pool.node.quorum = 2
    pool.node.finalized = nodes[0].chain.head
    return pool


def three(lie: Callable[[FakeNode], None]) -> Wired:
    """The first of three lies."""
    chain = FakeChain(6)
    nodes = [honest(chain) for _ in range(3)]
    nodes[LIAR].chain = copy.deepcopy(chain)
    lie(nodes[LIAR])
    return witnessed(*nodes)


async def balances(pool: Wired) -> list[Any]:
    return await scan.answer(pool.node, [NativeBalance(ALICE), NativeBalance(BOB)], pool.node_block(5))


def poorer(node: FakeNode) -> None:
    node.contracts.native[BOB] = 0


async def test_a_balance_is_what_the_majority_says_and_the_liar_is_cordoned_with_the_evidence() -> None:
    pool = three(poorer)
    assert await balances(pool) == [10**18, 7]
    evidence = pool.endpoint.health.evidence
    assert evidence is not None
    assert (evidence.chain, evidence.endpoint, evidence.time_us) == ("fake", "one.test", pool.clock.now_us())
    assert evidence.asked == f"the balance of {BOB} at block 5 {pool.node_block(5).hash}"
    assert (evidence.given, evidence.truth.split(" by ")[0]) == ("('value', '0')", "('value', '7')")
    request_count = len(pool.transport.order)
    assert await balances(pool) == [10**18, 7]
    assert "one.test" not in pool.transport.order[request_count:]


async def test_two_that_agree_are_enough() -> None:
    pool = three(lambda node: None)
    assert await balances(pool) == [10**18, 7]
    assert set(pool.transport.order) == {"one.test", "two.test"}


async def test_without_a_majority_there_is_no_value_and_nobody_is_cordoned() -> None:
    chain = FakeChain(6)
    nodes = [honest(chain) for _ in range(2)]
    poorer(nodes[0])
    pool = witnessed(*nodes)
    with pytest.raises(NoQuorum, match=r"one.test, two.test contradict each other.*the balance of 0xbb"):
        await balances(pool)
    assert all(endpoint.health.evidence is None for endpoint in pool.node.endpoints)


async def test_what_only_one_could_read_is_unknown_and_no_value() -> None:
    def dumb(params: list[Any]) -> Any:
        raise RpcRefusal(-32000, "out of gas")

    chain = FakeChain(6)
    nodes = [honest(chain) for _ in range(2)]
    nodes[1].on = {"eth_call": dumb, "eth_getBalance": dumb}
    values = await balances(witnessed(*nodes))
    assert all(isinstance(each, Unknown) for each in values)


async def test_one_that_does_not_answer_is_replaced_and_too_few_are_an_error() -> None:
    pool = three(lambda node: None)
    pool.transport.nodes[URLS[0]].always = Unavailable("one.test", "is on fire")
    assert await balances(pool) == [10**18, 7]
    pool.transport.nodes[URLS[1]].always = Unavailable("two.test", "is on fire")
    with pytest.raises(Unavailable, match="on fire"):
        await balances(pool)


def other_time(node: FakeNode) -> None:
    node.chain.headers[4]["timestamp"] = hex(int(node.chain.headers[4]["timestamp"], 16) + 1)


async def test_a_header_is_what_the_majority_says() -> None:
    pool = three(other_time)
    assert await pool.node.block(4) == pool.transport.nodes[URLS[1]].chain.block(4)
    assert pool.endpoint.health.evidence is not None
    assert pool.endpoint.health.evidence.asked == "the header of block 4"


async def test_another_branch_above_what_is_final_is_no_lie() -> None:
    pool = three(lambda node: node.chain.reorganise(5, "b"))
    pool.node.finalized = 3
    truth = pool.transport.nodes[URLS[1]].chain.block(6)
    assert await pool.node.block(6) == truth
    assert pool.endpoint.health.evidence is None
    two = witnessed(*(pool.transport.nodes[url] for url in URLS[:2]))
    two.node.finalized = 3
    with pytest.raises(Unavailable, match="contradict"):
        await two.node.block(6)


async def read(pool: Wired) -> Chunk:
    return await pool.reader().read(Span(1, 6), TRANSFERS, headers=True)


@pytest.mark.parametrize(
    "lie",
    [
        lambda logs: logs[3].clear(),
        lambda logs: logs[3][0].update(data=f"0x{99:064x}"),
        lambda logs: logs[3].append({**logs[3][0], "logIndex": "0x1"}),
        lambda logs: logs[3][0].update(transactionHash="0x" + "77" * 32),
    ],
)
async def test_logs_are_what_the_majority_says(lie: Callable[[list[Any]], None]) -> None:
    pool = three(lambda node: lie(node.chain.logs))
    chunk = await read(pool)
    assert chunk.logs.height.tolist() == [1, 2, 3, 4, 5, 6]
    assert [int.from_bytes(word.tobytes(), "big") for word in chunk.logs.word] == [1, 2, 3, 4, 5, 6]
    assert pool.endpoint.health.evidence is not None
    assert pool.endpoint.health.evidence.asked == "the logs of blocks 1..6"


@pytest.mark.parametrize("claimed", [3, 400])
async def test_nobody_alone_moves_the_head(claimed: int) -> None:
    def lie(node: FakeNode) -> None:
        plain = node.eth_getBlockByNumber
        head = {**node.chain.headers[3], "number": hex(claimed)}
        node.on["eth_getBlockByNumber"] = lambda params: head if params[0] == "latest" else plain(params)

    heads = await three(lie).node.connect()
    assert (heads.latest.height, heads.finalized) == (6, 4)


async def test_who_is_behind_is_waited_for() -> None:
    pool = three(lambda node: None)
    with pytest.raises(NodeBehind):
        await pool.node.block(7)
    assert pool.clock.slept == [0.5, 1.0, 2.0]


# --- a quorum of one: what a bloom promises ---------------------------------------------------------------------------


async def test_a_silence_that_another_endpoint_breaks_is_not_believed() -> None:
    """The first gives nothing of a block, not even by its hash, though its bloom promises something."""
    chain = FakeChain(6)
    first = FakeNode(copy.deepcopy(chain))
    first.chain.logs[3].clear()
    pool = wired(first, FakeNode(chain), checked=True)
    assert (await read(pool)).logs.height.tolist() == [1, 2, 3, 4, 5, 6]
    assert errors_of(pool.node)["one.test"] == {"OmittedLogs": 1}


async def test_a_silence_that_another_endpoint_shares_is_believed() -> None:
    chain = FakeChain(2)
    chain.mine(transfer())
    chain.logs[3].clear()
    pool = wired(FakeNode(chain), FakeNode(chain), checked=True)
    assert (await pool.reader().read(Span(1, 3), TRANSFERS)).logs.height.tolist() == [1, 2]


# --- settings and restarts -------------------------------------------------------------------------------------------


def test_fewer_endpoints_than_witnesses_are_refused() -> None:
    url = "http://127.0.0.1:1"
    with pytest.raises(BadSettings, match=r"chains.base.quorum: 2 endpoints have to agree, and rpc names 1"):
        check(Settings(chains={"base": EvmSettings(rpc=[url, url], quorum=2)}))
    check(Settings(chains={"base": EvmSettings(rpc=[url, "http://127.0.0.1:2"], quorum=2)}))


@pytest.mark.parametrize("wrong", [{"sample": 0}, {"quorum": 0}, {"reorg_depth": -1}, {"integrity": "rots"}])
def test_settings_that_cannot_be_meant_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadSettings, match=r"chains\.base"):
        check(Settings(chains={"base": EvmSettings(rpc=URLS, **wrong)}))


async def test_a_cordon_outlives_a_restart_until_the_endpoint_is_readmitted(tmp_path: Path) -> None:
    configs = Path(__file__).parents[2] / "configs"
    tail = Tail(tmp_path / "tail.db")

    def chain() -> Any:
        settings = EvmSettings(rpc=URLS)
        memory = EndpointMemory(quarantined=tail.quarantined, on_quarantine=tail.quarantine)
        return build("local", settings, Environment(), configs=configs, memory=memory)

    first = chain()
    first.node.quarantine(first.node.endpoints[1], "the balance of somebody", "1", "2 by a majority")
    restarted = chain()
    assert [endpoint.name for endpoint in restarted.node.ranked()] == ["one.test", "three.test"]
    assert restarted.node.endpoints[1].health.evidence == first.node.endpoints[1].health.evidence
    assert (tail.reinstate(identity(URLS[1])), tail.reinstate(identity(URLS[1]))) == (True, False)
    assert len(chain().node.ranked()) == 3
    tail.close()


async def test_where_all_are_cordoned_the_cure_is_told() -> None:
    pool = three(lambda node: None)
    for endpoint in pool.node.endpoints[:2]:
        pool.node.quarantine(endpoint, "a", "b", "c")
    pool.node.endpoints.pop()
    with pytest.raises(Unavailable, match=r"every endpoint is quarantined.*--reinstate"):
        await balances(pool)
