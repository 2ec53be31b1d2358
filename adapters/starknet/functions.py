"""Selectors of functions, cut to the four bytes that the table of function names compares."""

from __future__ import annotations

from typing import Final

from chainfolio.adapters.starknet import felts

SELECTOR_SIZE: Final = 4  # bytes; the last ones of the selector, because the first ones are always small
PREFIX: Final = "starknet:"


def selector(function: str) -> bytes:
    """Return the last four bytes of a function's selector.

    `starknet:multi_route_swap()` is hashed by its name alone; a function without the prefix belongs to another kind of
    chain, and its whole text is hashed.
    """
    name = function.removeprefix(PREFIX).removesuffix("()") if function.startswith(PREFIX) else function
    return selector_suffix(felts.selector(name))


def selector_suffix(number: int) -> bytes:
    """Return the last four bytes of a selector."""
    return (number % 256**SELECTOR_SIZE).to_bytes(SELECTOR_SIZE, "big")
