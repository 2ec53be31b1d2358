"""Shares of Jupiter's Earn (jTokens), with interest and rewards up to the slot."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from chainfolio.adapters.solana.account_reads import AccountRead, ListRead, derived
from chainfolio.adapters.solana.call_rules import CallRule, by_name
from chainfolio.adapters.solana.pool_layouts import JupiterLending, JupiterReserve, JupiterRewards
from chainfolio.adapters.solana.positions import SHARE, Claim, DecoderPlan, Family, Unreadable, require
from chainfolio.adapters.solana.shares import issued
from chainfolio.protocols import DecodedPosition, TokenAmount

SHARE_MINT_AT: Final = 40  # offset of the share's mint in a lending account
LIQUIDITY, REWARDS = "liquidity", "rewards"  # roles of the programs that own the reserves and the rewards
PRICE: Final = 10**12  # scale of exchange prices
RETURN: Final = 10**14  # scale of returns
WHOLE: Final = 10**4  # scale of a reserve's rates and ratios
FINE: Final = 10**17
YEAR_S: Final = 31_536_000
MAX_REWARD_RATE: Final = RETURN // 2  # 50 % per year


def position(claim: Claim) -> DecoderPlan:
    """Decode shares: the amount that they redeem for at this slot, rounded down.

    Returns an empty list if the program did not issue the token.

    Raises:
        Unreadable: The lending account was not found, an account could not be read, or the numbers are inconsistent.
    """
    share = yield from issued(claim, b"lending_admin")
    if not share:
        return []
    [result] = yield [ListRead(claim.program, "jupiter_lending", SHARE_MINT_AT, claim.subject)]
    addresses = require(result)
    if len(addresses) != 1:
        raise Unreadable("the lending of this share was not found")
    [result] = yield [AccountRead(claim.program, "jupiter_lending", (addresses[0],))]
    lending: JupiterLending = require(result)
    expected = derived(claim.program, (b"lending", lending.mint, claim.subject))
    if (lending.share_mint, addresses[0]) != (claim.subject, expected):
        raise Unreadable("the lending that was found is of another share")
    results = yield [
        AccountRead(_program(claim, LIQUIDITY), "jupiter_reserve", (lending.reserve,)),
        AccountRead(_program(claim, REWARDS), "jupiter_rewards", (lending.rewards,)),
    ]
    reserve: JupiterReserve = require(results[0])
    rewards: JupiterRewards = require(results[1])
    if {reserve.mint, rewards.mint} != {lending.mint}:
        raise Unreadable("its reserve or its rewards are of another token")
    if claim.raw > share.supply:
        raise Unreadable("it issued less than the account has")
    price = share_price(lending, supply_price(reserve, claim.time_s), rewards, share.supply, claim.time_s)
    amount = TokenAmount(lending.mint, claim.raw * price // PRICE)
    return [DecodedPosition("LENDING", supplied=(amount,), pool=addresses[0], replaces=(claim.subject,))]


def _program(claim: Claim, role: str) -> str:
    programs = claim.contracts.get(role, ())
    if not programs:
        raise Unreadable(f"the file of its protocol names no program as {role}")
    return programs[0]


def supply_price(reserve: JupiterReserve, time_s: int) -> int:
    """Return the supply exchange price of a reserve at a time, times 10^12.

    Suppliers that earn interest share the borrowers' interest without the fee.

    Raises:
        Unreadable: The reserve is newer than `time_s`, has no price, or a fee above 100 %.
    """
    seconds = time_s - reserve.updated_s
    has_prices = reserve.supply_exchange_price and reserve.borrow_exchange_price
    if seconds < 0 or reserve.interest_fee > WHOLE or not has_prices:
        raise Unreadable("its reserve is of a time to come, has no price, or keeps more than all interest")
    supply_ratio = _ratio(reserve.supplied_with_interest, reserve.supplied_without_interest)
    if not (seconds and reserve.borrow_rate and reserve.borrowed_with_interest and reserve.supplied_with_interest):
        return reserve.supply_exchange_price
    if reserve.supplied_with_interest >= reserve.supplied_without_interest:
        earning = reserve.utilization * FINE * (WHOLE + supply_ratio) // WHOLE**2
    elif supply_ratio:
        earning = reserve.utilization * (FINE + FINE * WHOLE // supply_ratio) // WHOLE
    else:  # the supply with interest is too small: the program counts nothing
        return reserve.supply_exchange_price
    borrow_ratio = _ratio(reserve.borrowed_with_interest, reserve.borrowed_without_interest)
    paying = borrow_ratio * FINE // (WHOLE + borrow_ratio)
    if reserve.borrowed_with_interest >= reserve.borrowed_without_interest:
        paying = FINE - paying
    rate = reserve.borrow_rate * (earning * paying // FINE * WHOLE // FINE) * (WHOLE - reserve.interest_fee)
    interest = reserve.supply_exchange_price * rate * seconds // (YEAR_S * WHOLE) // WHOLE**2
    return reserve.supply_exchange_price + interest


def _ratio(a: int, b: int) -> int:
    """Return the smaller number divided by the larger, times 10^4; 0 if both are 0."""
    return min(a, b) * WHOLE // max(a, b) if a or b else 0


def share_price(
    lending: JupiterLending, reserve_exchange_price: int, rewards: JupiterRewards, supply: int, time_s: int
) -> int:
    """Return the exchange price of a share at a time, times 10^12.

    It is the last price with the growth of the reserve, and with rewards.

    Args:
        lending: Has the last prices of the share and of the reserve.
        reserve_exchange_price: The supply exchange price of the reserve at `time_s`.
        rewards: Its reward periods.
        supply: The number of shares.
        time_s: The time of the slot.

    Raises:
        Unreadable: A price is 0 or has fallen, or the lending account is newer than `time_s`.
    """
    if not lending.exchange_price or lending.updated_s > time_s:
        raise Unreadable("its lending has no price, or was counted at a time to come")
    old_price = lending.reserve_exchange_price
    if not old_price or reserve_exchange_price < old_price:
        raise Unreadable("its reserve is worth less than when it was last counted")
    growth = (reserve_exchange_price - old_price) * RETURN // old_price
    assets = lending.exchange_price * supply // PRICE
    growth += sum(
        rate * seconds // YEAR_S for rate, seconds in _reward_rates(rewards, assets, lending.updated_s, time_s)
    )
    return lending.exchange_price + lending.exchange_price * growth // RETURN


def _reward_rates(rewards: JupiterRewards, assets: int, since_s: int, time_s: int) -> Iterator[tuple[int, int]]:
    """Yield the yearly rate (times 10^14) and the seconds of each reward period between two times.

    Yields nothing before the first period, or if `assets` are below the minimum. Rates are at most MAX_REWARD_RATE.
    """
    end_s = rewards.start_s + rewards.duration_s
    if not rewards.start_s or time_s < rewards.start_s or not assets or assets < rewards.min_assets:
        return
    if rewards.yearly_reward and since_s < end_s:
        since_s = max(since_s, rewards.start_s)
        until_s = min(time_s, end_s)
        yield min(rewards.yearly_reward * RETURN // assets, MAX_REWARD_RATE), max(0, until_s - since_s)
        since_s = max(since_s, until_s)
    if rewards.next_reward and rewards.next_duration_s and time_s > end_s:
        rate = rewards.next_reward * YEAR_S // rewards.next_duration_s * RETURN // assets
        seconds = max(0, min(time_s, end_s + rewards.next_duration_s) - max(since_s, end_s))
        yield min(rate, MAX_REWARD_RATE), seconds


SHARES = CallRule("share")
RULES: Final = by_name(
    deposit=SHARES,
    deposit_with_min_amount_out=SHARES,
    mint=SHARES,
    mint_with_max_assets=SHARES,
    withdraw=SHARES,
    withdraw_with_max_shares_burn=SHARES,
    redeem=SHARES,
    redeem_with_min_amount_out=SHARES,
)

FAMILY = Family(
    "jupiter_earn", position=position, role="earn", claim_kind=SHARE, roles=(LIQUIDITY, REWARDS), instructions=RULES
)
