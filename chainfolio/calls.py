"""What a pure part may ask an EVM chain for. The adapter encodes, sends, decodes; the block is nobody's choice here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from chainfolio.asking import Asking


@dataclass(frozen=True, slots=True)
class Call:
    """A read of a contract: `Call(vault, "convertToAssets(uint256)(uint256)", (shares,))`.

    Answered with the one output, a tuple of several, `Reverted`, or `Unknown` (no code there, too short, out of gas).
    Addresses in arguments and outputs are canonical text, bytes are bytes, numbers are int.
    `writes`: the function is no view, and is asked for what it would give if it were sent; nothing is. Such calls
    travel alone, for in company they are refused, or would be seen by their neighbours.
    """

    to: str
    signature: str
    args: tuple[Any, ...] = ()
    writes: bool = False


@dataclass(frozen=True, slots=True)
class NativeBalance:
    """The native coins of an account, answered with an int in the smallest unit or `Unknown`."""

    account: str


Read = Call | NativeBalance
Reads = Asking[Read, Any, Any]
