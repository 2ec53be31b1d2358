"""What a slashed validator pays half-way to the end of its stay, by the rules: the more, the more others were."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from chainfolio.adapters.beacon.reader import NOT_TOLD, Reader, gathered
from chainfolio.adapters.beacon.spec import Spec
from chainfolio.adapters.beacon.states import States
from chainfolio.adapters.beacon.voting import is_active

if TYPE_CHECKING:
    from collections.abc import Mapping


async def half_way(reader: Reader, number: int, near: States) -> Mapping[int, int] | None:
    """What the transition into an epoch takes from wanted validators, in gwei by validator; `near` is their registry
    just before it or at the end of the epoch. None where no node keeps what it rests on."""
    half = reader.spec.number("EPOCHS_PER_SLASHINGS_VECTOR") // 2
    due = near.index[near.slashed.astype(bool) & (near.withdrawable_epoch == number - 1 + half)]
    if not len(due):
        return {}
    try:
        return await _by_rule(reader, number - 1, due)
    except NOT_TOLD:
        return None


async def _by_rule(reader: Reader, epoch: int, due: Any) -> Mapping[int, int]:
    """Of the whole network it takes the active stake, and what was slashed in the epochs that the state remembers."""
    everybody = reader.computing().everybody
    states = await everybody.states(epoch)
    total = int(states.effective_balance[is_active(states, epoch)].sum())
    slashed = await _slashed(everybody, epoch, states.only(states.index[states.slashed.astype(bool)]))
    own = states.only(due)
    return dict(
        zip(own.index.tolist(), penalties(reader.spec, epoch, own.effective_balance, slashed, total), strict=True)
    )


def penalties(spec: Spec, epoch: int, effective: Any, slashed: int, total: int) -> list[int]:
    """The penalty of each, at the end of an epoch in which the stake of the network is `total`."""
    name = "PROPORTIONAL_SLASHING_MULTIPLIER"
    fork = spec.fork(epoch)
    suffix = {"phase0": "", "altair": "_ALTAIR"}.get(fork, "_BELLATRIX")
    increment = spec.number("EFFECTIVE_BALANCE_INCREMENT")
    total = max(increment, total)
    counted = min(slashed * spec.number(name + suffix), total)
    increments = [each // increment for each in effective.tolist()]  # products of them are too large for an array
    if spec.is_at_least("electra", epoch):
        return [each * (counted // (total // increment)) for each in increments]
    return [each * counted // total * increment for each in increments]


async def _slashed(reader: Reader, epoch: int, slashed: States) -> int:
    """The effective balances of who was slashed in the epochs that count, each as it was then."""
    vector = reader.spec.number("EPOCHS_PER_SLASHINGS_VECTOR")
    first = max(0, epoch - vector + 1)
    # Who is slashed stays for a whole vector at least: longer where it waits in a long queue of exits.
    latest = np.minimum(slashed.withdrawable_epoch - vector, epoch)
    latest[latest < 0] = epoch  # an end that no slashing brings says nothing of when it was
    groups = {at: slashed.index[latest == at].tolist() for at in np.unique(latest[latest >= first]).tolist()}
    return sum(await gathered(_of_group(reader, first, at, group) for at, group in groups.items()))


async def _of_group(reader: Reader, first: int, latest: int, group: list[int]) -> int:
    """Those whose exit says that they were slashed in one epoch or before it."""
    earlier: list[int] = []
    if latest > 0:
        before = await reader.some(latest - 1, group)
        earlier = before.index[before.slashed.astype(bool)].tolist()
    now = await reader.some(latest, sorted(set(group) - set(earlier)))
    return int(now.effective_balance.sum()) + sum(
        await gathered(_of_earlier(reader, first, latest - 1, each) for each in earlier)
    )


async def _of_earlier(reader: Reader, first: int, last: int, validator: int) -> int:
    """One that is slashed by the end of `last`: what it had in the epoch in which it was, 0 where that was before the
    first that counts."""
    low, high = max(0, first - 1), last
    while low < high:
        middle = (low + high) // 2
        if (await reader.some(middle, [validator])).slashed.any():
            high = middle
        else:
            low = middle + 1
    return 0 if low < first else int((await reader.some(low, [validator])).effective_balance.sum())
