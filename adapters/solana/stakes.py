"""How much of a delegation is active: stake comes and goes with the cluster's, by so much an epoch. No I/O.

As the stake program computes it, in whole numbers. Where the history of the cluster says nothing of an epoch, whatever
moved in it has arrived: https://docs.anza.xyz/consensus/stake-delegation-and-rewards
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final, NamedTuple

ENTRIES: Final = 64  # epochs that are read: half a year
ENTRY, COUNT = struct.Struct("<4Q"), struct.Struct("<Q")
HISTORY_SIZE: Final = COUNT.size + ENTRIES * ENTRY.size
RATE, WHOLE = 9, 100  # per cent of the active stake may come or go in an epoch


class Moving(NamedTuple):
    """The stake of the cluster as an epoch ended: what was active, what was to come, what was to go."""

    active: int
    coming: int
    going: int


class Share(NamedTuple):
    """The same of one delegation now."""

    active: int
    coming: int
    going: int

    @property
    def state(self) -> str:
        """In the word of wallets."""
        if self.coming:
            return "activating"
        if self.going:
            return "deactivating"
        return "active" if self.active else "inactive"


History = Mapping[int, Moving]


def history(content: bytes) -> dict[int, Moving]:
    """What the chain tells of past epochs, as far as the bytes go; ValueError where they are none."""
    if len(content) < COUNT.size:
        raise ValueError("a history of stake that breaks off")
    (count,) = COUNT.unpack_from(content)
    there = min(count, (len(content) - COUNT.size) // ENTRY.size)
    entries = ENTRY.iter_unpack(content[COUNT.size : COUNT.size + there * ENTRY.size])
    return {epoch: Moving(*rest) for epoch, *rest in entries}


def share(stake: int, begun: int, ended: int, epoch: int, past: History) -> Share:
    """What of a stake is active in an epoch, by the epochs in which it was delegated and taken back."""
    active = _come(stake, begun, min(epoch, ended), past) if begun != ended and begun < epoch else 0
    if begun == ended or epoch < begun:
        return Share(0, 0, 0)
    if epoch <= ended:
        going = active if epoch == ended else 0
        return Share(active, 0 if epoch == ended else stake - active, going)
    left = _gone(active, ended, epoch, past)
    return Share(left, 0, left)


def _come(stake: int, begun: int, until: int, past: History) -> int:
    """How much has become active before an epoch."""
    active, at = 0, begun
    while (cluster := past.get(at)) is not None and cluster.coming:
        active += max(1, (stake - active) * cluster.active * RATE // (cluster.coming * WHOLE))
        at += 1
        if active >= stake or at >= until:
            return min(active, stake)
    return stake if at == begun and past.get(at) is None else active


def _gone(active: int, ended: int, epoch: int, past: History) -> int:
    """How much is still active before an epoch."""
    left, at = active, ended
    if past.get(at) is None:
        return 0
    while (cluster := past.get(at)) is not None and cluster.going:
        left -= min(left, max(1, left * cluster.active * RATE // (cluster.going * WHOLE)))
        at += 1
        if not left or at >= epoch:
            break
    return left
