"""The reads of an EVM chain, as values: decoders yield them, `call.py` encodes, `scan.py` sends them."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias, cast

from chainfolio import reads
from chainfolio.reads import ReadLabel

BALANCE_OF: Final = "balanceOf(address)(uint256)"
OWNER: Final = "ownerOf(uint256)(address)"
BALANCE_OF_ID: Final = "balanceOf(address,uint256)(uint256)"
# As bytes, since the texts of contracts need not be UTF-8.
TOKEN_URI: Final = "tokenURI(uint256)(bytes)"
URI_OF_ID: Final = "uri(uint256)(bytes)"
DECIMALS: Final = "decimals()(uint8)"

# An argument or result of a contract call: an int, bool, text, bytes, or a tuple of these, by its signature, which type
# checkers cannot read. A result may also be `Reverted` or `Unknown`.
AbiValue: TypeAlias = Any


@dataclass(frozen=True, slots=True)
class Call(reads.Read[AbiValue]):
    """A read of a contract: `Call(vault, "convertToAssets(uint256)(uint256)", (shares,))`.

    The result is the one output, a tuple of several, `Reverted`, or `Unknown` (no code there, too short, out of gas).
    Addresses in arguments and outputs are canonical text, bytes are bytes, numbers are int.

    `alone`: the function is no view (it first accrues interest, for example), and is asked what it would return if it
    were sent; no transaction is sent. Such a call has a request to itself: it fails among others, or changes what they
    see. `untrusted`: it concerns an untrusted contract, so it is sent after all others and with little gas.
    """

    to: str
    signature: str
    args: tuple[AbiValue, ...] = ()
    alone: bool = False
    untrusted: bool = field(default=False, compare=False)

    def untrusted_if(self, contracts: Set[str]) -> Call:
        """Return this read, marked as untrusted if it calls one of these contracts or has one as argument."""
        if self.to in contracts or any(_contains_any(contracts, arg) for arg in self.args):
            return replace(self, untrusted=True)
        return self

    @property
    def label(self) -> ReadLabel:
        """The read as answers show it."""
        return "eth_call", self.to, self.signature, self.args


@dataclass(frozen=True, slots=True)
class NativeBalance(reads.Read[AbiValue]):
    """The native coins of an account; the result is an int in the smallest unit, or `Unknown`."""

    account: str

    @property
    def label(self) -> ReadLabel:
        """The read as answers show it."""
        return "eth_getBalance", None, None, (self.account,)


def _contains_any(contracts: Set[str], arg: AbiValue) -> bool:
    if isinstance(arg, str):
        return arg in contracts
    return isinstance(arg, tuple | list) and any(_contains_any(contracts, part) for part in arg)


Read = Call | NativeBalance


def own_reads(chain_reads: Sequence[reads.Read[object]]) -> list[Read]:
    """Return the reads, which are all of an EVM chain.

    Raises:
        TypeError: One is of another kind of chain.
    """
    others = [read for read in chain_reads if not isinstance(read, Read)]
    if others:
        raise TypeError(f"{others[0]!r:.200} is no read of an EVM chain")
    return cast(list[Read], chain_reads)


def balance_of(contract: str, account: str) -> Call:
    """Return the read of an account's balance of a token, in raw units."""
    return Call(contract, BALANCE_OF, (account,))
