"""Search time and repetitions of tests: CHAINFOLIO_TESTS=deep is for hours."""

from __future__ import annotations

import os
from typing import Final

IS_DEEP: Final = os.environ.get("CHAINFOLIO_TESTS") == "deep"
