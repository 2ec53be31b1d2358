"""Spans of work: what a process spends its time on. They cost next to nothing while no tracer listens.

A span has a name of `NAMES` and attributes of plain values. Callers give no addresses, keys, URLs or bodies: attributes
leave the machine.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Final, Literal, Protocol

NAMES: Final = ("request", "node", "snapshot", "job")
Name = Literal["request", "node", "snapshot", "job"]
Value = str | int | float | bool


class Span(Protocol):
    """A span that lasts: attributes can be added to it."""

    def set_attribute(self, key: str, value: Value, /) -> None:
        """Add an attribute."""


class Tracer(Protocol):
    """Records spans."""

    def span(self, name: Name, attributes: dict[str, Value]) -> AbstractContextManager[Span]:
        """Return a context manager that lasts as long as the work."""


class _NoSpan:
    """The span of a process without a tracer."""

    __slots__ = ()

    def set_attribute(self, key: str, value: Value, /) -> None:
        """Do nothing."""


_SILENT: Final = nullcontext(_NoSpan())
_tracers: Final[list[Tracer]] = []  # at most one; a list, so that setting it needs no global statement


def span(name: Name, **attributes: Value) -> AbstractContextManager[Span]:
    """Return a context manager around a piece of work. An error inside marks the span."""
    return _tracers[0].span(name, attributes) if _tracers else _SILENT


def set_tracer(tracer: Tracer | None) -> None:
    """Record the spans of this process with a tracer; None stops that."""
    _tracers[:] = [] if tracer is None else [tracer]
