"""Fees and incentives of votes (Velodrome V2, Aerodrome): what the voters of a pool's gauge can claim."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from chainfolio.adapters.evm.positions.rules import DecoderPlan, Event, Family, MayRefuse, ProtocolMatch
from chainfolio.adapters.evm.reads import OWNER, Call
from chainfolio.assets import ZERO_ADDRESS
from chainfolio.protocols import DecodedPosition, TokenAmount, TypedCalls

MAX_TOKENS = 16  # of one contract; most have two
VOTED = "Voted(address indexed voter, address indexed pool, uint256 indexed tokenId, uint256 w, uint256 t, uint256 at)"
MORE_TOKENS = f"incentives in more than {MAX_TOKENS} tokens"


def position(match: ProtocolMatch) -> DecoderPlan:
    """Decode the voting rewards of each lock of the account and each pool for which the lock ever voted.

    `match.values` holds pairs of pool and lock number. Only epochs that are over count. One contract pays the pool's
    fees, another one its incentives. Pools without a gauge and locks of other owners are left out. At most `MAX_TOKENS`
    tokens of each payer are read; the position names those that may be missing as `unknown`.
    """
    voter = match.contract
    pools = sorted({pool for pool, _ in match.values})
    locks = sorted({number for _, number in match.values})
    escrows = match.contracts.get("voting_escrow", ())
    results = yield [
        *(Call(voter, "gauges(address)(address)", (pool,)) for pool in pools),
        *(MayRefuse(Call(escrow, OWNER, (number,))) for number in locks for escrow in escrows),
    ]
    gauges, owners = dict(zip(pools, results[: len(pools)], strict=True)), results[len(pools) :]
    own = {number for number, *of in zip(locks, *_columns(owners, len(escrows)), strict=True) if match.account in of}
    votes = sorted((number, pool) for pool, number in match.values if number in own and gauges[pool] != ZERO_ADDRESS)
    voted = sorted({pool for _, pool in votes})
    payers = yield [
        Call(voter, f"gaugeTo{kind}(address)(address)", (gauges[pool],)) for pool in voted for kind in ("Fees", "Bribe")
    ]
    lists = yield [
        MayRefuse(Call(payer, "rewards(uint256)(address)", (index,))) for payer in payers for index in range(MAX_TOKENS)
    ]
    remaining = iter(lists)
    tokens = {payer: [token for token in islice(remaining, MAX_TOKENS) if token is not None] for payer in payers}
    pairs = dict(zip(voted, zip(payers[::2], payers[1::2], strict=True), strict=True))
    claims = [
        (number, pool, payer, token) for number, pool in votes for payer in pairs[pool] for token in tokens[payer]
    ]
    raws = yield [
        Call(payer, "earned(address,uint256)(uint256)", (token, number)) for number, _, payer, token in claims
    ]
    rewards: dict[tuple[int, str], list[TokenAmount]] = {vote: [] for vote in votes}
    for (number, pool, _, token), raw in zip(claims, raws, strict=True):
        rewards[number, pool].append(TokenAmount(token, raw))
    return [
        DecodedPosition(
            "REWARDS",
            rewards=tuple(rewards[number, pool]),
            name=f"Votes of lock {number}",
            pool=pool,
            unknown=MORE_TOKENS if any(len(tokens[payer]) == MAX_TOKENS for payer in pairs[pool]) else "",
        )
        for number, pool in votes
    ]


def _columns(values: Sequence[str | None], width: int) -> list[Sequence[str | None]]:
    """Return the values of each of `width` contracts, which stand beside each other for each lock."""
    return [values[start::width] for start in range(width)]


FAMILY = Family(
    "voting_rewards",
    rules=(Event("voter", VOTED, owner=0, values=(1, 2)),),
    position=position,
    roles=("voting_escrow",),
    calls=(TypedCalls("CLAIM", "gain", ("claimFees", "claimBribes", "claimRewards")),),
)
