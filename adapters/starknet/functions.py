"""Which function a transaction calls, by the number of its name, and how the table of functions has it."""

from __future__ import annotations

from typing import Final

from chainfolio.adapters.starknet import felts

SELECTOR_SIZE: Final = 4  # bytes that are compared: the last of the number, whose first ones are always small
MARK: Final = "starknet:"


def selector(function: str) -> bytes:
    """The last bytes of the number of a function such as `starknet:multi_route_swap()`. Without that mark it is a
    function of another kind of chain, whose text has a number of its own."""
    name = function.removeprefix(MARK).removesuffix("()") if function.startswith(MARK) else function
    return shortened(felts.selector(name))


def shortened(number: int) -> bytes:
    """The last bytes of the number of a function."""
    return (number % 256**SELECTOR_SIZE).to_bytes(SELECTOR_SIZE, "big")
