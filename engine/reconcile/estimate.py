"""What reconciling accounts would cost, from balances at the first and the last checkpoint.

How many balances are compared is known from the index. What costs more are differences: each is looked for between two
checkpoints, and its block is read again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

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
    from chainfolio.blocks import Block, Span
    from chainfolio.chains import Chain
    from chainfolio.engine.reconcile.present import Present
    from chainfolio.engine.reconcile.reconciler import Reconciler
    from chainfolio.environment import Clock

SURE, UNSURE = 2.0, 4.0
OF_A_BLOCK: Final = 4  # requests that read the blocks of a difference again


async def estimate(
    reconciler: Reconciler, accounts: Sequence[str], first: int | None, last: int | None, clock: Clock
) -> dict[str, Any]:
    """Balances, requests, bytes and seconds of `reconciler.run`. `factor`: what it will be lies between each figure
    divided by it, and the figure times it. `differing` are the assets whose ends do not agree with their movements."""
    chain = reconciler.chain
    span, (end, _, _), steps, known = await reconciler.prepared(accounts, first, last)
    if reconciler.present is not None:
        return await _of_now(reconciler, reconciler.present, accounts, span, end, known, clock)
    asked = [(key, height) for key, course in known.items() for height in checkpoints(key, course, steps)]
    before, size, start_s = chain.requests, _bytes(chain), clock.monotonic_s()
    answers = await reconciler.balances([(key, height) for key in known for height in sorted({steps[0], steps[-1]})])
    cost, taken_s = chain.requests - before, clock.monotonic_s() - start_s
    differing = sum(_differs(key, course, steps, answers) for key, course in known.items())
    rounds = math.ceil(math.log(max(2, len(span) // len(steps)), SPLIT_PARTS)) if differing else 0
    looked_for = differing * MAX_CHANGES // 2  # a balance that grows by itself differs again and again
    parts = max(1, reconciler.parts(asked))
    requests = cost * (parts + rounds) + (OF_A_BLOCK if differing else 0)
    points = len(asked) + looked_for * SPLIT_PARTS * rounds
    # A height costs its header and the call, whatever is read there.
    share = max(points / max(1, len(answers)), len({height for _, height in asked}) / 2)
    return {
        "chain": chain.key,
        "state": "estimated",
        "blocks": len(span),
        "balances": points,
        "differing": differing,
        "requests": requests,
        "bytes": math.ceil((_bytes(chain) - size) * share),
        "seconds": math.ceil(taken_s * requests / max(1, cost)),
        "factor": UNSURE if differing else SURE,
        "sampled": {"balances": len(answers), "requests": cost},
    }


async def _of_now(
    reconciler: Reconciler,
    present: Present,
    accounts: Sequence[str],
    span: Span,
    end: Block,
    known: Mapping[BalanceKey, RunningTotals],
    clock: Clock,
) -> dict[str, Any]:
    """The same where what accounts have now is compared: that is read, and where it differs, histories would be."""
    chain = reconciler.chain
    before, size, start_s = chain.requests, _bytes(chain), clock.monotonic_s()
    balances = await present.balances(accounts, known, end, reconciler.strangers)
    cost, taken_s = chain.requests - before, clock.monotonic_s() - start_s
    differing = present.differing(balances, known)
    who = {key.account for key in differing}
    blocks = {height for key, course in known.items() if key.account in who for height in course.heights}
    requests = cost + OF_A_BLOCK * len(blocks)
    return {
        "chain": chain.key,
        "state": "estimated",
        "blocks": len(span),
        "balances": len(balances),
        "differing": len(differing),
        "requests": requests,
        "bytes": (_bytes(chain) - size) * requests // max(1, cost),
        "seconds": math.ceil(taken_s * requests / max(1, cost)),
        "factor": UNSURE if differing else SURE,
        "sampled": {"balances": len(balances), "requests": cost},
    }


def _differs(key: BalanceKey, course: RunningTotals, steps: Sequence[int], answers: Mapping[Point, Answer]) -> bool:
    """Whether what came between the first and the last checkpoint is not the sum of the movements."""
    low, high = answers[key, steps[0]], answers[key, steps[-1]]
    if not isinstance(high, int):
        return False
    return high - (low if isinstance(low, int) else 0) != course.at(steps[-1]) - course.at(steps[0])


def _bytes(chain: Chain) -> int:
    return sum(each.cost.sent_bytes + each.cost.received_bytes for each in chain.health())
