"""A newcomer's rented endpoint with the limits of a small plan: a wallet of 140 distant transactions.

`newcomer_chain` is made once for a process: tests that use it are of the group `newcomer`. The chain has a twelfth of
the blocks that the benchmark has, and the endpoint a twelfth of the range, so that both need equally many windows.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chainfolio.environment import SystemClock
from chainfolio.localchain.newcomer import Newcomer, newcomer
from chainfolio.localchain.node import LocalNode
from chainfolio.localchain.rented import Limits, RentedEndpoint

KEY = "local"
SCALE = 12
BLOCKS, RANGE = 6_000 // SCALE, 2_000 // SCALE
FINALITY = 64
LIMITS = Limits(range_blocks=RANGE)
SPEED = 20  # of the clock: 15 requests a second are 300
FACTS = f"""
key = "{KEY}"
kind = "evm"
chain_id = 31337
name = "Local"
block_time_ms = 12000
finality = {FINALITY}
native = {{symbol = "ETH", name = "Ether", decimals = 18, slip44 = 60}}
"""
Rent = Callable[..., RentedEndpoint]


@pytest.fixture(scope="session")
def newcomer_chain() -> Iterator[Newcomer]:
    """The wallet and its node."""
    with LocalNode() as node:
        yield newcomer(node, blocks=BLOCKS)


@pytest.fixture
def fast_clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[], float]:
    """Have every wait of the commands take a twentieth of its time; the clock that agrees with it."""

    def now_s() -> float:
        return time.monotonic() * SPEED

    async def sleep(_: SystemClock, seconds: float) -> None:
        await asyncio.sleep(seconds / SPEED)

    monkeypatch.setattr(SystemClock, "monotonic_s", lambda _: now_s())
    monkeypatch.setattr(SystemClock, "sleep", sleep)
    return now_s


@pytest.fixture
def rent(newcomer_chain: Newcomer, fast_clock: Callable[[], float], here: Path) -> Iterator[Rent]:
    """Starts a rented endpoint of the chain and configures the working folder with it.

    `limits` replaces single limits of the newcomer's endpoint, `more` adds lines to the settings of the chain.
    """
    with ExitStack() as stack:

        def start(*, seed: int = 1, more: str = "", **limits: Any) -> RentedEndpoint:
            rented = RentedEndpoint(newcomer_chain.node.url, replace(LIMITS, **limits), seed, fast_clock)
            endpoint = stack.enter_context(rented.serving())
            weth = newcomer_chain.deployment.tokens["WETH"].address.lower()
            facts = here / f"{KEY}.toml"
            facts.write_text(FACTS + f'wrapped = {{address = "{weth}", symbol = "WETH"}}\n')
            settings = f'[chains.{KEY}]\nrpc = ["{endpoint.url}"]\nfacts = "{facts}"\nindex = "accounts"\n{more}\n'
            (here / "chainfolio.toml").write_text(settings)
            return endpoint

        yield start
