"""Which sources price a chain, in which order: what the operator fixed, then what was observed, then what is meant.

A source is found by its name: an entry point of `chainfolio.prices`, whose name is that of its section in the file of
prices. Ours are registered in the same way.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, Final

from chainfolio.errors import BadSettings
from pricing.fixed import fixed
from pricing.quotes import PriceSection, PriceSource

GROUP: Final = "chainfolio.prices"
# As in pyproject.toml; looking through all distributions takes 40 ms, and most operators have no others.
OURS: Final = {
    "fixed": "pricing.fixed:SECTION",
    "chainlink": "pricing.chainlink:SECTION",
    "peg": "pricing.fixed:PEG_SECTION",
}


def sources(
    tree: Mapping[str, Any], overrides: Mapping[str, str], chain: str, kind: str, *, file: str = "prices.toml"
) -> tuple[PriceSource, ...]:
    """The sources of one chain (by its key and its kind) in the order in which they are asked: the settings' `[prices]`
    first, then the sections of the prices file."""
    found: list[PriceSource] = [fixed(overrides, "prices")] if overrides else []
    known = sections(tree, file)
    for name in sorted(known, key=lambda each: (known[each].order, each)):
        section, where = tree[name], f"{file}: {name}"
        if not isinstance(section, Mapping):
            raise BadSettings(where, "is not a section")
        kinds = known[name].kinds
        if not kinds or kind in kinds:
            found.append(known[name].build(section, chain, where))
        elif chain in section:
            said = f"{name} reads chains of the kind {' or '.join(kinds)}, and {chain} is of the kind {kind}"
            raise BadSettings(f"{where}.{chain}", said, remedy="remove the section")
    return tuple(found)


def sections(names: Iterable[str], file: str) -> dict[str, PriceSection]:
    """What makes the sources of some names; BadSettings for a name that nothing here has, or that cannot be loaded."""
    found = {name: _ours(name) for name in names if name in OURS}
    others = [name for name in names if name not in OURS]
    entries = {each.name: each for each in entry_points(group=GROUP)} if others else {}
    for name in others:
        if name not in entries:
            near = difflib.get_close_matches(name, {*OURS, *entries}, 1)
            remedy = f"did you mean [{near[0]}]?" if near else f"known are {', '.join(sorted({*OURS, *entries}))}"
            raise BadSettings(file, f"unknown section [{name}]", remedy=remedy)
        try:
            section = entries[name].load()
        except (Exception, SystemExit) as error:  # third-party code: whatever its import raises is told
            raise BadSettings(
                file, f"[{name}]: {entries[name].value} cannot be loaded: {type(error).__name__}: {error}"
            ) from None
        if not isinstance(section, PriceSection):
            raise BadSettings(
                file, f"[{name}]: {entries[name].value} is a {type(section).__name__}, not a PriceSection"
            )
        found[name] = section
    return found


def _ours(name: str) -> PriceSection:
    module, _, attribute = OURS[name].partition(":")
    section: PriceSection = getattr(import_module(module), attribute)
    return section
