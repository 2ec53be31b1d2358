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
    "kamino_market": Layout(KaminoMarket, 4_664, ((3_358, "u16"),), bytes.fromhex("f6723262489d1c78")),
}  # fmt: skip
