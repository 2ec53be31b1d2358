"""Index with mutated replies of a node; each must end in the rows of a clean index or a typed error.

python -m bench.mutants [--mutants 1000000] [--processes 1] [--seed 1] [--round N]

A replay serves the replies of a real node to all requests of an index. One of them is damaged, in one exchange or in
all: every field of every kind of reply by every kind of damage, envelopes and batches, bytes, statuses, and responses
to other requests. If blocks are verified against their hashes (`integrity = "roots"`), rows have to be equal, except
for values that no hash covers. With blooms alone a well-formed lie may be accepted, and is counted. After each round of
some mutants the node is honest, and the same chain has to return the rows of a clean index. Some rounds fill complete
indexes in a lake, whose rows are compared at the end. `--round` repeats one round.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import uvloop

from bench.covered import Tables, covered, equal_tables
from bench.figures import Figure, main
from bench.full_index import FullIndex, full_index
from bench.replay import Plan, Replay
from chainfolio.adapters.evm.chain import EvmChain, build
from chainfolio.adapters.evm.positions.events import parse_event
from chainfolio.adapters.evm.settings import EvmSettings
from chainfolio.blocks import Span
from chainfolio.environment import Environment
from chainfolio.errors import ChainfolioError
from chainfolio.localchain.actions import Action, Scene
from chainfolio.localchain.deploy import Deployment, deploy
from chainfolio.localchain.node import LocalNode
from chainfolio.localchain.trade import HABITS, MOODS, Oracle, next_action

BLOCKS, FINALITY, LIMIT_S, A_ROUND, TOLD_EVERY = 60, 2, 10.0, 25, 10_000
WIDTHS = (*(1,) * 9, 2, 2, 3)
ALL = ("blocks", "transactions", "native", "transfers", "approvals", "internal")
BODIES, LOGS, TRACES = ("transactions", "native"), ("transfers", "approvals"), ("internal",)
OFTEN = {BODIES: 14, LOGS: 7, TRACES: 6, ("blocks",): 5, ALL: 1, (*ALL, "events"): 1}  # few at once take less time
TWO, ONCE, GREETS = 0.15, 0.4, 0.1  # how often two fields are damaged, one reply alone, the heads asked for, too
ENDS, FAULT = ("equal", "uncovered", "believed", "stored"), "fault: "
INDEX_EVERY, TRIES, WHOLE = (
    400,
    4,
    ("whole",),
)  # which rounds are whole indexes, and how many mutants a piece of one meets
INTEGRITIES = ("roots", "roots", "roots", "bloom")
SWAP = "Swap(address indexed sender, uint256, uint256, uint256, uint256, address indexed to)"


class Hasty:
    """A clock whose sleeps end at once."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def now_us(self) -> int:
        """Return the time in microseconds since 1970-01-01 UTC."""
        return int(self.now_s * 1_000_000)

    def monotonic_s(self) -> float:
        """Return the time in seconds."""
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        """Advance the time, and let other tasks run."""
        self.now_s += seconds
        await asyncio.sleep(0)


class Inline(ThreadPoolExecutor):
    """An executor that runs work at once in the caller's thread, so that the order is reproducible."""

    def submit(self, work: Any, /, *arguments: Any, **named: Any) -> Future[Any]:
        """Run the work now, and return a finished future with its result or error."""
        future: Future[Any] = Future()
        try:
            future.set_result(work(*arguments, **named))
        except Exception as error:  # the caller that awaits the future gets it, as from a thread
            future.set_exception(error)
        return future


@dataclass(slots=True)
class Outcome:
    """Counts of the mutants. `faults` are wrong outcomes, by mutation and place."""

    mutants: int = 0
    equal: int = 0
    uncovered: int = 0
    believed: int = 0
    stored: int = 0
    indexes: int = 0
    recovered: int = 0
    refusals: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    fields: set[str] = field(default_factory=set)
    pairs: set[tuple[str, str]] = field(default_factory=set)
    slowest_s: float = 0.0
    wall_s: float = 0.0

    def __str__(self) -> str:
        return (
            f"{self.faults.total()} of {self.mutants:,} ({len(self.pairs):,} pairs of a field and a kind of damage, "
            f"{len(self.fields)} fields); {self.refusals.total():,} refused, {self.equal:,} without effect, "
            f"{self.uncovered:,} changed what no hash covers, {self.believed:,} believed where only blooms are looked "
            f"at, {self.stored:,} without effect in {self.indexes:,} whole indexes; {self.recovered:,} times an honest "
            f"node afterwards; slowest {self.slowest_s:.1f} s"
        )

    def add(self, outcome: Outcome) -> None:
        """Add the counts of another process."""
        for name in ("mutants", *ENDS, "indexes", "recovered"):
            setattr(self, name, getattr(self, name) + getattr(outcome, name))
        for target, addition in ((self.refusals, outcome.refusals), (self.faults, outcome.faults)):
            target.update(addition)
        self.fields |= outcome.fields
        self.pairs |= outcome.pairs
        self.slowest_s, self.wall_s = max(self.slowest_s, outcome.slowest_s), max(self.wall_s, outcome.wall_s)


# --- rounds -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Round:
    """Data that the mutants of one round share."""

    number: int
    chain: EvmChain
    span: Span
    datasets: tuple[str, ...]
    clean: Tables


@dataclass(slots=True)
class Attack:
    """Rounds of mutants over one recorded chain; a round depends on the seed and its number alone."""

    replay: Replay
    folder: Path
    seed: int
    first: int
    last: int
    events: Sequence[str]
    outcome: Outcome = field(default_factory=Outcome)
    _handshake: list[str] = field(default_factory=list)
    _clean: dict[tuple[Span, tuple[str, ...]], tuple[Tables, list[str]]] = field(default_factory=dict)

    async def run_until(self, mutants: int, rounds: Sequence[int]) -> Outcome:
        """Run the rounds until there were at least `mutants` mutants, and return the outcome."""
        asyncio.get_running_loop().set_default_executor(Inline())
        began_s, next_report = time.monotonic(), TOLD_EVERY
        await self._learn()
        for number in rounds:
            await self._round(number)
            if self.outcome.mutants >= next_report:
                next_report += TOLD_EVERY
                print(f"{time.monotonic() - began_s:,.0f} s: {self.outcome}", file=sys.stderr, flush=True)
            if self.outcome.mutants >= mutants:
                break
        await self.replay.close()
        self.outcome.wall_s = time.monotonic() - began_s
        return self.outcome

    async def _learn(self) -> None:
        """Record the fields of the handshake before the first round, so that rounds are independent."""
        await self._chain(random.Random(0), "roots").heads()
        self._handshake = sorted(self.replay.fields)

    async def _truth(self, span: Span, datasets: tuple[str, ...]) -> tuple[Tables, list[str]]:
        """Return the clean rows of a span and the fields of the replies that they come from; both are cached."""
        if (span, datasets) not in self._clean:
            chain = self._chain(random.Random(0), "roots")
            await chain.heads()
            self.replay.fields.clear()
            tables = await self._collected(chain, span, datasets)
            self._clean[span, datasets] = tables, sorted(self.replay.fields)
        return self._clean[span, datasets]

    async def _collected(self, chain: EvmChain, span: Span, datasets: tuple[str, ...]) -> Tables:
        events = self.events if "events" in datasets else ()
        return (await chain.collect(span, [name for name in datasets if name != "events"], events=events)).tables

    def _chain(self, chance: random.Random, integrity: str) -> EvmChain:
        path = self.folder / "mutants.toml"
        if not path.exists():
            path.write_text(
                'key = "mutants"\nkind = "evm"\nchain_id = 31337\nname = "Mutants"\nblock_time_ms = 200\n'
                f"finality = {FINALITY}\n"
                'native = {symbol = "ETH", name = "Ether", decimals = 18, slip44 = 60}\n'
            )
        settings = EvmSettings(
            rpc=["http://node.test"], facts=str(path), integrity=integrity, sample=1, span=WIDTHS[-1]
        )
        environment = Environment(clock=Hasty(), random=chance)
        return build("mutants", settings, environment, configs=self.folder, transport=self.replay)

    async def _round(self, number: int) -> None:
        """Run some mutants over one span, then an honest node; in some rounds a complete index instead."""
        chance = self.replay.chance = random.Random(f"{self.seed}/{number}")
        if number % INDEX_EVERY == 0:
            await self._index(number, chance)
            return
        width = chance.choice(WIDTHS)
        start = chance.randint(self.first, self.last - width + 1)
        span, (datasets,) = Span(start, start + width - 1), chance.choices([*OFTEN], [*OFTEN.values()])
        clean, fields = await self._truth(span, datasets)
        now = Round(number, self._chain(chance, chance.choice(INTEGRITIES)), span, datasets, clean)
        self.replay.exchanges.clear()
        for _ in range(A_ROUND):
            greets = chance.random() < GREETS
            await self._mutant(
                number, self._plan(self._handshake if greets else fields), partial(self._read, now, greets)
            )
        self.replay.plan = None
        await self._honest(number, now.chain.heads, partial(self._read, now, greets=False))

    async def _index(self, number: int, chance: random.Random) -> None:
        """Fill a complete index; each piece is read with mutants until one, or an honest node, succeeds."""
        span = Span(self.first, self.last)
        clean, fields = await self._clean_index(span)
        chain = self._chain(chance, "roots")
        self.replay.exchanges.clear()
        with (
            tempfile.TemporaryDirectory(dir=self.folder) as folder,
            full_index(Path(folder), chain, chain.node.environment, span, ALL) as index,
        ):
            for piece in index.pieces():
                for _ in range(TRIES):
                    if index.lacks(piece):
                        await self._mutant(number, self._plan(fields), partial(_filled, index, piece))
                self.replay.plan = None
                await self._honest(number, chain.heads, partial(_filled, index, piece))
            self.outcome.indexes += 1
            if covered(index.rows()) != covered(clean):
                self.outcome.faults[f"a whole index: other rows, round {number}"] += 1

    async def _clean_index(self, span: Span) -> tuple[Tables, list[str]]:
        """Return the clean rows and the fields of a complete index, cached by span."""
        if (span, WHOLE) not in self._clean:
            chain = self._chain(random.Random(0), "roots")
            await chain.heads()
            self.replay.fields.clear()
            with (
                tempfile.TemporaryDirectory(dir=self.folder) as folder,
                full_index(Path(folder), chain, chain.node.environment, span, ALL) as index,
            ):
                for piece in index.pieces():
                    await index.fill(piece)
                self._clean[span, WHOLE] = index.rows(), sorted(self.replay.fields)
        return self._clean[span, WHOLE]

    def _plan(self, fields: Sequence[str]) -> Plan:
        """Choose the fields of the next mutant, and set them as the plan of the replay."""
        chance = self.replay.chance
        targets = chance.sample(fields, 2 if chance.random() < TWO else 1)
        self.replay.plan = Plan(frozenset(targets), chance.random() < ONCE)
        return self.replay.plan

    async def _read(self, now: Round, greets: bool) -> str:
        """Read one span, and return how its rows differ from those of a clean index."""
        if greets:
            await now.chain.heads()
        return _compared(await self._collected(now.chain, now.span, now.datasets), now)

    async def _honest(self, number: int, *steps: Callable[[], Awaitable[object]]) -> None:
        """Repeat the steps without damage and record a fault unless the rows are those of a clean index."""
        try:
            ends = [await step() for step in steps]
        except Exception as error:  # every error is a fault: nothing is damaged
            self.outcome.faults[f"an honest node afterwards: {type(error).__name__}, round {number}"] += 1
            return
        if ends[-1] in ("equal", "stored"):
            self.outcome.recovered += 1
        else:
            self.outcome.faults[f"an honest node afterwards: other rows, round {number}"] += 1

    async def _mutant(self, number: int, plan: Plan, read: Callable[[], Awaitable[str]]) -> None:
        """Run a read with a mutant and count its outcome; nothing is counted if its field was not requested."""
        outcome, began_s = self.outcome, time.monotonic()
        try:
            async with asyncio.timeout(LIMIT_S):
                ended = await read()
        except ChainfolioError as error:
            ended = type(error).__name__ if plan.damages else ""
        except TimeoutError:
            ended = f"{FAULT}took longer than {LIMIT_S:.0f} s"
        except Exception as error:  # an untyped error is a fault
            ended = f"{FAULT}{type(error).__name__}"
        if ended.startswith(FAULT):
            outcome.faults[f"{ended.removeprefix(FAULT)}: {plan.damages}, round {number}"] += 1
        elif not plan.damages:
            return
        elif ended in ENDS:
            setattr(outcome, ended, getattr(outcome, ended) + 1)
        else:
            outcome.refusals[ended] += 1
        outcome.mutants += 1
        outcome.pairs.update(plan.damages)
        outcome.fields.update(target for target, _ in plan.damages)
        outcome.slowest_s = max(outcome.slowest_s, time.monotonic() - began_s)


async def _filled(index: FullIndex, piece: Span) -> str:
    """Fill a piece of an index, and return `stored`; rows are compared at the end."""
    await index.fill(piece)
    return "stored"


def _compared(tables: Tables, now: Round) -> str:
    """Return equal, uncovered, believed or a fault, by comparing rows with those of a clean index."""
    if equal_tables(tables, now.clean):
        return "equal"
    if covered(tables) == covered(now.clean):
        return "uncovered"
    return "believed" if now.chain.settings.integrity == "bloom" else f"{FAULT}other rows"


# --- processes --------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _quiet(*names: str) -> Iterator[None]:
    """Let loggers only write critical messages within the context."""
    before = {logger: logger.level for logger in map(logging.getLogger, names)}
    for logger in before:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in before.items():
            logger.setLevel(level)


def _attack(url: str, span: Span, events: Sequence[str], mutants: int, seed: int, rounds: range) -> Outcome:
    with _quiet("chainfolio.node", "chainfolio.supervisor"), tempfile.TemporaryDirectory() as folder:
        attack = Attack(Replay(url), Path(folder), seed, span.first, span.last, events)
        return uvloop.run(attack.run_until(mutants, rounds))


def judge(mutants: int, seed: int, processes: int = 1, only: int | None = None) -> Outcome:
    """Run the mutants on a new chain and return the outcome."""
    with LocalNode() as node:
        deployed = deploy(node)
        span = small_blocks(node, deployed, BLOCKS)
        attack = partial(_attack, node.url, span, _events(deployed))
        if only is not None:
            return attack(mutants, seed, range(only, only + 1))
        if processes == 1:
            return attack(mutants, seed, range(sys.maxsize))
        outcome = Outcome()
        with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
            turns = [range(number, sys.maxsize, processes) for number in range(processes)]
            for each in [pool.submit(attack, mutants // processes, seed, turn) for turn in turns]:
                outcome.add(each.result())
        return outcome


def small_blocks(node: LocalNode, deployed: Deployment, blocks: int) -> Span:
    """Add final blocks with one or a few transactions each, and return their span.

    Small blocks make a mutant cheap.
    """
    chance, wallets = random.Random(7), {name: deployed.accounts[name] for name in HABITS}
    context = Scene(node, deployed, chance, wallets, {name: Oracle.of(node, deployed, name).price for name in MOODS})
    decks: dict[str, list[Action]] = {name: [] for name in HABITS}
    first = node.height + 1
    with node.by_hand():
        for number in range(blocks):
            for name in chance.sample(list(HABITS), 1 if number % 4 else number % 3):
                for each in next_action(context, wallets[name], name, decks[name]):
                    node.send(each)
            node.mine()
    last = node.height
    with node.by_hand():
        node.mine(FINALITY)
    return Span(first, last)


def _events(deployed: Deployment) -> list[str]:
    return [parse_event(SWAP).filter(deployed.contracts["UniswapV2Pair WETH/USDC"].lower())]


def run(options: argparse.Namespace) -> list[Figure]:
    """Measure, and return the figures."""
    outcome = judge(options.mutants, options.seed, options.processes, options.round)
    detail = {
        "faults": dict(outcome.faults),
        "refused": dict(outcome.refusals),
        "wallS": round(outcome.wall_s, 1),
        "seed": options.seed,
    }
    name = "mutated replies that end otherwise than in clean rows or a typed error"
    return [Figure("mutants", name, str(outcome), "0", not outcome.faults, detail)]


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark to a parser."""
    parser.add_argument("--mutants", type=int, default=1_000_000, help="how many replies are changed")
    parser.add_argument("--processes", type=int, default=1, help="that share the work")
    parser.add_argument("--seed", type=int, default=1, help="of every choice")
    parser.add_argument("--round", type=int, help="this round alone, again")


if __name__ == "__main__":
    main(__doc__, run, add)
