"""A reserve of Kamino's lending at a slot: interest and rewards since it was counted, as the program has it. No I/O.

The program counts in units times 2^60, and cuts off what is smaller. It counts a reserve anew before anybody takes
something out of it, by the rate of what was lent before: https://github.com/Kamino-Finance/klend
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from struct import Struct
from typing import Final

from adapters.solana.lending_layouts import KaminoReserve
from adapters.solana.positions import Unreadable

BITS: Final = 60
ONE: Final = 1 << BITS
HALF: Final = ONE >> 1
LARGEST: Final = 1 << 128
WHOLE_BPS: Final = 10_000
YEAR_S: Final = 365 * 86_400
YEAR_SLOTS: Final = 2 * YEAR_S  # as the program has it in mind, whatever the pace of the cluster
POINT: Final = Struct("<II")  # of a curve: how much is lent, and at which rate, in hundredths of a percent
CURVE_SIZE: Final = 11 * POINT.size
MULTIPLIED: Final = 4  # up to so many units of time interest is multiplied, and not approximated


@dataclass(frozen=True, slots=True)
class Counted:
    """What a reserve has at a slot: `supply` in units times 2^60, for `shares`; and how much debts have grown."""

    supply: int
    shares: int
    grown: int

    def redeemed(self, shares: int) -> int:
        """What so many shares give, rounded down."""
        if shares > self.shares or self.supply <= 0:
            raise Unreadable("its reserve issued less than it has deposited, or has nothing left")
        return shares * self.supply // self.shares >> BITS

    def owed(self, raw: int, grown: int) -> int:
        """What it takes to repay a debt of `raw` times 2^60, counted when debts had grown so much: rounded up."""
        if not 0 < grown <= self.grown:
            raise Unreadable("its debt was counted at a rate that its reserve has never had")
        return -(-(raw * self.grown // grown) // ONE)


def counted(reserve: KaminoReserve, slot: int, time_s: int, rewards_bps: int) -> Counted:
    """What a reserve has at a slot; Unreadable where its numbers are none that the program can have written."""
    units, year = _elapsed(reserve, slot, time_s)
    before = _supply(reserve.available, reserve, reserve.lent)
    if not units:
        return Counted(before, reserve.shares, reserve.grown)
    rate, host = _rate(reserve, before), reserve.host_bps * ONE // WHOLE_BPS
    growth = _compounded(rate + host, units, year)
    lent = reserve.lent * growth >> BITS
    fixed = (reserve.lent * _compounded(host, units, year) >> BITS) - reserve.lent
    earned = lent - reserve.lent - fixed
    grown = reserve.grown * growth >> BITS
    # What referrers get of the protocol's part is part of neither: only their sum is missing from the supply.
    taken = fixed + (earned * (reserve.taken_percent * ONE // 100) >> BITS)
    if earned < 0 or max(lent, taken) >= LARGEST:
        raise Unreadable("its reserve says of itself what the program cannot have counted")
    supply = _supply(reserve.available, reserve, lent, taken)
    rewards = _rewards(reserve, units, year, supply >> BITS, rewards_bps)
    return Counted(supply + rewards * ONE, reserve.shares, grown)


def _elapsed(reserve: KaminoReserve, slot: int, time_s: int) -> tuple[int, int]:
    """How many slots or seconds have passed since a reserve was counted, and how many a year has."""
    if reserve.slot > slot or reserve.by_time > 1:
        raise Unreadable("its reserve was counted in a slot that is to come, or by a clock that is not known")
    if not reserve.by_time:
        return slot - reserve.slot, YEAR_SLOTS
    return max(0, time_s - reserve.time_s) if reserve.time_s else 0, YEAR_S


def _supply(available: int, reserve: KaminoReserve, lent: int, taken: int = 0) -> int:
    fees = reserve.protocol_fees + reserve.referrer_fees + reserve.pending_fees
    supply = available * ONE + lent - fees - taken
    if not 0 <= supply < LARGEST:
        raise Unreadable("its reserve owes more fees than it has")
    return supply


def _rate(reserve: KaminoReserve, supply: int) -> int:
    """The rate of a year, by how much is lent: points of a curve, and straight lines between them."""
    used = min(ONE, reserve.lent * ONE // supply) if supply else 0
    used_bps = (used * WHOLE_BPS + HALF) >> BITS
    points: Sequence[tuple[int, int]] = list(POINT.iter_unpack(reserve.content[:CURVE_SIZE]))
    for (start, low), (end, high) in pairwise(points):
        if start <= used_bps <= end:
            if used_bps in (start, end):
                return (low if used_bps == start else high) * ONE // WHOLE_BPS
            if high < low:
                break
            beyond = used - start * ONE // WHOLE_BPS
            return beyond * (high - low) // (end - start) + low * ONE // WHOLE_BPS
    raise Unreadable("its reserve has no rate for what is lent of it")


def _compounded(rate: int, units: int, year: int) -> int:
    """By how much a debt grows: a series of three terms, as the program has it."""
    base = rate // year
    if units <= MULTIPLIED:
        once = ONE + base
        twice = once * once >> BITS
        return (ONE, once, twice, twice * once >> BITS, twice * twice >> BITS)[units]
    first = base * units
    second = (first * base >> BITS) * (units - 1) // 2
    third = (second * base >> BITS) * (units - 2) // 3
    return ONE + first + second + third


def _rewards(reserve: KaminoReserve, units: int, year: int, supply: int, most_bps: int) -> int:
    """What those who deposited are given: so much a slot, no more than is left, and than the market allows."""
    if not reserve.shares:
        return 0
    most = supply * most_bps * units // (WHOLE_BPS * year)
    return min(reserve.rewards_each * units, most, reserve.rewards)
