"""Coins and tokens that calls of contracts carry."""

from __future__ import annotations

from tests.tron.fakes import ALICE, USDT, FakeNode, make_transaction
from tests.tron.test_faults import movement, rows


async def test_coins_and_tokens_that_a_call_carries_move_to_the_contract() -> None:
    node = FakeNode()
    node.transactions[50] = [make_transaction(31, (1, ALICE), (2, USDT), (3, 7), (5, 9), (6, 1_002_000))]
    tables = await rows(node)
    assert [movement(each) for each in tables["transfers"]] == [
        ("native", None, ALICE, USDT, 7),
        ("trc10", "1002000", ALICE, USDT, 9),
    ]
