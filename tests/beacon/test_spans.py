"""The number of spans read at once, of a whole network and of what needs one, is bounded by memory."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from chainfolio.adapters.beacon.computed import ComputedRewards
from chainfolio.adapters.beacon.memo import LARGE_SELECTION, LIMITS, Memo
from chainfolio.adapters.beacon.reader import Reader
from chainfolio.blocks import Span
from chainfolio.chain_results import SpanTables
from tests.beacon.conftest import chain_at


@pytest.mark.parametrize(
    ("contracts", "known_count", "is_computed", "max_running"),
    [
        ((), 0, False, 2),
        (("7",), 1, False, 5),
        (("7",), LARGE_SELECTION, False, 5),
        (("0x" + "57" * 20,), LARGE_SELECTION + 1, False, 2),  # an address to which so many withdraw
        (("7",), 1, True, 2),  # nodes that do not say rewards: they are computed of all validators
    ],
)
async def test_what_needs_a_whole_network_is_read_two_spans_at_a_time(
    monkeypatch: pytest.MonkeyPatch, contracts: Sequence[str], known_count: int, is_computed: bool, max_running: int
) -> None:
    chain, running, running_counts = chain_at("http://127.0.0.1:1", concurrency=5), 0, list[int]()

    async def collected(span: Span, *_: Any) -> SpanTables:
        nonlocal running
        running += 1
        running_counts.append(running)
        await asyncio.sleep(0)
        running -= 1
        return SpanTables(span, {}, None, [], 0, 0, True)

    monkeypatch.setattr(chain._collector, "_collect", collected)
    chain._collector._memos[tuple(range(known_count))] = Memo(LIMITS)
    reader = Reader(chain.nodes, None, None)  # type: ignore[arg-type]
    chain._collector._computed[False] = ComputedRewards(reader, is_used=is_computed)
    spans = [Span(first, first + 9) for first in range(0, 50, 10)]
    results = await asyncio.gather(*(chain.collect(each, ["validators"], contracts) for each in spans))
    assert [each.span for each in results] == spans
    assert (max(running_counts), len(running_counts)) == (max_running, len(spans))
    await chain.close()
