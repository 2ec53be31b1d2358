"""A short run of the mutants: every field of every kind of reply is changed at least once."""

from __future__ import annotations

import asyncio
import random

import pytest

from bench.mutants import ODD, judge, mutated, paths, pattern

REPLY = {"hash": "0xabcd", "transactions": [{"from": "0x12"}, {"from": "0x34"}]}


@pytest.mark.node
def test_mutated_replies_end_in_clean_rows_or_a_typed_error() -> None:
    outcome = asyncio.run(judge(250, 7))
    assert not outcome.faults
    assert outcome.fields >= 100, "every field of blocks, bodies, receipts, logs and traces has its turn"
    assert outcome.mutants == 250 > 2 * outcome.fields
    assert sum(outcome.refused.values()) > 100, "mutants that nobody notices test nothing"


def test_every_place_of_a_reply_is_changed_and_the_reply_itself_is_left_as_it_is() -> None:
    chance, before = random.Random(1), repr(REPLY)
    found = {pattern("m", at) for at in paths(REPLY)}
    assert found == {"m ", "m hash", "m transactions", "m transactions.*", "m transactions.*.from"}
    for at in paths(REPLY):
        changed = [mutated(chance, REPLY, at) for _ in range(50)]
        assert any(each != REPLY for each in changed)
        assert any(each in ODD for each in changed) == (at == ())
    assert repr(REPLY) == before
