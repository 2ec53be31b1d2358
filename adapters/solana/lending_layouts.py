"""Layouts of the accounts of lending markets on Solana. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from chainfolio.adapters.solana.account_fields import Layout


class KaminoObligation(NamedTuple):
    """`Obligation` of Kamino: the deposits and debts of one owner in a market.

    `slots` are the bytes of its deposit slots and debt slots.
    """

    market: str
    owner: str
    slots: bytes


class KaminoReserve(NamedTuple):
    """`Reserve` of Kamino: one asset of a market, as the program last refreshed it.

    Amounts and rates that end in `_sf` are times 2^60.
    """

    refreshed_slot: int
    refreshed_s: int  # 0: never written
    market: str
    mint: str
    vault: str
    available: int
    borrowed_sf: int
    borrow_index_sf: int  # growth of debts since the reserve was created
    protocol_fees_sf: int
    referrer_fees_sf: int
    pending_fees_sf: int
    rewards_available: int  # not yet paid to depositors
    share_supply: int  # tokens that stand for deposits
    host_rate_bps: int  # a fixed part of the yearly rate, for the host
    rates_by_time: int  # 1: rates are per second; 0: per slot
    protocol_take_percent: int  # of interest
    rewards_per_unit: int  # per slot or second, by `rates_by_time`
    rate_curve: bytes  # begins with the points of the curve


class KaminoMarket(NamedTuple):
    """`LendingMarket` of Kamino. `max_reward_rate_bps` bounds the rewards of depositors, per year."""

    max_reward_rate_bps: int


class MarginfiAccount(NamedTuple):
    """`MarginfiAccount` of MarginFi: balances of one owner in the banks of a group, in the bytes `slots`."""

    group: str
    owner: str
    slots: bytes


class MarginfiGroup(NamedTuple):
    """`MarginfiGroup` of MarginFi: the program's fees on interest, times 2^48, if `flags` enable them."""

    flags: int
    program_fee_fixed: int
    program_fee_rate: int


class MarginfiBank(NamedTuple):
    """`Bank` of MarginFi: one asset of a group, as the program last updated it.

    Shares, values of a share and fee rates are times 2^48.
    """

    mint: str
    group: str
    asset_share_value: int
    debt_share_value: int
    vault: str
    debt_shares: int
    asset_shares: int
    updated_s: int
    insurance_fee_fixed: int
    insurance_fee_rate: int
    group_fee_fixed: int
    group_fee_rate: int
    zero_utilization_rate: int  # 2^32 - 1 is a yearly rate of ten
    full_utilization_rate: int  # in the same unit
    rate_points: bytes  # begins with the points between both
    curve_type: int  # 1: a curve of points
    asset_tag: int  # 3 and above: the bank deposits into another protocol


LENDING: Final[Mapping[str, Layout]] = {
    "kamino_obligation": Layout(
        KaminoObligation, 3_344, ((32, "key"), (64, "key"), (96, "rest")), bytes.fromhex("a8ce8d6a584caca7")
    ),
    "kamino_reserve": Layout(
        KaminoReserve,
        8_624,
        (
            (16, "u64"),
            (28, "u32"),
            (32, "key"),
            (128, "key"),
            (160, "key"),
            (224, "u64"),
            (232, "u128"),
            (296, "u256"),
            (344, "u128"),
            (360, "u128"),
            (376, "u128"),
            (440, "u64"),
            (2_592, "u64"),
            (4_858, "u16"),
            (4_865, "u8"),
            (4_870, "u8"),
            (5_792, "u64"),
            (4_920, "rest"),
        ),
        bytes.fromhex("2bf2ccca1af73b7f"),
    ),
    "marginfi_account": Layout(
        MarginfiAccount, 2_312, ((8, "key"), (40, "key"), (72, "rest")), bytes.fromhex("43b2826d7e721c2a")
    ),
    "marginfi_group": Layout(
        MarginfiGroup, 1_064, ((40, "u64"), (80, "i128"), (96, "i128")), bytes.fromhex("b617adf097ceb643")
    ),
    "marginfi_bank": Layout(
        MarginfiBank,
        1_864,
        (
            (8, "key"),
            (41, "key"),
            (80, "i128"),
            (96, "i128"),
            (112, "key"),
            (256, "i128"),
            (272, "i128"),
            (288, "i64"),
            (416, "i128"),
            (432, "i128"),
            (448, "i128"),
            (464, "i128"),
            (496, "u32"),
            (500, "u32"),
            (504, "rest"),
            (544, "u8"),
            (785, "u8"),
        ),
        bytes.fromhex("8e31a6f2324261bc"),
    ),
    "kamino_market": Layout(KaminoMarket, 4_664, ((3_358, "u16"),), bytes.fromhex("f6723262489d1c78")),
}
