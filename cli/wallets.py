"""Many wallets at one block, batch by batch: a line each, written as soon as its batch is read."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Generic, TypeVar

from chainfolio.assets import Account, account
from chainfolio.cli.names import accounts_of
from chainfolio.cli.progress_bar import ProgressWatcher, duration_text, watch
from chainfolio.engine.named_accounts import on_chains, pinned_chain
from chainfolio.engine.service import Engine
from chainfolio.errors import BadRequest

if TYPE_CHECKING:
    from chainfolio.blocks import Block
    from chainfolio.environment import Clock
    from chainfolio.indexer.wiring import System

BATCH, MAX_BATCH = 500, 10_000
STDIN = "-"
T = TypeVar("T")


@dataclass(slots=True)
class Run:
    """Progress of a run over wallets.

    Rate and remaining time leave the first batch out, which also loads code and reads facts of the chain.
    """

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
        """Completed share, 0 to 1."""
        return self.done / self.total if self.total else 1.0

    @property
    def rate(self) -> float:
        """Wallets a second."""
        then_s, before = self._first
        if self.done == before:  # only the first batch is done
            then_s, before = self._start_s, 0
        return (self.done - before) / max(self.clock.monotonic_s() - then_s, 1e-6)

    def described(self) -> str:
        """Return the progress in one line."""
        remaining = (
            f", {duration_text((self.total - self.done) / self.rate)} left" if 0 < self.done < self.total else ""
        )
        wallets = f"{int(100 * self.share)} % of {self.total:,} wallets"
        return f"{wallets}, {self.rate:,.0f}/s, {self.requests:,} requests{remaining}"


def read_accounts(name: str) -> dict[Account, str]:
    """Return the accounts of a file (`-`: standard input), each with the line where it stands first.

    One account a line; `#` begins a comment. Raises BadRequest with the line that is no address.
    """
    if name == STDIN:
        return _parsed(sys.stdin, "standard input")
    try:
        with open(name, encoding="utf-8", errors="replace") as file:
            return _parsed(file, name)
    except OSError as error:
        raise BadRequest("from", f"{name}: {error.strerror}", remedy="a file with one address a line") from None


def _parsed(lines: Iterable[str], name: str) -> dict[Account, str]:
    """Return the accounts of lines, each once, with the name of its first line.

    Blank lines and comments from `#` on are left out. Raises BadRequest with the name of the line for an address that
    is none.
    """
    line_by_account: dict[Account, str] = {}
    for number, line in enumerate(lines, 1):
        address = line.partition("#")[0].strip().removeprefix("\ufeff")
        if not address:
            continue
        line_name = f"line {number} of {name}"
        try:
            line_by_account.setdefault(account(address), line_name)
        except BadRequest as error:
            raise BadRequest("from", f"{line_name}: {error.reason}", remedy=error.remedy) from None
    return line_by_account


@dataclass(frozen=True, slots=True)
class Listing(Generic[T]):
    """One listing of many wallets: reads a batch, formats a result as a line; the head of the table."""

    read: Callable[[Engine, Sequence[Account], str, Block], Awaitable[Sequence[T]]]
    line: Callable[[Account, T], str]
    head: str


def add(command: argparse.ArgumentParser) -> None:
    """Add the options of commands that read many wallets: `--from` and `--batch`."""
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
    """Raise BadRequest without an address or file, or for a batch size out of range."""
    if not options.address and options.file is None:
        raise BadRequest(
            "address", "no address is given", remedy=f"chainfolio {options.command} ADDRESS… or --from FILE"
        )
    if not 1 <= options.batch <= MAX_BATCH:
        raise BadRequest("batch", f"{options.batch} is not between 1 and {MAX_BATCH:,}")


async def show(system: System, options: argparse.Namespace, listing: Listing[T]) -> None:
    """Print the listing of wallets on one chain at one block: those of the command line, then of the file.

    A wallet that is in both is printed once. Nothing printed is kept in memory. Raises BadRequest for an account of
    another kind of chain, and the errors of `Engine.pinned` and of the listing.
    """
    lines, chains = read_accounts(options.file), [options.chain] if options.chain else []
    accounts = dict.fromkeys(await accounts_of(system, options.address, chains), "on the command line")
    for address, line_name in lines.items():
        try:
            accounts.setdefault(on_chains(system, address, chains), line_name)
        except BadRequest as error:
            if error.field != "address":
                raise
            raise BadRequest("from", f"{line_name}: {error.reason}", remedy=error.remedy) from None
    key = pinned_chain(system, options.chain, options.block, list(accounts)[:1])
    engine, chain = Engine(system), system.chain(key)
    for wallet, line_name in accounts.items():
        if wallet.kind != chain.kind:
            raise BadRequest("from", f"{line_name}: {wallet} is not an account of {key}")
    block = await engine.pinned(key, options.block)
    run, bar, remaining = Run(system.environment.clock, len(accounts)), watch(key), iter(accounts)
    if not options.json:
        print(f"{key}, block {block.height} {block.hash}\n{listing.head}")
    while batch := list(islice(remaining, options.batch)):
        documents = await listing.read(engine, batch, key, block)
        _write((listing.line(*each) for each in zip(batch, documents, strict=True)), bar)
        run.add(len(batch), chain.requests)
        bar(run.share, run.seconds, run.described)


def _write(lines: Iterable[str], bar: ProgressWatcher) -> None:
    if sys.stdout.isatty():
        bar.clear()
    sys.stdout.writelines(f"{line}\n" for line in lines)
    sys.stdout.flush()
