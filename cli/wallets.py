"""Many wallets at one block, batch by batch: a line each, written as soon as its batch is read."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Generic, TypeVar

from chainfolio.assets import Account, account
from chainfolio.errors import BadRequest
from cli.common import one_chain
from cli.names import accounts_of, on_chains
from cli.progress_bar import Watch, clock, watch

if TYPE_CHECKING:
    from chainfolio.blocks import Block
    from chainfolio.seams import Clock
    from engine.service import Engine
    from indexer.wiring import System

BATCH, MAX_BATCH = 500, 10_000
STDIN = "-"
T = TypeVar("T")


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


@dataclass(frozen=True, slots=True)
class Listing(Generic[T]):
    """What is read of a batch of wallets, a thing for each, and how it is written, below the `head` of a table."""

    read: Callable[[Engine, Sequence[Account], str, Block], Awaitable[Sequence[T]]]
    line: Callable[[Account, T], str]
    head: str


def add(command: argparse.ArgumentParser) -> None:
    """The options of commands that read many wallets."""
    command.add_argument(
        "--from",
        dest="file",
        metavar="FILE",
        help="the addresses in FILE too, one a line (- : standard "
        "input), all at one block of one chain; a line of JSON or of a table each",
    )
    command.add_argument(
        "--batch", type=int, default=BATCH, metavar="N", help=f"with --from: wallets read at once (default {BATCH})"
    )


def check(options: argparse.Namespace) -> None:
    """BadRequest where no address is given, or no batch can be read."""
    if not options.address and options.file is None:
        raise BadRequest(
            "address", "no address is given", remedy=f"chainfolio {options.command} ADDRESS… or --from FILE"
        )
    if not 1 <= options.batch <= MAX_BATCH:
        raise BadRequest("batch", f"{options.batch} is not between 1 and {MAX_BATCH:,}")


async def show(system: System, options: argparse.Namespace, listing: Listing[T]) -> None:
    """Write what is listed of wallets on one chain at one block, those on the command line first, then those of the
    file; one that is in both once. Of what is written nothing is kept.

    BadRequest where one is no account of the chain; errors of `Engine.pinned` and of what reads.
    """
    from engine.service import Engine

    lines, chains = listed(options.file), [options.chain] if options.chain else []
    accounts = dict.fromkeys(await accounts_of(system, options.address, chains), "on the command line")
    for written, place in lines.items():
        try:
            accounts.setdefault(on_chains(system, written, chains), place)
        except BadRequest as error:
            if error.field != "address":
                raise
            raise BadRequest("from", f"{place}: {error.reason}", remedy=error.remedy) from None
    key = chosen(system, options.chain, options.block, list(accounts)[:1])
    engine, chain = Engine(system), system.chain(key)
    for wallet, place in accounts.items():
        if wallet.kind != chain.kind:
            raise BadRequest("from", f"{place}: {wallet} is not an account of {key}")
    block = await engine.pinned(key, options.block)
    run, bar, left = Run(system.seams.clock, len(accounts)), watch(key), iter(accounts)
    if not options.json:
        print(f"{key}, block {block.height} {block.hash}\n{listing.head}")
    while batch := list(islice(left, options.batch)):
        found = await listing.read(engine, batch, key, block)
        _write((listing.line(*each) for each in zip(batch, found, strict=True)), bar)
        run.add(len(batch), chain.requests)
        bar(run.share, run.seconds, run.described)


def chosen(system: System, chain: str | None, block: int | None, accounts: Collection[Account]) -> str:
    """The one chain that is asked about accounts. BadRequest as of `one_chain`."""
    if block is not None and block < 0:
        raise BadRequest("block", "a block height is at least 0")
    return one_chain(system, chain, accounts, "a block belongs to one chain")


def _write(lines: Iterable[str], bar: Watch) -> None:
    if sys.stdout.isatty():
        bar.clear()
    sys.stdout.writelines(f"{line}\n" for line in lines)
    sys.stdout.flush()
