"""Shares of Marinade's pool of SOL and mSOL, which serves instant unstaking."""

from __future__ import annotations

from typing import Final

from chainfolio.adapters.solana.account_layouts import LAMPORTS
from chainfolio.adapters.solana.account_reads import AccountRead, derived
from chainfolio.adapters.solana.account_records import Lamports, Marinade, MintFacts, TokenAccount
from chainfolio.adapters.solana.call_rules import CallRule, by_name, trades
from chainfolio.adapters.solana.layouts import SYSTEM
from chainfolio.adapters.solana.positions import SHARE, Claim, DecoderPlan, Family, Unreadable, require
from chainfolio.plans import Unknown
from chainfolio.protocols import DecodedPosition, TokenAmount

STATE: Final = "state"  # the role of the instance's state account in the protocol's file


def position(claim: Claim) -> DecoderPlan:
    """Decode shares: the SOL and mSOL that withdrawing them pays, rounded down.

    Returns an empty list if no instance issued the token.

    Raises:
        Unreadable: An account could not be read, or the numbers are inconsistent.
    """
    [mint] = yield [AccountRead("", "mint", (claim.subject,))]
    if isinstance(mint, Unknown) and mint.cause != "read":
        return []
    instance = next(
        (
            address
            for address in claim.contracts.get(STATE, ())
            if require(mint).authority == derived(claim.program, (address, b"liq_mint"))
        ),
        None,
    )
    if instance is None:
        return []
    [result] = yield [AccountRead(claim.program, "marinade", (instance,))]
    state: Marinade = require(result)
    if state.lp_mint != claim.subject:
        return []
    sol, vault = yield [
        AccountRead("", LAMPORTS, (derived(claim.program, (instance, b"liq_sol")),)),
        AccountRead("", "token_account", (state.msol_vault,)),
    ]
    return [_decode_shares(claim, state, mint, sol, require(vault))]


def _decode_shares(
    claim: Claim, state: Marinade, mint: MintFacts, sol: Lamports, vault: TokenAccount
) -> DecodedPosition:
    """Return the SOL and mSOL of shares, without the rent; raise Unreadable for impossible amounts."""
    if vault.mint != state.mint:
        raise Unreadable(f"the vault of its pool holds another token: {vault.mint}")
    # Burned tokens reduce the mint's supply only; a supply above the pool's own count is impossible.
    supply = min(mint.supply, state.lp_supply)
    if claim.raw > supply or sol.raw < state.rent_exempt_lamports:
        raise Unreadable("its pool issued less than the account has, or has less than its rent")
    return DecodedPosition(
        "LIQUIDITYPOOL",
        supplied=(
            TokenAmount(SYSTEM, claim.raw * (sol.raw - state.rent_exempt_lamports) // supply),
            TokenAmount(state.mint, claim.raw * vault.raw // supply),
        ),
        pool=claim.subject,
        replaces=(claim.subject,),
    )


# Instructions, also those of tickets: https://github.com/marinade-finance/liquid-staking-program
LIQUIDITY = CallRule("share", 1, is_pool=True, has_coins=True)
RULES: Final = by_name(
    deposit=CallRule("share", 1, has_coins=True),
    add_liquidity=LIQUIDITY,
    remove_liquidity=LIQUIDITY,
    order_unstake=CallRule("request", 4, accounts=(4,)),
    claim=CallRule("close", 2, accounts=(2,), has_coins=True),
    **trades("liquid_unstake"),
)

FAMILY = Family("marinade_pool", position=position, claim_kind=SHARE, roles=(STATE,), instructions=RULES)
