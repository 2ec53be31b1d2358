"""Typed routes. A handler's annotations say everything: where its arguments come from, what they are, what it answers.

    @get("/v1/wallet", tag="Portfolio", summary="What wallets hold")
    async def wallet(request: Context, query: WalletQuery) -> list[Portfolio]: ...

An argument named `path`, `query` or `body` is a msgspec Struct read from that segment of the request, strictly.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Literal, get_type_hints

from chainfolio.storage.state.refusals import Code

AT_BLOCK: Final = "at-block"  # the one bucket beside that of all other routes
SEGMENTS: Final = ("path", "query", "body")
CHANGING: Final = ("POST", "PATCH", "DELETE")
Handler = Callable[..., Awaitable[Any]]


def single_cost(arguments: Mapping[str, Any]) -> int:
    """A call costs its price once, whatever it asks for."""
    return 1


@dataclass(frozen=True)
class Route:
    """One operation: how it is reached, who may call it, what its documentation says.

    `public` routes need no key. `needs` is the entitlement: a grant (`portfolio`, `at-block`, `enterprise`) or the plan
    `pro`. `cost` is in credits, `units` says by a call's arguments how many times the cost it is; `bucket` names whose
    rate it counts in.
    `check` is called with the context and the arguments and raises what is wrong with the request by itself, beyond its
    schema; `allow` raises what the caller's account may not ask for. Both are called before any credit is reserved.
    `envelope` names the family of routes whose error bodies it has (`errors.SHAPES`). `codes` are those of
    `errors.CODES` that it may refuse with, `fails` adds other statuses to those of the pipeline; `answers` replaces
    the annotated answer. `takes` describes the headers that the route reads.
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
    units: Callable[[Mapping[str, Any]], int] = single_cost
    bucket: str = "all"
    check: Callable[..., object] | None = None
    allow: Callable[..., Awaitable[object]] | None = None
    envelope: str = "whole"
    media: str = "application/json"
    codes: tuple[Code, ...] = ()
    fails: Mapping[int, str] = field(default_factory=dict)
    takes: Mapping[str, str] = field(default_factory=dict)
    answers: Mapping[int, Any] = field(default_factory=dict)
    example: Any = None

    @property
    def name(self) -> str:
        """The operation's id: the handler's own name."""
        return self.handler.__name__

    @property
    def changes(self) -> bool:
        """Whether it changes something: then its handler answers by `changes.change`."""
        return self.method in CHANGING

    @cached_property
    def hints(self) -> dict[str, Any]:
        """The handler's annotations, resolved."""
        return get_type_hints(self.handler, include_extras=True)

    @cached_property
    def arguments(self) -> dict[str, Any]:
        """The Struct read from each segment of the request that the handler takes."""
        return {segment: self.hints[segment] for segment in SEGMENTS if segment in self.hints}

    @cached_property
    def replies(self) -> Mapping[int, Any]:
        """The type of the body by success status."""
        return self.answers or {200: self.hints["return"]}


def get(path: str, *, tag: str, summary: str, **more: Any) -> Callable[[Handler], Route]:
    """A route that reads; HEAD comes with it."""
    return _route("GET", path, tag, summary, more)


def write(
    method: Literal["POST", "PATCH", "DELETE"], path: str, *, tag: str, summary: str, **more: Any
) -> Callable[[Handler], Route]:
    """A route that changes something."""
    return _route(method, path, tag, summary, more)


def _route(method: str, path: str, tag: str, summary: str, options: Mapping[str, Any]) -> Callable[[Handler], Route]:
    def made(handler: Handler) -> Route:
        text = " ".join((handler.__doc__ or "").split())
        route = Route(method, path, handler, tag, summary, text, **options)
        unknown = [name for name in route.hints if name not in (*SEGMENTS, "request", "return")]
        assert not unknown, f"{route.name}: arguments are request, path, query and body, not {unknown}"
        return route

    return made
