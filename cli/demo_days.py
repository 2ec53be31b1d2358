"""How long the chains of the demo have lived: what a wallet was worth day by day is a chart."""

from __future__ import annotations

from typing import Final

DAY_S: Final = 86_400
PAST_DAYS: Final = 6  # midnights before the last one
