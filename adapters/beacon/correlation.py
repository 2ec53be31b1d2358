"""Compute the correlation penalty: a validator pays it halfway to its withdrawal after a slashing.

It is higher if more stake was slashed at about the same time.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from chainfolio.adapters.beacon.reader import NOT_SERVED, Reader, gather_all
from chainfolio.adapters.beacon.spec import Spec
from chainfolio.adapters.beacon.state_reader import StateReader
from chainfolio.adapters.beacon.validator_table import Array, ValidatorTable
from chainfolio.adapters.beacon.voting import is_active


async def correlation_penalties(reader: Reader, epoch: int, validators: ValidatorTable) -> Mapping[int, int] | None:
    """Return the penalties in gwei (positive) that the transition into an epoch takes, by validator.

    Only slashed validators whose penalty is due then are included. None if no node has the states that they depend on.

    Args:
        epoch: The epoch that begins.
        validators: The selected ones, at the end of the epoch before or of this one.
    """
    half_vector = reader.spec.number("EPOCHS_PER_SLASHINGS_VECTOR") // 2
    is_due = validators.slashed.astype(bool) & (validators.withdrawable_epoch == epoch - 1 + half_vector)
    due = validators.index[is_due]
    if not len(due):
        return {}
    try:
        return await _compute_penalties(reader, epoch - 1, due)
    except NOT_SERVED:
        return None


async def _compute_penalties(reader: Reader, epoch: int, due: Array) -> Mapping[int, int]:
    """Return penalties at the end of an epoch, from the network's active stake and recent slashings."""
    network = reader.computed_rewards().network
    registry = await network.validators(epoch)
    active_balance = int(registry.effective_balance[is_active(registry, epoch)].sum())
    slashed = registry.select(registry.index[registry.slashed.astype(bool)])
    slashed_balance = await _slashed_balance(network, epoch, slashed)
    due_validators = registry.select(due)
    amounts = penalties(reader.spec, epoch, due_validators.effective_balance, slashed_balance, active_balance)
    return dict(zip(due_validators.index.tolist(), amounts, strict=True))


def penalties(spec: Spec, epoch: int, effective: Array, slashed: int, total: int) -> list[int]:
    """Return the penalty in gwei for each effective balance, in order, at the end of an epoch.

    Each is rounded down, to whole increments before Electra.

    Args:
        effective: Effective balances in gwei.
        slashed: Gwei that were slashed in the network recently.
        total: Active gwei of the network.
    """
    name = "PROPORTIONAL_SLASHING_MULTIPLIER"
    fork = spec.fork(epoch)
    suffix = {"phase0": "", "altair": "_ALTAIR"}.get(fork, "_BELLATRIX")
    increment = spec.number("EFFECTIVE_BALANCE_INCREMENT")
    total = max(increment, total)
    adjusted = min(slashed * spec.number(name + suffix), total)
    increments = [each // increment for each in effective.tolist()]  # products of them are too large for an array
    if spec.is_at_least("electra", epoch):
        return [each * (adjusted // (total // increment)) for each in increments]
    return [each * adjusted // total * increment for each in increments]


async def _slashed_balance(reader: StateReader, epoch: int, slashed: ValidatorTable) -> int:
    """Return the effective balance that was slashed in the epochs of the slashings vector, as it was then."""
    vector = reader.spec.number("EPOCHS_PER_SLASHINGS_VECTOR")
    first = max(0, epoch - vector + 1)
    # A slashed validator stays for at least a whole vector, and longer if the exit queue is long.
    latest = np.minimum(slashed.withdrawable_epoch - vector, epoch)
    latest[latest < 0] = epoch  # such an early withdrawable epoch was not set by the slashing
    groups = {last: slashed.index[latest == last].tolist() for last in np.unique(latest[latest >= first]).tolist()}
    return sum(await gather_all(_group_balance(reader, first, last, group) for last, group in groups.items()))


async def _group_balance(reader: StateReader, first: int, latest: int, group: list[int]) -> int:
    """Return the gwei of validators that were slashed in the epoch `latest`, or from `first` on before it.

    Each counts with its effective balance when it was slashed.
    """
    earlier: list[int] = []
    if latest > 0:
        before = await reader.select_validators(latest - 1, group)
        earlier = before.index[before.slashed.astype(bool)].tolist()
    now = await reader.select_validators(latest, sorted(set(group) - set(earlier)))
    return int(now.effective_balance.sum()) + sum(
        await gather_all(_balance_when_slashed(reader, first, latest - 1, each) for each in earlier)
    )


async def _balance_when_slashed(reader: StateReader, first: int, last: int, validator: int) -> int:
    """Return a validator's effective balance when it was slashed, 0 if that was before epoch `first`.

    It is slashed at the end of `last`. The epoch is found by bisection.
    """
    low, high = max(0, first - 1), last
    while low < high:
        middle = (low + high) // 2
        if (await reader.select_validators(middle, [validator])).slashed.any():
            high = middle
        else:
            low = middle + 1
    return 0 if low < first else int((await reader.select_validators(low, [validator])).effective_balance.sum())
