"""The kinds of protocols that are installed: ours and those of third parties, found in the same way by the entry
points.

An entry of `chainfolio.protocols` names a package, of which every module with a `FAMILY` is one, or one such module.
Protocol files (`*.toml`) beside the modules of a package are read too. A third-party package that cannot be used is
left out as a whole, and told: the others are read, and every answer says what it may lack.
"""

from __future__ import annotations

import pkgutil
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType

from chainfolio.contracts import Issue
from chainfolio.protocols import ProtocolFamily

GROUP = "chainfolio.protocols"
# As in pyproject.toml; also there where the project runs without being installed.
OURS = ("adapters.evm.protocols", "adapters.solana.protocols")


@dataclass(frozen=True, slots=True)
class Package:
    """An installed package of protocols: who provides it, and in which folder its protocol files lie, if in any.

    `problem` says why it is not used; its families are then none.
    """

    provider: str
    module: str
    families: tuple[ProtocolFamily, ...] = ()
    folder: Path | None = None
    problem: str = ""

    @property
    def remedy(self) -> str:
        """What to do about the problem."""
        return f"repair or uninstall {self.provider}" if self.problem else ""

    @property
    def issue(self) -> Issue:
        """The problem as answers say it: nobody knows whom it concerns, for its rules are not known either."""
        reason = f"{self.provider} is not used, and positions in its protocols are unknown: {self.problem}"
        return Issue("protocols", self.module, reason)


@cache
def installed() -> tuple[Package, ...]:
    """All packages of protocols: ours first, then those of third parties by name. What ours raise is a bug, and is
    raised."""
    ours = [_package("chainfolio", place) for place in OURS]
    entries = sorted(
        (each for each in entry_points(group=GROUP) if each.value not in OURS), key=lambda each: each.value
    )
    others = [_guarded(entry) for entry in {each.value: each for each in entries}.values()]
    own = {family.name for package in ours for family in package.families}
    names = Counter(family.name for package in (*ours, *others) for family in package.families)
    return (*ours, *(_unambiguous(package, own, names) for package in others))


def families() -> dict[str, ProtocolFamily]:
    """All families that can be used, by name."""
    return {family.name: family for package in installed() for family in package.families}


def _guarded(entry: EntryPoint) -> Package:
    """A third-party package, whatever its import does."""
    provider = f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else entry.name
    try:
        return _package(provider, entry.value)
    except (Exception, SystemExit) as error:  # third-party code: whatever its import raises is told, not passed on
        said = str(error) if isinstance(error, _Unfit) else f"it cannot be loaded: {type(error).__name__}: {error}"
        return Package(provider, entry.value, problem=said)


class _Unfit(Exception):
    """What a package has is no family."""


def _package(provider: str, place: str) -> Package:
    top, *inside = _modules(place)
    found = tuple(_family(each) for each in (top, *inside) if hasattr(each, "FAMILY"))
    folder = Path(next(iter(top.__path__))) if hasattr(top, "__path__") else None
    if not found and not (folder and any(folder.glob("*.toml"))):
        raise _Unfit(f"no module of `{place}` has a FAMILY, and no protocol file lies there")
    return Package(provider, place, found, folder)


def _modules(place: str) -> Iterator[ModuleType]:
    module = import_module(place)
    yield module
    for inside in pkgutil.iter_modules(getattr(module, "__path__", ())):
        yield import_module(f"{place}.{inside.name}")


def _family(module: ModuleType) -> ProtocolFamily:
    family = module.FAMILY
    if not isinstance(family, ProtocolFamily):
        raise _Unfit(f"`{module.__name__}.FAMILY` is a {type(family).__name__}, not a Family")
    if problem := family.problem:
        raise _Unfit(f"`{module.__name__}.FAMILY`: {problem}")
    return family


def _unambiguous(package: Package, ours: set[str], names: Counter[str]) -> Package:
    """The package, unless another has a family of the same name: nobody can say which of them a file means."""
    twice = sorted(family.name for family in package.families if names[family.name] > 1)
    if not twice:
        return package
    whose = "Chainfolio's own" if twice[0] in ours else "another package's or module's"
    problem = f"its family `{twice[0]}` has the name of {whose}"
    return Package(package.provider, package.module, problem=problem)


def module_of(family: ProtocolFamily) -> ModuleType:
    """The module whose FAMILY it is."""
    places = tuple(package.module for package in installed())
    named = [module for name, module in list(sys.modules.items()) if name.startswith(places)]
    return next(module for module in named if getattr(module, "FAMILY", None) is family)
