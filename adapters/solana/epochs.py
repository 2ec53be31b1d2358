"""How slots are cut into epochs."""

from __future__ import annotations

import msgspec

from adapters.solana.forms import U64
from chainfolio.errors import BadAnswer
from transport.endpoint import Endpoint
from transport.wire import Request, typed


class Schedule(msgspec.Struct, frozen=True):
    """How slots are cut into epochs, as `getEpochSchedule` tells it. The first epochs of a cluster may be short, each
    twice as long as the one before."""

    slotsPerEpoch: U64
    firstNormalEpoch: U64
    firstNormalSlot: U64

    def first(self, epoch: int) -> int:
        """The first slot of an epoch."""
        if epoch >= self.firstNormalEpoch:
            return self.firstNormalSlot + (epoch - self.firstNormalEpoch) * self.slotsPerEpoch
        return self._shortest * ((1 << epoch) - 1)

    def epoch(self, slot: int) -> int:
        """The epoch of a slot."""
        if slot >= self.firstNormalSlot:
            return self.firstNormalEpoch + (slot - self.firstNormalSlot) // self.slotsPerEpoch
        return (slot // self._shortest + 1).bit_length() - 1

    @property
    def _shortest(self) -> int:
        """How many slots the epoch 0 has, where it is shorter than others."""
        return self.firstNormalSlot // ((1 << self.firstNormalEpoch) - 1)

    def check(self, source: str) -> None:
        """BadAnswer where no clock runs like that."""
        short = self.firstNormalEpoch
        if not self.slotsPerEpoch or short > 64 or bool(short) != bool(self.firstNormalSlot) or (
            short and self.firstNormalSlot % ((1 << short) - 1)
        ):  # fmt: skip
            raise BadAnswer(source, "a schedule of epochs that cannot be")


async def schedule_of(endpoint: Endpoint) -> Schedule:
    """As one endpoint tells it; BadAnswer where no clock runs like that."""
    found = typed(endpoint.name, await endpoint.one(Request("getEpochSchedule")), Schedule)
    found.check(endpoint.name)
    return found
