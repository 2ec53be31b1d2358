"""Pytest plugin for mutmut: tests that need a local chain run last, module by module.

Tests with the marker `node` are left out, except in tests/pricing and tests/protocols: prices and positions are read
from a chain, and few tests without one execute them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

FOLDERS_WITH_CHAINS: Final = ("pricing", "protocols")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests of other local chains, and order the rest as `ordered` does."""
    left_out = [item for item in items if _is_marked(item) and item.path.parent.name not in FOLDERS_WITH_CHAINS]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
    items[:] = ordered([item for item in items if item not in left_out])


def ordered(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Return tests in order, but those of local chains last and grouped by module.

    mutmut orders tests by their duration, without their fixtures: a module between whose tests others run starts its
    chain for each of them.
    """
    modules: dict[Path, int] = {}
    for item in items:
        modules.setdefault(item.path, len(modules))
    return sorted(items, key=lambda item: modules[item.path] if _needs_chain(item) else -1)


def _needs_chain(item: pytest.Item) -> bool:
    return _is_marked(item) or item.path.parent.name == "protocols"


def _is_marked(item: pytest.Item) -> bool:
    return item.get_closest_marker("node") is not None
