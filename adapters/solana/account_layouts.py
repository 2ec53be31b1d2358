"""Layouts of the accounts of protocols on Solana: prices, pools, positions. No I/O.

Most discriminators are Anchor's: the first eight bytes of SHA-256 of `account:` and the name. The layouts of lending
markets are in `lending_layouts.py`, those of pools that issue shares in `pool_layouts.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from solders.token.state import TokenAccount as TokenAccountState
from spl.token.constants import ACCOUNT_LEN

from chainfolio.adapters.solana.account_fields import KEY_SIZE, Layout, address, field_value
from chainfolio.adapters.solana.account_records import (
    BinArray,
    BinPair,
    BinPosition,
    BubblegumTree,
    Marinade,
    MarinadeTicket,
    MintFacts,
    PoolTick,
    PositionBundle,
    PriceUpdate,
    RangePosition,
    RaydiumPool,
    RaydiumReserves,
    StakePool,
    TokenAccount,
    Whirlpool,
)
from chainfolio.adapters.solana.layouts import TOKEN_2022, TOKEN_PROGRAMS, BadLayout, mint
from chainfolio.adapters.solana.lending_layouts import LENDING
from chainfolio.adapters.solana.pool_layouts import POOLS

FIXED_TICKS, DYNAMIC_TICKS = bytes.fromhex("4561bdbe6e0742bb"), bytes.fromhex("11d8f68ee1c7da38")
RAYDIUM_TICKS = bytes.fromhex("c09b55cd31f9812a")
RAYDIUM_TICK_SIZE, RAYDIUM_TICKS_AT, RAYDIUM_ARRAY_SIZE = 168, 44, 10_240
# Orca's tick arrays: ticks per array, bytes per tick, and the offsets of the ticks in fixed and dynamic arrays.
TICKS, TICK_SIZE, TICKS_AT, DYNAMIC_AT = 88, 113, 12, 60
LAMPORTS: Final = "lamports"  # the layout of an account whose bytes are not read
TOKEN_ACCOUNT_MARK: Final = 2  # byte 165 of an extended account of Token-2022: a token account, not a mint


LAYOUTS: Final[Mapping[str, Layout]] = {
    **POOLS,
    **LENDING,
    "pyth_price": Layout(
        PriceUpdate,
        133,
        ((40, "u8"), (41, "raw"), (73, "i64"), (81, "u64"), (89, "i32"), (93, "i64")),
        bytes.fromhex("22f123639d7ef4cd"),
        134,
        lambda update: "" if update.verification == 1 else "its price was not verified in full",
    ),
    "stake_pool": Layout(
        StakePool, 611, ((0, "u8"), (162, "key"), (258, "u64"), (266, "u64"), (274, "u64")), b"\x01", 1024
    ),
    "marinade": Layout(
        Marinade,
        592,
        (
            (8, "key"),
            (512, "u64"),
            (138, "u64"),
            (385, "key"),
            (420, "key"),
            (472, "u64"),
            (528, "u64"),
        ),
        bytes.fromhex("d8926b5e684bb6b1"),
        1024,
    ),
    "marinade_ticket": Layout(
        MarinadeTicket, 88, ((8, "key"), (40, "key"), (72, "u64"), (80, "u64")), bytes.fromhex("854d1262d301e703"), 256
    ),
    "bubblegum_tree": Layout(BubblegumTree, 88, ((80, "u64"),), bytes.fromhex("7af5aff8ab2200cf"), 256),
    "whirlpool": Layout(
        Whirlpool,
        653,
        (
            (8, "key"),
            (41, "u16"),
            (49, "u128"),
            (65, "u128"),
            (81, "i32"),
            (101, "key"),
            (133, "key"),
            (165, "u128"),
            (181, "key"),
            (213, "key"),
            (245, "u128"),
            (261, "u64"),
            *(
                field
                for start in (269, 397, 525)
                for field in ((start, "key"), (start + 32, "key"), (start + 96, "u128"), (start + 112, "u128"))
            ),
        ),
        bytes.fromhex("3f95d10ce1806309"),
    ),
    "raydium_clmm": Layout(
        RaydiumPool,
        1544,
        (
            (9, "key"),
            (73, "key"),
            (105, "key"),
            (137, "key"),
            (169, "key"),
            (237, "u128"),
            (253, "u128"),
            (269, "i32"),
            (235, "u16"),
            (277, "u128"),
            (293, "u128"),
            *(
                field
                for start in (397, 566, 735)
                for field in (
                    (start + 1, "u64"),
                    (start + 9, "u64"),
                    (start + 17, "u64"),
                    (start + 25, "u128"),
                    (start + 57, "key"),
                    (start + 89, "key"),
                    (start + 153, "u128"),
                )
            ),
        ),
        bytes.fromhex("f7ede3f5d7c3de46"),
    ),
    "whirlpool_position": Layout(
        RangePosition,
        216,
        (
            (8, "key"),
            (40, "key"),
            (72, "u128"),
            (88, "i32"),
            (92, "i32"),
            (96, "u128"),
            (112, "u64"),
            (120, "u128"),
            (136, "u64"),
            *(field for start in (144, 168, 192) for field in ((start, "u128"), (start + 16, "u64"))),
        ),
        bytes.fromhex("aabc8fe47a40f7d0"),
    ),
    "raydium_cpmm": Layout(
        RaydiumReserves,
        637,
        (
            (8, "key"),
            (72, "key"),
            (104, "key"),
            (136, "key"),
            (168, "key"),
            (200, "key"),
            (333, "u64"),
            (341, "u64"),
            (349, "u64"),
            (357, "u64"),
            (365, "u64"),
            (397, "u64"),
            (405, "u64"),
        ),
        bytes.fromhex("f7ede3f5d7c3de46"),
    ),
    "raydium_position": Layout(
        RangePosition,
        281,
        (
            (41, "key"),
            (9, "key"),
            (81, "u128"),
            (73, "i32"),
            (77, "i32"),
            (97, "u128"),
            (129, "u64"),
            (113, "u128"),
            (137, "u64"),
            *(field for start in (145, 169, 193) for field in ((start, "u128"), (start + 16, "u64"))),
        ),
        bytes.fromhex("466f967ee60f1975"),
    ),
    "dlmm_position": Layout(
        BinPosition,
        8_120,
        (
            (8, "key"),
            (40, "key"),
            (7_912, "i32"),
            (7_916, "i32"),
            (7_992, "u64"),
            (8_001, "key"),
            (0, "rest"),
        ),
        bytes.fromhex("75b0d4c7f5b485b6"),
        200_000,
    ),
    "dlmm_pair": Layout(
        BinPair,
        904,
        (
            (35, "u8"),
            (76, "i32"),
            (86, "u8"),
            (88, "key"),
            (120, "key"),
            (152, "key"),
            (184, "key"),
            *(
                field
                for start in (264, 408)
                for field in (
                    (start, "key"),
                    (start + 32, "key"),
                    (start + 104, "u64"),
                    (start + 112, "u128"),
                    (start + 128, "u64"),
                )
            ),
        ),
        bytes.fromhex("210b3162b565b10d"),
    ),
    "dlmm_bins": Layout(BinArray, 10_136, ((8, "i64"), (24, "key"), (56, "rest")), bytes.fromhex("5c8e5cdc059446b5")),
    "whirlpool_bundle": Layout(
        PositionBundle,
        72,
        ((8, "key"), (40, "u256")),
        bytes.fromhex("81a9af41b95f2064"),
        136,
    ),
}


def read(layout: str, content: bytes, owner: str, program: str, pick: tuple[int, ...] = ()) -> Any:
    """Return the record of an account, or a part of it.

    Args:
        layout: A name of `LAYOUT_NAMES`.
        content: All bytes of the account.
        owner: The program that the account belongs to.
        program: The program that it must belong to. Not used for mints and token accounts.
        pick: The index of a tick in a tick array; empty for other layouts.

    Raises:
        BadLayout: The account belongs to another program, or is another kind of account.
    """
    if layout == "mint":
        facts = mint(content, owner)
        return MintFacts(facts.supply, facts.decimals, facts.extensions, facts.authority)
    if layout == "token_account":
        return _token_account(content, owner)
    if owner != program:
        raise BadLayout(f"it belongs to the program {owner}")
    if layout == "whirlpool_tick":
        return _orca_tick(content, *pick)
    if layout == "raydium_tick":
        return _raydium_tick(content, *pick)
    return LAYOUTS[layout].read(content)


def _orca_tick(content: bytes, index: int) -> PoolTick:
    """Return one of the 88 ticks of an array, zeros if not initialized; raise BadLayout if malformed.

    In a dynamic array, an uninitialized tick takes one byte.
    """
    if content[:8] == FIXED_TICKS and len(content) == TICKS_AT + TICKS * TICK_SIZE + KEY_SIZE:
        pool, offset = address(content[-KEY_SIZE:]), TICKS_AT + index * TICK_SIZE
    elif content[:8] == DYNAMIC_TICKS and len(content) >= DYNAMIC_AT + TICKS:
        pool, offset = address(content[TICKS_AT:][:KEY_SIZE]), DYNAMIC_AT
        for _ in range(index):
            offset += TICK_SIZE if content[offset : offset + 1] == b"\x01" else 1
    else:
        raise BadLayout(f"it has {len(content)} bytes, and is no array of ticks")
    tick = content[offset : offset + TICK_SIZE]
    if not tick or tick[0] > 1 or (tick[0] and len(tick) < TICK_SIZE):
        raise BadLayout("it breaks off, or has a tick that is none")
    if not tick[0]:
        return PoolTick(pool, False, 0, 0, 0, 0, 0)
    return PoolTick(pool, True, *(field_value(tick, 33 + 16 * number, "u128") for number in range(5)))


def _raydium_tick(content: bytes, index: int) -> PoolTick:
    """Return one of the 60 ticks of an array; raise BadLayout if it is none.

    A tick with liquidity is initialized.
    """
    if content[:8] != RAYDIUM_TICKS or len(content) != RAYDIUM_ARRAY_SIZE:
        raise BadLayout(f"it has {len(content)} bytes, and is no array of ticks")
    start = RAYDIUM_TICKS_AT + index * RAYDIUM_TICK_SIZE
    is_initialized = field_value(content, start + 20, "u128") > 0
    growths = (field_value(content, start + 36 + 16 * number, "u128") for number in range(5))
    return PoolTick(address(content[8:40]), is_initialized, *growths)


def _token_account(content: bytes, owner: str) -> TokenAccount:
    """Decode a token account of either token program; raise BadLayout for anything else."""
    if owner not in TOKEN_PROGRAMS:
        raise BadLayout("it belongs to no token program")
    is_extended = owner == TOKEN_2022 and len(content) > ACCOUNT_LEN and content[ACCOUNT_LEN] == TOKEN_ACCOUNT_MARK
    if len(content) != ACCOUNT_LEN and not is_extended:
        raise BadLayout(f"it has {len(content)} bytes, and is no token account")
    try:
        account = TokenAccountState.from_bytes(content[:ACCOUNT_LEN])
    except ValueError as error:
        raise BadLayout(f"it is no initialised token account: {error}") from None
    return TokenAccount(str(account.mint), str(account.owner), account.amount, int(account.state))


LAYOUT_NAMES: Final = frozenset([*LAYOUTS, "whirlpool_tick", "raydium_tick", "mint", "token_account", LAMPORTS])
