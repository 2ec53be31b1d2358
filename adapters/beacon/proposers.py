"""Compute the proposers of an epoch: many nodes do not serve them for past epochs.

Source: the consensus specification, `get_seed`, `compute_shuffled_index`, `compute_proposer_index` (with the 16-bit
random values of Electra), and from Fulu on `get_beacon_proposer_indices`, one epoch ahead.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from typing import Final

from chainfolio.adapters.beacon.spec import Spec
from chainfolio.adapters.beacon.validator_table import Array, ValidatorTable

DOMAIN_BEACON_PROPOSER: Final = bytes(4)


def state_epoch(spec: Spec, epoch: int) -> int:
    """Return the epoch whose registry selects the proposers of an epoch: from Fulu on the one before."""
    return epoch - 1 if epoch and spec.is_at_least("fulu", epoch) else epoch


def mix_epoch(spec: Spec, epoch: int) -> int:
    """Return the epoch whose RANDAO mix selects the proposers of an epoch; negative for that of genesis."""
    return epoch - spec.number("MIN_SEED_LOOKAHEAD") - 1


def proposers(spec: Spec, epoch: int, slots: Iterable[int], mix: bytes, registry: ValidatorTable) -> dict[int, int]:
    """Return the proposer of each of some slots of an epoch.

    Args:
        epoch: The epoch of the slots.
        slots: Need not be all of the epoch.
        mix: The RANDAO mix of `mix_epoch`.
        registry: All validators at the end of `state_epoch`.
    """
    is_active = (registry.activation_epoch <= epoch) & (epoch < registry.exit_epoch)
    index, balance = registry.index[is_active], registry.effective_balance[is_active]
    seed = sha256(DOMAIN_BEACON_PROPOSER + epoch.to_bytes(8, "little") + mix).digest()
    return {
        slot: int(index[_select_proposer(spec, epoch, sha256(seed + slot.to_bytes(8, "little")).digest(), balance)])
        for slot in slots
    }


def _select_proposer(spec: Spec, epoch: int, seed: bytes, balance: Array) -> int:
    """Return the position of the proposer among the active validators, sampled by effective balance."""
    is_wide = spec.is_at_least("electra", epoch)
    size, per_hash, max_random = (2, 16, 2**16 - 1) if is_wide else (1, 32, 2**8 - 1)
    max_balance = spec.number("MAX_EFFECTIVE_BALANCE_ELECTRA" if is_wide else "MAX_EFFECTIVE_BALANCE")
    count, rounds, i = len(balance), spec.number("SHUFFLE_ROUND_COUNT"), 0
    while True:
        if i % per_hash == 0:
            random_bytes = sha256(seed + (i // per_hash).to_bytes(8, "little")).digest()
        candidate = shuffled(i % count, count, seed, rounds)
        start = i % per_hash * size
        random_value = int.from_bytes(random_bytes[start : start + size], "little")
        if int(balance[candidate]) * max_random >= max_balance * random_value:
            return candidate
        i += 1


def shuffled(position: int, count: int, seed: bytes, rounds: int) -> int:
    """Return `compute_shuffled_index` of a position among `count`: the swap-or-not shuffle."""
    for number in range(rounds):
        prefix = seed + bytes([number])
        pivot = int.from_bytes(sha256(prefix).digest()[:8], "little") % count
        flip = (pivot + count - position) % count
        highest = max(position, flip)
        source = sha256(prefix + (highest // 256).to_bytes(4, "little")).digest()
        if source[highest % 256 // 8] >> (highest % 8) & 1:
            position = flip
    return position
