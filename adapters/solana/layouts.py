"""What accounts of Solana's programs hold, byte by byte: mints with their extensions, and names of tokens. No I/O.

Sizes and offsets are those of the programs: SPL Token, Token-2022 and Metaplex Token Metadata.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Final

from chainfolio.printable import MAX_NAME, MAX_SYMBOL, clean

TOKEN: Final = "TokenkegQfeZyiNwAJbNbGKPFXCWuBvf9Ss623VQ5DA"
TOKEN_2022: Final = "TokenzQdBNbLqP5VEhdkAS6EPFLC1PHnBqCXEpPxuEb"
TOKEN_PROGRAMS: Final = (TOKEN, TOKEN_2022)
METADATA: Final = "metaqbxxUerdq28cj1RbAWkYQm3ybzjb6a8bt518x1s"
SYSTEM: Final = "11111111111111111111111111111111"
STAKE: Final = "Stake11111111111111111111111111111111111111"
CLOCK: Final = "SysvarC1ock11111111111111111111111111111111"
STAKE_HISTORY: Final = "SysvarStakeHistory1111111111111111111111111"

MINT_SIZE, ACCOUNT_SIZE = 82, 165  # of a mint, and of a token account, without extensions
MINT_MARK: Final = 1  # the byte behind 165 others: a mint, and no token account
METADATA_KEY: Final = 4
TOKEN_METADATA: Final = 19
# Extensions of a mint that change what a holder has, or may do with it.
MEANING: Final = {
    1: "a fee is withheld from transfers", 4: "balances may be confidential",
    6: "accounts may be frozen from the start",
    9: "it cannot be transferred", 10: "it bears interest: its amount grows for display", 12: "somebody may take it",
    14: "a program decides on transfers", 25: "its amount is scaled for display", 26: "its transfers can be paused",
}  # fmt: skip


class BadLayout(ValueError):
    """Bytes that are not what the owner of the account says."""


@dataclass(frozen=True, slots=True)
class Mint:
    """What a mint says. `extensions` are those of `MEANING`, by number; names only where it carries them itself."""

    supply: int
    decimals: int
    extensions: tuple[int, ...] = ()
    symbol: str = ""
    name: str = ""


@dataclass(slots=True)
class _Reader:
    content: bytes
    at: int = field(default=0)

    def take(self, size: int) -> bytes:
        if size > len(self.content) - self.at:
            raise BadLayout("it breaks off")
        self.at += size
        return self.content[self.at - size : self.at]

    def text(self) -> str:
        (size,) = struct.unpack("<I", self.take(4))
        return self.take(size).rstrip(b"\0").decode("utf-8", "replace")


def mint(content: bytes, owner: str) -> Mint:
    """A mint; BadLayout where the account is none."""
    if owner not in TOKEN_PROGRAMS:
        raise BadLayout("it belongs to no token program")
    if len(content) != MINT_SIZE and not (owner == TOKEN_2022 and len(content) > ACCOUNT_SIZE):
        raise BadLayout(f"it has {len(content)} bytes")
    if len(content) > MINT_SIZE and (content[ACCOUNT_SIZE] != MINT_MARK or any(content[MINT_SIZE:ACCOUNT_SIZE])):
        raise BadLayout("it is marked as something else")
    supply, decimals, initialised = struct.unpack_from("<QBB", content, 36)
    if initialised != 1:
        raise BadLayout("it is not initialised")
    extensions, symbol, name = _extensions(content[ACCOUNT_SIZE + 1 :])
    return Mint(supply, decimals, extensions, symbol, name)


def _extensions(content: bytes) -> tuple[tuple[int, ...], str, str]:
    """What the list of extensions says: type and size before each. Unknown ones are passed over."""
    reader, found, symbol, name = _Reader(content), set(), "", ""
    while len(content) - reader.at >= 4:
        number, size = struct.unpack("<HH", reader.take(4))
        if number == 0:  # padding up to the end
            break
        if number in found:
            raise BadLayout("it has an extension twice")
        found.add(number)
        body = reader.take(size)
        if number == TOKEN_METADATA:
            inner = _Reader(body, 64)  # who may change it, and the mint
            name, symbol = clean(inner.text(), MAX_NAME), clean(inner.text(), MAX_SYMBOL)
    return tuple(sorted(found & MEANING.keys())), symbol, name


def metadata(content: bytes, owner: str, of_mint: bytes) -> tuple[str, str]:
    """Symbol and name in an account of Metaplex; BadLayout where it is not that of the mint."""
    reader = _Reader(content)
    if owner != METADATA or reader.take(1) != bytes([METADATA_KEY]):
        raise BadLayout("it is no metadata")
    reader.take(32)
    if reader.take(32) != of_mint:
        raise BadLayout("it is the metadata of another mint")
    name, symbol = reader.text(), reader.text()
    return clean(symbol, MAX_SYMBOL), clean(name, MAX_NAME)
