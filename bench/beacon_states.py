"""What a registry costs to read: from the JSON that nodes have for it, and out of a whole state in SSZ."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from adapters.beacon.answers import KeyedRow, RegistryRow, SignedBlock, decoded
from adapters.beacon.registry import PIECE
from adapters.beacon.states import NEVER, States, columns, joined
from bench.beacon_node import SLOTS, Answers, Network
from bench.figures import Figure

# A validator as SSZ has it: 121 bytes, numbers with the least byte first.
VALIDATOR: Final = np.dtype([
    ("pubkey", "V48"), ("credentials", "V32"), ("effective_balance", "<u8"), ("slashed", "?"),
    ("activation_eligibility_epoch", "<u8"), ("activation_epoch", "<u8"), ("exit_epoch", "<u8"),
    ("withdrawable_epoch", "<u8"),
])  # fmt: skip
# Beside validators and balances: participation of two epochs, inactivity, mixes, roots, what mainnet has in queues.
OTHER_BYTES: Final = (1 + 1 + 8, 65_536 * 32 + 2 * 8_192 * 32 + 8_192 * 8 + 27_000_000)
REST_SLOT: Final = 20 * SLOTS


def from_json(pieces: Sequence[bytes], *, keyed: bool, known: Any) -> States:
    """As the adapter reads it: with the public keys, or with those that it knows."""
    found = []
    for at, piece in enumerate(pieces):
        if keyed:
            found.append(columns("node", decoded(list[KeyedRow])("node", piece).data))
        else:
            keys = known[at * PIECE : (at + 1) * PIECE]
            found.append(columns("node", decoded(list[RegistryRow])("node", piece).data, keys))
    return joined(found)


def from_ssz(validators: bytes, balances: bytes) -> States:
    """The same out of the two lists of a state."""
    rows = np.frombuffer(validators, VALIDATOR)
    numbers = {
        name: np.minimum(rows[name], NEVER).astype(np.int64)
        for name in ("effective_balance", *VALIDATOR.names[4:])  # type: ignore[index]
    }
    return States(
        np.arange(len(rows)), np.frombuffer(balances, "<u8").astype(np.int64),
        slashed=np.ascontiguousarray(rows["slashed"]), pubkey=np.ascontiguousarray(rows["pubkey"]),
        credentials=np.ascontiguousarray(rows["credentials"]), **numbers,
    )  # fmt: skip


def written(states: States) -> tuple[bytes, bytes]:
    """A registry as SSZ: its validators, its balances."""
    rows = np.zeros(len(states), VALIDATOR)
    for name in VALIDATOR.names or ():
        rows[name] = getattr(states, name)
    return rows.tobytes(), states.balance.astype("<u8").tobytes()


def spent(work: Callable[[], object], repeat: int) -> float:
    """Processor seconds, the median of some runs after one."""
    times = []
    for _ in range(repeat + 1):
        start_s = time.process_time()
        work()
        times.append(time.process_time() - start_s)
    return statistics.median(times[1:])


def run(count: int, repeat: int) -> list[Figure]:
    """Processor time and bytes of both, and of the blocks of an epoch."""
    answers = Answers(Network(count, REST_SLOT + SLOTS))
    path = f"/eth/v1/beacon/states/{REST_SLOT}/validators"
    asked = [[str(each) for each in range(at, min(at + PIECE, count))] for at in range(0, count, PIECE)]
    pieces = [answers.answer(path, json.dumps({"ids": ids}).encode()) or b"" for ids in asked]
    read = from_json(pieces, keyed=True, known=None)
    validators, balances = written(read)
    same = from_ssz(validators, balances)
    assert all(np.array_equal(getattr(read, name), getattr(same, name)) for name in States.__slots__), (
        "the same columns"
    )
    first_s = spent(lambda: from_json(pieces, keyed=True, known=None), repeat)
    next_s = spent(lambda: from_json(pieces, keyed=False, known=read.pubkey), repeat)
    ssz_s = spent(lambda: from_ssz(validators, balances), repeat)
    mb = sum(map(len, pieces)) / 1e6
    ssz_mb = (len(validators) + len(balances) + OTHER_BYTES[0] * count + OTHER_BYTES[1]) / 1e6
    block = answers.answer(f"/eth/v2/beacon/blocks/{REST_SLOT}", b"") or b""
    block_s = spent(lambda: [decoded(SignedBlock)("node", block) for _ in range(SLOTS)], repeat)
    name = f"a registry of {count:,} validators"
    return [
        Figure("validators", f"{name}: processor time of JSON, with its keys and without; of SSZ, s",
               f"{first_s:.2f}, {next_s:.2f}; {ssz_s:.2f}"),
        Figure("validators", f"{name}: bytes of its JSON; of the state in SSZ, which is one answer, MB",
               f"{mb:.0f}; {ssz_mb:.0f}"),
        Figure("validators", f"{SLOTS} blocks of {len(block) / 1e3:.0f} kB in JSON: processor time, ms",
               f"{1e3 * block_s:.1f}"),
    ]  # fmt: skip
