"""Layouts of Solana's own programs: mints with their extensions, and token metadata. No I/O.

Sizes and offsets are those of SPL Token, Token-2022 and Metaplex Token Metadata.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from solana.constants import STAKE_PROGRAM_ID, SYSTEM_PROGRAM_ID
from solders import sysvar
from solders.token.state import Mint as TokenMint
from spl.token.constants import ACCOUNT_LEN, MINT_LEN, TOKEN_2022_PROGRAM_ID, TOKEN_PROGRAM_ID

from chainfolio.printable import MAX_NAME, MAX_SYMBOL, clean

TOKEN: Final = str(TOKEN_PROGRAM_ID)
TOKEN_2022: Final = str(TOKEN_2022_PROGRAM_ID)
TOKEN_PROGRAMS: Final = (TOKEN, TOKEN_2022)
METADATA: Final = "metaqbxxUerdq28cj1RbAWkYQm3ybzjb6a8bt518x1s"
SYSTEM: Final = str(SYSTEM_PROGRAM_ID)
STAKE: Final = str(STAKE_PROGRAM_ID)
CLOCK: Final = str(sysvar.CLOCK)
STAKE_HISTORY: Final = str(sysvar.STAKE_HISTORY)

MINT_MARK: Final = 1  # byte 165 of an extended account of Token-2022: a mint, not a token account
METADATA_KEY: Final = 4
TOKEN_METADATA: Final = 19
# Extensions of a mint that change the amount of a holder, or what a holder may do with it.
EXTENSION_NOTES: Final = {
    1: "a fee is withheld from transfers",
    4: "balances may be confidential",
    6: "accounts may be frozen from the start",
    9: "it cannot be transferred",
    10: "it bears interest: its amount grows for display",
    12: "others may take it",
    14: "a program decides on transfers",
    25: "its amount is scaled for display",
    26: "its transfers can be paused",
}


class BadLayout(ValueError):
    """The bytes of an account are not what its owner's layout requires."""


@dataclass(frozen=True, slots=True)
class Mint:
    """The facts of a mint account.

    Attributes:
        supply: In raw units.
        decimals: Decimal places of an amount.
        extensions: The numbers of its extensions that `EXTENSION_NOTES` describes, sorted.
        symbol: In the token metadata extension; empty if the mint has none.
        name: As `symbol`.
        authority: The address that may issue more; empty if the supply is fixed.
        uri: Of its metadata, as `symbol`.
    """

    supply: int
    decimals: int
    extensions: tuple[int, ...] = ()
    symbol: str = ""
    name: str = ""
    authority: str = ""
    uri: str = ""


@dataclass(slots=True)
class _Reader:
    content: bytes
    offset: int = 0

    def take(self, size: int) -> bytes:
        """Return the next bytes, or raise BadLayout if there are fewer."""
        if size > len(self.content) - self.offset:
            raise BadLayout("it breaks off")
        self.offset += size
        return self.content[self.offset - size : self.offset]

    def text(self) -> str:
        """Return the next text, which follows its length."""
        (size,) = struct.unpack("<I", self.take(4))
        return self.take(size).rstrip(b"\0").decode("utf-8", "replace")


def mint(content: bytes, owner: str) -> Mint:
    """Return the facts of a mint account of either token program.

    Raises:
        BadLayout: The account is no initialised mint.
    """
    if owner not in TOKEN_PROGRAMS:
        raise BadLayout("it belongs to no token program")
    if len(content) != MINT_LEN and not (owner == TOKEN_2022 and len(content) > ACCOUNT_LEN):
        raise BadLayout(f"it has {len(content)} bytes")
    if len(content) > MINT_LEN and (content[ACCOUNT_LEN] != MINT_MARK or any(content[MINT_LEN:ACCOUNT_LEN])):
        raise BadLayout("it is marked as something else")
    try:
        base = TokenMint.from_bytes(content[:MINT_LEN])
    except ValueError as error:
        raise BadLayout(f"it is no initialised mint: {error}") from None
    extensions, (symbol, name, uri) = _extensions(content[ACCOUNT_LEN + 1 :])
    authority = str(base.mint_authority or "")
    return Mint(base.supply, base.decimals, extensions, symbol, name, authority, uri)


def _extensions(content: bytes) -> tuple[tuple[int, ...], tuple[str, str, str]]:
    """Return the numbers of extensions in `EXTENSION_NOTES`, and symbol, name and URI of a mint.

    The texts are empty if the mint has no metadata extension. Raises BadLayout if an extension breaks off or is twice.
    """
    reader, numbers, texts = _Reader(content), set(), ("", "", "")
    while len(content) - reader.offset >= 4:
        number, size = struct.unpack("<HH", reader.take(4))
        if number == 0:  # padding up to the end
            break
        if number in numbers:
            raise BadLayout("it has an extension twice")
        numbers.add(number)
        body = reader.take(size)
        if number == TOKEN_METADATA:
            texts = _metadata_texts(_Reader(body, 64))  # after the update authority and the mint
    return tuple(sorted(numbers & EXTENSION_NOTES.keys())), texts


def _metadata_texts(reader: _Reader) -> tuple[str, str, str]:
    """Return the symbol, the name and the URI that follow in metadata."""
    name, symbol, uri = reader.text(), reader.text(), reader.text()
    return clean(symbol, MAX_SYMBOL), clean(name, MAX_NAME), uri


def metadata(content: bytes, owner: str, mint_key: bytes) -> tuple[str, str, str]:
    """Return the symbol, the name and the URI in a metadata account of Metaplex.

    Raises:
        BadLayout: It is not the metadata account of the mint.
    """
    reader = _Reader(content)
    if owner != METADATA or reader.take(1) != bytes([METADATA_KEY]):
        raise BadLayout("it is no metadata")
    reader.take(32)
    if reader.take(32) != mint_key:
        raise BadLayout("it is the metadata of another mint")
    return _metadata_texts(reader)
