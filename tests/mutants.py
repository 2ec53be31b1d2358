"""Every field of an answer, replaced and left out."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

NASTY: tuple[Any, ...] = (None, -1, 2**64, "zz", "0x", [], {"a": 1}, "\x00💥")
GONE = object()
Path = tuple[Any, ...]


def mutants(value: Any) -> Iterator[Callable[[Any], Any]]:
    """Each change of an answer like this one; where another one lacks the place, it stays as it is."""
    for at in _places(value):
        for lie in (*NASTY, *((GONE,) if at else ())):
            yield partial(_lied, at, lie)


def _places(value: Any, at: Path = ()) -> Iterator[Path]:
    """Where everything in an answer stands."""
    yield at
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in pairs:
        yield from _places(each, (*at, key))


def _lied(at: Path, lie: Any, given: Any) -> Any:
    try:
        return _changed(at, lie, given)
    except (KeyError, IndexError, TypeError, AttributeError):
        return given


def _changed(at: Path, lie: Any, given: Any) -> Any:
    """An answer with a lie in one place, or without that place; a lie itself where the place is all of it."""
    if not at:
        return lie
    made = copy.copy(given)
    if len(at) == 1 and lie is GONE:
        del made[at[0]]
    else:
        made[at[0]] = _changed(at[1:], lie, given[at[0]])
    return made
