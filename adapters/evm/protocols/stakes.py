"""What farms claim of which nobody read the code, hundreds of them, and what bears it out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from adapters.evm.positions.rules import DecoderPlan, ProtocolMatch
from adapters.evm.reads import balance_of
from chainfolio.protocols import DecodedPosition

NOT_SENT = "nobody read the code of this farm, and the account never sent it what it says is staked there"
NOT_THERE = "the farm does not have what it says is staked there"
NOT_EARNED = "nobody read the code of this farm, and it does not have what it says was earned"


def borne_out(match: ProtocolMatch, found: Sequence[DecodedPosition]) -> DecoderPlan:
    """The positions in a farm, each of one staked token: a stake counts where the account sent it there and all its
    stakes of that token are there; a reward counts where it is there beside them."""
    parts = [part for each in found for part in (*each.supplied, *each.rewards)]
    tokens = sorted({part.token for part in parts})
    left = dict(zip(tokens, (yield [balance_of(token, match.contract) for token in tokens]), strict=True))
    for part in (part for each in found for part in each.supplied):
        left[part.token] -= part.raw
    result = []
    for each in found:
        (share,) = each.supplied
        problem = "" if match.deposited(share.token) else NOT_SENT
        problem = problem or ("" if left[share.token] >= 0 else NOT_THERE)
        if problem or all(part.raw <= left[part.token] for part in each.rewards):
            result.append(replace(each, unverified=problem))
            for part in each.rewards:
                left[part.token] -= part.raw
        else:
            result += [replace(each, rewards=()), replace(each, supplied=(), unknown="", unverified=NOT_EARNED)]
    return result
