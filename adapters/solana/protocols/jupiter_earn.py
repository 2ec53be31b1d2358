"""Shares of Jupiter's Earn (jTokens): what redeeming one gives, with interest and rewards up to the slot."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from adapters.solana.account_reads import AccountRead, ListRead, derived
from adapters.solana.pool_layouts import JupiterLending, JupiterReserve, JupiterRewards
from adapters.solana.positions import SHARE, Claim, DecoderPlan, Family, Unreadable, sure
from adapters.solana.shares import issued
from chainfolio.protocols import DecodedPosition, TokenAmount

SHARE_AT: Final = 40  # where a lending names the mint of its shares
LIQUIDITY, REWARDS = "liquidity", "rewards"  # roles of the programs that its reserves and its rewards belong to
PRICE: Final = 10**12  # prices are times this
RETURN: Final = 10**14  # and what is earned
WHOLE: Final = 10**4  # rates and parts of a reserve are of this
FINE: Final = 10**17
YEAR_S: Final = 31_536_000
MOST_RATE: Final = RETURN // 2  # of rewards: a half in a year


def position(claim: Claim) -> DecoderPlan:
    """What redeeming the shares gives, rounded down, as the program counts it at this slot."""
    share = yield from issued(claim, b"lending_admin")
    if not share:
        return []
    [listed] = yield [ListRead(claim.program, "jupiter_lending", SHARE_AT, claim.subject)]
    if len(sure(listed)) != 1:
        raise Unreadable("the lending of this share was not found")
    [said] = yield [AccountRead(claim.program, "jupiter_lending", (listed[0],))]
    lending: JupiterLending = sure(said)
    if (lending.share, listed[0]) != (claim.subject, derived(claim.program, (b"lending", lending.mint, claim.subject))):
        raise Unreadable("the lending that was found is of another share")
    first, second = yield [
        AccountRead(_program(claim, LIQUIDITY), "jupiter_reserve", (lending.reserve,)),
        AccountRead(_program(claim, REWARDS), "jupiter_rewards", (lending.rewards,)),
    ]
    reserve: JupiterReserve = sure(first)
    rewards: JupiterRewards = sure(second)
    if {reserve.mint, rewards.mint} != {lending.mint}:
        raise Unreadable("its reserve or its rewards are of another token")
    if claim.raw > share.supply:
        raise Unreadable("it issued less than the account has")
    price = share_price(lending, supply_price(reserve, claim.time_s), rewards, share.supply, claim.time_s)
    amount = TokenAmount(lending.mint, claim.raw * price // PRICE)
    return [DecodedPosition("LENDING", supplied=(amount,), pool=listed[0], replaces=(claim.subject,))]


def _program(claim: Claim, role: str) -> str:
    named = claim.contracts.get(role, ())
    if not named:
        raise Unreadable(f"the file of its protocol names no program as {role}")
    return named[0]


def supply_price(reserve: JupiterReserve, time_s: int) -> int:
    """What a unit that is supplied with interest is worth, times 10^12: borrowers' interest without the fee goes to
    those who get any."""
    seconds = time_s - reserve.counted_s
    if seconds < 0 or reserve.fee > WHOLE or not reserve.supply_price or not reserve.borrow_price:
        raise Unreadable("its reserve is of a time to come, has no price, or keeps more than all interest")
    free = _ratio(reserve.supplied, reserve.supplied_free)
    if not (seconds and reserve.rate and reserve.borrowed and reserve.supplied):
        return reserve.supply_price
    if reserve.supplied >= reserve.supplied_free:
        earning = reserve.used * FINE * (WHOLE + free) // WHOLE**2
    elif free:
        earning = reserve.used * (FINE + FINE * WHOLE // free) // WHOLE
    else:  # so little earns interest that nothing is counted
        return reserve.supply_price
    paying = _ratio(reserve.borrowed, reserve.borrowed_free)
    part = paying * FINE // (WHOLE + paying)
    if reserve.borrowed >= reserve.borrowed_free:
        part = FINE - part
    rate = reserve.rate * (earning * part // FINE * WHOLE // FINE) * (WHOLE - reserve.fee)
    return reserve.supply_price + reserve.supply_price * rate * seconds // (YEAR_S * WHOLE) // WHOLE**2


def _ratio(one: int, other: int) -> int:
    """The lesser of two as a part of the larger."""
    return min(one, other) * WHOLE // max(one, other) if one or other else 0


def share_price(
    lending: JupiterLending, reserve_price: int, rewards: JupiterRewards, supply: int, time_s: int
) -> int:  # fmt: skip
    """What a share is worth, times 10^12: what it was, grown by what the reserve grew and by rewards."""
    if not lending.price or lending.counted_s > time_s:
        raise Unreadable("its lending has no price, or was counted at a time to come")
    if not lending.reserve_price or reserve_price < lending.reserve_price:
        raise Unreadable("its reserve is worth less than when it was last counted")
    grown = (reserve_price - lending.reserve_price) * RETURN // lending.reserve_price
    total = lending.price * supply // PRICE
    grown += sum(rate * seconds // YEAR_S for rate, seconds in _paid(rewards, total, lending.counted_s, time_s))
    return lending.price + lending.price * grown // RETURN


def _paid(rewards: JupiterRewards, total: int, since_s: int, time_s: int) -> Iterator[tuple[int, int]]:
    """The rates of rewards a year, times 10^14, and for how many seconds each was paid since they were counted."""
    end_s = rewards.start_s + rewards.lasts_s
    if not rewards.start_s or time_s < rewards.start_s or not total or total < rewards.least:
        return
    if rewards.per_year and since_s < end_s:
        since_s = max(since_s, rewards.start_s)
        until_s = min(time_s, end_s)
        yield min(rewards.per_year * RETURN // total, MOST_RATE), max(0, until_s - since_s)
        since_s = max(since_s, until_s)
    if rewards.then_paid and rewards.then_lasts_s and time_s > end_s:
        rate = rewards.then_paid * YEAR_S // rewards.then_lasts_s * RETURN // total
        yield min(rate, MOST_RATE), max(0, min(time_s, end_s + rewards.then_lasts_s) - max(since_s, end_s))


FAMILY = Family("jupiter_earn", position=position, role="earn", stands=SHARE, roles=(LIQUIDITY, REWARDS))
