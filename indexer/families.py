"""Installed families of protocols, ours and those of third parties, found by entry points.

An entry of `chainfolio.protocols` names a package whose modules with a `FAMILY` are families, or one such module.
Protocol files (`*.toml`) in a package's folder are read too. A third-party package that cannot be used is
left out as a whole and reported: the others are read, and every response says what it may lack.
"""

from __future__ import annotations

import pkgutil
import re
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
from chainfolio.plugin_faults import load_fault
from chainfolio.protocols import ProtocolFamily

GROUP = "chainfolio.protocols"
# As in pyproject.toml, which is not read if the project runs without being installed.
OURS = ("chainfolio.adapters.evm.protocols", "chainfolio.adapters.solana.protocols")
_DEFINES_FAMILY = re.compile(r"^FAMILY\b", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Package:
    """An installed package of protocols.

    Attributes:
        folder: The folder of its protocol files; None if it has none.
        problem: Why it is not used, without its families; empty if it is used.
    """

    provider: str
    module: str
    families: tuple[ProtocolFamily, ...] = ()
    folder: Path | None = None
    problem: str = ""

    @property
    def remedy(self) -> str:
        """The fix for the problem, as a sentence; empty without a problem."""
        return f"repair or uninstall {self.provider}" if self.problem else ""

    @property
    def issue(self) -> Issue:
        """The problem as reported in responses, without an account: its rules are unknown."""
        reason = f"{self.provider} is not used, and positions in its protocols are unknown: {self.problem}"
        return Issue("protocols", self.module, reason)


@cache
def installed(kinds: frozenset[str] | None = None) -> tuple[Package, ...]:
    """Return all packages of protocols, ours first, then those of third parties by name.

    Errors of our own packages are bugs, and are raised. A third-party package that fails, or names a family that
    exists, has a `problem`.

    Args:
        kinds: Leave out our families for other kinds of chain, and do not import their libraries. None loads all.
    """
    own_packages = [_package("chainfolio", name) for name in OURS if kinds is None or _kind(name) in kinds]
    entries = sorted(
        (each for each in entry_points(group=GROUP) if each.value not in OURS), key=lambda each: each.value
    )
    third_party = [_load_third_party(entry) for entry in {each.value: each for each in entries}.values()]
    own_names = builtin_names()
    names = Counter(family.name for package in third_party for family in package.families) + Counter(own_names)
    return (*own_packages, *(_unambiguous(package, own_names, names) for package in third_party))


def families() -> dict[str, ProtocolFamily]:
    """Return all usable families by name."""
    return {family.name: family for package in installed() for family in package.families}


@cache
def builtin_names() -> frozenset[str]:
    """Return the names of our families, which are those of their modules, without importing these."""
    folders = [Path(path) for name in OURS for path in import_module(name).__path__]
    return frozenset(
        path.stem for folder in folders for path in folder.glob("*.py") if _DEFINES_FAMILY.search(path.read_text())
    )


def _kind(package: str) -> str:
    """Return the kind of chain that a package of OURS is for."""
    return package.removeprefix("chainfolio.adapters.").partition(".")[0]


def _load_third_party(entry: EntryPoint) -> Package:
    """Load a third-party package. If that raises, the package has the error as its problem."""
    provider = f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else entry.name
    try:
        return _package(provider, entry.value)
    except (Exception, SystemExit) as error:  # third-party code: errors of its import are reported
        problem = str(error) if isinstance(error, UnusablePackage) else f"it cannot be loaded: {load_fault(error)}"
        return Package(provider, entry.value, problem=problem)


class UnusablePackage(Exception):
    """A package has something that is not a usable family."""


def _package(provider: str, name: str) -> Package:
    """Return the families and the folder of a package; UnusablePackage if it has neither."""
    top, *submodules = _modules(name)
    families_ = tuple(_family(each) for each in (top, *submodules) if hasattr(each, "FAMILY"))
    folder = Path(next(iter(top.__path__))) if hasattr(top, "__path__") else None
    if not families_ and not (folder and any(folder.glob("*.toml"))):
        raise UnusablePackage(f"no module of `{name}` has a FAMILY, and no protocol file lies there")
    return Package(provider, name, families_, folder)


def _modules(name: str) -> Iterator[ModuleType]:
    module = import_module(name)
    yield module
    for submodule in pkgutil.iter_modules(getattr(module, "__path__", ())):
        yield import_module(f"{name}.{submodule.name}")


def _family(module: ModuleType) -> ProtocolFamily:
    """Return the family of a module; UnusablePackage if it is none, or has a problem."""
    family = module.FAMILY
    if not isinstance(family, ProtocolFamily):
        raise UnusablePackage(f"`{module.__name__}.FAMILY` is a {type(family).__name__}, not a Family")
    if problem := family.problem:
        raise UnusablePackage(f"`{module.__name__}.FAMILY`: {problem}")
    return family


def _unambiguous(package: Package, own_names: frozenset[str], names: Counter[str]) -> Package:
    """Return the package, as unusable if another one has a family with the same name."""
    duplicates = sorted(family.name for family in package.families if names[family.name] > 1)
    if not duplicates:
        return package
    owner = "Chainfolio's own" if duplicates[0] in own_names else "another package's or module's"
    problem = f"its family `{duplicates[0]}` has the name of {owner}"
    return Package(package.provider, package.module, problem=problem)


def module_of(family: ProtocolFamily) -> ModuleType:
    """Return the module that defines a family."""
    names = tuple(package.module for package in installed())
    modules = [module for name, module in list(sys.modules.items()) if name.startswith(names)]
    return next(module for module in modules if getattr(module, "FAMILY", None) is family)
