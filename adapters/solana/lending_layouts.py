"""What accounts of lending markets on Solana hold, byte by byte. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from adapters.solana.account_fields import Layout


class KaminoObligation(NamedTuple):
    """`Obligation` of Kamino: what somebody deposited and owes in a market. `content` are the places for both."""

    market: str
    owner: str
    content: bytes


class KaminoReserve(NamedTuple):
    """`Reserve` of Kamino: one asset of a market, as it was in some slot. What was lent, and the fees on it, are units
    of the asset times 2^60; so is the rate by which debts grew since the beginning."""

    slot: int
    time_s: int  # 0: never written
    market: str
    mint: str
    vault: str
    available: int
    lent: int
    grown: int
    protocol_fees: int
    referrer_fees: int
    pending_fees: int
    rewards: int  # left to be given to those who deposited
    shares: int  # so many tokens stand for what was deposited
    host_bps: int  # a part of the rate that is always the host's
    by_time: int  # whether rates are for seconds, and not for slots
    taken_percent: int  # of interest, by the protocol
    rewards_each: int  # for each slot, or second
    content: bytes  # from the curve of rates on


class KaminoMarket(NamedTuple):
    """`LendingMarket` of Kamino: how much rewards may be, in hundredths of a percent a year."""

    rewards_bps: int


class MarginfiAccount(NamedTuple):
    """`MarginfiAccount` of MarginFi: what somebody has and owes in the banks of a group. `content` are its places."""

    group: str
    owner: str
    content: bytes


class MarginfiGroup(NamedTuple):
    """`MarginfiGroup` of MarginFi: what the program takes of interest, where the flags say so, times 2^48."""

    flags: int
    fixed: int
    part: int


class MarginfiBank(NamedTuple):
    """`Bank` of MarginFi: one asset of a group, as it was at some time. Shares, what one is worth, and parts of rates
    are times 2^48."""

    mint: str
    group: str
    asset_value: int
    debt_value: int
    vault: str
    debt_shares: int
    asset_shares: int
    time_s: int
    insurance_fixed: int
    insurance_part: int
    group_fixed: int
    group_part: int
    lowest: int  # the rate where nothing is lent, of ten times 2^32 - 1
    highest: int  # where everything is
    points: bytes  # from the points between on
    curve: int  # 1: as above
    kind: int  # 3 and above: what it has lies in another protocol


LENDING: Final[Mapping[str, Layout]] = {
    "kamino_obligation": Layout(
        KaminoObligation, 3_344, ((32, "key"), (64, "key"), (96, "rest")), bytes.fromhex("a8ce8d6a584caca7")
    ),
    "kamino_reserve": Layout(
        KaminoReserve, 8_624, (
            (16, "u64"), (28, "u32"), (32, "key"), (128, "key"), (160, "key"), (224, "u64"), (232, "u128"),
            (296, "u256"), (344, "u128"), (360, "u128"), (376, "u128"), (440, "u64"), (2_592, "u64"), (4_858, "u16"),
            (4_865, "u8"), (4_870, "u8"), (5_792, "u64"), (4_920, "rest"),
        ), bytes.fromhex("2bf2ccca1af73b7f"),
    ),
    "marginfi_account": Layout(
        MarginfiAccount, 2_312, ((8, "key"), (40, "key"), (72, "rest")), bytes.fromhex("43b2826d7e721c2a")
    ),
    "marginfi_group": Layout(
        MarginfiGroup, 1_064, ((40, "u64"), (80, "i128"), (96, "i128")), bytes.fromhex("b617adf097ceb643")
    ),
    "marginfi_bank": Layout(
        MarginfiBank, 1_864, (
            (8, "key"), (41, "key"), (80, "i128"), (96, "i128"), (112, "key"), (256, "i128"), (272, "i128"),
            (288, "i64"), (416, "i128"), (432, "i128"), (448, "i128"), (464, "i128"), (496, "u32"), (500, "u32"),
            (504, "rest"), (544, "u8"), (785, "u8"),
        ), bytes.fromhex("8e31a6f2324261bc"),
    ),
    "kamino_market": Layout(KaminoMarket, 4_664, ((3_358, "u16"),), bytes.fromhex("f6723262489d1c78")),
}  # fmt: skip
