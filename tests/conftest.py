"""What holds for every test: how hard properties are searched. CHAINFOLIO_TESTS=deep searches for much longer."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

settings.register_profile("here", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("deep", parent=settings.get_profile("here"), max_examples=2_000)
settings.load_profile("deep" if os.environ.get("CHAINFOLIO_TESTS") == "deep" else "here")
