"""Shares of Raydium's constant-product pools (CPMM): their part of the vaults, without fees of others."""

from __future__ import annotations

from typing import Final

from chainfolio.adapters.solana.account_reads import AccountRead, ListRead, derived
from chainfolio.adapters.solana.account_records import RaydiumReserves
from chainfolio.adapters.solana.call_rules import CallRule, by_name, trades
from chainfolio.adapters.solana.positions import SHARE, Claim, DecoderPlan, Family, Unreadable, require
from chainfolio.adapters.solana.ranges import vault_balance
from chainfolio.adapters.solana.shares import issued
from chainfolio.protocols import DecodedPosition, TokenAmount

LP_MINT_AT: Final = 136  # offset of the share's mint in a pool account


def position(claim: Claim) -> DecoderPlan:
    """Decode shares: the amounts that withdrawing them pays, before transfer fees of the mints.

    Returns an empty list if the program did not issue the token.

    Raises:
        Unreadable: The pool was not found, an account could not be read, or the numbers are inconsistent.
    """
    share = yield from issued(claim, b"vault_and_lp_mint_auth_seed")
    if not share:
        return []
    [result] = yield [ListRead(claim.program, "raydium_cpmm", LP_MINT_AT, claim.subject)]
    issuers = [each for each in require(result) if derived(claim.program, (b"pool_lp_mint", each)) == claim.subject]
    if not issuers:
        raise Unreadable("the pool of this share was not found")
    [result] = yield [AccountRead(claim.program, "raydium_cpmm", (issuers[0],))]
    pool: RaydiumReserves = require(result)
    vaults = yield [AccountRead("", "token_account", (vault,)) for vault in (pool.vault_a, pool.vault_b)]
    raws = [vault_balance(require(vault), mint) for vault, mint in zip(vaults, (pool.mint_a, pool.mint_b), strict=True)]
    reserves = pool.reserves(raws[0], raws[1])
    if max(claim.raw, share.supply) > pool.lp_supply or min(reserves) < 0:
        raise Unreadable("its pool issued less than the account has, or owes more than it has")
    parts = [claim.raw * reserve // pool.lp_supply for reserve in reserves]
    return [
        DecodedPosition(
            "LIQUIDITYPOOL",
            supplied=(TokenAmount(pool.mint_a, parts[0]), TokenAmount(pool.mint_b, parts[1])),
            pool=issuers[0],
            replaces=(claim.subject,),
        )
    ]


# Instructions: https://github.com/raydium-io/raydium-cp-swap
SHARES = CallRule("share", is_pool=True)
RULES: Final = by_name(
    initialize=SHARES._replace(vaults=(10, 11)),
    deposit=SHARES,
    withdraw=SHARES,
    **trades("swap_base_input", "swap_base_output"),
)

FAMILY = Family("raydium_cpmm", position=position, role="cpmm", claim_kind=SHARE, instructions=RULES)
