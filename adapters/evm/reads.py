"""The reads of an EVM chain, as values: decoders yield them, `call.py` encodes them, `scan.py` sends them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from chainfolio.plans import Plan

BALANCE_OF: Final = "balanceOf(address)(uint256)"
OWNER: Final = "ownerOf(uint256)(address)"
BALANCE_OF_ID: Final = "balanceOf(address,uint256)(uint256)"
DECIMALS: Final = "decimals()(uint8)"


@dataclass(frozen=True, slots=True)
class Call:
    """A read of a contract: `Call(vault, "convertToAssets(uint256)(uint256)", (shares,))`.

    Answered with the one output, a tuple of several, `Reverted`, or `Unknown` (no code there, too short, out of gas).
    Addresses in arguments and outputs are canonical text, bytes are bytes, numbers are int. `alone`: the function is no
    view (it first accrues interest, say), and is asked for what it would give if it were sent; nothing is. Such a call
    travels by itself, for in company it is refused, or its neighbours would see what it does.
    """

    to: str
    signature: str
    args: tuple[Any, ...] = ()
    alone: bool = False

    @property
    def shown(self) -> tuple[str, str | None, str | None, tuple[Any, ...]]:
        """How answers name the read: the node's method, the contract, the function, the arguments."""
        return "eth_call", self.to, self.signature, self.args


@dataclass(frozen=True, slots=True)
class NativeBalance:
    """The native coins of an account, answered with an int in the smallest unit or `Unknown`."""

    account: str

    @property
    def shown(self) -> tuple[str, str | None, str | None, tuple[Any, ...]]:
        """How answers name the read."""
        return "eth_getBalance", None, None, (self.account,)


Read = Call | NativeBalance
Reads = Plan[Read, Any, Any]


def balance_of(contract: str, account: str) -> Call:
    """How much of a token an account holds."""
    return Call(contract, BALANCE_OF, (account,))
