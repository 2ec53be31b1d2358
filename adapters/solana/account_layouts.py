"""What accounts of protocols on Solana hold, byte by byte: prices, pools, positions. No I/O.

A layout is a line of `LAYOUTS`, as `account_fields.py` reads it. Most marks are Anchor's: the first eight bytes of
SHA-256 of `account:` and the name. Those of lending are in `lending_layouts.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from solders.token.state import TokenAccount as TokenAccountState
from spl.token.constants import ACCOUNT_LEN

from adapters.solana.account_fields import KEY_SIZE, Layout, address, value
from adapters.solana.layouts import TOKEN_2022, TOKEN_PROGRAMS, BadLayout, mint
from adapters.solana.lending_layouts import LENDING
from adapters.solana.pool_layouts import POOLS

FIXED_TICKS, DYNAMIC_TICKS = bytes.fromhex("4561bdbe6e0742bb"), bytes.fromhex("11d8f68ee1c7da38")
RAYDIUM_TICKS = bytes.fromhex("c09b55cd31f9812a")
RAYDIUM_TICK_SIZE, RAYDIUM_TICKS_AT, RAYDIUM_ARRAY_SIZE = 168, 44, 10_240
TICKS, TICK_SIZE, TICKS_AT, DYNAMIC_AT = 88, 113, 12, 60  # of an array: how many, of how many bytes, and where
LAMPORTS: Final = "lamports"  # of an account of which nothing else is read
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


class Lamports(NamedTuple):
    """What an account of any program has in lamports; none where there is no account."""

    raw: int


class Marinade(NamedTuple):
    """`State` of Marinade: what one of its tokens redeems for, in lamports times 2^32; what it keeps beside its pool of
    liquidity and for tickets, in lamports."""

    mint: str
    price: int
    rent: int
    pool_mint: str
    pool_vault: str  # what the pool has of the token
    pool_supply: int  # so many tokens of the pool were issued
    ticketed: int


class MarinadeTicket(NamedTuple):
    """`TicketAccountData` of Marinade: lamports for stake that was given back in an epoch."""

    state: str
    owner: str
    lamports: int
    epoch: int


class BubblegumTree(NamedTuple):
    """`TreeConfig` of Bubblegum: of how many leaves of a tree it is."""

    minted: int


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
    issuer: str = ""  # who may issue more; nobody where there is none


class Whirlpool(NamedTuple):
    """`Whirlpool` of Orca. The price is its square root times 2^64, growths are per unit of liquidity times 2^64, and
    what is paid out each second is times 2^64, too."""

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
    paid_s: int  # up to when growths of rewards are counted
    reward_mint_0: str
    reward_vault_0: str
    per_second_0: int
    reward_growth_0: int
    reward_mint_1: str
    reward_vault_1: str
    per_second_1: int
    reward_growth_1: int
    reward_mint_2: str
    reward_vault_2: str
    per_second_2: int
    reward_growth_2: int


class RaydiumPool(NamedTuple):
    """`PoolState` of Raydium's concentrated liquidity. The price is its square root times 2^64, growths are per unit of
    liquidity times 2^64, and what is paid out each second is times 2^64, too. Times are in seconds."""

    config: str
    mint_a: str
    mint_b: str
    vault_a: str
    vault_b: str
    liquidity: int
    root: int
    tick: int
    spacing: int
    growth_a: int
    growth_b: int
    open_0: int
    end_0: int
    paid_0: int
    per_second_0: int
    reward_mint_0: str
    reward_vault_0: str
    reward_growth_0: int
    open_1: int
    end_1: int
    paid_1: int
    per_second_1: int
    reward_mint_1: str
    reward_vault_1: str
    reward_growth_1: int
    open_2: int
    end_2: int
    paid_2: int
    per_second_2: int
    reward_mint_2: str
    reward_vault_2: str
    reward_growth_2: int


class RaydiumReserves(NamedTuple):
    """`PoolState` of Raydium's pools by product (CPMM): of what lies in a vault, some fees belong to others than those
    who have shares."""

    config: str
    vault_a: str
    vault_b: str
    share: str
    mint_a: str
    mint_b: str
    shares: int
    protocol_a: int
    protocol_b: int
    fund_a: int
    fund_b: int
    creator_a: int
    creator_b: int

    def reserves(self, raw_a: int, raw_b: int) -> tuple[int, int]:
        """What of the vaults' amounts is traded with; less than nothing where they do not cover the fees."""
        return (
            raw_a - self.protocol_a - self.fund_a - self.creator_a,
            raw_b - self.protocol_b - self.fund_b - self.creator_b,
        )


class RangePosition(NamedTuple):
    """`Position` of Orca, `PersonalPositionState` of Raydium: between which ticks how much liquidity lies, and what was
    counted when it last changed."""

    pool: str
    mint: str
    liquidity: int
    lower: int
    upper: int
    seen_a: int
    owed_a: int
    seen_b: int
    owed_b: int
    seen_0: int
    owed_0: int
    seen_1: int
    owed_1: int
    seen_2: int
    owed_2: int


class PoolTick(NamedTuple):
    """A tick in a `TickArray` or `DynamicTickArray` of Orca, or a `TickArrayState` of Raydium: what was earned beyond
    it."""

    pool: str
    used: int
    beyond_a: int
    beyond_b: int
    beyond_0: int
    beyond_1: int
    beyond_2: int


class BinPosition(NamedTuple):
    """`PositionV2` of Meteora's DLMM: in which bins it has shares. `content` is all of the account."""

    pair: str
    owner: str
    lower: int
    upper: int
    locked_until: int  # a slot or a time, by the pair
    fee_owner: str  # who gets the fees, if anybody else
    content: bytes


class BinPair(NamedTuple):
    """`LbPair` of Meteora's DLMM. Rates of rewards are a second times 2^64; times are in seconds."""

    function: int  # 0: not said, 1: pays rewards, 2: has limit orders
    active: int  # the bin that is traded in
    by_time: int  # whether locks are by time, and not by slot
    mint_a: str
    mint_b: str
    vault_a: str
    vault_b: str
    reward_mint_0: str
    reward_vault_0: str
    end_0: int
    per_second_0: int
    paid_0: int
    reward_mint_1: str
    reward_vault_1: str
    end_1: int
    per_second_1: int
    paid_1: int


class BinArray(NamedTuple):
    """`BinArray` of Meteora's DLMM: `content` is its 70 bins."""

    number: int
    pair: str
    content: bytes


class PositionBundle(NamedTuple):
    """`PositionBundle` of Orca: 256 places for positions, and which of them are taken, the lowest bit first."""

    mint: str
    taken: int


LAYOUTS: Final[Mapping[str, Layout]] = {
    **POOLS,
    **LENDING,
    "pyth_price": Layout(
        PriceUpdate, 133, ((40, "u8"), (41, "raw"), (73, "i64"), (81, "u64"), (89, "i32"), (93, "i64")),
        bytes.fromhex("22f123639d7ef4cd"), 134,
        lambda found: "" if found.verification == 1 else "its price was not verified in full",
    ),
    "stake_pool": Layout(
        StakePool, 611, ((0, "u8"), (162, "key"), (258, "u64"), (266, "u64"), (274, "u64")), b"\x01", 1024
    ),
    "marinade": Layout(
        Marinade, 592, (
            (8, "key"), (512, "u64"), (138, "u64"), (385, "key"), (420, "key"), (472, "u64"), (528, "u64"),
        ), bytes.fromhex("d8926b5e684bb6b1"), 1024,
    ),
    "marinade_ticket": Layout(
        MarinadeTicket, 88, ((8, "key"), (40, "key"), (72, "u64"), (80, "u64")), bytes.fromhex("854d1262d301e703"), 256
    ),
    "bubblegum_tree": Layout(BubblegumTree, 88, ((80, "u64"),), bytes.fromhex("7af5aff8ab2200cf"), 256),
    "whirlpool": Layout(
        Whirlpool, 653, (
            (8, "key"), (41, "u16"), (49, "u128"), (65, "u128"), (81, "i32"), (101, "key"), (133, "key"), (165, "u128"),
            (181, "key"), (213, "key"), (245, "u128"), (261, "u64"),
            *(
                field for at in (269, 397, 525)
                for field in ((at, "key"), (at + 32, "key"), (at + 96, "u128"), (at + 112, "u128"))
            ),
        ), bytes.fromhex("3f95d10ce1806309"),
    ),
    "raydium_clmm": Layout(
        RaydiumPool, 1544, (
            (9, "key"), (73, "key"), (105, "key"), (137, "key"), (169, "key"), (237, "u128"), (253, "u128"),
            (269, "i32"), (235, "u16"), (277, "u128"), (293, "u128"),
            *(
                field for at in (397, 566, 735)
                for field in (
                    (at + 1, "u64"), (at + 9, "u64"), (at + 17, "u64"), (at + 25, "u128"), (at + 57, "key"),
                    (at + 89, "key"), (at + 153, "u128"),
                )
            ),
        ), bytes.fromhex("f7ede3f5d7c3de46"),
    ),
    "whirlpool_position": Layout(
        RangePosition, 216, (
            (8, "key"), (40, "key"), (72, "u128"), (88, "i32"), (92, "i32"), (96, "u128"), (112, "u64"), (120, "u128"),
            (136, "u64"), *(field for at in (144, 168, 192) for field in ((at, "u128"), (at + 16, "u64"))),
        ), bytes.fromhex("aabc8fe47a40f7d0"),
    ),
    "raydium_cpmm": Layout(
        RaydiumReserves, 637, (
            (8, "key"), (72, "key"), (104, "key"), (136, "key"), (168, "key"), (200, "key"), (333, "u64"), (341, "u64"),
            (349, "u64"), (357, "u64"), (365, "u64"), (397, "u64"), (405, "u64"),
        ), bytes.fromhex("f7ede3f5d7c3de46"),
    ),
    "raydium_position": Layout(
        RangePosition, 281, (
            (41, "key"), (9, "key"), (81, "u128"), (73, "i32"), (77, "i32"), (97, "u128"), (129, "u64"), (113, "u128"),
            (137, "u64"), *(field for at in (145, 169, 193) for field in ((at, "u128"), (at + 16, "u64"))),
        ), bytes.fromhex("466f967ee60f1975"),
    ),
    "dlmm_position": Layout(
        BinPosition, 8_120, (
            (8, "key"), (40, "key"), (7_912, "i32"), (7_916, "i32"), (7_992, "u64"), (8_001, "key"), (0, "rest"),
        ), bytes.fromhex("75b0d4c7f5b485b6"), 200_000,
    ),
    "dlmm_pair": Layout(
        BinPair, 904, (
            (35, "u8"), (76, "i32"), (86, "u8"), (88, "key"), (120, "key"), (152, "key"), (184, "key"),
            *(
                field for at in (264, 408)
                for field in ((at, "key"), (at + 32, "key"), (at + 104, "u64"), (at + 112, "u128"), (at + 128, "u64"))
            ),
        ), bytes.fromhex("210b3162b565b10d"),
    ),
    "dlmm_bins": Layout(
        BinArray, 10_136, ((8, "i64"), (24, "key"), (56, "rest")), bytes.fromhex("5c8e5cdc059446b5")
    ),
    "whirlpool_bundle": Layout(
        PositionBundle, 72, ((8, "key"), (40, "u256")), bytes.fromhex("81a9af41b95f2064"), 136,
    ),
}  # fmt: skip


def read(layout: str, content: bytes, owner: str, program: str, pick: tuple[int, ...] = ()) -> Any:
    """What an account of a program says, or the part of it that is picked; BadLayout where it belongs to another one,
    or is another kind of account."""
    if layout == "mint":
        facts = mint(content, owner)
        return MintFacts(facts.supply, facts.decimals, facts.extensions, facts.authority)
    if layout == "token_account":
        return _token_account(content, owner)
    if owner != program:
        raise BadLayout(f"it belongs to the program {owner}")
    if layout == "whirlpool_tick":
        return _tick(content, *pick)
    if layout == "raydium_tick":
        return _raydium_tick(content, *pick)
    return LAYOUTS[layout].read(content)


def _tick(content: bytes, place: int) -> PoolTick:
    """One of the 88 ticks of an array, by its place. In a dynamic one, ticks that are not in use take one byte."""
    if content[:8] == FIXED_TICKS and len(content) == TICKS_AT + TICKS * TICK_SIZE + KEY_SIZE:
        pool, at = address(content[-KEY_SIZE:]), TICKS_AT + place * TICK_SIZE
    elif content[:8] == DYNAMIC_TICKS and len(content) >= DYNAMIC_AT + TICKS:
        pool, at = address(content[TICKS_AT:][:KEY_SIZE]), DYNAMIC_AT
        for _ in range(place):
            at += TICK_SIZE if content[at : at + 1] == b"\x01" else 1
    else:
        raise BadLayout(f"it has {len(content)} bytes, and is no array of ticks")
    found = content[at : at + TICK_SIZE]
    if not found or found[0] > 1 or (found[0] and len(found) < TICK_SIZE):
        raise BadLayout("it breaks off, or has a tick that is none")
    if not found[0]:
        return PoolTick(pool, 0, 0, 0, 0, 0, 0)
    return PoolTick(pool, 1, *(value(found, 33 + 16 * number, "u128") for number in range(5)))


def _raydium_tick(content: bytes, place: int) -> PoolTick:
    """One of the 60 ticks of an array, by its place: it is in use if there is liquidity."""
    if content[:8] != RAYDIUM_TICKS or len(content) != RAYDIUM_ARRAY_SIZE:
        raise BadLayout(f"it has {len(content)} bytes, and is no array of ticks")
    at = RAYDIUM_TICKS_AT + place * RAYDIUM_TICK_SIZE
    used = int(value(content, at + 20, "u128") > 0)
    return PoolTick(address(content[8:40]), used, *(value(content, at + 36 + 16 * each, "u128") for each in range(5)))


def _token_account(content: bytes, owner: str) -> TokenAccount:
    if owner not in TOKEN_PROGRAMS:
        raise BadLayout("it belongs to no token program")
    extended = owner == TOKEN_2022 and len(content) > ACCOUNT_LEN and content[ACCOUNT_LEN] == TOKEN_ACCOUNT_MARK
    if len(content) != ACCOUNT_LEN and not extended:
        raise BadLayout(f"it has {len(content)} bytes, and is no token account")
    try:
        account = TokenAccountState.from_bytes(content[:ACCOUNT_LEN])
    except ValueError as error:
        raise BadLayout(f"it is no initialised token account: {error}") from None
    return TokenAccount(str(account.mint), str(account.owner), account.amount, int(account.state))


KNOWN: Final = frozenset([*LAYOUTS, "whirlpool_tick", "raydium_tick", "mint", "token_account", LAMPORTS])
