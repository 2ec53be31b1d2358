"""Verify claims of farms with unreviewed code by balances and deposits; name unread pools."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from chainfolio.adapters.evm.positions.rules import DecoderPlan, ProtocolMatch
from chainfolio.adapters.evm.reads import balance_of
from chainfolio.protocols import DecodedPosition

NOT_SENT = "the code of this farm was not reviewed, and the account never sent it what it says is staked there"
NOT_THERE = "the farm does not have what it says is staked there"
NOT_EARNED = "the code of this farm was not reviewed, and it does not have what it says was earned"


def verify_stakes(match: ProtocolMatch, positions: Sequence[DecodedPosition]) -> DecoderPlan:
    """Return the positions in a farm, each of one staked token, with the reason if one is unverified.

    A stake counts if the account sent the token to the farm, and the farm has the account's stakes of that token. A
    reward counts if the farm has it in addition; otherwise it becomes a separate, unverified position.
    """
    tokens = sorted({part.token for position in positions for part in (*position.supplied, *position.rewards)})
    balances = yield [balance_of(token, match.contract) for token in tokens]
    available = dict(zip(tokens, balances, strict=True))
    for position in positions:
        for part in position.supplied:
            available[part.token] -= part.raw
    verified = []
    for position in positions:
        (stake,) = position.supplied
        problem = "" if match.has_deposited(stake.token) else NOT_SENT
        problem = problem or ("" if available[stake.token] >= 0 else NOT_THERE)
        if problem or all(part.raw <= available[part.token] for part in position.rewards):
            verified.append(replace(position, unverified=problem))
            for part in position.rewards:
                available[part.token] -= part.raw
        else:
            verified.append(replace(position, rewards=()))
            verified.append(replace(position, supplied=(), unknown="", unverified=NOT_EARNED))
    return verified


def unread_pools(match: ProtocolMatch, pool_count: int, max_pools: int) -> list[DecodedPosition]:
    """Return a position without amounts that names pools beyond the first `max_pools` as unknown.

    Empty if there are none, or if the account's link to the contract can be forged: only an unlisted token is the link,
    or the code is unreviewed and the account sent it nothing.
    """
    is_reviewed = not match.is_fork and not match.is_listed("farm")
    is_linked = bool(match.sent.get(match.contract)) or (match.is_confirmed and is_reviewed)
    if pool_count <= max_pools or not is_linked:
        return []
    unknown = f"what it has in pools beyond the first {max_pools:,} of {pool_count:,}"
    return [DecodedPosition("STAKED", pool=match.contract, unknown=unknown)]
