"""Credits that a read reserves at its admission, and pays only when its answer has been sent."""

from __future__ import annotations

from dataclasses import dataclass

import structlog

from chainfolio.api.errors import Problem
from chainfolio.api.keys import Meter
from chainfolio.errors import StoreError
from chainfolio.storage.state.meter_transaction import Reservation

log = structlog.stdlib.get_logger("chainfolio.api")


@dataclass(slots=True)
class Charge:
    """Reserved credits of one call."""

    meter: Meter
    reservation: Reservation

    async def void(self) -> None:
        """Give the credits back and wait for the store; if it fails, the reservation expires later."""
        try:
            await self.meter.settle_reservation(self.reservation, "void")
        except StoreError as error:
            log.warning("not voided", reason=error.message, then="the reservation expires")

    def void_soon(self) -> None:
        """Give the credits back without waiting for the store."""
        self.meter.settle_soon(self.reservation, "void")

    def post_soon(self) -> None:
        """Take the credits without waiting for the store, after the answer has been sent."""
        self.meter.settle_soon(self.reservation, "post")


def insufficient_credits(cost: int, available: int) -> Problem:
    """Return the 402 for too few credits."""
    return Problem(
        402,
        f"this call costs {cost} and the account has {available} credits that no running call holds",
        extras={"creditsRequired": cost, "creditsAvailable": available, "creditsNeeded": cost},
    )
