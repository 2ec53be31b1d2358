"""Portfolios of many wallets at one block, batch by batch: a line each, written as soon as its batch is read."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

from chainfolio.assets import Account, account
from chainfolio.errors import BadRequest
from cli.common import money
from cli.progress_bar import Watch, clock, watch

if TYPE_CHECKING:
    from chainfolio.seams import Clock
    from indexer.wiring import System
    from portfolio.document import Portfolio
    from portfolio.facts import Options

MAX_BATCH = 10_000
STDIN = "-"


@dataclass(slots=True)
class Run:
    """How far a run is. Rates and the time left look at what came after the first batch, which pays for all that is
    loaded and learnt."""

    clock: Clock
    total: int
    done: int = 0
    requests: int = 0
    _start_s: float = field(init=False)
    _first: tuple[float, int] = field(init=False)

    def __post_init__(self) -> None:
        self._start_s = self.clock.monotonic_s()
        self._first = (self._start_s, 0)

    def add(self, wallets: int, requests: int) -> None:
        """Count a batch; `requests` are those of the whole run so far."""
        if not self.done:
            self._first = (self.clock.monotonic_s(), wallets)
        self.done, self.requests = self.done + wallets, requests

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return self.clock.monotonic_s() - self._start_s

    @property
    def share(self) -> float:
        """How much of it is done, 0 to 1."""
        return self.done / self.total if self.total else 1.0

    @property
    def rate(self) -> float:
        """Wallets a second."""
        then_s, before = self._first
        if self.done == before:  # only the first batch is done
            then_s, before = self._start_s, 0
        return (self.done - before) / max(self.clock.monotonic_s() - then_s, 1e-6)

    def described(self) -> str:
        """Where the run is, in one line."""
        left = f", {clock((self.total - self.done) / self.rate)} left" if 0 < self.done < self.total else ""
        return (
            f"{int(100 * self.share)} % of {self.total:,} wallets, {self.rate:,.0f}/s, {self.requests:,} requests{left}"
        )


def listed(name: str) -> dict[Account, str]:
    """The accounts of a file, `-` being standard input, each with where it stands first. One a line; `#` begins a
    comment. BadRequest names the line that is no address."""
    if name == STDIN:
        return _parsed(sys.stdin, "standard input")
    try:
        with open(name, encoding="utf-8", errors="replace") as file:
            return _parsed(file, name)
    except OSError as error:
        raise BadRequest("from", f"{name}: {error.strerror}", remedy="a file with one address a line") from None


def _parsed(lines: Iterable[str], name: str) -> dict[Account, str]:
    places: dict[Account, str] = {}
    for number, line in enumerate(lines, 1):
        written = line.partition("#")[0].strip().removeprefix("\ufeff")
        if not written:
            continue
        place = f"line {number} of {name}"
        try:
            places.setdefault(account(written), place)
        except BadRequest as error:
            raise BadRequest("from", f"{place}: {error.reason}", remedy=error.remedy) from None
    return places


async def show(
    system: System, accounts: Mapping[Account, str], key: str, height: int | None, shown: Options, size: int, *,
    as_json: bool,
) -> None:  # fmt: skip
    """Write the portfolios of accounts on one chain at one block, in their order. Of what is written nothing is kept.

    BadRequest where one is no account of the chain; errors of `Engine.pinned` and `Engine.at_pinned`.
    """
    from engine.service import Engine

    engine, chain = Engine(system), system.chain(key)
    for wallet, place in accounts.items():
        if wallet.kind != chain.kind:
            raise BadRequest("from", f"{place}: {wallet} is not an account of {key}")
    block = await engine.pinned(key, height)
    run, bar, left = Run(system.seams.clock, len(accounts)), watch(key), iter(accounts)
    if not as_json:
        print(f"{key}, block {block.height} {block.hash}\n{HEAD}")
    while batch := list(islice(left, size)):
        documents = await engine.at_pinned(batch, key, block, shown, past=height is not None)
        _write(documents, bar, as_json=as_json)
        run.add(len(batch), chain.requests)
        bar(run.share, run.seconds, run.described)


HEAD = f"{'address':<42}  {'net worth USD':>20}  {'positions':>9}  {'issues':>6}"


def _write(documents: Sequence[Portfolio], bar: Watch, *, as_json: bool) -> None:
    from portfolio.document import encode_one

    if sys.stdout.isatty():
        bar.clear()
    for document in documents:
        sys.stdout.write((encode_one(document).decode() if as_json else _line(document)) + "\n")
    sys.stdout.flush()


def _line(document: Portfolio) -> str:
    positions = sum(
        len(position.protocol_positions)
        for protocol in document.asset_by_protocols.values()
        for chain in protocol.chains.values()
        for position in chain.protocol_positions.values()
    )
    partial = "  partial" if document.completeness == "partial" else ""
    return f"{document.address:<42}  {money(document.networth):>20}  {positions:>9}  {len(document.issues):>6}{partial}"
