"""Shares of Raydium's AMM v4 pools: their part of the vaults, without the protocol's PnL."""

from __future__ import annotations

from collections.abc import Sequence
from math import isqrt
from typing import Final

from chainfolio.adapters.solana.account_reads import AccountRead, ListRead
from chainfolio.adapters.solana.call_rules import TRADE, CallRule
from chainfolio.adapters.solana.pool_layouts import RaydiumAmm, RaydiumTargetOrders
from chainfolio.adapters.solana.positions import SHARE, Claim, DecoderPlan, Family, Unreadable, require
from chainfolio.adapters.solana.ranges import vault_balance
from chainfolio.adapters.solana.shares import issued
from chainfolio.protocols import DecodedPosition, TokenAmount

LP_MINT_AT: Final = 464  # offset of the share's mint in a pool account
CLOSED, WITHDRAWALS_ONLY, WITH_ORDERS = 2, 3, (1, 5)  # values of a pool's status
NOT_OPEN: Final = "its pool is closed: nothing can be withdrawn"


def position(claim: Claim) -> DecoderPlan:
    """Decode shares: the amounts that withdrawing them pays. The program takes its PnL first.

    Returns an empty list if the program did not issue the token.

    Raises:
        Unreadable: The pool was not found, has an order book, or its numbers are inconsistent; or an account could not
            be read.
    """
    share = yield from issued(claim, b"amm authority")
    if not share:
        return []
    [result] = yield [ListRead(claim.program, "raydium_amm", LP_MINT_AT, claim.subject)]
    addresses = require(result)
    if len(addresses) != 1:
        raise Unreadable("the pool of this share was not found")
    [result] = yield [AccountRead(claim.program, "raydium_amm", (addresses[0],))]
    pool: RaydiumAmm = require(result)
    if pool.lp_mint != claim.subject:
        raise Unreadable("the pool that was found is of another share")
    if pool.status in WITH_ORDERS:
        raise Unreadable("its pool keeps a part of its tokens in a book of orders")
    target_result, *vaults = yield [
        AccountRead(claim.program, "raydium_counted", (pool.target_orders,)),
        *(AccountRead("", "token_account", (vault,)) for vault in (pool.vault_a, pool.vault_b)),
    ]
    raw_a = vault_balance(require(vaults[0]), pool.mint_a) - pool.unclaimed_pnl_a
    raw_b = vault_balance(require(vaults[1]), pool.mint_b) - pool.unclaimed_pnl_b
    if min(raw_a, raw_b) <= 0 or max(claim.raw + 1, share.supply) > pool.lp_supply:
        raise Unreadable("its pool issued less than the account has, or owes more than it has")
    target: RaydiumTargetOrders = require(target_result)
    if target.pool != addresses[0]:
        raise Unreadable("its profits are counted for another pool")
    return [_decode_shares(claim, addresses[0], pool, _without_pnl(pool, target, raw_a, raw_b))]


def _decode_shares(claim: Claim, address: str, pool: RaydiumAmm, reserves: Sequence[int]) -> DecodedPosition:
    """Return both tokens of shares, zero of both if one is zero; unverified if the pool is closed."""
    parts = [claim.raw * reserve // pool.lp_supply for reserve in reserves]
    # The program pays nothing for a share that is too small to get a unit of both tokens.
    raw_a, raw_b = parts if all(parts) else [0, 0]
    return DecodedPosition(
        "LIQUIDITYPOOL",
        supplied=(TokenAmount(pool.mint_a, raw_a), TokenAmount(pool.mint_b, raw_b)),
        pool=address,
        replaces=(claim.subject,),
        unverified=NOT_OPEN if pool.status == CLOSED else "",
    )


def _without_pnl(pool: RaydiumAmm, target: RaydiumTargetOrders, raw_a: int, raw_b: int) -> tuple[int, int]:
    """Return the reserves after the protocol took its PnL since `target` was written.

    The profit is the growth of both reserves at an unchanged price.
    Source: `calc_take_pnl` of https://github.com/raydium-io/raydium-amm

    Args:
        pool: The pool.
        target: Its reserves when PnL was last taken.
        raw_a: Its reserve of token a, without unclaimed PnL.
        raw_b: The same of token b.

    Raises:
        Unreadable: The reserves have fallen since then, or the PnL is larger than they are.
    """
    if pool.status == WITHDRAWALS_ONLY:
        return raw_a, raw_b
    scales = 10**pool.decimals_a, 10**pool.decimals_b
    old_a = target.baseline_a * scales[0] // pool.pnl_unit
    old_b = target.baseline_b * scales[1] // pool.pnl_unit
    now_a, now_b = raw_a * pool.pnl_unit // scales[0], raw_b * pool.pnl_unit // scales[1]
    if raw_a * raw_b < old_a * old_b or not now_a or not now_b:
        raise Unreadable("its pool has less than when profits were last taken, and pays nothing out")
    # The baseline's reserve of token b at the price of now: both have the same product.
    baseline_b = isqrt(target.baseline_b * target.baseline_a * now_b // now_a)
    profits = now_a - baseline_b * now_a // now_b, now_b - baseline_b
    if min(profits) < 0:
        raise Unreadable("its pool has less than when profits were last taken, and pays nothing out")
    pnl_a, pnl_b = (
        profit * scale // pool.pnl_unit * pool.pnl_numerator // pool.pnl_denominator
        for profit, scale in zip(profits, scales, strict=True)
    )
    if not pnl_a or not pnl_b:  # the program takes both or nothing
        return raw_a, raw_b
    if pnl_a >= raw_a or pnl_b >= raw_b:
        raise Unreadable("its protocol takes more than its pool has")
    return raw_a - pnl_a, raw_b - pnl_b


# Instructions by their first byte: https://github.com/raydium-io/raydium-amm
SHARES, TRADES = CallRule("share", is_pool=True), CallRule(TRADE)
RULES: Final = {
    bytes([1]): SHARES._replace(vaults=(10, 11)),  # initialize2
    **{bytes([number]): SHARES for number in (3, 4)},  # deposit, withdraw
    **{bytes([number]): TRADES for number in (9, 11, 16, 17)},  # swaps with an exact amount in or out
}

FAMILY = Family("raydium_amm", position=position, role="amm", claim_kind=SHARE, instructions=RULES)
