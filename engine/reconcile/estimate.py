"""Estimate the cost of reconciling accounts, from balances at the first and the last checkpoint.

The index gives the number of balances to compare. Differences cost more: each is searched for between two checkpoints,
and its block is read again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from chainfolio.engine.reconcile.balances import batch_count
from chainfolio.portfolio.reconciliation import (
    MAX_CHANGES,
    SPLIT_PARTS,
    Answer,
    BalanceKey,
    Point,
    RunningTotals,
    checkpoints,
)

if TYPE_CHECKING:
    from chainfolio.chains import Chain
    from chainfolio.engine.reconcile.current_balances import CurrentBalances
    from chainfolio.engine.reconcile.reconciler import Reconciler, Scope
    from chainfolio.environment import Clock

SURE_FACTOR, UNSURE_FACTOR = 2.0, 4.0
BLOCK_REQUESTS: Final = 4  # to read the block of a difference again


async def estimate(
    reconciler: Reconciler, accounts: Sequence[str], first: int | None, last: int | None, clock: Clock
) -> dict[str, Any]:
    """Return the estimated balances, requests, bytes and seconds of `reconciler.run`; errors as of that.

    The balances at both ends are read to learn it; nothing is stored. The true figures lie between each figure divided
    by `factor`, and the figure times `factor`. `differing` is the number of assets whose balances at both ends do not
    agree with their movements, `sampled` what was read.
    """
    chain = reconciler.chain
    scope = await reconciler.prepare(accounts, first, last)
    span, steps, totals = scope.span, scope.checkpoints, scope.totals
    if reconciler.current is not None:
        return await _estimate_current(reconciler, reconciler.current, accounts, scope, clock)
    points = [(key, height) for key, running in totals.items() for height in checkpoints(key, running, steps)]
    before, size, start_s = chain.requests, _bytes(chain), clock.monotonic_s()
    answers = await reconciler.reader.balances(
        [(key, height) for key in totals for height in sorted({steps[0], steps[-1]})], reconciler.untrusted_contracts
    )
    cost, taken_s = chain.requests - before, clock.monotonic_s() - start_s
    differing = sum(_differs(key, running, steps, answers) for key, running in totals.items())
    rounds = math.ceil(math.log(max(2, len(span) // len(steps)), SPLIT_PARTS)) if differing else 0
    expected_changes = differing * MAX_CHANGES // 2  # a rebasing balance differs many times
    batches = max(1, batch_count(points))
    requests = cost * (batches + rounds) + (BLOCK_REQUESTS if differing else 0)
    point_count = len(points) + expected_changes * SPLIT_PARTS * rounds
    # A height costs its header and the call, even for a single balance.
    share = max(point_count / max(1, len(answers)), len({height for _, height in points}) / 2)
    return {
        "chain": chain.key,
        "state": "estimated",
        "blocks": len(span),
        "balances": point_count,
        "differing": differing,
        "requests": requests,
        "bytes": math.ceil((_bytes(chain) - size) * share),
        "seconds": math.ceil(taken_s * requests / max(1, cost)),
        "factor": UNSURE_FACTOR if differing else SURE_FACTOR,
        "sampled": {"balances": len(answers), "requests": cost},
    }


async def _estimate_current(
    reconciler: Reconciler,
    current: CurrentBalances,
    accounts: Sequence[str],
    scope: Scope,
    clock: Clock,
) -> dict[str, Any]:
    """Estimate a comparison with current balances, which are read from the chain.

    The histories of differing accounts are not read, only counted: by the blocks in which they had indexed rows.
    """
    chain = reconciler.chain
    before, size, start_s = chain.requests, _bytes(chain), clock.monotonic_s()
    balances = await current.balances(accounts, scope.totals, scope.end, reconciler.untrusted_contracts)
    cost, taken_s = chain.requests - before, clock.monotonic_s() - start_s
    differing = current.differing(balances, scope.totals)
    differing_accounts = {key.account for key in differing}
    blocks = {
        height
        for key, running in scope.totals.items()
        if key.account in differing_accounts
        for height in running.heights
    }
    requests = cost + BLOCK_REQUESTS * len(blocks)
    return {
        "chain": chain.key,
        "state": "estimated",
        "blocks": len(scope.span),
        "balances": len(balances),
        "differing": len(differing),
        "requests": requests,
        "bytes": (_bytes(chain) - size) * requests // max(1, cost),
        "seconds": math.ceil(taken_s * requests / max(1, cost)),
        "factor": UNSURE_FACTOR if differing else SURE_FACTOR,
        "sampled": {"balances": len(balances), "requests": cost},
    }


def _differs(key: BalanceKey, running: RunningTotals, steps: Sequence[int], balances: Mapping[Point, Answer]) -> bool:
    """Return True if the change between the first and the last checkpoint is not the sum of the movements."""
    low, high = balances[key, steps[0]], balances[key, steps[-1]]
    if not isinstance(high, int):
        return False
    return high - (low if isinstance(low, int) else 0) != running.at(steps[-1]) - running.at(steps[0])


def _bytes(chain: Chain) -> int:
    return sum(each.cost.sent_bytes + each.cost.received_bytes for each in chain.health())
