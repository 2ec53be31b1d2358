"""Pytest plugin for tests of mutations: skip tests of local chains, and do not shrink examples.

Tests with the marker `node` are left out, except in tests/gains, tests/pricing and tests/protocols: gains, prices and
positions are read from a chain, and few tests without one execute them.
"""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import Phase, settings

FOLDERS_WITH_CHAINS: Final = ("gains", "pricing", "protocols")


def do_not_shrink() -> None:
    """Let a failed property fail at once: its smallest example is of no use here."""
    phases = (Phase.explicit, Phase.generate)
    settings.register_profile("mutation", parent=settings.get_profile("here"), phases=phases, database=None)
    settings.load_profile("mutation")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests of other local chains."""
    left_out = [item for item in items if item.get_closest_marker("node") and _folder(item) not in FOLDERS_WITH_CHAINS]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def _folder(item: pytest.Item) -> str:
    return item.path.parent.name
