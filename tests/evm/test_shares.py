"""Cached rules of a token are valid until the token is asked."""

from __future__ import annotations

from chainfolio.adapters.evm.positions.matching import Protocols
from chainfolio.adapters.evm.positions.rules import DecoderPlan, Family, ProtocolMatch, Token
from chainfolio.adapters.evm.positions.shares import Shares
from chainfolio.adapters.evm.reads import Call
from chainfolio.protocols import InstalledProtocol

TOKEN, POOL, ALICE = ("0x" + digit * 40 for digit in "abc")
ASKED = "pool()(address)"


def empty_share(match: ProtocolMatch, raw: int) -> DecoderPlan:
    """Decode a share of no tokens."""
    yield []
    return ()


FAMILY = Family("lender", rules=(Token("pool", ASKED),), unwrap=empty_share)


def test_a_token_that_was_looked_up_before_it_was_asked_is_a_share_once_it_has_answered() -> None:
    shares = Shares(Protocols([InstalledProtocol("bank", FAMILY, {"pool": (POOL,)}, {})]))
    assert shares.share(ALICE, TOKEN, {}) is None
    shares.store_answers([Call(TOKEN, ASKED)], [POOL])
    bank_share = shares.share(ALICE, TOKEN, {})
    assert bank_share is not None
    assert (bank_share.row.protocol, bank_share.match.answer) == ("bank", POOL)
