"""The reads of an EVM chain, as values: decoders yield them, `call.py` encodes them, `scan.py` sends them."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field, replace
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
    travels by itself, for in company it is refused, or its neighbours would see what it does. `untrusted`: it concerns
    a contract that nobody trusts, so it is sent after all others and may use little.
    """

    to: str
    signature: str
    args: tuple[Any, ...] = ()
    alone: bool = False
    untrusted: bool = field(default=False, compare=False)

    def untrusted_if(self, strangers: Set[str]) -> Call:
        """Return this read marked as untrusted if it calls one of these contracts or names one in its arguments."""
        if self.to in strangers or any(_names(strangers, arg) for arg in self.args):
            return replace(self, untrusted=True)
        return self

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


def _names(strangers: Set[str], arg: Any) -> bool:
    if isinstance(arg, str):
        return arg in strangers
    return isinstance(arg, tuple | list) and any(_names(strangers, part) for part in arg)


Read = Call | NativeBalance
Reads = Plan[Read, Any, Any]


def balance_of(contract: str, account: str) -> Call:
    """How much of a token an account holds."""
    return Call(contract, BALANCE_OF, (account,))
