"""What some work may ask of nodes: so many requests, so many compute units. Whoever sends counts, and stops in time."""

from __future__ import annotations

from dataclasses import dataclass

from chainfolio.errors import OverBudget


@dataclass(slots=True)
class Budget:
    """Limits, and what was used of them so far. None is no limit. A batch is one request; its calls have units each."""

    max_requests: int | None = None
    max_units: int | None = None
    requests: int = 0
    units: int = 0

    def charge(self, requests: int, units: int) -> None:
        """Count what is about to be sent; OverBudget, and nothing is counted, where that is more than is left."""
        for name, used, limit in (
            ("requests", self.requests + requests, self.max_requests),
            ("compute units", self.units + units, self.max_units),
        ):
            if limit is not None and used > limit:
                raise OverBudget(name, limit)
        self.requests, self.units = self.requests + requests, self.units + units
