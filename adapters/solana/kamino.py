"""Interest and rewards of a Kamino reserve up to a slot, as the program computes them. No I/O.

The program computes in units times 2^60, rounded down. It refreshes a reserve before anybody withdraws from it, by the
rate of the amount that was borrowed before. Source: https://github.com/Kamino-Finance/klend
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from struct import Struct
from typing import Final

from chainfolio.adapters.solana.lending_layouts import KaminoReserve
from chainfolio.adapters.solana.positions import Unreadable

BITS: Final = 60
ONE: Final = 1 << BITS
HALF: Final = ONE >> 1
LARGEST: Final = 1 << 128
WHOLE_BPS: Final = 10_000
YEAR_S: Final = 365 * 86_400
YEAR_SLOTS: Final = 2 * YEAR_S  # the program's constant, whatever the pace of the cluster
POINT: Final = Struct("<II")  # of a rate curve: utilization and yearly rate, in hundredths of a percent
CURVE_SIZE: Final = 11 * POINT.size
MAX_EXACT_PERIODS: Final = 4  # up to so many slots or seconds, interest is multiplied and not approximated


@dataclass(frozen=True, slots=True)
class ReserveState:
    """A reserve at a slot.

    Attributes:
        supply_sf: The assets of depositors, in raw units times 2^60.
        shares: The number of shares in these assets.
        borrow_index_sf: Growth of debts since the reserve was created, times 2^60.
    """

    supply_sf: int
    shares: int
    borrow_index_sf: int

    def redeemable(self, shares: int) -> int:
        """Return the raw units that some shares redeem for, rounded down.

        Raises:
            Unreadable: The reserve has no assets, or fewer shares.
        """
        if shares > self.shares or self.supply_sf <= 0:
            raise Unreadable("its reserve issued less than it has deposited, or has nothing left")
        return shares * self.supply_sf // self.shares >> BITS

    def debt(self, raw_sf: int, borrow_index_sf: int) -> int:
        """Return the raw units that repay a debt, rounded up.

        Args:
            raw_sf: The debt in raw units times 2^60, as it was last counted.
            borrow_index_sf: The index of the reserve at that time.

        Raises:
            Unreadable: The reserve cannot have had this index.
        """
        if not 0 < borrow_index_sf <= self.borrow_index_sf:
            raise Unreadable("its debt was counted at a rate that its reserve has never had")
        return -(-(raw_sf * self.borrow_index_sf // borrow_index_sf) // ONE)


def refreshed(reserve: KaminoReserve, slot: int, time_s: int, max_reward_rate_bps: int) -> ReserveState:
    """Return the state of a reserve at a slot, with interest and rewards since it was last refreshed.

    Args:
        reserve: The reserve as its account has it.
        slot: The slot of the snapshot.
        time_s: The time of that slot.
        max_reward_rate_bps: The market's bound of rewards, in hundredths of a percent per year.

    Raises:
        Unreadable: The program cannot have written these numbers.
    """
    periods, year = _elapsed_periods(reserve, slot, time_s)
    old_supply = _supply(reserve, reserve.borrowed_sf)
    if not periods:
        return ReserveState(old_supply, reserve.share_supply, reserve.borrow_index_sf)
    rate, host_rate = _yearly_rate(reserve, old_supply), reserve.host_rate_bps * ONE // WHOLE_BPS
    growth = _growth_factor(rate + host_rate, periods, year)
    borrowed = reserve.borrowed_sf * growth >> BITS
    host_fee = (reserve.borrowed_sf * _growth_factor(host_rate, periods, year) >> BITS) - reserve.borrowed_sf
    interest = borrowed - reserve.borrowed_sf - host_fee
    # Referrers are paid from the protocol's part, so only the sum of both reduces the supply.
    fees = host_fee + (interest * (reserve.protocol_take_percent * ONE // 100) >> BITS)
    if interest < 0 or max(borrowed, fees) >= LARGEST:
        raise Unreadable("its reserve says of itself what the program cannot have counted")
    supply = _supply(reserve, borrowed, fees)
    rewards = _rewards(reserve, periods, year, supply >> BITS, max_reward_rate_bps)
    return ReserveState(supply + rewards * ONE, reserve.share_supply, reserve.borrow_index_sf * growth >> BITS)


def _elapsed_periods(reserve: KaminoReserve, slot: int, time_s: int) -> tuple[int, int]:
    """Return slots or seconds since the last refresh, and their number in a year; or raise Unreadable."""
    if reserve.refreshed_slot > slot or reserve.rates_by_time > 1:
        raise Unreadable("its reserve was counted in a slot that is to come, or by a clock that is not known")
    if not reserve.rates_by_time:
        return slot - reserve.refreshed_slot, YEAR_SLOTS
    return max(0, time_s - reserve.refreshed_s) if reserve.refreshed_s else 0, YEAR_S


def _supply(reserve: KaminoReserve, borrowed_sf: int, new_fees_sf: int = 0) -> int:
    """Return the assets of depositors, in raw units times 2^60; raise Unreadable if impossible."""
    fees = reserve.protocol_fees_sf + reserve.referrer_fees_sf + reserve.pending_fees_sf
    supply = reserve.available * ONE + borrowed_sf - fees - new_fees_sf
    if not 0 <= supply < LARGEST:
        raise Unreadable("its reserve owes more fees than it has")
    return supply


def _yearly_rate(reserve: KaminoReserve, supply_sf: int) -> int:
    """Return the yearly rate times 2^60, interpolated between the points of the curve by the utilization.

    Raises:
        Unreadable: The curve has no rate there, or falls.
    """
    utilization = min(ONE, reserve.borrowed_sf * ONE // supply_sf) if supply_sf else 0
    utilization_bps = (utilization * WHOLE_BPS + HALF) >> BITS
    points: Sequence[tuple[int, int]] = list(POINT.iter_unpack(reserve.rate_curve[:CURVE_SIZE]))
    for (start, low), (end, high) in pairwise(points):
        if start <= utilization_bps <= end:
            if utilization_bps in (start, end):
                return (low if utilization_bps == start else high) * ONE // WHOLE_BPS
            if high < low:
                break
            excess = utilization - start * ONE // WHOLE_BPS
            return excess * (high - low) // (end - start) + low * ONE // WHOLE_BPS
    raise Unreadable("its reserve has no rate for what is lent of it")


def _growth_factor(rate: int, periods: int, year: int) -> int:
    """Return the factor by which a debt grows in some periods, times 2^60.

    It is exact, but for rounding down, up to MAX_EXACT_PERIODS, else computed by three terms of the series.

    Args:
        rate: Interest of a year, times 2^60.
        periods: Number of slots or seconds.
        year: Number of them in a year.
    """
    period_rate = rate // year
    if periods <= MAX_EXACT_PERIODS:
        factor = ONE + period_rate
        squared = factor * factor >> BITS
        return (ONE, factor, squared, squared * factor >> BITS, squared * squared >> BITS)[periods]
    first = period_rate * periods
    second = (first * period_rate >> BITS) * (periods - 1) // 2
    third = (second * period_rate >> BITS) * (periods - 2) // 3
    return ONE + first + second + third


def _rewards(reserve: KaminoReserve, periods: int, year: int, supply: int, max_rate_bps: int) -> int:
    """Return the raw units that depositors earn, bounded by the rewards left and by the market's maximum."""
    if not reserve.share_supply:
        return 0
    limit = supply * max_rate_bps * periods // (WHOLE_BPS * year)
    return min(reserve.rewards_per_unit * periods, limit, reserve.rewards_available)
