"""Epoch schedule: the slots of each epoch."""

from __future__ import annotations

import msgspec

from chainfolio.adapters.solana.forms import U64
from chainfolio.errors import BadAnswer
from chainfolio.transport.endpoint import Endpoint
from chainfolio.transport.wire import Request, typed


class Schedule(msgspec.Struct, frozen=True):
    """The epoch schedule of a cluster, as `getEpochSchedule` returns it.

    The first epochs of a cluster may be short; each of them is twice as long as the one before.
    """

    slotsPerEpoch: U64
    firstNormalEpoch: U64
    firstNormalSlot: U64

    def first(self, epoch: int) -> int:
        """Return the first slot of an epoch."""
        if epoch >= self.firstNormalEpoch:
            return self.firstNormalSlot + (epoch - self.firstNormalEpoch) * self.slotsPerEpoch
        return self._shortest * ((1 << epoch) - 1)

    def epoch(self, slot: int) -> int:
        """Return the epoch of a slot."""
        if slot >= self.firstNormalSlot:
            return self.firstNormalEpoch + (slot - self.firstNormalSlot) // self.slotsPerEpoch
        return (slot // self._shortest + 1).bit_length() - 1

    @property
    def _shortest(self) -> int:
        """The slots of epoch 0, if the first epochs are short."""
        return self.firstNormalSlot // ((1 << self.firstNormalEpoch) - 1)

    def check(self, source: str) -> None:
        """Check that the schedule is consistent.

        Raises:
            BadAnswer: It is not; `source` is the endpoint that sent it.
        """
        short_epochs = self.firstNormalEpoch
        if (
            not self.slotsPerEpoch
            or short_epochs > 64
            or bool(short_epochs) != bool(self.firstNormalSlot)
            or (short_epochs and self.firstNormalSlot % ((1 << short_epochs) - 1))
        ):
            raise BadAnswer(source, "a schedule of epochs that cannot be")


async def schedule_of(endpoint: Endpoint) -> Schedule:
    """Read the schedule from an endpoint.

    Raises:
        BadAnswer: The schedule is inconsistent.
    """
    schedule = typed(endpoint.name, await endpoint.ask_one(Request("getEpochSchedule")), Schedule)
    schedule.check(endpoint.name)
    return schedule
