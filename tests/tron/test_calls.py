"""What calls of contracts move by themselves."""

from __future__ import annotations

from tests.tron.fakes import ALICE, USDT, FakeNode, done
from tests.tron.test_faults import moved, rows


async def test_coins_and_tokens_that_a_call_carries_move_to_the_contract() -> None:
    node = FakeNode()
    node.transactions[50] = [done(31, (1, ALICE), (2, USDT), (3, 7), (5, 9), (6, 1_002_000))]
    found = await rows(node)
    assert [moved(each) for each in found["transfers"]] == [
        ("native", None, ALICE, USDT, 7),
        ("trc10", "1002000", ALICE, USDT, 9),
    ]
