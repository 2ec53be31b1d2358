"""Names for a plug-in that decodes a protocol on Solana: its family, the claims, and positions."""

from __future__ import annotations

from chainfolio.adapters.solana.account_reads import AccountRead, ListRead, derived
from chainfolio.adapters.solana.layouts import SYSTEM
from chainfolio.adapters.solana.positions import (
    ACCOUNT,
    SHARE,
    SHARED,
    SLOT_MS,
    AccountPlan,
    Claim,
    DecoderPlan,
    Family,
    Unreadable,
    require,
)
from chainfolio.adapters.solana.shares import issued
from chainfolio.plans import Rounds, Unknown, all_of
from chainfolio.protocols import AnnotatedShare, DecodedPosition, TokenAmount, UnlistedShare, UnverifiedShare

__all__ = [
    "ACCOUNT",
    "SHARE",
    "SHARED",
    "SLOT_MS",
    "SYSTEM",
    "AccountPlan",
    "AccountRead",
    "AnnotatedShare",
    "Claim",
    "DecodedPosition",
    "DecoderPlan",
    "Family",
    "ListRead",
    "Rounds",
    "TokenAmount",
    "Unknown",
    "UnlistedShare",
    "Unreadable",
    "UnverifiedShare",
    "all_of",
    "derived",
    "issued",
    "require",
]
