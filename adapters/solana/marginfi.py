"""Interest of a MarginFi bank up to a time, as the program computes it. No I/O.

The program computes in units times 2^48, rounded down. It updates a bank before anybody withdraws from it.
Source: https://github.com/0dotxyz/marginfi-v2
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import Final

from chainfolio.adapters.solana.lending_layouts import MarginfiBank, MarginfiGroup
from chainfolio.adapters.solana.positions import Unreadable

BITS: Final = 48
ONE: Final = 1 << BITS
LARGEST: Final = 1 << 127
YEAR_S: Final = 365 * 86_400
FULL: Final = 2**32 - 1  # utilization: everything is borrowed; rate: ten per year
TEN: Final = 10
POINTS: Final = 5
POINT: Final = Struct("<II")  # of a rate curve: utilization and yearly rate
CHARGES_PROGRAM_FEES: Final = 1  # a flag of groups
POINT_CURVE: Final = 1  # a curve type


@dataclass(frozen=True, slots=True)
class ShareValues:
    """The values of one deposit share and one debt share in raw units, times 2^48."""

    asset: int
    debt: int

    def redeemable(self, shares: int) -> int:
        """Return the raw units that deposit shares (times 2^48) redeem for, rounded down."""
        return _multiply(shares, self.asset) >> BITS

    def repayable(self, shares: int) -> int:
        """Return the raw units that repay debt shares (times 2^48), rounded up."""
        return -(-_multiply(shares, self.debt) // ONE)


def updated(bank: MarginfiBank, group: MarginfiGroup, time_s: int) -> ShareValues:
    """Return the values of a bank's shares at a time, with interest since the last update.

    Raises:
        Unreadable: The program cannot have written these numbers, or the bank's rate curve is unknown.
    """
    numbers = (
        bank.asset_share_value,
        bank.debt_share_value,
        bank.asset_shares,
        bank.debt_shares,
        bank.insurance_fee_fixed,
        bank.insurance_fee_rate,
        bank.group_fee_fixed,
        bank.group_fee_rate,
        group.program_fee_fixed,
        group.program_fee_rate,
    )
    if min(numbers) < 0 or not bank.debt_share_value or bank.updated_s > time_s:
        raise Unreadable("its bank has less than nothing, or was counted at a time that is to come")
    assets = _multiply(bank.asset_shares, bank.asset_share_value)
    debts = _multiply(bank.debt_shares, bank.debt_share_value)
    seconds = time_s - bank.updated_s
    if not (seconds and assets and debts):
        return ShareValues(bank.asset_share_value, bank.debt_share_value)
    if bank.curve_type != POINT_CURVE:
        raise Unreadable("its bank has a curve of rates that is not known here")
    utilization = (debts << BITS) // assets
    rate = _yearly_rate(bank, min(utilization, ONE))
    program = group if group.flags & CHARGES_PROGRAM_FEES else MarginfiGroup(0, 0, 0)
    fee_rate = bank.insurance_fee_rate + bank.group_fee_rate + program.program_fee_rate
    fixed_fee = bank.insurance_fee_fixed + bank.group_fee_fixed + program.program_fee_fixed
    return ShareValues(
        _with_interest(bank.asset_share_value, _multiply(rate, utilization), seconds),
        _with_interest(bank.debt_share_value, _multiply(rate, ONE + fee_rate) + fixed_fee, seconds),
    )


def _multiply(a: int, b: int) -> int:
    """Return the product of two numbers times 2^48, itself times 2^48; raise Unreadable if too large."""
    product = a * b >> BITS
    if product >= LARGEST:
        raise Unreadable("its bank says of itself what the program cannot have counted")
    return product


def _yearly_rate(bank: MarginfiBank, utilization: int) -> int:
    """Return the yearly rate at a utilization, interpolated between the points of the curve.

    Both are fixed-point fractions with `BITS` bits. Points at 0 are unused; a point that does not rise ends the curve.

    Raises:
        Unreadable: The curve falls there, or ends before the utilization.
    """
    start, low = 0, _fraction(bank.zero_utilization_rate) * TEN
    points = [(end, high) for end, high in POINT.iter_unpack(bank.rate_points[: POINTS * POINT.size]) if end]
    points.append((FULL, bank.full_utilization_rate))
    for end, high in [(_fraction(end), _fraction(high) * TEN) for end, high in points]:
        if end <= start:
            return low
        if utilization <= end:
            if high < low:
                break
            return low + _multiply(high - low, (utilization - start << BITS) // (end - start))
        start, low = end, high
    raise Unreadable("its bank has no rate for what is lent of it")


def _fraction(of_full: int) -> int:
    return (of_full << BITS) // FULL


def _with_interest(share_value: int, rate: int, seconds: int) -> int:
    return _multiply(share_value, ONE + rate * seconds // YEAR_S)
