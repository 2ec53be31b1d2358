"""Names for a plug-in that decodes a protocol on an EVM chain: its family, the rules, and positions."""

from __future__ import annotations

from chainfolio import amounts
from chainfolio.adapters.evm.positions.price_guard import Reserves, guard_price, guard_reserves, reserves
from chainfolio.adapters.evm.positions.rules import (
    AtEarlierBlock,
    Collection,
    Counterparty,
    DecoderPlan,
    DecoderRead,
    Event,
    EveryAccount,
    Family,
    MayRefuse,
    ProtocolMatch,
    ReadError,
    Rule,
    Token,
    is_backed,
    run_decoder,
)
from chainfolio.adapters.evm.reads import OWNER, AbiValue, Call, NativeBalance, Read, balance_of
from chainfolio.assets import ZERO_ADDRESS
from chainfolio.plans import Rounds, Unknown, all_of
from chainfolio.protocols import (
    AnnotatedShare,
    DecodedPosition,
    TokenAmount,
    TypedCalls,
    UnlistedShare,
    UnverifiedShare,
)
from chainfolio.tick_math import MAX_TICK, Q128, WORD, sqrt_price

__all__ = [
    "MAX_TICK",
    "OWNER",
    "Q128",
    "WORD",
    "ZERO_ADDRESS",
    "AbiValue",
    "AnnotatedShare",
    "AtEarlierBlock",
    "Call",
    "Collection",
    "Counterparty",
    "DecodedPosition",
    "DecoderPlan",
    "DecoderRead",
    "Event",
    "EveryAccount",
    "Family",
    "MayRefuse",
    "NativeBalance",
    "ProtocolMatch",
    "Read",
    "ReadError",
    "Reserves",
    "Rounds",
    "Rule",
    "Token",
    "TokenAmount",
    "TypedCalls",
    "Unknown",
    "UnlistedShare",
    "UnverifiedShare",
    "all_of",
    "amounts",
    "balance_of",
    "guard_price",
    "guard_reserves",
    "is_backed",
    "reserves",
    "run_decoder",
    "sqrt_price",
]
