"""Which failed calls are made again, and when."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from chainfolio_client.errors import ApiError, ChainfolioError, ConnectionFailed

STATUSES = (429, 503)


@dataclass(frozen=True)
class Retry:
    """Limits of retries. A wait is what `Retry-After` says, else it doubles from `first_wait_s` on, with jitter.

    Attributes:
        attempts: How often a call is made at most, the first time included.
        first_wait_s: Seconds before the second attempt if the server does not say.
        max_wait_s: The longest wait before one attempt. If `Retry-After` is longer, the call fails at once.
    """

    attempts: int = 5
    first_wait_s: float = 0.5
    max_wait_s: float = 60.0

    def wait_s(self, attempt: int, error: ChainfolioError, random: Random) -> float | None:
        """Return the seconds to wait after the failed `attempt`, counted from 1; None if there is no other one."""
        is_temporary = isinstance(error, ConnectionFailed) or (isinstance(error, ApiError) and error.status in STATUSES)
        if not is_temporary or attempt >= self.attempts:
            return None
        if isinstance(error, ApiError) and error.retry_after_s is not None:
            return error.retry_after_s if error.retry_after_s <= self.max_wait_s else None
        return float(min(self.first_wait_s * 2 ** (attempt - 1), self.max_wait_s) * random.uniform(0.5, 1.0))
