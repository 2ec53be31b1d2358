"""Shares of Raydium's pools by product (CPMM): their part of what the vaults hold, without the fees of others."""

from __future__ import annotations

from typing import Final

from adapters.solana.account_layouts import RaydiumReserves
from adapters.solana.account_reads import AccountRead, ListRead, derived
from adapters.solana.positions import SHARE, Claim, DecoderPlan, Family, Unreadable, sure
from adapters.solana.ranges import held
from adapters.solana.shares import issued
from chainfolio.protocols import DecodedPosition, TokenAmount

SHARE_AT: Final = 136  # where a pool names the mint of its shares


def position(claim: Claim) -> DecoderPlan:
    """What withdrawing a share gives, rounded down, before fees that a mint withholds."""
    share = yield from issued(claim, b"vault_and_lp_mint_auth_seed")
    if not share:
        return []
    [listed] = yield [ListRead(claim.program, "raydium_cpmm", SHARE_AT, claim.subject)]
    ours = [each for each in sure(listed) if derived(claim.program, (b"pool_lp_mint", each)) == claim.subject]
    if not ours:
        raise Unreadable("the pool of this share was not found")
    [said] = yield [AccountRead(claim.program, "raydium_cpmm", (ours[0],))]
    pool: RaydiumReserves = sure(said)
    vaults = yield [AccountRead("", "token_account", (each,)) for each in (pool.vault_a, pool.vault_b)]
    raws = [held(sure(each), token) for each, token in zip(vaults, (pool.mint_a, pool.mint_b), strict=True)]
    reserves = pool.reserves(raws[0], raws[1])
    if max(claim.raw, share.supply) > pool.shares or min(reserves) < 0:
        raise Unreadable("its pool issued less than the account has, or owes more than it has")
    parts = [claim.raw * reserve // pool.shares for reserve in reserves]
    return [
        DecodedPosition(
            "LIQUIDITYPOOL", supplied=(TokenAmount(pool.mint_a, parts[0]), TokenAmount(pool.mint_b, parts[1])),
            pool=ours[0], replaces=(claim.subject,),
        )
    ]  # fmt: skip


FAMILY = Family("raydium_cpmm", position=position, role="cpmm", stands=SHARE)
