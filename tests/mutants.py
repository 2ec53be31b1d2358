"""Replies of a node with damage in every place: the tests that no reply breaks a read share them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final, Protocol

from bench.damage import JsonPath, paths_of, rebuilt
from chainfolio.errors import ChainfolioError

ODD_VALUES: Final[tuple[Any, ...]] = (None, -1, 2**64, "zz", "0x", [], {"a": 1}, "\x00💥")
Change = Callable[[Any], Any]


class AnsweringNode(Protocol):
    """A node in memory whose answers are functions of the request."""

    answers: Mapping[str, Callable[[Any], Any]]


def mutants(value: Any) -> Iterator[Change]:
    """Yield every change of a reply like `value`: each place replaced by each odd value, and left out.

    A reply without that place stays as it is.
    """
    for at in paths_of(value):
        for odd in ODD_VALUES:
            yield partial(_changed, at, partial(_replaced, odd))
        if at:
            yield partial(_changed, at[:-1], partial(_without, at[-1]))


def _changed(at: JsonPath, change: Change, reply: Any) -> Any:
    try:
        return rebuilt(reply, at, change)
    except (KeyError, IndexError, TypeError, AttributeError):
        return reply


def _replaced(odd: Any, value: Any) -> Any:
    return odd


def _without(key: Any, holder: Any) -> Any:
    remaining = holder.copy()
    del remaining[key]
    return remaining


async def check_mutants(
    node: AnsweringNode,
    name: str,
    request: Any,
    read: Callable[[], Awaitable[None]],
    is_like: Callable[[Any], bool] = lambda request: True,
) -> None:
    """Read once with every mutant of an answer; each read ends well or with a typed error.

    Args:
        node: Its answers are replaced.
        name: The answer that is changed.
        request: The request with the reply that shows the places.
        read: Reads everything of the node.
        is_like: Whether the answer to a request is changed.
    """
    answers = node.answers
    honest = answers[name]

    def answer(mutant: Change, body: Any) -> Any:
        return mutant(honest(body)) if is_like(body) else honest(body)

    for mutant in mutants(honest(request)):
        node.answers = {**answers, name: partial(answer, mutant)}
        with suppress(ChainfolioError):
            await read()
