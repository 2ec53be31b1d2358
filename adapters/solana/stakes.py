"""The active part of a delegation: the cluster limits the stake that moves per epoch. No I/O.

Computed like the stake program, in whole numbers. If the stake history lacks an epoch, all stake that moved in it has
arrived. Source: https://docs.anza.xyz/consensus/stake-delegation-and-rewards
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final, NamedTuple

MAX_EPOCHS: Final = 64  # of the stake history that are read: about half a year
ENTRY, COUNT = struct.Struct("<4Q"), struct.Struct("<Q")
HISTORY_SIZE: Final = COUNT.size + MAX_EPOCHS * ENTRY.size
RATE, WHOLE = 9, 100  # per cent of the active stake may be activated or deactivated in an epoch


class ClusterStake(NamedTuple):
    """The stake of the whole cluster at the end of an epoch, in lamports."""

    active: int
    activating: int
    deactivating: int


class ActivationStatus(NamedTuple):
    """The parts of one delegation, in lamports."""

    active: int
    activating: int
    deactivating: int

    @property
    def state(self) -> str:
        """`activating`, `deactivating`, `active` or `inactive`, as wallets show it."""
        if self.activating:
            return "activating"
        if self.deactivating:
            return "deactivating"
        return "active" if self.active else "inactive"


StakeHistory = Mapping[int, ClusterStake]  # by epoch


def stake_history(content: bytes) -> dict[int, ClusterStake]:
    """Return the stake history in the bytes of its sysvar account, which may be cut off.

    Raises:
        ValueError: There are too few bytes for a history.
    """
    if len(content) < COUNT.size:
        raise ValueError("a history of stake that breaks off")
    (count,) = COUNT.unpack_from(content)
    available = min(count, (len(content) - COUNT.size) // ENTRY.size)
    entries = ENTRY.iter_unpack(content[COUNT.size : COUNT.size + available * ENTRY.size])
    return {epoch: ClusterStake(*amounts) for epoch, *amounts in entries}


def activation_status(
    stake: int, activation: int, deactivation: int, epoch: int, history: StakeHistory
) -> ActivationStatus:
    """Return the parts of a delegation in an epoch.

    Args:
        stake: The delegated lamports.
        activation: The epoch in which it was delegated.
        deactivation: The epoch in which the delegation was ended, 2^64 - 1 if it was not.
        epoch: The current epoch.
        history: The stake history of the cluster.
    """
    if activation == deactivation or epoch < activation:
        return ActivationStatus(0, 0, 0)
    active = _activated_lamports(stake, activation, min(epoch, deactivation), history) if activation < epoch else 0
    if epoch < deactivation:
        return ActivationStatus(active, stake - active, 0)
    if epoch == deactivation:
        return ActivationStatus(active, 0, active)
    remaining = _active_lamports(active, deactivation, epoch, history)
    return ActivationStatus(remaining, 0, remaining)


def _activated_lamports(stake: int, activation: int, end_epoch: int, history: StakeHistory) -> int:
    """Return the lamports that were activated before the epoch `end_epoch`, at most `stake`.

    Without a history of the first epoch, all are.
    """
    active, epoch = 0, activation
    while (cluster := history.get(epoch)) is not None and cluster.activating:
        active += max(1, (stake - active) * cluster.active * RATE // (cluster.activating * WHOLE))
        epoch += 1
        if active >= stake or epoch >= end_epoch:
            return min(active, stake)
    return stake if epoch == activation and history.get(epoch) is None else active


def _active_lamports(active: int, deactivation: int, end_epoch: int, history: StakeHistory) -> int:
    """Return the lamports that were not yet deactivated before the epoch `end_epoch`.

    Without a history of the first epoch, it is 0.
    """
    remaining, epoch = active, deactivation
    if history.get(epoch) is None:
        return 0
    while (cluster := history.get(epoch)) is not None and cluster.deactivating:
        remaining -= min(remaining, max(1, remaining * cluster.active * RATE // (cluster.deactivating * WHOLE)))
        epoch += 1
        if not remaining or epoch >= end_epoch:
            break
    return remaining
