"""Shares of pools: tokens that only a program may issue, by an address that it derives (decision 68)."""

from __future__ import annotations

from chainfolio.adapters.solana.account_reads import AccountRead, derived
from chainfolio.adapters.solana.account_records import MintFacts
from chainfolio.adapters.solana.positions import AccountPlan, Claim, require
from chainfolio.plans import Unknown


def issued(claim: Claim, *seeds: bytes) -> AccountPlan[MintFacts | None]:
    """Read the mint of a claim if the program issues it by the address derived from `seeds`.

    Returns:
        None if another address may issue the token, or if it has no readable mint.

    Raises:
        Unreadable: The mint could not be read.
    """
    [result] = yield [AccountRead("", "mint", (claim.subject,))]
    if isinstance(result, Unknown) and result.cause != "read":
        return None
    mint: MintFacts = require(result)
    return mint if mint.authority == derived(claim.program, seeds) else None
