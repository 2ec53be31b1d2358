"""A beacon state of any size in SSZ: identification and validator registry, all other bytes are zeros."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from chainfolio.adapters.beacon.responses import Genesis
from chainfolio.adapters.beacon.spec import Spec
from chainfolio.adapters.beacon.ssz import BALANCE, OFFSET, PER_VALIDATOR_LISTS, RECORDS, VALIDATOR, state_layout

# Bytes that lists of mainnet's history and queues have.
OTHERS: Final = {"historical_roots": 758 * 32, "historical_summaries": 700 * 64, "pending_deposits": 130_000 * 192}


def encoded(values: Mapping[str, Any], genesis_root: str, slot: int, rows: Any, balances: Any) -> list[bytes]:
    """Return the parts of a state after a slot in SSZ; `rows` are of `VALIDATOR`, balances in Gwei."""
    spec = Spec("bench", Genesis(0, genesis_root, "0x00000000"), values)
    layout = state_layout(spec, spec.epoch(slot))
    assert layout is not None, "the fork and the preset are known"
    fixed = bytearray(layout.size)
    fixed[layout.root : layout.root + 32] = bytes.fromhex(genesis_root[2:])
    fixed[layout.slot : layout.slot + 8] = slot.to_bytes(8, "little")
    parts, at = list[bytes](), layout.size
    for name, position in layout.lists.items():
        fixed[position : position + OFFSET] = at.to_bytes(OFFSET, "little")
        if name == "validators":
            part = rows.tobytes()
        elif name == "balances":
            part = balances.astype(BALANCE).tobytes()
        else:
            part = bytes(len(rows) * RECORDS[name] if name in PER_VALIDATOR_LISTS else OTHERS.get(name, 0))
        at += len(part)
        parts.append(part)
    return [bytes(fixed), *parts]


def registered(count: int) -> Any:
    """Return the records of `count` validators with 32 ETH and distinct keys and addresses."""
    rows = np.zeros(count, VALIDATOR)
    numbers = np.arange(count).astype(">u8")
    for name, size, first in (("pubkey", 48, 0), ("credentials", 32, 1)):
        content = np.zeros((count, size), np.uint8)
        content[:, 0] = first
        content[:, -8:] = numbers.view(np.uint8).reshape(count, 8)
        rows[name] = content.view(f"V{size}").ravel()
    rows["effective_balance"] = 32 * 10**9
    for name in ("exit_epoch", "withdrawable_epoch"):
        rows[name] = 2**64 - 1
    return rows
