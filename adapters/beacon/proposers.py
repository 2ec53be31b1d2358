"""Who was to propose in the slots of an epoch, by the rules of the chain: many nodes do not say it of past epochs.

The rules are those of the consensus specification: `get_seed`, `compute_shuffled_index`, `compute_proposer_index` (with
the wider random values of Electra), and from Fulu on `get_beacon_proposer_indices`, one epoch ahead.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from typing import Any, Final

from chainfolio.adapters.beacon.spec import Spec
from chainfolio.adapters.beacon.states import States

DOMAIN_BEACON_PROPOSER: Final = bytes(4)


def state_epoch(spec: Spec, epoch: int) -> int:
    """The epoch whose registry chooses the proposers of an epoch: from Fulu on the one before."""
    return epoch - 1 if epoch and spec.is_at_least("fulu", epoch) else epoch


def mix_epoch(spec: Spec, epoch: int) -> int:
    """The epoch whose RANDAO mix chooses the proposers of an epoch; below 0 it is the mix that the chain began with."""
    return epoch - spec.number("MIN_SEED_LOOKAHEAD") - 1


def proposers(spec: Spec, epoch: int, slots: Iterable[int], mix: bytes, registry: States) -> dict[int, int]:
    """Return who was to propose in each of some slots of an epoch.

    Args:
        mix: The RANDAO mix of `mix_epoch`.
        registry: All validators at the end of `state_epoch`.
    """
    is_active = (registry.activation_epoch <= epoch) & (epoch < registry.exit_epoch)
    index, balance = registry.index[is_active], registry.effective_balance[is_active]
    seed = sha256(DOMAIN_BEACON_PROPOSER + epoch.to_bytes(8, "little") + mix).digest()
    return {
        slot: int(index[_chosen(spec, epoch, sha256(seed + slot.to_bytes(8, "little")).digest(), balance)])
        for slot in slots
    }


def _chosen(spec: Spec, epoch: int, seed: bytes, balance: Any) -> int:
    """The place of the proposer among the active validators: each is taken as likely as its balance is large."""
    is_wide = spec.is_at_least("electra", epoch)
    size, per_hash, most = (2, 16, 2**16 - 1) if is_wide else (1, 32, 2**8 - 1)
    limit = spec.number("MAX_EFFECTIVE_BALANCE_ELECTRA" if is_wide else "MAX_EFFECTIVE_BALANCE")
    count, rounds, number = len(balance), spec.number("SHUFFLE_ROUND_COUNT"), 0
    while True:
        if number % per_hash == 0:
            drawn = sha256(seed + (number // per_hash).to_bytes(8, "little")).digest()
        place = shuffled(number % count, count, seed, rounds)
        start = number % per_hash * size
        if int(balance[place]) * most >= limit * int.from_bytes(drawn[start : start + size], "little"):
            return place
        number += 1


def shuffled(place: int, count: int, seed: bytes, rounds: int) -> int:
    """Where the swap-or-not shuffle of `count` places takes a place from."""
    for number in range(rounds):
        turn = bytes([number])
        pivot = int.from_bytes(sha256(seed + turn).digest()[:8], "little") % count
        other = (pivot + count - place) % count
        position = max(place, other)
        drawn = sha256(seed + turn + (position // 256).to_bytes(4, "little")).digest()
        if drawn[position % 256 // 8] >> (position % 8) & 1:
            place = other
    return place
