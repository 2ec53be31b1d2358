"""Days for which the chains of the demo have existed: enough for a chart of daily values."""

from __future__ import annotations

from typing import Final

DAY_S: Final = 86_400
PAST_DAYS: Final = 6  # midnights before the last one
