"""Measure the cost of hostile assets: wallets of four kinds of chain read with and without them.

There are two fixed mixes: `--usual` tokens that answer like most unsolicited tokens, and a few assets of each
behaviour in `tests/*/dust.py`. Most of the latter burn all gas of their calls. Each read is the first of its process,
because later ones on Tron and Starknet remember the contracts that burn. The nodes are the fakes of those tests, at
100 ms a request; burnt gas takes no time on them, because they only count it. Contracts that never end are left out:
they take `chainfolio.untrusted.MAX_SECONDS` once, independent of the other reads.

python -m bench.dust [--each 3] [--repeat 7]
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Any
from unittest import mock

from bench.figures import Figure, main

DELAY_S = 0.1
BAR = 1.2


def run(options: argparse.Namespace) -> list[Figure]:
    """Measure each kind."""
    # Only this benchmark and a few others need the tests.
    from tests.chains.test_dust import KINDS

    figures = []
    for name, kind in KINDS.items():
        usual = {"token" if name == "solana" else "answers one": options.usual}
        hostile = dict.fromkeys((each for each in kind.behaviours if each != "never ends"), options.each)
        figures += [figure(name, kind, mix, options.repeat, has_bar=mix is usual) for mix in (usual, hostile)]
    return figures


def figure(name: str, kind: Any, mix: dict[str, int], repeat: int, *, has_bar: bool) -> Figure:
    """Return the ratio of the times of a read with a mix of assets and without: medians, in turns."""
    times: dict[bool, list[float]] = {False: [], True: []}
    with mock.patch.object(kind.node, "post", delayed(kind.node.post)):
        for turn in range(2 * (repeat + 1)):
            start_s = time.perf_counter()
            asyncio.run(kind.read(mix if turn % 2 else {}))
            if turn > 1:  # the first of each loads modules
                times[bool(turn % 2)].append(time.perf_counter() - start_s)
    clean_s, dusty_s = (statistics.median(times[is_dusty]) for is_dusty in (False, True))
    assets = f"{sum(mix.values())} assets of {len(mix)} behaviours"
    turns = [_turns(kind, each) for each in (mix, {})]
    subject = f"{name}: time with {assets} / without, at {DELAY_S * 1000:g} ms a request"
    value = f"{dusty_s / clean_s:.2f} ({dusty_s * 1000:.0f} / {clean_s * 1000:.0f} ms, n={repeat})"
    value += f"; requests one after another: {turns[0]} / {turns[1]}"
    if not has_bar:
        return Figure("dust", subject, value)
    return Figure("dust", subject, value, f"≤ {BAR:g}", dusty_s <= BAR * clean_s)


def _turns(kind: Any, mix: dict[str, int]) -> int:
    """Return how many requests of a read follow one another."""
    from tests.chains.dust import counted_turns  # as in `run`

    with counted_turns(kind.node) as turns:
        asyncio.run(kind.read(mix))
    return turns.count


def delayed(post: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """Return `post` with a delay before each request."""

    async def posted(*given: object) -> Any:
        await asyncio.sleep(DELAY_S)
        return await post(*given)

    return posted


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark to a parser."""
    parser.add_argument("--usual", type=int, default=50, help="tokens that answer as others do")
    parser.add_argument("--each", type=int, default=3, help="hostile assets of each behaviour")
    parser.add_argument("--repeat", type=int, default=7)


if __name__ == "__main__":
    main(__doc__, run, add)
