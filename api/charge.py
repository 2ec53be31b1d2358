"""Credits that a read reserves at its admission, and pays only when its answer has been sent."""

from __future__ import annotations

from dataclasses import dataclass, field

import structlog

from chainfolio.api.keys import Meter
from chainfolio.errors import StoreError
from chainfolio.storage.state.meter_transaction import Reservation

log = structlog.stdlib.get_logger("chainfolio.api")


@dataclass(slots=True)
class Charge:
    """Reserved credits of one call."""

    meter: Meter
    reservation: Reservation
    more: list[Reservation] = field(default_factory=list)

    @property
    def reservations(self) -> list[Reservation]:
        """Return the reservations of the call: the first, then those that an export made as it read."""
        return [self.reservation, *self.more]

    async def void(self) -> None:
        """Give the credits back and wait for the store; if it fails, the reservation expires later."""
        try:
            for each in self.reservations:
                await self.meter.settle_reservation(each, "void")
        except StoreError as error:
            log.warning("not voided", reason=error.message, then="the reservation expires")

    def void_soon(self) -> None:
        """Give the credits back without waiting for the store."""
        for each in self.reservations:
            self.meter.settle_soon(each, "void")

    def post_soon(self) -> None:
        """Take the credits without waiting for the store, after the answer has been sent."""
        for each in self.reservations:
            self.meter.settle_soon(each, "post")
