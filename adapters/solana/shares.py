"""Shares of pools: tokens that a program alone may issue, by an address that follows from it (decision 68)."""

from __future__ import annotations

from typing import Any

from adapters.solana.account_layouts import MintFacts
from adapters.solana.account_reads import AccountRead, ListRead, derived
from adapters.solana.positions import Claim, sure
from chainfolio.plans import Plan, Unknown


def issued(claim: Claim, *seeds: bytes) -> Plan[AccountRead | ListRead, Any, MintFacts | None]:
    """The mint of a token that the program issues by the address of these seeds; None where it is any other token."""
    [mint] = yield [AccountRead("", "mint", (claim.subject,))]
    if isinstance(mint, Unknown) and mint.cause != "read":
        return None
    found: MintFacts = sure(mint)
    return found if found.issuer == derived(claim.program, seeds) else None
