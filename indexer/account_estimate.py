"""Estimate the cost of reading the histories of accounts from samples, which are not stored.

A sample has a fixed cost, and a cost per row; samples of different sizes distinguish the two. Requests do not grow with
the rows, because one takes many calls; calls do.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import TYPE_CHECKING, Any, Final

from chainfolio.blocks import Span, Spans
from chainfolio.budgets import Budget
from chainfolio.capabilities import AccountForecaster, Capability, find_capability, require_capability
from chainfolio.errors import OverBudget
from chainfolio.indexer.checked import read_checked
from chainfolio.indexer.work import Work, heights

if TYPE_CHECKING:
    from chainfolio.chains import Chain
    from chainfolio.environment import Clock

SHARES: Final = (1, 4, 2, 4)  # how large the parts are beside each other
SAMPLED: Final = 10  # of so many blocks one is read
SUFFICIENT_REQUESTS: Final = 40  # requests after which no further part is read
MAX_REQUESTS: Final = 300  # of an account that has so much that one part takes many
ROWS_OF_A_REQUEST: Final = 150  # where many are read together; the benchmark of accounts has 60 to 340
RENTED_RPS: Final = 15.0  # float: requests a second
MIN_FACTOR, MAX_FACTOR = 3.0, 10.0
LINEAR: Final = ("calls", "units", "bytes", "seconds")
HINT: Final = "allow the estimate more requests (--max-requests), or name fewer accounts"


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample: its requested and read blocks, and its cost."""

    requested_blocks: int
    blocks: int
    rows: int
    requests: int
    calls: int
    units: int
    bytes: int
    seconds: float  # float: seconds


async def estimate(
    chain: Chain, work: Sequence[Work], clock: Clock, *, max_requests: int | None = None
) -> dict[str, Any]:
    """Return the cost of a run, estimated from samples.

    Keys are `blocks`, `rows`, `requests`, `calls`, `units` (compute units), `bytes` and `seconds`, rounded up. The real
    figures lie between each of them divided by `factor` and multiplied by it. `sampled` has `blocks` and `requests` of
    the samples, `unread` the datasets that no node has.

    Args:
        max_requests: The most requests for samples; None for MAX_REQUESTS.

    Raises:
        OverBudget: They do not suffice for one sample of each work.
    """
    budget, total = Budget(max_requests=max_requests or MAX_REQUESTS), Counter[str]()
    sampled, factor, unread = 0, MIN_FACTOR, set[str]()
    forecaster = find_capability(chain, Capability.FORECASTS)
    if work and forecaster is not None:
        sampled, factor, unread = await _forecast(forecaster, work, budget, total)
    for item in work if forecaster is None else ():
        samples: list[Sample] = []
        for piece in _pieces(max(item.spans, key=len)):
            if samples and budget.requests >= SUFFICIENT_REQUESTS:
                break
            try:
                sample, provided = await _sample(chain, piece, item, clock, budget)
            except OverBudget as error:
                if samples:
                    break
                raise OverBudget("requests", error.limit, remedy=HINT) from error
            samples.append(sample)
            unread |= {*item.datasets} - provided
        total.update(_scaled(samples, item, batch_of(chain)))
        sampled += sum(each.blocks for each in samples)
        factor = max(factor, _factor(samples))
    total["seconds"] = max(total["seconds"], math.ceil(paced_s(chain, total["requests"], total["calls"])))
    return {
        "blocks": heights(work),
        **{name: total[name] for name in ("rows", "requests", *LINEAR)},
        "factor": round(factor, 1),
        "sampled": {"blocks": sampled, "requests": budget.requests},
        "unread": sorted(unread),
    }


async def _forecast(
    chain: AccountForecaster, work: Sequence[Work], budget: Budget, total: Counter[str]
) -> tuple[int, float, set[str]]:
    """Add the cost of some work to `total`; return the sampled blocks, the factor and the unread datasets.

    The longest span of each scope is forecast, and its cost scaled up to all spans.

    Raises:
        OverBudget: The sample takes more requests than `budget` has.
    """
    datasets_by_scope: dict[tuple[Spans, tuple[str, ...]], list[str]] = {}
    for item in work:
        datasets_by_scope.setdefault((item.spans, item.accounts), []).extend(item.datasets)
    sampled, factor, unread = 0, 1.0, set[str]()
    for (spans, accounts), datasets in datasets_by_scope.items():
        longest = max(spans, key=len)
        try:
            forecast = await chain.forecast_accounts(longest, accounts, datasets, budget)
        except OverBudget as error:
            raise OverBudget("requests", error.limit, remedy=HINT) from error
        share = sum(map(len, spans)) / len(longest)
        for name in ("rows", "requests", "calls", "units", "bytes"):
            total[name] += math.ceil(getattr(forecast, name) * share)
        sampled, factor, unread = sampled + forecast.sampled, max(factor, forecast.factor), unread | {*forecast.unread}
    return sampled, factor, unread


def paced_s(chain: Chain, requests: int, calls: int) -> float:
    """Return the seconds that requests take: sequentially, within the rate of the best endpoint.

    `calls` is their number of calls, which counts if the endpoint limits calls. 0 without endpoints. An endpoint that
    refuses large batches is a rented one, and is assumed to have a rate limit if none is known.
    """
    took_s = []
    for each in chain.health():
        rate = each.rate or (RENTED_RPS if each.max_batch else math.inf)
        took_s.append(max(requests * (each.latency_s or 0.0), (calls if each.counts_calls else requests) / rate))
    return min(took_s, default=0.0)


async def _sample(chain: Chain, piece: Span, item: Work, clock: Clock, budget: Budget) -> tuple[Sample, set[str]]:
    """Read one sample, of the whole piece or its beginning.

    Return it with the datasets that nodes provided.

    Raises:
        OverBudget: `budget` is used up.
    """
    reader = require_capability(chain, Capability.ACCOUNT_HISTORY)
    requests, units, (calls, sent_bytes), start_s = budget.requests, budget.units, spent(chain), clock.monotonic_s()
    collected = await read_checked(
        chain,
        piece,
        lambda: reader.collect_accounts(piece, item.accounts, item.datasets, budget=budget),
        is_complete=False,
    )
    rows = sum(map(len, collected.tables.values()))
    calls_then, sent_then = spent(chain)
    sample = Sample(
        len(piece),
        len(collected.span),
        rows,
        budget.requests - requests,
        calls_then - calls,
        budget.units - units,
        sent_then - sent_bytes,
        clock.monotonic_s() - start_s,
    )
    return sample, {*collected.read_methods}


def _pieces(span: Span) -> Iterator[Span]:
    """Yield samples of a span, each from the middle of an equal share of it; all of a short span."""
    unit = len(span) // (SAMPLED * sum(SHARES))
    if unit == 0:
        yield span
        return
    for index, share in enumerate(SHARES):
        first = span.first + (2 * index + 1) * len(span) // (2 * len(SHARES)) - unit * share // 2
        yield Span(first, first + unit * share - 1)


def _scaled(samples: Sequence[Sample], item: Work, batch: int | None) -> dict[str, int]:
    """Return the cost of all spans of `item` by name, extrapolated from samples and rounded up.

    Costs are a part for each window of blocks and a part for each row. The part for a window is that of the cheapest
    sample, which had nothing to discover first. Windows are spans, or more if the node read less than requested.

    Args:
        samples: At least one.
        item: The spans to read.
        batch: Calls per request that endpoints accept; None for an estimate of requests from the number of rows.
    """
    blocks = sum(map(len, item.spans))
    rows = sum(each.rows for each in samples) * blocks / sum(each.blocks for each in samples)
    cut = [each.blocks for each in samples if each.blocks < each.requested_blocks]
    windows = max(sum(1 for _ in item.spans), math.ceil(blocks / mean(cut)) if cut else 1)
    totals = {"rows": rows}
    for name in LINEAR:
        each_row = _slope([(each.rows, getattr(each, name)) for each in samples])
        fixed = min(max(0.0, getattr(each, name) - each_row * each.rows) for each in samples)
        totals[name] = windows * fixed + rows * each_row
    additional = rows / ROWS_OF_A_REQUEST if batch is None else totals["calls"] / batch
    totals["requests"] = windows * min(each.requests for each in samples) + additional
    return {name: math.ceil(figure) for name, figure in totals.items()}


def _slope(points: Sequence[tuple[int, float]]) -> float:
    """Return the cost per row, by least squares over the samples that have rows.

    0 if it would be negative. Samples without rows are left out: the first row needs requests that further rows share.
    It is also 0 if all samples have equally many rows.
    """
    filled = [each for each in points if each[0]]
    middle_x, middle_y = (mean(each[k] for each in filled) if filled else 0.0 for k in range(2))
    spread = sum((x - middle_x) ** 2 for x, _ in filled)
    return max(0.0, sum((x - middle_x) * (y - middle_y) for x, y in filled) / spread) if spread else 0.0


def _factor(samples: Sequence[Sample]) -> float:
    """Return the uncertainty factor of the estimate, from the differences between samples."""
    dense = [each.rows / each.blocks for each in samples]
    if len(dense) == 1:
        return MIN_FACTOR if samples[0].blocks == samples[0].requested_blocks else MAX_FACTOR
    if not any(dense):
        return MAX_FACTOR
    return min(MAX_FACTOR, MIN_FACTOR + 2 * stdev(dense) / mean(dense) / math.sqrt(len(dense)))


def spent(chain: Chain) -> tuple[int, int]:
    """Return the calls and bytes so far, over all endpoints of a chain."""
    costs = [each.cost for each in chain.health()]
    return sum(sum(each.calls.values()) for each in costs), sum(each.sent_bytes + each.received_bytes for each in costs)


def batch_of(chain: Chain) -> int | None:
    """Return the most calls per batch that an endpoint accepts; None if one has refused no batch yet."""
    limits = [each.max_batch for each in chain.health()]
    return max(each for each in limits if each) if all(limits) else None
