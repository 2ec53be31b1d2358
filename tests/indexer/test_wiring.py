"""Closing a system: all of its parts are closed, also if one of them fails."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from chainfolio.indexer.wiring import System
from chainfolio.settings import Settings


class Part:
    """A chain, or an HTTP client, whose closing is recorded, and may fail."""

    def __init__(self, name: str, closed: list[str], error: BaseException | None = None) -> None:
        self.name, self.closed, self.error = name, closed, error

    async def close(self) -> None:
        self.closed.append(self.name)
        if self.error is not None:
            raise self.error


class Tail(Part):
    """A tail, which is closed without a coroutine."""

    def close(self) -> None:  # type: ignore[override]
        self.closed.append(self.name)
        if self.error is not None:
            raise self.error


def system_of(closed: list[str], **errors: BaseException) -> System:
    """A system of an HTTP client, two chains and a tail; those of `errors` fail when they are closed."""
    system = System(Settings())
    system._http = cast(Any, Part("http", closed, errors.get("http")))
    system._chains = cast(Any, {name: Part(name, closed, errors.get(name)) for name in ("first", "second")})
    system._tail = cast(Any, Tail("tail", closed, errors.get("tail")))
    return system


ALL = ["http", "first", "second", "tail"]


async def test_closing_closes_all_parts_and_the_tail_last() -> None:
    closed: list[str] = []
    await system_of(closed).close()
    assert closed == ALL


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("error", [OSError("gone"), asyncio.CancelledError()], ids=["error", "cancellation"])
async def test_one_failure_leaves_no_other_part_open(name: str, error: BaseException) -> None:
    closed: list[str] = []
    with pytest.raises(type(error)) as raised:
        await system_of(closed, **{name: error}).close()
    assert raised.value is error
    assert closed == ALL


@pytest.mark.parametrize("later", ["second", "tail"])
async def test_first_of_two_failures_is_raised(later: str) -> None:
    closed, first = list[str](), OSError("first")
    with pytest.raises(OSError, match="first"):
        await system_of(closed, first=first, **{later: OSError("later")}).close()
    assert closed == ALL


async def test_closing_a_system_that_was_not_used_does_nothing() -> None:
    system = System(Settings())
    await system.close()
    assert system.used_chains == []
    assert system._tail is None
