"""What a read has reserved, from its admission until its answer is on the wire: then, and only then, it is paid."""

from __future__ import annotations

from dataclasses import dataclass

import structlog

from chainfolio.api.errors import Problem
from chainfolio.api.keys import Meter
from chainfolio.errors import StoreError
from chainfolio.storage.state.meter import Reservation

log = structlog.stdlib.get_logger("chainfolio.api")


@dataclass(slots=True)
class Charge:
    """Reserved credits of one call."""

    meter: Meter
    held: Reservation

    async def void(self) -> None:
        """Give them back, before the refusal is told. A store that is away gives them back later, by itself."""
        try:
            await self.meter.settle_reservation(self.held, "void")
        except StoreError as error:
            log.warning("not voided", reason=error.message, then="the reservation expires")

    def void_soon(self) -> None:
        """Give them back, as soon as may be: nobody is left to be told."""
        self.meter.settle_soon(self.held, "void")

    def post_soon(self) -> None:
        """Take them: the answer has been sent."""
        self.meter.settle_soon(self.held, "post")


def insufficient_credits(cost: int, available: int) -> Problem:
    """The refusal for want of credits."""
    return Problem(
        402,
        f"this call costs {cost} and the account has {available} credits that no running call holds",
        extras={"creditsRequired": cost, "creditsAvailable": available, "creditsNeeded": cost},
    )
