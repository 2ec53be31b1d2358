"""Dispatch: find the route of a path and method, by dictionary or, with parameters, by pattern."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Generic, TypeVar

T = TypeVar("T")
_PARAMETER: Final = re.compile(r"\{(\w+)\}")


class Paths(Generic[T]):
    """Targets by path and method."""

    def __init__(self) -> None:
        self._plain: dict[str, dict[str, T]] = {}
        self._shaped: dict[str, tuple[re.Pattern[str], dict[str, T]]] = {}

    def add(self, method: str, path: str, target: T) -> None:
        """Add a target; `{name}` in a path matches one or more characters other than slash and brace."""
        if "{" in path:
            texts = _PARAMETER.split(path)  # text, name, text, name, …
            shape = "".join(f"(?P<{text}>[^{{}}/]+)" if at % 2 else re.escape(text) for at, text in enumerate(texts))
            methods = self._shaped.setdefault(path, (re.compile(shape), {}))[1]
        else:
            methods = self._plain.setdefault(path, {})
        assert method not in methods, f"{method} {path} is there already"
        methods[method] = target

    def find(self, method: str, path: str) -> tuple[T | None, Mapping[str, str], set[str]]:
        """Return the target and its path parameters, or None and the methods that the path has, if any.

        `path` is decoded except for `%2F` and `%25`, so that decoding adds no slash. Paths without parameters come
        first.
        """
        methods = self._plain.get(path)
        if methods is not None and method in methods:
            return methods[method], {}, set()
        allowed = set(methods or ())
        for shape, methods in self._shaped.values():
            if (match := shape.fullmatch(path)) is None:
                continue
            if method in methods:
                return methods[method], {name: _decoded_text(value) for name, value in match.groupdict().items()}, set()
            allowed |= set(methods)
        return None, {}, allowed

    def all(self) -> set[tuple[str, str]]:
        """Return every pair of path and method."""
        routes = {(path, method) for path, methods in self._plain.items() for method in methods}
        return routes | {(path, method) for path, (_, methods) in self._shaped.items() for method in methods}


def _decoded_text(value: str) -> str:
    return value.replace("%2F", "/").replace("%25", "%") if "%" in value else value
