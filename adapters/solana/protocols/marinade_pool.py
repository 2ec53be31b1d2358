"""Shares of Marinade's pool of SOL and mSOL, which lets stake go at once."""

from __future__ import annotations

from typing import Final

from adapters.solana.account_layouts import LAMPORTS, Lamports, Marinade, MintFacts, TokenAccount
from adapters.solana.account_reads import AccountRead, derived
from adapters.solana.layouts import SYSTEM
from adapters.solana.positions import SHARE, Claim, DecoderPlan, Family, Unreadable, sure
from chainfolio.plans import Unknown
from chainfolio.protocols import DecodedPosition, TokenAmount

STATE: Final = "state"  # the role of the account that says everything of the instance


def position(claim: Claim) -> DecoderPlan:
    """What removing a share of the pool gives: its part of the SOL and of the mSOL, rounded down."""
    [mint] = yield [AccountRead("", "mint", (claim.subject,))]
    if isinstance(mint, Unknown) and mint.cause != "read":
        return []
    ours = [
        each
        for each in claim.contracts.get(STATE, ())
        if sure(mint).issuer == derived(claim.program, (each, b"liq_mint"))
    ]
    if not ours:
        return []
    [said] = yield [AccountRead(claim.program, "marinade", (ours[0],))]
    state: Marinade = sure(said)
    if state.pool_mint != claim.subject:
        return []
    legs = yield [
        AccountRead("", LAMPORTS, (derived(claim.program, (ours[0], b"liq_sol")),)),
        AccountRead("", "token_account", (state.pool_vault,)),
    ]
    return [_redeemed(claim, state, mint, legs[0], sure(legs[1]))]


def _redeemed(claim: Claim, state: Marinade, mint: MintFacts, sol: Lamports, vault: TokenAccount) -> DecodedPosition:
    if vault.mint != state.mint:
        raise Unreadable(f"the vault of its pool holds another token: {vault.mint}")
    # Tokens that were burned are gone from the mint alone; more than the pool issued cannot be.
    supply = min(mint.supply, state.pool_supply)
    if claim.raw > supply or sol.raw < state.rent:
        raise Unreadable("its pool issued less than the account has, or has less than its rent")
    return DecodedPosition(
        "LIQUIDITYPOOL",
        supplied=(
            TokenAmount(SYSTEM, claim.raw * (sol.raw - state.rent) // supply),
            TokenAmount(state.mint, claim.raw * vault.raw // supply),
        ),
        pool=claim.subject,
        replaces=(claim.subject,),
    )


FAMILY = Family("marinade_pool", position=position, stands=SHARE, roles=(STATE,))
