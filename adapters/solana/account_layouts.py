"""What accounts of protocols on Solana hold, byte by byte: prices, pools, positions. No I/O.

A layout is a line of `LAYOUTS`: the mark that the bytes begin with, how many there are, and where each field lies. Most
marks are Anchor's: the first eight bytes of SHA-256 of `account:` and the name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from adapters.solana.layouts import ACCOUNT_SIZE, TOKEN_2022, TOKEN_PROGRAMS, BadLayout, mint

KEY_SIZE: Final = 32
TOKEN_ACCOUNT_MARK: Final = 2  # the byte behind 165 others in Token-2022: a token account, and no mint


class PriceUpdate(NamedTuple):
    """`PriceUpdateV2` of Pyth's receiver: a price and half its interval, both times 10^exponent."""

    verification: int  # 1: by all guardians that have to
    feed: bytes
    price: int
    interval: int
    exponent: int
    time_s: int


class StakePool(NamedTuple):
    """`StakePool` of SPL: what it has in lamports, and how many tokens stand for it."""

    kind: int  # 1: a stake pool, 2: a list of validators
    mint: str
    lamports: int
    supply: int
    epoch: int  # in which the two were counted last


class Marinade(NamedTuple):
    """`State` of Marinade: what one of its tokens redeems for, in lamports times 2^32."""

    mint: str
    price: int


class TokenAccount(NamedTuple):
    """A token account of either token program."""

    mint: str
    owner: str
    raw: int
    state: int  # 1: in use, 2: frozen


class MintFacts(NamedTuple):
    """What a mint of either token program says of its amounts."""

    supply: int
    decimals: int
    extensions: tuple[int, ...]


class Whirlpool(NamedTuple):
    """`Whirlpool` of Orca. The price is its square root times 2^64, growths are per unit of liquidity times 2^64."""

    config: str
    spacing: int
    liquidity: int
    root: int
    tick: int
    mint_a: str
    vault_a: str
    growth_a: int
    mint_b: str
    vault_b: str
    growth_b: int


@dataclass(frozen=True, slots=True)
class Layout:
    """How the bytes of one kind of account are read: `places` are the fields of `fields`, in their order."""

    fields: Callable[..., Any]
    least: int
    places: tuple[tuple[int, str], ...]
    mark: bytes = b""
    most: int = 0  # bytes; 0: exactly as many as the least
    check: Callable[[Any], str] = field(default=lambda found: "")

    def read(self, content: bytes) -> Any:
        """The fields of an account; BadLayout where it is another kind of account."""
        if not self.least <= len(content) <= (self.most or self.least):
            raise BadLayout(f"it has {len(content)} bytes")
        if not content.startswith(self.mark):
            raise BadLayout("it is another kind of account")
        found = self.fields(*(_value(content, at, kind) for at, kind in self.places))
        if fault := self.check(found):
            raise BadLayout(fault)
        return found


def _value(content: bytes, at: int, kind: str) -> Any:
    """A field: a `key`, `raw` bytes of that size, or a number such as `u64` or `i32`."""
    if kind in ("key", "raw"):
        found = content[at : at + KEY_SIZE]
        return address(found) if kind == "key" else found
    size = int(kind[1:]) // 8
    return int.from_bytes(content[at : at + size], "little", signed=kind[0] == "i")


def address(content: bytes) -> str:
    """An address from its 32 bytes."""
    from solders.pubkey import Pubkey

    return str(Pubkey.from_bytes(content))


LAYOUTS: Final[Mapping[str, Layout]] = {
    "pyth_price": Layout(
        PriceUpdate, 133, ((40, "u8"), (41, "raw"), (73, "i64"), (81, "u64"), (89, "i32"), (93, "i64")),
        bytes.fromhex("22f123639d7ef4cd"), 134,
        lambda found: "" if found.verification == 1 else "its price was not verified in full",
    ),
    "stake_pool": Layout(
        StakePool, 611, ((0, "u8"), (162, "key"), (258, "u64"), (266, "u64"), (274, "u64")), b"\x01", 1024
    ),
    "marinade": Layout(Marinade, 592, ((8, "key"), (512, "u64")), bytes.fromhex("d8926b5e684bb6b1"), 1024),
    "whirlpool": Layout(
        Whirlpool, 653, (
            (8, "key"), (41, "u16"), (49, "u128"), (65, "u128"), (81, "i32"), (101, "key"), (133, "key"), (165, "u128"),
            (181, "key"), (213, "key"), (245, "u128"),
        ), bytes.fromhex("3f95d10ce1806309"),
    ),
}  # fmt: skip


def read(layout: str, content: bytes, owner: str, program: str) -> Any:
    """What an account of a program says; BadLayout where it belongs to another one, or is another kind of account."""
    if layout == "mint":
        found = mint(content, owner)
        return MintFacts(found.supply, found.decimals, found.extensions)
    if layout == "token_account":
        return _token_account(content, owner)
    if owner != program:
        raise BadLayout(f"it belongs to the program {owner}")
    return LAYOUTS[layout].read(content)


def _token_account(content: bytes, owner: str) -> TokenAccount:
    if owner not in TOKEN_PROGRAMS:
        raise BadLayout("it belongs to no token program")
    extended = owner == TOKEN_2022 and len(content) > ACCOUNT_SIZE and content[ACCOUNT_SIZE] == TOKEN_ACCOUNT_MARK
    if len(content) != ACCOUNT_SIZE and not extended:
        raise BadLayout(f"it has {len(content)} bytes, and is no token account")
    found = TokenAccount(*(_value(content, *each) for each in ((0, "key"), (32, "key"), (64, "u64"), (108, "u8"))))
    if not found.state:
        raise BadLayout("it is not initialised")
    return found


KNOWN: Final = frozenset([*LAYOUTS, "mint", "token_account"])
