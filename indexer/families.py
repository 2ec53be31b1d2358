"""The kinds of protocols that are installed: ours and strangers', found in the same way by the entry points.

An entry of `chainfolio.protocols` names a package, of which every module with a `FAMILY` is one, or one such module.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from types import ModuleType

from chainfolio.errors import BadSettings
from chainfolio.protocols import Family

GROUP = "chainfolio.protocols"
OURS = "adapters.evm.protocols"  # as in pyproject.toml; also there where the project runs without being installed


@cache
def families() -> dict[str, Family]:
    """All of them by name; BadSettings where a package cannot be loaded or two have one name."""
    found: dict[str, Family] = {}
    for place in dict.fromkeys([OURS, *(entry.value for entry in entry_points(group=GROUP))]):
        for family in _in(place):
            if family.name in found:
                raise BadSettings(place, f"there is a protocol family `{family.name}` already")
            found[family.name] = family
    return found


def _in(place: str) -> Iterator[Family]:
    for module in _modules(place):
        family = getattr(module, "FAMILY", None)
        if isinstance(family, Family):
            yield family


def _modules(place: str) -> Iterator[ModuleType]:
    try:
        module = import_module(place)
        yield module
        for inside in pkgutil.iter_modules(getattr(module, "__path__", ())):
            yield import_module(f"{place}.{inside.name}")
    except Exception as error:  # a stranger's package: whatever its import raises is told, not passed on
        cure = f"repair or uninstall what provides `{place}`"
        raise BadSettings(
            place, f"the protocols cannot be loaded: {type(error).__name__}: {error}", cure=cure
        ) from error
