"""Reads of a Tron chain, with the types of their results. All are of the newest block."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field, replace
from typing import ClassVar, TypeAlias

from chainfolio.abi import AbiCall, AbiFamilies
from chainfolio.adapters.tron.addresses import decode_address, encode_address
from chainfolio.adapters.tron.forms import Wallet
from chainfolio.adapters.tron.functions import selector
from chainfolio.blocks import Block
from chainfolio.plans import Reverted, Unknown
from chainfolio.reads import Read, ReadLabel

WORD = 32
EVM_ADDRESS_LENGTH = 42  # characters


@dataclass(frozen=True, slots=True)
class WalletRead(Read["WalletState"]):
    """Read an account as the chain stores it. The result is a `WalletState`."""

    account: str

    @property
    def label(self) -> ReadLabel:
        """The read as JSON answers show it."""
        return "wallet/getaccount", self.account, None, ()


@dataclass(frozen=True, slots=True)
class WalletState:
    """An account at a block. All results of one batch of reads are at this block.

    Attributes:
        reward: Sun of voting rewards that the account could withdraw.
    """

    block: Block
    wallet: Wallet
    reward: int = 0


@dataclass(frozen=True, slots=True)
class AssetRead(Read[tuple[str, str, int] | Unknown]):
    """Read the metadata of a TRC-10 token. The result is (symbol, name, decimals), or Unknown."""

    number: str

    @property
    def label(self) -> ReadLabel:
        """The read as JSON answers show it."""
        return "wallet/getassetissuebyid", self.number, None, ()


@dataclass(frozen=True, slots=True)
class Call(Read[bytes | Reverted | Unknown]):
    """Call a function of a contract such as `balanceOf(address)`, with addresses and numbers as arguments.

    The result is the returned bytes, `Reverted` if the call reverts, `Unknown` if there is no such contract.

    Attributes:
        untrusted: The call concerns an untrusted contract: it is sent in a separate request, with a limited cost.
        alone: False: the call may be combined with others in a multicall.
    """

    contract: str
    function: str
    args: tuple[str | int, ...] = ()
    untrusted: bool = field(default=False, compare=False)
    alone: ClassVar[bool] = False

    def untrusted_if(self, strangers: Set[str]) -> Call:
        """Return this read, marked as untrusted if it calls or has as an argument one of these contracts."""
        is_untrusted = self.contract in strangers or not strangers.isdisjoint(self.args)
        return replace(self, untrusted=True) if is_untrusted else self

    @property
    def label(self) -> ReadLabel:
        """The read as JSON answers show it."""
        return "eth_call", self.contract, self.function, self.args

    @property
    def data(self) -> bytes:
        """The call data."""
        return selector(self.function) + b"".join(encode_word(arg) for arg in self.args)

    def decode(self, result: object) -> object:
        """Return the result of the read from that of the call: the same."""
        return result


@dataclass(frozen=True, slots=True)
class AbiRead(Read[object]):
    """A contract read of an EVM decoder, sent as a call on this chain, with the result that it expects.

    Attributes:
        families: The EVM protocol families, which encode the read and decode its result.
        read: The read of the EVM decoder.
        untrusted: As in `Call`.
    """

    families: AbiFamilies
    read: Read[object]
    untrusted: bool = field(default=False, compare=False)

    def untrusted_if(self, strangers: Set[str]) -> AbiRead:
        """Return this read, marked as untrusted if it calls or has as an argument one of these contracts."""
        _, contract, _, args = self.label
        is_untrusted = contract in strangers or any(isinstance(arg, str) and arg in strangers for arg in args)
        return replace(self, untrusted=True) if is_untrusted else self

    @property
    def label(self) -> ReadLabel:
        """The read as JSON answers show it, with base58 addresses."""
        method, _, function, args = self.read.label
        return method, self.contract, function, tuple(_base58_argument(arg) for arg in args)

    @property
    def call(self) -> AbiCall:
        """The call that the read is encoded as."""
        call = self.families.to_request(self.read)
        assert isinstance(call, AbiCall), "other reads are not put like this"
        return call

    @property
    def contract(self) -> str:
        """The called contract."""
        return encode_address(bytes.fromhex(self.call.contract[2:]))

    @property
    def function(self) -> str:
        """The called function, for statistics."""
        return str(self.read.label[2])

    @property
    def data(self) -> bytes:
        """The call data."""
        return self.call.data

    @property
    def alone(self) -> bool:
        """True if the call must not be combined with others in a multicall."""
        return self.call.alone

    def decode(self, result: object) -> object:
        """Return the result of the read from that of the call. Anything but bytes stays as it is."""
        return self.families.decode(self.read, result) if isinstance(result, bytes) else result


ContractRead: TypeAlias = Call | AbiRead


def _base58_argument(value: object) -> object:
    """Return an EVM address in base58, any other argument unchanged."""
    if isinstance(value, str) and len(value) == EVM_ADDRESS_LENGTH and value.startswith("0x"):
        return encode_address(bytes.fromhex(value[2:]))
    return value


def encode_word(value: str | int) -> bytes:
    """Return an address or a number as an ABI word."""
    return (decode_address(value) if isinstance(value, str) else value.to_bytes(WORD, "big")).rjust(WORD, b"\0")


def decode_uint(data: bytes) -> int | None:
    """Return the number in the first word of returned bytes, None if they are shorter than a word."""
    return int.from_bytes(data[:WORD], "big") if len(data) >= WORD else None


def decode_text(data: bytes) -> str:
    """Return a returned `bytes32` or `string` as text, empty if it is none."""
    if len(data) >= 2 * WORD and (start := int.from_bytes(data[:WORD], "big")) <= len(data) - WORD:
        size = int.from_bytes(data[start : start + WORD], "big")
        data = data[start + WORD : start + WORD + size] if size <= len(data) else b""
    try:
        return data.rstrip(b"\0").decode()
    except UnicodeDecodeError:
        return ""
