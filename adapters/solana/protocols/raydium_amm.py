"""Shares of the pools of Raydium's first program (AMM v4): their part of the vaults, without the protocol's profits."""

from __future__ import annotations

from collections.abc import Sequence
from math import isqrt
from typing import Final

from adapters.solana.account_reads import AccountRead, ListRead
from adapters.solana.pool_layouts import RaydiumAmm, RaydiumCounted
from adapters.solana.positions import SHARE, Claim, DecoderPlan, Family, Unreadable, sure
from adapters.solana.ranges import held
from adapters.solana.shares import issued
from chainfolio.protocols import DecodedPosition, TokenAmount

SHARE_AT: Final = 464  # where a pool names the mint of its shares
CLOSED, WITHDRAWALS_ALONE, WITH_ORDERS = 2, 3, (1, 5)  # what the status of a pool means
NOT_OPEN: Final = "its pool is closed: nothing can be withdrawn"


def position(claim: Claim) -> DecoderPlan:
    """What withdrawing a share gives, as the program has it: profits are taken first, then it is a part of the rest."""
    share = yield from issued(claim, b"amm authority")
    if not share:
        return []
    [listed] = yield [ListRead(claim.program, "raydium_amm", SHARE_AT, claim.subject)]
    if len(sure(listed)) != 1:
        raise Unreadable("the pool of this share was not found")
    [said] = yield [AccountRead(claim.program, "raydium_amm", (listed[0],))]
    pool: RaydiumAmm = sure(said)
    if pool.share != claim.subject:
        raise Unreadable("the pool that was found is of another share")
    if pool.status in WITH_ORDERS:
        raise Unreadable("its pool keeps a part of its tokens in a book of orders")
    target, *vaults = yield [
        AccountRead(claim.program, "raydium_counted", (pool.counted,)),
        *(AccountRead("", "token_account", (each,)) for each in (pool.vault_a, pool.vault_b)),
    ]
    raws = [held(sure(each), token) for each, token in zip(vaults, (pool.mint_a, pool.mint_b), strict=True)]
    if raws[0] <= pool.taken_a or raws[1] <= pool.taken_b or max(claim.raw + 1, share.supply) > pool.shares:
        raise Unreadable("its pool issued less than the account has, or owes more than it has")
    counted: RaydiumCounted = sure(target)
    if counted.pool != listed[0]:
        raise Unreadable("its profits are counted for another pool")
    rest = _without_profits(pool, counted, raws[0] - pool.taken_a, raws[1] - pool.taken_b)
    return [_part(claim, listed[0], pool, rest)]


def _part(claim: Claim, at: str, pool: RaydiumAmm, rest: Sequence[int]) -> DecodedPosition:
    parts = [claim.raw * each // pool.shares for each in rest]
    paid = parts if all(parts) else [0, 0]  # the program pays no share that is too small to get something of both
    return DecodedPosition(
        "LIQUIDITYPOOL", supplied=(TokenAmount(pool.mint_a, paid[0]), TokenAmount(pool.mint_b, paid[1])), pool=at,
        replaces=(claim.subject,), unverified=NOT_OPEN if pool.status == CLOSED else "",
    )  # fmt: skip


def _without_profits(pool: RaydiumAmm, counted: RaydiumCounted, raw_a: int, raw_b: int) -> tuple[int, int]:
    """What is left for shares when the protocol has taken its part of what the pool earned since that was last counted.
    What was earned is that by which both grew without the price; https://github.com/raydium-io/raydium-amm has it as
    `calc_take_pnl`."""
    if pool.status == WITHDRAWALS_ALONE:
        return raw_a, raw_b
    ones = 10**pool.decimals_a, 10**pool.decimals_b
    before = counted.raw_a * ones[0] // pool.unit, counted.raw_b * ones[1] // pool.unit
    now_a, now_b = raw_a * pool.unit // ones[0], raw_b * pool.unit // ones[1]
    if raw_a * raw_b < before[0] * before[1] or not now_a or not now_b:
        raise Unreadable("its pool has less than when profits were last taken, and pays nobody")
    same_b = isqrt(counted.raw_b * counted.raw_a * now_b // now_a)
    grown = now_a - same_b * now_a // now_b, now_b - same_b
    if min(grown) < 0:
        raise Unreadable("its pool has less than when profits were last taken, and pays nobody")
    part_a, part_b = (each * one // pool.unit * pool.part // pool.parts for each, one in zip(grown, ones, strict=True))
    if not part_a or not part_b:  # then nothing is taken yet
        return raw_a, raw_b
    if part_a >= raw_a or part_b >= raw_b:
        raise Unreadable("its protocol takes more than its pool has")
    return raw_a - part_a, raw_b - part_b


FAMILY = Family("raydium_amm", position=position, role="amm", stands=SHARE)
