"""Chains, accounts and assets: one canonical form each. CAIP-2 names a chain, CAIP-19 an asset.

An account is written in its chain family's own way: EVM `0x` + 40 lower-case hex, Solana base58 of 32 bytes, Tron
base58check `T…`, Starknet `0x` + 64 lower-case hex.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from chainfolio.errors import BadRequest

ZERO_ADDRESS: Final = "0x" + "0" * 40
STARKNET_PRIME: Final = 2**251 + 17 * 2**192 + 1
_EVM = re.compile(r"0[xX][0-9a-fA-F]{40}\Z")
_STARKNET = re.compile(r"0[xX][0-9a-fA-F]{41,64}\Z")
_TRON_HEX = re.compile(r"41[0-9a-fA-F]{40}\Z")
_BASE58 = re.compile(r"[1-9A-HJ-NP-Za-km-z]{32,44}\Z")
_ASSET = re.compile(
    r"([-a-z0-9]{3,8}:[-_a-zA-Z0-9]{1,32})/([-a-z0-9]{3,8}):([-.%a-zA-Z0-9]{1,128})(?:/([-.%a-zA-Z0-9]{1,78}))?\Z"
)


@dataclass(frozen=True, slots=True)
class Account:
    """An address and the family of chains it belongs to: `evm`, `solana`, `tron` or `starknet`."""

    family: str
    address: str

    def __str__(self) -> str:
        return self.address


@lru_cache(8192)
def account(written: str) -> Account:
    """The canonical account behind an address as people write it; BadRequest says what is wrong with it."""
    if _EVM.match(written):
        return Account("evm", written.lower())
    if _STARKNET.match(written):
        value = int(written, 16)
        if not 0 < value < STARKNET_PRIME:
            raise BadRequest("address", f"{written} is not a Starknet address: outside the field")
        return Account("starknet", f"0x{value:064x}")
    if _TRON_HEX.match(written):
        return Account("tron", _tron(bytes.fromhex(written)))
    if _BASE58.match(written):
        return _base58_account(written)
    raise BadRequest(
        "address",
        f"{_shown(written)} is not an address of any kind known here",
        remedy="EVM 0x + 40 hex digits, Solana base58, Tron T…, Starknet 0x + 64 hex digits",
    )


def evm(written: str) -> str:
    """The canonical form of an EVM address; anything else is a BadRequest."""
    if not _EVM.match(written):
        raise BadRequest("address", f"{_shown(written)} is not an EVM address", remedy="0x followed by 40 hex digits")
    return written.lower()


def _shown(written: str) -> str:
    return repr(written if len(written) <= 70 else written[:67] + "...")


def _base58_account(written: str) -> Account:
    import base58

    data = base58.b58decode(written)
    if len(data) == 32:
        return Account("solana", base58.b58encode(data).decode())
    if len(data) == 25 and data[0] == 0x41:
        try:
            return Account("tron", _tron(base58.b58decode_check(written)))
        except ValueError:
            raise BadRequest("address", f"{written} is not a Tron address: its checksum is wrong") from None
    raise BadRequest("address", f"{_shown(written)} is base58 but neither a Solana nor a Tron address")


def _tron(data: bytes) -> str:
    import base58

    return base58.b58encode_check(data).decode()


@dataclass(frozen=True, slots=True, order=True)
class Asset:
    """CAIP-19: `chain` is CAIP-2, `kind` the namespace (slip44, erc20, erc721, …), `reference` the contract."""

    chain: str
    kind: str
    reference: str
    token_id: str = ""

    def __str__(self) -> str:
        tail = f"/{self.token_id}" if self.token_id else ""
        return f"{self.chain}/{self.kind}:{self.reference}{tail}"

    @property
    def is_native(self) -> bool:
        """Whether this is the coin its chain pays fees in."""
        return self.kind == "slip44"

    @property
    def contract(self) -> str:
        """The contract address; the zero address for the native coin, as answers show it."""
        return ZERO_ADDRESS if self.is_native else self.reference


def asset(written: str) -> Asset:
    """An asset from its CAIP-19 text; EVM contracts are lower-cased."""
    match = _ASSET.match(written)
    if not match:
        raise BadRequest(
            "asset", f"{_shown(written)} is not a CAIP-19 asset", remedy="for example eip155:1/erc20:0xa0b8…"
        )
    chain, kind, reference, token_id = match.groups()
    if chain.startswith("eip155:") and kind != "slip44":
        reference = evm(reference)
    return Asset(chain, kind, reference, token_id or "")
