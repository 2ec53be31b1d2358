"""Typed routes: a handler's annotations give its arguments, their types and the type of its answer.

    @get("/v1/wallet", tag="Portfolio", summary="Wallet balances")
    async def wallet(request: Context, query: WalletQuery) -> list[Portfolio]: ...

An argument named `path`, `query` or `body` is a msgspec Struct read from that segment of the request, strictly.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Literal, TypeAlias, get_type_hints

import msgspec

from chainfolio.storage.state.refusals import Code

AT_BLOCK: Final = "at-block"  # the second rate-limit bucket; other routes share one
SEGMENTS: Final = ("path", "query", "body")
CHANGING: Final = ("POST", "PATCH", "DELETE")
Handler = Callable[..., Awaitable[object]]
Arguments: TypeAlias = Mapping[str, Any]  # Structs by segment of the request
RouteOptions: TypeAlias = dict[str, Any]  # keyword arguments of `get` and `write`


def single_cost(arguments: Arguments) -> int:
    """Return 1: the cost does not depend on the arguments."""
    return 1


@dataclass(frozen=True)
class Route:
    """One operation: its path, requirements and documentation.

    Attributes:
        public: True if no key is needed.
        needs: Entitlement: a grant (`portfolio`, `at-block`, `enterprise`, `sql`) or the plan `pro`; empty for none.
        cost: Credits of one unit.
        units: Returns the number of units for the arguments.
        bucket: Rate-limit bucket.
        check: Called with the context and the arguments; raises for an invalid request, beyond its schema.
        allow: Called likewise; raises if the account may not do this. Both run before credits are reserved.
        envelope: Family of routes that gives the shape of error bodies (`errors.SHAPES`).
        media: Content type of the answer, or several with commas between them.
        codes: Codes of `errors.CODES` that the route may refuse with.
        fails: Statuses in addition to those of the pipeline, with descriptions.
        takes: Headers that the route reads, with descriptions.
        answers: Types of success bodies by status, in place of the annotated one.
        example: Example of the 200 answer.
        reads: True for a POST that changes nothing.
        is_slow: True if it may take `limits.export_s` and not only `limits.request_s`.
    """

    method: str
    path: str
    handler: Handler
    tag: str
    summary: str
    description: str
    public: bool = False
    needs: str = ""
    cost: int = 1
    units: Callable[[Arguments], int] = single_cost
    bucket: str = "all"
    check: Callable[..., object] | None = None
    allow: Callable[..., Awaitable[object]] | None = None
    envelope: str = "whole"
    media: str = "application/json"
    codes: tuple[Code, ...] = ()
    fails: Mapping[int, str] = field(default_factory=dict)
    takes: Mapping[str, str] = field(default_factory=dict)
    answers: Mapping[int, object] = field(default_factory=dict)
    example: object = None
    reads: bool = False
    is_slow: bool = False

    @property
    def name(self) -> str:
        """Id of the operation: the handler's name."""
        return self.handler.__name__

    @property
    def changes(self) -> bool:
        """True if the route changes data; its handler then must answer through `changes.change`."""
        return self.method in CHANGING and not self.reads

    @cached_property
    def hints(self) -> dict[str, Any]:
        """Resolved annotations of the handler."""
        return get_type_hints(self.handler, include_extras=True)

    @cached_property
    def arguments(self) -> dict[str, type[msgspec.Struct]]:
        """Struct types of the handler's arguments, by segment of the request."""
        return {segment: self.hints[segment] for segment in SEGMENTS if segment in self.hints}

    @cached_property
    def replies(self) -> Mapping[int, object]:
        """Types of success bodies by status."""
        return self.answers or {200: self.hints["return"]}


def get(path: str, *, tag: str, summary: str, **more: Any) -> Callable[[Handler], Route]:
    """Return a decorator that makes a handler a GET route, which also answers HEAD."""
    return _route("GET", path, tag, summary, more)


def write(
    method: Literal["POST", "PATCH", "DELETE"], path: str, *, tag: str, summary: str, **more: Any
) -> Callable[[Handler], Route]:
    """Return a decorator that makes a handler a route that changes data."""
    return _route(method, path, tag, summary, more)


def _route(method: str, path: str, tag: str, summary: str, options: RouteOptions) -> Callable[[Handler], Route]:
    """Return a decorator that makes a handler a route; its docstring is the description."""

    def decorate(handler: Handler) -> Route:
        text = " ".join((handler.__doc__ or "").split())
        route = Route(method, path, handler, tag, summary, text, **options)
        unknown = [name for name in route.hints if name not in (*SEGMENTS, "request", "return")]
        assert not unknown, f"{route.name}: arguments are request, path, query and body, not {unknown}"
        return route

    return decorate
