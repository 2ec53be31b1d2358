"""Coins at a past block by the block's hash, if a node keeps them, and tokens by movements since."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from chainfolio.blocks import Span
from chainfolio.contracts import Snapshot
from chainfolio.localchain.tron import answers
from chainfolio.localchain.tron.node import TronNode
from chainfolio.storage.lake import Lake
from chainfolio.storage.tail import Tail
from chainfolio.tables import ACCOUNT_TRANSFERS, TRANSFERS
from tests.chains.index import IndexOf
from tests.tron.chains import chain
from tests.tron.test_node import People

pytestmark = pytest.mark.node
EVERY = ("blocks", "transactions", "native", "internal", "transfers")
PAID, THEN = 7_000_000, 3
PATH = "getaccountbalance"


@asynccontextmanager
async def lived(node: TronNode, people: People, folder: Path) -> AsyncIterator[IndexOf[Any]]:
    """An index of a chain on which alice paid before and behind the block `THEN`, twice."""
    alice, bob, _ = people
    for _ in range(4):
        alice.pay(bob.hex, PAID)
        node.advance()
    node.advance(4)
    reads, tail = chain(node, folder), Tail(folder / "tail.db")
    index = IndexOf(reads, Lake(str(folder / "lake")), tail, EVERY)
    try:
        await index.fill(0, (await reads.heads()).finalized)
        await index.materialise()
        yield index
    finally:
        tail.close()
        await reads.close()


async def past(index: IndexOf[Any], account: str) -> tuple[int, Snapshot]:
    """Return the coins of an account at block THEN, and the snapshot."""
    snapshot = await index.snapshot([account], await index.block(THEN))
    return next(each.raw for each in snapshot.holdings if each.token.asset.is_native), snapshot


def record_requests(monkeypatch: pytest.MonkeyPatch, answer: Any = None) -> list[Any]:
    """Return the list of requests for past coins, which grows; `answer` changes the node's answers."""
    bodies: list[Any] = []
    real = answers.READS[PATH]

    def answer_past(view: Any, body: Any) -> Any:
        bodies.append(body)
        return real(view, body) if answer is None else answer(real(view, body))

    monkeypatch.setitem(answers.READS, PATH, answer_past)
    return bodies


async def test_a_node_that_keeps_coins_tells_them_by_hash_and_tokens_are_replayed(
    node: TronNode, people: People, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bodies = record_requests(monkeypatch)
    async with lived(node, people, tmp_path) as index:
        raw, snapshot = await past(index, people[1].address)
        assert raw == node.states[THEN].accounts[people[1].hex].balance
        assert [each["block_identifier"] for each in bodies] == [{"hash": node.blocks[THEN].id, "number": THEN}]
        assert any("tells this balance of the block itself" in each.reason for each in snapshot.issues)
        assert not any(each.makes_partial for each in snapshot.issues)


async def test_where_rows_come_to_something_else_the_node_counts_and_the_answer_is_partial(
    node: TronNode, people: People, tmp_path: Path
) -> None:
    async with lived(node, people, tmp_path) as index:
        gap = Span(THEN + 1, THEN + 1)
        index.lake.delete_span(index.key, gap, [TRANSFERS, ACCOUNT_TRANSFERS])
        raw, snapshot = await past(index, people[1].address)
        assert raw == node.states[THEN].accounts[people[1].hex].balance
        (issue,) = [each for each in snapshot.issues if "which counts" in each.reason]
        assert issue.makes_partial
        assert str(raw + PAID) in issue.reason


async def test_nothing_is_never_believed_and_such_a_node_is_not_asked_again(
    node: TronNode, people: People, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node without such a history answers as for an account that never had a coin."""
    node.balances, bodies = False, record_requests(monkeypatch)
    async with lived(node, people, tmp_path) as index:
        for _ in range(2):
            raw, snapshot = await past(index, people[1].address)
            assert raw == node.states[THEN].accounts[people[1].hex].balance
            assert not any(each.makes_partial for each in snapshot.issues)
        assert len(bodies) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"balance": -5},
        {"balance": "many"},
        {"balance": 2**70},
        {"block_identifier": None},
        {"block_identifier": {"number": 5, "hash": "00" * 32}},
        {"block_identifier": {"number": -1, "hash": "zz"}},
        {"block_identifier": {"number": 6, "hash": "0000000000000006" + "ab" * 24}},
        {"block_identifier": {"number": THEN, "hash": f"{THEN:016x}" + "ab" * 24}},
    ],
)
async def test_what_cannot_be_meant_is_not_taken(
    node: TronNode, people: People, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any]
) -> None:
    record_requests(monkeypatch, lambda told: {**told, **change})
    async with lived(node, people, tmp_path) as index:
        raw, _ = await past(index, people[1].address)
        assert raw == node.states[THEN].accounts[people[1].hex].balance
