"""A limit on requests and compute units; the sender charges it before each request."""

from __future__ import annotations

from dataclasses import dataclass

from chainfolio.errors import OverBudget


@dataclass(slots=True)
class Budget:
    """Limits of requests and units, and the use so far; None is no limit.

    A batch is one request, and each of its calls has units.
    """

    max_requests: int | None = None
    max_units: int | None = None
    requests: int = 0
    units: int = 0

    def charge(self, requests: int, units: int) -> None:
        """Count requests and units before they are sent.

        Raises:
            OverBudget: more than the limit; nothing is counted then.
        """
        for name, used, limit in (
            ("requests", self.requests + requests, self.max_requests),
            ("compute units", self.units + units, self.max_units),
        ):
            if limit is not None and used > limit:
                raise OverBudget(name, limit)
        self.requests, self.units = self.requests + requests, self.units + units
