"""Coins at a past block, where a node keeps them: by the block's hash, and beside them tokens by what moved since."""

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
    """The coins of an account at that block, with all that is said of it."""
    found = await index.snapshot([account], await index.block(THEN))
    return next(each.raw for each in found.holdings if each.token.asset.is_native), found


def counted(monkeypatch: pytest.MonkeyPatch, answer: Any = None) -> list[Any]:
    """Every question for coins of the past; `answer` makes another answer of the node's."""
    asked: list[Any] = []
    real = answers.READS[PATH]

    def told(view: Any, body: Any) -> Any:
        asked.append(body)
        return real(view, body) if answer is None else answer(real(view, body))

    monkeypatch.setitem(answers.READS, PATH, told)
    return asked


async def test_a_node_that_keeps_coins_tells_them_by_hash_and_tokens_are_replayed(
    node: TronNode, people: People, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = counted(monkeypatch)
    async with lived(node, people, tmp_path) as index:
        raw, found = await past(index, people[1].address)
        assert raw == node.states[THEN].accounts[people[1].hex].balance
        assert [each["block_identifier"] for each in asked] == [{"hash": node.blocks[THEN].id, "number": THEN}]
        assert any("tells this balance of the block itself" in each.reason for each in found.issues)
        assert not any(each.makes_partial for each in found.issues)


async def test_where_rows_come_to_something_else_the_node_counts_and_the_answer_is_partial(
    node: TronNode, people: People, tmp_path: Path
) -> None:
    async with lived(node, people, tmp_path) as index:
        lost = Span(THEN + 1, THEN + 1)
        index.lake.delete_span(index.key, lost, [TRANSFERS, ACCOUNT_TRANSFERS])
        raw, found = await past(index, people[1].address)
        assert raw == node.states[THEN].accounts[people[1].hex].balance
        (said,) = [each for each in found.issues if "which counts" in each.reason]
        assert said.makes_partial
        assert str(raw + PAID) in said.reason


async def test_nothing_is_never_believed_and_such_a_node_is_not_asked_again(
    node: TronNode, people: People, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that keeps no such history answers as of an account that never had anything."""
    node.balances, asked = False, counted(monkeypatch)
    async with lived(node, people, tmp_path) as index:
        for _ in range(2):
            raw, found = await past(index, people[1].address)
            assert raw == node.states[THEN].accounts[people[1].hex].balance
            assert not any(each.makes_partial for each in found.issues)
        assert len(asked) == 1


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
    counted(monkeypatch, lambda told: {**told, **change})
    async with lived(node, people, tmp_path) as index:
        raw, _ = await past(index, people[1].address)
        assert raw == node.states[THEN].accounts[people[1].hex].balance
