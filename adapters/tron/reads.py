"""Reads of a Tron chain as values, and what they give. All are of the newest block: nodes keep no old state."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from adapters.tron.addresses import raw, shown
from adapters.tron.forms import Wallet
from adapters.tron.functions import selector
from chainfolio.abi import AbiCall, AbiFamilies
from chainfolio.blocks import Block

WORD = 32
ADDRESS = 42  # characters of an address of another kind of chain


@dataclass(frozen=True, slots=True)
class WalletRead:
    """Everything that the chain itself keeps of an account. Answered with a `Told`."""

    account: str

    @property
    def shown(self) -> tuple[str, str | None, str | None, tuple[Any, ...]]:
        """How answers name it."""
        return "wallet/getaccount", self.account, None, ()


@dataclass(frozen=True, slots=True)
class Told:
    """An account at a block: everything of one answer was read at that one. `reward` is what it could withdraw."""

    block: Block
    wallet: Wallet
    reward: int = 0


@dataclass(frozen=True, slots=True)
class AssetRead:
    """What a token of the chain says of itself. Answered with (symbol, name, decimals), or Unknown."""

    number: str

    @property
    def shown(self) -> tuple[str, str | None, str | None, tuple[Any, ...]]:
        """How answers name it."""
        return "wallet/getassetissuebyid", self.number, None, ()


@dataclass(frozen=True, slots=True)
class Call:
    """A function of a contract such as `balanceOf(address)`, with addresses and numbers as arguments. Answered with
    what it returns, as bytes; `Reverted` where the contract refuses, `Unknown` where there is none. `untrusted`: it
    concerns a contract that nobody trusts, so it travels apart and may cost little."""

    contract: str
    function: str
    args: tuple[str | int, ...] = ()
    untrusted: bool = field(default=False, compare=False)
    alone: ClassVar[bool] = False

    def untrusted_if(self, strangers: Set[str]) -> Call:
        """Return this read marked as untrusted if it calls one of these contracts or names one in its arguments."""
        is_untrusted = self.contract in strangers or not strangers.isdisjoint(self.args)
        return replace(self, untrusted=True) if is_untrusted else self

    @property
    def shown(self) -> tuple[str, str | None, str | None, tuple[Any, ...]]:
        """How answers name it."""
        return "eth_call", self.contract, self.function, self.args

    @property
    def data(self) -> bytes:
        """The call data."""
        return selector(self.function) + b"".join(_word(each) for each in self.args)

    def value(self, returned: Any) -> Any:
        """What it gave, as it is."""
        return returned


@dataclass(frozen=True, slots=True)
class AbiRead:
    """A read of a contract by a decoder of another kind of chain. Answered with what the decoder takes it for.
    `untrusted`: as in `Call`."""

    families: AbiFamilies
    read: Any
    untrusted: bool = field(default=False, compare=False)

    def untrusted_if(self, strangers: Set[str]) -> AbiRead:
        """Return this read marked as untrusted if it calls one of these contracts or names one in its arguments."""
        _, contract, _, args = self.shown
        is_untrusted = contract in strangers or any(isinstance(arg, str) and arg in strangers for arg in args)
        return replace(self, untrusted=True) if is_untrusted else self

    @property
    def shown(self) -> tuple[str, str | None, str | None, tuple[Any, ...]]:
        """How answers name it, with our addresses."""
        method, _, function, args = self.read.shown
        return method, self.contract, function, tuple(_inward(each) for each in args)

    @property
    def asked(self) -> AbiCall:
        """The call."""
        asked = self.families.asked(self.read)
        assert isinstance(asked, AbiCall), "other reads are not put like this"
        return asked

    @property
    def contract(self) -> str:
        """Whom it asks."""
        return shown(bytes.fromhex(self.asked.contract[2:]))

    @property
    def function(self) -> str:
        """What it asks, for counting."""
        return str(self.read.shown[2])

    @property
    def data(self) -> bytes:
        """The call data."""
        return self.asked.data

    @property
    def alone(self) -> bool:
        """Whether it may not travel with others."""
        return self.asked.alone

    def value(self, returned: Any) -> Any:
        """What it gave."""
        return self.families.given(self.read, returned) if isinstance(returned, bytes) else returned


def _inward(value: Any) -> Any:
    is_address = isinstance(value, str) and len(value) == ADDRESS and value.startswith("0x")
    return shown(bytes.fromhex(value[2:])) if is_address else value


def _word(value: str | int) -> bytes:
    return (raw(value) if isinstance(value, str) else value.to_bytes(WORD, "big")).rjust(WORD, b"\0")


def uint(data: bytes) -> int | None:
    """The number that a contract returned; None where it returned something else."""
    return int.from_bytes(data[:WORD], "big") if len(data) >= WORD else None


def text(data: bytes) -> str:
    """The text that a contract returned, in its own word or behind its length; empty where it is none."""
    if len(data) >= 2 * WORD and (start := int.from_bytes(data[:WORD], "big")) <= len(data) - WORD:
        size = int.from_bytes(data[start : start + WORD], "big")
        data = data[start + WORD : start + WORD + size] if size <= len(data) else b""
    try:
        return data.rstrip(b"\0").decode()
    except UnicodeDecodeError:
        return ""
