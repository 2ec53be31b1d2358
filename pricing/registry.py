"""Which sources price a chain, in which order: what the operator fixed, then what was observed, then what is meant.

A source is found by the name of its section in the file of prices: ours is the module of this folder with that name, a
third party's is the entry point of `chainfolio.prices` with that name. Both have a `PriceSection`.
"""

from __future__ import annotations

import difflib
import pkgutil
from collections.abc import Collection, Iterable, Mapping
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

from chainfolio.assets import Asset
from chainfolio.errors import BadSettings, ChainfolioError
from pricing.fixed import fixed
from pricing.quotes import PriceSection, PriceSource
from pricing.rules import SECTIONS, Ordered, rules

GROUP: Final = "chainfolio.prices"
OURS: Final = "pricing"


def sources(
    tree: Mapping[str, Any],
    overrides: Mapping[str, str],
    chain: str,
    kind: str,
    *,
    wrapped: Collection[Asset] = (),
    file: str = "prices.toml",
) -> Ordered:
    """The sources of one chain (by its key and its kind) in the order in which they are asked where the file names no
    other: the settings' `[prices]` first, then the sections of the file. `wrapped` is its wrapped native coin."""
    found: list[PriceSource] = [fixed(overrides, "prices")] if overrides else []
    known = sections([name for name in tree if name not in SECTIONS], file)
    for name in sorted(known, key=lambda each: (known[each].order, each)):
        section, where = tree[name], f"{file}: {name}"
        if not isinstance(section, Mapping):
            raise BadSettings(where, "is not a section")
        kinds = known[name].kinds
        if not kinds or kind in kinds:
            found.append(_built(known[name], section, chain, where))
        elif chain in section:
            said = f"{name} reads chains of the kind {' or '.join(kinds)}, and {chain} is of the kind {kind}"
            raise BadSettings(f"{where}.{chain}", said, remedy="remove the section")
    return Ordered(found, rules(tree, known, file, wrapped))


def sections(names: Iterable[str], file: str) -> dict[str, PriceSection]:
    """What makes the sources of some names; BadSettings for a name that nothing here has, or that cannot be loaded."""
    modules = {each.name for each in pkgutil.iter_modules(import_module(OURS).__path__)}
    found = {name: section for name in names if name in modules and (section := _ours(name))}
    # Looking through all distributions takes 40 ms, and most operators have no others.
    others = [name for name in names if name not in found]
    entries = sorted(entry_points(group=GROUP), key=lambda each: (each.name, each.value)) if others else []
    for name in others:
        named = {each.value: each for each in entries if each.name == name}
        if not named:
            known = {each.name for each in entries} | {module for module in modules if _ours(module)}
            near = difflib.get_close_matches(name, known, 1)
            remedy = f"did you mean [{near[0]}]?" if near else f"known are {', '.join(sorted(known))}"
            raise BadSettings(file, f"unknown section [{name}]", remedy=remedy)
        if len(named) > 1:
            raise BadSettings(
                file, f"[{name}]: several packages have a source of this name: {', '.join(named)}",
                remedy="uninstall all but one",
            )  # fmt: skip
        found[name] = _loaded(next(iter(named.values())), f"[{name}]", file)
    return found


def _ours(name: str) -> PriceSection | None:
    """The source that a module of this folder offers."""
    section: PriceSection | None = getattr(import_module(f"{OURS}.{name}"), "SECTION", None)
    return section


def _loaded(entry: EntryPoint, where: str, file: str) -> PriceSection:
    try:
        section = entry.load()
    except (Exception, SystemExit) as error:  # third-party code: whatever its import raises is told
        raise BadSettings(file, f"{where}: {entry.value} cannot be loaded: {type(error).__name__}: {error}") from None
    if not isinstance(section, PriceSection):
        raise BadSettings(file, f"{where}: {entry.value} is a {type(section).__name__}, not a PriceSection")
    return section


def _built(made_by: PriceSection, section: Mapping[str, Any], chain: str, where: str) -> PriceSource:
    try:
        source = made_by.build(section, chain, where)
    except ChainfolioError:
        raise
    except Exception as error:  # third-party code: the operator hears which section it is
        raise BadSettings(where, f"no source can be made of it: {type(error).__name__}: {error}") from error
    if not (isinstance(getattr(source, "name", None), str) and callable(getattr(source, "prices", None))):
        raise BadSettings(where, f"what is made of it is a {type(source).__name__}, not a source of prices")
    return source
