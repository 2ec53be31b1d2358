"""A bank of MarginFi at a time: interest since it was last counted, as the program has it. No I/O.

The program counts in units times 2^48, and cuts off what is smaller. It counts a bank anew before anybody takes
something out of it: https://github.com/0dotxyz/marginfi-v2
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import Final

from adapters.solana.lending_layouts import MarginfiBank, MarginfiGroup
from adapters.solana.positions import Unreadable

BITS: Final = 48
ONE: Final = 1 << BITS
LARGEST: Final = 1 << 127
YEAR_S: Final = 365 * 86_400
WHOLE: Final = 2**32 - 1  # all is lent; a rate of this is ten
TEN: Final = 10
POINTS: Final = 5
POINT: Final = Struct("<II")  # of a curve: how much is lent, and at which rate
PROGRAM_TAKES: Final = 1  # a flag of groups
CURVE: Final = 1


@dataclass(frozen=True, slots=True)
class Values:
    """What a share of what was deposited is worth, and one of what is owed, times 2^48."""

    asset: int
    debt: int

    def redeemed(self, shares: int) -> int:
        """What so many shares, times 2^48, give: rounded down."""
        return _times(shares, self.asset) >> BITS

    def owed(self, shares: int) -> int:
        """What it takes to repay so many shares, times 2^48: rounded up."""
        return -(-_times(shares, self.debt) // ONE)


def counted(bank: MarginfiBank, group: MarginfiGroup, time_s: int) -> Values:
    """What shares of a bank are worth at a time; Unreadable where its numbers are none that the program writes."""
    numbers = (
        bank.asset_value, bank.debt_value, bank.asset_shares, bank.debt_shares, bank.insurance_fixed,
        bank.insurance_part, bank.group_fixed, bank.group_part, group.fixed, group.part,
    )  # fmt: skip
    if min(numbers) < 0 or not bank.debt_value or bank.time_s > time_s:
        raise Unreadable("its bank has less than nothing, or was counted at a time that is to come")
    assets, debts = _times(bank.asset_shares, bank.asset_value), _times(bank.debt_shares, bank.debt_value)
    seconds = time_s - bank.time_s
    if not (seconds and assets and debts):
        return Values(bank.asset_value, bank.debt_value)
    if bank.curve != CURVE:
        raise Unreadable("its bank has a curve of rates that is not known here")
    used = (debts << BITS) // assets
    rate = _rate(bank, min(used, ONE))
    program = group if group.flags & PROGRAM_TAKES else MarginfiGroup(0, 0, 0)
    part = bank.insurance_part + bank.group_part + program.part
    fixed = bank.insurance_fixed + bank.group_fixed + program.fixed
    return Values(
        _grown(bank.asset_value, _times(rate, used), seconds),
        _grown(bank.debt_value, _times(rate, ONE + part) + fixed, seconds),
    )


def _times(one: int, other: int) -> int:
    product = one * other >> BITS
    if product >= LARGEST:
        raise Unreadable("its bank says of itself what the program cannot have counted")
    return product


def _rate(bank: MarginfiBank, used: int) -> int:
    """The rate of a year, by how much is lent: straight lines between points, of which some are not in use."""
    start, low = 0, _share(bank.lowest) * TEN
    points = [(end, high) for end, high in POINT.iter_unpack(bank.points[: POINTS * POINT.size]) if end]
    for end, high in [(_share(end), _share(high) * TEN) for end, high in (*points, (WHOLE, bank.highest))]:
        if end <= start:
            return low
        if used <= end:
            if high < low:
                break
            return low + _times(high - low, (used - start << BITS) // (end - start))
        start, low = end, high
    raise Unreadable("its bank has no rate for what is lent of it")


def _share(of_whole: int) -> int:
    return (of_whole << BITS) // WHOLE


def _grown(value: int, rate: int, seconds: int) -> int:
    return _times(value, ONE + rate * seconds // YEAR_S)
