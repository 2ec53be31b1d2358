"""What reading the histories of some accounts would cost, from a few parts of them that are read and not kept.

What a part costs is what asking costs at all, and something more for each row; parts of different sizes tell the two
from each other. Requests do not grow like that, for one takes many calls: calls are what grows with the rows.
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
from chainfolio.chains import Capability, ForecastsAccounts, having
from chainfolio.errors import OverBudget
from indexer.checked import checked
from indexer.work import Work, heights

if TYPE_CHECKING:
    from chainfolio.chains import Chain
    from chainfolio.seams import Clock

SHARES: Final = (1, 4, 2, 4)  # how large the parts are beside each other
SAMPLED: Final = 10  # of so many blocks one is read
ENOUGH: Final = 40  # requests after which no further part is read
MAX_REQUESTS: Final = 300  # of an account that has so much that one part takes many
ROWS_OF_A_REQUEST: Final = 150  # where many are read together; the benchmark of accounts has 60 to 340
RENTED_RPS: Final = 15.0  # float: requests a second
SURE, UNSURE = 3.0, 10.0
LINEAR: Final = ("calls", "units", "bytes", "seconds")
AGAIN: Final = "allow the estimate more requests (--max-requests), or name fewer accounts"


@dataclass(frozen=True, slots=True)
class Sample:
    """One part that was read: how much was wanted and read of it, and what that cost."""

    wanted: int
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
    """Blocks, rows, requests, compute units, bytes and seconds of a run. `factor`: what it will be lies between each
    figure divided by it, and the figure times it. `unread` are the datasets that no node gives."""
    budget, total = Budget(max_requests=max_requests or MAX_REQUESTS), Counter[str]()
    sampled, factor, unread = 0, SURE, set[str]()
    if work and isinstance(chain, ForecastsAccounts):
        sampled, factor, unread = await _forecast(chain, work, budget, total)
    for item in () if isinstance(chain, ForecastsAccounts) else work:
        samples: list[Sample] = []
        for piece in _pieces(max(item.spans, key=len)):
            if samples and budget.requests >= ENOUGH:
                break
            try:
                sample, given = await _sample(chain, piece, item, clock, budget)
            except OverBudget as error:
                if samples:
                    break
                raise OverBudget("requests", error.limit, remedy=AGAIN) from error
            samples.append(sample)
            unread |= {*item.datasets} - given
        total.update(_scaled(samples, item, batch_of(chain)))
        sampled += sum(each.blocks for each in samples)
        factor = max(factor, _factor(samples))
    total["seconds"] = max(total["seconds"], math.ceil(paced_s(chain, total["requests"], total["calls"])))
    return {
        "blocks": heights(work), **{name: total[name] for name in ("rows", "requests", *LINEAR)},
        "factor": round(factor, 1), "sampled": {"blocks": sampled, "requests": budget.requests},
        "unread": sorted(unread),
    }  # fmt: skip


async def _forecast(
    chain: ForecastsAccounts, work: Sequence[Work], budget: Budget, total: Counter[str]
) -> tuple[int, float, set[str]]:
    """Add what some work would cost to `total`; return the sampled blocks, the factor and the unread datasets."""
    together: dict[tuple[Spans, tuple[str, ...]], list[str]] = {}
    for item in work:
        together.setdefault((item.spans, item.accounts), []).extend(item.datasets)
    sampled, factor, unread = 0, 1.0, set[str]()
    for (spans, accounts), datasets in together.items():
        longest = max(spans, key=len)
        try:
            told = await chain.forecast_accounts(longest, accounts, datasets, budget)
        except OverBudget as error:
            raise OverBudget("requests", error.limit, remedy=AGAIN) from error
        share = sum(map(len, spans)) / len(longest)
        for name in ("rows", "requests", "calls", "units", "bytes"):
            total[name] += math.ceil(getattr(told, name) * share)
        sampled, factor, unread = sampled + told.sampled, max(factor, told.factor), unread | {*told.unread}
    return sampled, factor, unread


def paced_s(chain: Chain, requests: int, calls: int) -> float:
    """How long so many requests take: one after the other, and no faster than the best endpoint allows.

    An endpoint that refuses large batches is a rented one: if it has not shown its limit, it is assumed to have one.
    """
    took_s = []
    for each in chain.health():
        rate = each.rate or (RENTED_RPS if each.max_batch else math.inf)
        took_s.append(max(requests * (each.latency_s or 0.0), (calls if each.counts_calls else requests) / rate))
    return min(took_s, default=0.0)


async def _sample(chain: Chain, piece: Span, item: Work, clock: Clock, budget: Budget) -> tuple[Sample, set[str]]:
    """One part, and the datasets that were given."""
    reader = having(chain, Capability.ACCOUNT_HISTORY)
    requests, units, (calls, sent), start_s = budget.requests, budget.units, spent(chain), clock.monotonic_s()
    found = await checked(
        chain, piece, lambda: reader.collect_accounts(piece, item.accounts, item.datasets, budget=budget), whole=False
    )
    rows = sum(map(len, found.tables.values()))
    calls_then, sent_then = spent(chain)
    sample = Sample(
        len(piece), len(found.span), rows, budget.requests - requests, calls_then - calls, budget.units - units,
        sent_then - sent, clock.monotonic_s() - start_s,
    )  # fmt: skip
    return sample, {*found.ways}


def _pieces(span: Span) -> Iterator[Span]:
    """Parts of a span, each from the middle of an equal share of it; the whole of a short one."""
    unit = len(span) // (SAMPLED * sum(SHARES))
    if unit == 0:
        yield span
        return
    for place, share in enumerate(SHARES):
        first = span.first + (2 * place + 1) * len(span) // (2 * len(SHARES)) - unit * share // 2
        yield Span(first, first + unit * share - 1)


def _scaled(samples: Sequence[Sample], item: Work, batch: int | None) -> dict[str, int]:
    """What all of some work is, by what parts of it were. What asking costs at all is what it cost where nothing had to
    be found out first."""
    blocks = sum(map(len, item.spans))
    rows = sum(each.rows for each in samples) * blocks / sum(each.blocks for each in samples)
    cut = [each.blocks for each in samples if each.blocks < each.wanted]
    windows = max(sum(1 for _ in item.spans), math.ceil(blocks / mean(cut)) if cut else 1)
    found = {"rows": rows}
    for name in LINEAR:
        each_row = _slope([(each.rows, getattr(each, name)) for each in samples])
        fixed = min(max(0.0, getattr(each, name) - each_row * each.rows) for each in samples)
        found[name] = windows * fixed + rows * each_row
    more = rows / ROWS_OF_A_REQUEST if batch is None else found["calls"] / batch
    found["requests"] = windows * min(each.requests for each in samples) + more
    return {name: math.ceil(figure) for name, figure in found.items()}


def _slope(points: Sequence[tuple[int, float]]) -> float:
    """By how much something rises with each row, by least squares over the parts that have rows: the first row of a
    part needs requests that the next ones share."""
    filled = [each for each in points if each[0]]
    middle_x, middle_y = (mean(each[k] for each in filled) if filled else 0.0 for k in range(2))
    spread = sum((x - middle_x) ** 2 for x, _ in filled)
    return max(0.0, sum((x - middle_x) * (y - middle_y) for x, y in filled) / spread) if spread else 0.0


def _factor(samples: Sequence[Sample]) -> float:
    """How far figures may be off, by how unlike each other the parts are."""
    dense = [each.rows / each.blocks for each in samples]
    if len(dense) == 1:
        return SURE if samples[0].blocks == samples[0].wanted else UNSURE
    if not any(dense):
        return UNSURE
    return min(UNSURE, SURE + 2 * stdev(dense) / mean(dense) / math.sqrt(len(dense)))


def spent(chain: Chain) -> tuple[int, int]:
    """Calls and bytes so far."""
    costs = [each.cost for each in chain.health()]
    return sum(sum(each.calls.values()) for each in costs), sum(each.sent_bytes + each.received_bytes for each in costs)


def batch_of(chain: Chain) -> int | None:
    """How many calls an endpoint takes at once; None where none has refused any."""
    known = [each.max_batch for each in chain.health()]
    return max(each for each in known if each) if all(known) else None
