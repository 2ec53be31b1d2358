"""Measure reading a validator registry: from JSON pages, and from a whole state in SSZ."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from bench.beacon_node import GENESIS_ROOT, SLOTS, SPEC, Answers, Network, text
from bench.figures import Figure
from chainfolio.adapters.beacon.block_responses import SignedBlock
from chainfolio.adapters.beacon.registry import PAGE_SIZE
from chainfolio.adapters.beacon.responses import Genesis, KeyedRow, RegistryRow, response_decoder
from chainfolio.adapters.beacon.spec import Spec
from chainfolio.adapters.beacon.ssz import MEDIA_TYPE, Layout, StateSink, state_layout
from chainfolio.adapters.beacon.validator_table import ValidatorTable, concatenate, validator_table

REST_SLOT: Final = 20 * SLOTS
ARRIVES: Final = 1 << 18  # bytes at once


def from_json(pieces: Sequence[bytes], *, keyed: bool, known_keys: Any) -> ValidatorTable:
    """Read the registry from JSON as the adapter does, with its public keys or with known ones."""
    tables = []
    for at, piece in enumerate(pieces):
        if keyed:
            tables.append(validator_table("node", response_decoder(list[KeyedRow])("node", piece).data))
        else:
            keys = known_keys[at * PAGE_SIZE : (at + 1) * PAGE_SIZE]
            tables.append(validator_table("node", response_decoder(list[RegistryRow])("node", piece).data, keys))
    return concatenate(tables)


def from_ssz(layout: Layout, body: memoryview) -> ValidatorTable:
    """Read the registry from an SSZ state that arrives in pieces."""
    sink = StateSink("node", layout, REST_SLOT, GENESIS_ROOT)
    sink.begin({b"content-type": MEDIA_TYPE, b"eth-consensus-version": "electra"}, len(body))
    for at in range(0, len(body), ARRIVES):
        sink.take(body[at : at + ARRIVES])
    return sink.table()


def spent(work: Callable[[], object], repeat: int) -> float:
    """Return the median of the processor seconds of `repeat` runs, after one that does not count."""
    times = []
    for _ in range(repeat + 1):
        start_s = time.process_time()
        work()
        times.append(time.process_time() - start_s)
    return statistics.median(times[1:])


def run(count: int, repeat: int) -> list[Figure]:
    """Compare processor time and bytes of states in JSON and in SSZ, and return the figures."""
    answers = Answers(Network(count, REST_SLOT + SLOTS), ssz=True)
    path = f"/eth/v1/beacon/states/{REST_SLOT}/validators"
    pages = [[str(each) for each in range(at, min(at + PAGE_SIZE, count))] for at in range(0, count, PAGE_SIZE)]
    pieces = [answers.answer(path, json.dumps({"ids": ids}).encode()) or b"" for ids in pages]
    read = from_json(pieces, keyed=True, known_keys=None)
    body = memoryview(b"".join(answers.state(f"/eth/v2/debug/beacon/states/{REST_SLOT}") or ()))
    spec = Spec("node", Genesis(0, GENESIS_ROOT, "0x00000000"), json.loads(text(SPEC)))
    layout = state_layout(spec, spec.epoch(REST_SLOT))
    assert layout is not None, "its fork is known"
    decoded = from_ssz(layout, body)
    assert all(np.array_equal(getattr(read, name), getattr(decoded, name)) for name in ValidatorTable.__slots__), (
        "the same columns"
    )
    first_s = spent(lambda: from_json(pieces, keyed=True, known_keys=None), repeat)
    next_s = spent(lambda: from_json(pieces, keyed=False, known_keys=read.pubkey), repeat)
    ssz_s = spent(lambda: from_ssz(layout, body), repeat)
    mb = sum(map(len, pieces)) / 1e6
    block = answers.answer(f"/eth/v2/beacon/blocks/{REST_SLOT}", b"") or b""
    block_s = spent(lambda: [response_decoder(SignedBlock)("node", block) for _ in range(SLOTS)], repeat)
    name = f"a registry of {count:,} validators"
    return [
        Figure(
            "validators",
            f"{name}: processor time of JSON, with its keys and without; of SSZ, s",
            f"{first_s:.2f}, {next_s:.2f}; {ssz_s:.2f}",
        ),
        Figure(
            "validators",
            f"{name}: bytes of its JSON; of the state in SSZ, which is one answer, MB",
            f"{mb:.0f}; {len(body) / 1e6:.0f}",
        ),
        Figure(
            "validators",
            f"{SLOTS} blocks of {len(block) / 1e3:.0f} kB in JSON: processor time, ms",
            f"{1e3 * block_s:.1f}",
        ),
    ]
