"""Which sources price a chain, in which order: what the operator fixed, then what was observed, then what is meant."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from typing import Any, Final

from chainfolio.errors import BadSettings
from pricing.chainlink import chainlink
from pricing.fixed import PEG, fixed
from pricing.quotes import PriceSource

# Given a section of `configs/prices.toml`, the chain's key and what to call the section in an error.
Factory = Callable[[Mapping[str, Any], str, str], PriceSource]


def _fixed(section: Mapping[str, Any], chain: str, where: str) -> PriceSource:
    return fixed(section, where)


def _chainlink(section: Mapping[str, Any], chain: str, where: str) -> PriceSource:
    return chainlink(_section(section.get(chain, {}), f"{where}.{chain}"), f"{where}.{chain}")


def _peg(section: Mapping[str, Any], chain: str, where: str) -> PriceSource:
    return fixed(section, where, name=PEG)


# The order is the ladder's. A new source is one file and one line here.
SECTIONS: Final[dict[str, Factory]] = {
    "fixed": _fixed,
    "chainlink": _chainlink,
    "peg": _peg,  # last: a peg is an opinion, and must not hide what a feed has seen
}


def sources(
    tree: Mapping[str, Any],
    overrides: Mapping[str, str],
    chain: str,
    *,
    sections: Mapping[str, Factory] = SECTIONS,
    file: str = "prices.toml",
) -> tuple[PriceSource, ...]:
    """The ladder of one chain (by its key): the settings' `[prices]` first, then the sections of the prices file."""
    for name in tree:
        if name not in sections:
            near = difflib.get_close_matches(name, sections, 1)
            remedy = f"did you mean [{near[0]}]?" if near else f"known are {', '.join(sections)}"
            raise BadSettings(file, f"unknown section [{name}]", remedy=remedy)
    rungs: list[PriceSource] = [fixed(overrides, "prices")] if overrides else []
    for name, factory in sections.items():
        if name in tree:
            where = f"{file}: {name}"
            rungs.append(factory(_section(tree[name], where), chain, where))
    return tuple(rungs)


def _section(value: object, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise BadSettings(where, "is not a section")
    return value
