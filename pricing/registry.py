"""Build the price sources of a chain from the file of prices.

A section of the file is built by the source of its name: a module of this folder, a module of `adapters/<kind>/prices`,
or an entry point of the group `chainfolio.prices` in another package. All have a `PriceSection`. Fixed prices come
first, then observed prices, then pegs.
"""

from __future__ import annotations

import difflib
import pkgutil
from collections.abc import Collection, Iterable, Mapping
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from typing import Final

from chainfolio import kinds
from chainfolio.assets import Asset
from chainfolio.errors import BadSettings, ChainfolioError
from chainfolio.plugin_faults import load_fault
from chainfolio.price_sources import PriceSection, PriceSource, Section
from chainfolio.pricing.fixed import build_fixed
from chainfolio.pricing.rules import SECTIONS, OrderedSources, parse_rules

GROUP: Final = "chainfolio.prices"
BUILTIN_PACKAGE: Final = "chainfolio.pricing"


def build_sources(
    tree: Section,
    overrides: Mapping[str, str],
    chain: str,
    kind: str,
    *,
    wrapped: Collection[Asset] = (),
    file: str = "prices.toml",
) -> OrderedSources:
    """Build the sources of one chain, in their default order.

    Args:
        tree: The file of prices.
        overrides: `[prices]` of the settings: USD by asset. They come first.
        chain: The chain's key.
        kind: The chain's kind. Sources of other kinds are left out.
        wrapped: The chain's wrapped native coin, or nothing.
        file: Name of the file in error messages.

    Raises:
        BadSettings: A section is unknown, is for another kind of chain, or cannot be built.
    """
    sources: list[PriceSource] = [build_fixed(overrides, "prices")] if overrides else []
    sections = load_sections([name for name in tree if name not in SECTIONS], file)
    for name in sorted(sections, key=lambda name: (sections[name].order, name)):
        section, location = tree[name], f"{file}: {name}"
        if not isinstance(section, Mapping):
            raise BadSettings(location, "is not a section")
        supported = sections[name].kinds
        if not supported or kind in supported:
            sources.append(_build_source(sections[name], section, chain, location))
        elif chain in section:
            fault = f"{name} reads chains of the kind {' or '.join(supported)}, and {chain} is of the kind {kind}"
            raise BadSettings(f"{location}.{chain}", fault, remedy="remove the section")
    return OrderedSources(sources, parse_rules(tree, sections, file, wrapped))


def load_sections(names: Iterable[str], file: str) -> dict[str, PriceSection]:
    """Return the `PriceSection` of each name.

    Raises:
        BadSettings: No source or more than one has a name, or its package cannot be loaded.
    """
    modules = _builtin_modules()
    builtin = {name: _section_of(modules[name]) for name in names if name in modules}
    sections = {name: section for name, section in builtin.items() if section}
    # Looking through all distributions takes 40 ms, and most operators have no third-party sources.
    plugins = [name for name in names if name not in sections]
    entries = sorted(entry_points(group=GROUP), key=lambda entry: (entry.name, entry.value)) if plugins else []
    for name in plugins:
        matches = {entry.value: entry for entry in entries if entry.name == name}
        if not matches:
            available = {entry.name for entry in entries} | {name for name in modules if _section_of(modules[name])}
            similar = difflib.get_close_matches(name, available, 1)
            remedy = f"did you mean [{similar[0]}]?" if similar else f"known are {', '.join(sorted(available))}"
            raise BadSettings(file, f"unknown section [{name}]", remedy=remedy)
        if len(matches) > 1:
            raise BadSettings(
                file,
                f"[{name}]: several packages have a source of this name: {', '.join(matches)}",
                remedy="uninstall all but one",
            )
        sections[name] = _load_plugin(next(iter(matches.values())), f"[{name}]", file)
    return sections


def _builtin_modules() -> dict[str, str]:
    """Return the full names of the modules that may be price sources, by short name.

    They are in the package of built-in sources, and in the `prices` packages of the chain kinds that have one.
    """
    packages = [BUILTIN_PACKAGE, *(f"{kinds.BUILTIN_PACKAGE}.{kind}.prices" for kind in kinds.builtin_kinds())]
    return {
        module.name: f"{package}.{module.name}"
        for package in packages
        if find_spec(package)
        for module in pkgutil.iter_modules(import_module(package).__path__)
    }


def _section_of(module: str) -> PriceSection | None:
    """Return the section of a module; None if the module has none."""
    section: PriceSection | None = getattr(import_module(module), "SECTION", None)
    return section


def _load_plugin(entry: EntryPoint, location: str, file: str) -> PriceSection:
    """Import a package's price section; raise BadSettings if that fails or gives another type."""
    try:
        section = entry.load()
    except (Exception, SystemExit) as error:  # third-party code may raise anything on import
        raise BadSettings(file, f"{location}: {entry.value} cannot be loaded: {load_fault(error)}") from None
    if not isinstance(section, PriceSection):
        raise BadSettings(file, f"{location}: {entry.value} is a {type(section).__name__}, not a PriceSection")
    return section


def _build_source(price_section: PriceSection, section: Section, chain: str, location: str) -> PriceSource:
    """Build a source from its section; raise BadSettings if that fails or gives no price source."""
    try:
        source = price_section.build(section, chain, location)
    except ChainfolioError:
        raise
    except Exception as error:  # third-party code may raise anything: the message names the section
        raise BadSettings(location, f"no source can be made of it: {type(error).__name__}: {error}") from error
    if not (isinstance(getattr(source, "name", None), str) and callable(getattr(source, "prices", None))):
        raise BadSettings(location, f"what is made of it is a {type(source).__name__}, not a source of prices")
    return source
