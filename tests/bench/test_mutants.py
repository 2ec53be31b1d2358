"""A short run of the mutants: every kind of reply is damaged in every way, field after field."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from bench.covered import spelt
from bench.damage import BATCHES, BYTES, KINDS, ODD, PLACES, SAME, VALUES, damaged, paths_of, pattern
from bench.mutants import judge

REPLY = {"hash": "0xabcd", "transactions": [{"from": "0x12"}, {"from": "0x34"}]}
BATCH = [{"jsonrpc": "2.0", "id": number, "result": msgspec.Raw(b'"0x%d"' % number)} for number in (1, 2, 3)]


@pytest.mark.slow("runs a benchmark of many mutations")
@pytest.mark.node
def test_mutated_replies_end_in_clean_rows_or_a_typed_error() -> None:
    outcome = judge(800, 7)
    assert not outcome.faults
    assert len(outcome.fields) >= 100, "every field of blocks, bodies, receipts, logs and traces has its turn"
    assert outcome.mutants >= 800
    assert outcome.recovered >= 32, "an honest node after every 25"
    assert outcome.indexes == 1
    assert outcome.stored > 0, "some mutants change nothing that is stored"
    assert outcome.refusals.total() > 400, "mutants that nobody notices test nothing"
    assert outcome.refusals["Contradiction"] > 50, "and many look well, and are told by a hash"


@pytest.mark.node
def test_a_round_of_mutants_is_the_same_round_again() -> None:
    first, second = (judge(10**6, 7, only=5) for _ in range(2))
    assert first.mutants > 0
    assert (first.pairs, first.refusals, first.equal) == (second.pairs, second.refusals, second.equal)


def test_every_place_of_a_reply_is_damaged_and_the_reply_itself_is_left_as_it_is() -> None:
    chance, before = random.Random(1), repr(REPLY)
    patterns = {pattern("m", at) for at in paths_of(REPLY)}
    assert patterns == {"m ", "m hash", "m transactions", "m transactions.*", "m transactions.*.from"}
    for at in paths_of(REPLY):
        changed = [damaged(chance, kind, REPLY, at) for kind in KINDS for _ in range(20)]
        assert sum(each is not SAME and each != REPLY for each in changed) > 60
        assert any(each in ODD for each in changed if each is not SAME) == (at == ())
    assert repr(REPLY) == before


@pytest.mark.parametrize("kind", [*VALUES, *PLACES])
def test_each_kind_of_damage_does_some(kind: str) -> None:
    chance = random.Random(2)
    reply: dict[str, Any] = {"a": "0x00ab", "b": [1, 2, 3], "c": {"d": "0x" + "1f" * 64}}
    damages = [damaged(chance, kind, reply, at) for at in paths_of(reply) for _ in range(20)]
    assert any(each is not SAME and each != reply for each in damages)


@pytest.mark.parametrize("kind", BATCHES)
def test_each_kind_of_damage_to_a_batch_does_some(kind: str) -> None:
    chance, true = random.Random(3), msgspec.json.encode(BATCH)
    assert any(msgspec.json.encode(BATCHES[kind](chance, BATCH)) != true for _ in range(20))
    assert msgspec.json.encode(BATCH) == true


@pytest.mark.parametrize("kind", BYTES)
def test_each_kind_of_damage_to_the_bytes_does_some(kind: str) -> None:
    chance, true = random.Random(4), msgspec.json.encode(BATCH)
    assert any(BYTES[kind](chance, true) != true for _ in range(20))


def test_what_no_hash_covers_has_to_be_spelt_as_everything_else() -> None:
    assert spelt({"sender": "0x" + "ab" * 20, "created": None, "raw": 1})
    assert not spelt({"sender": "0x" + "aB" * 20})
    assert not spelt({"hash": "0x" + "ab" * 32, "recipient": "latest"})
