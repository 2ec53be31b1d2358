"""Mutated replies of a node: how many of 1,000,000 end otherwise than in the rows of a clean index, or a typed error?

python -m bench.mutants [--mutants 1000000] [--seed 1]

The replies of a real node to everything an index asks are kept, and given again with one of them changed: a field that
lies, is dropped, doubled, has another type, another digit or length; an envelope or a byte that is wrong. Every field
of every kind of reply has its turn. With blocks held against their hashes (`integrity = "roots"`) rows have to be the
same, but for what no hash covers; with blooms alone a well-formed lie may be believed, and is counted. Each chain is
used on afterwards, honestly, and then has to give the rows of a clean index.
"""

from __future__ import annotations

import argparse
import asyncio
import copy
import json
import logging
import random
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from adapters.evm.chain import EvmChain, family
from adapters.evm.transport import HttpTransport, Posted
from bench.figures import Figure, main
from chainfolio.blocks import Span
from chainfolio.errors import ChainfolioError
from chainfolio.seams import Seams
from chainfolio.settings import Chain
from localchain.deploy import deploy
from localchain.node import LocalNode
from localchain.trade import trade

BLOCKS, WINDOW, LIMIT_S, AFTER_EVERY = 12, 6, 10.0, 25
DATASETS = ("blocks", "transactions", "native", "transfers", "approvals", "internal")
ODD: list[Any] = [
    None, 0, -1, 1.5, True, False, "", "0x", "0x0", "0x00", "0X1", "-0x1", "0x" + "f" * 15, "0x" + "f" * 64,
    "0x" + "f" * 65, "0x7fffffff", "0x80000000", "0xffffffff", "0x7fffffffffffffff", "0xffffffffffffffff",
    "0x" + "0" * 40, "0x" + "0" * 64, "0x" + "g" * 40, "0x" + "ab" * 5000, "zz", "\0", "\u202e", "\u0663", "\uff10x1",
    "latest", [], {}, [[]], [None], {"a": 1}, 10**30, "9" * 5000,
]  # fmt: skip
Path_ = tuple[Any, ...]


class Hasty:
    """A clock whose sleeps end at once."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def now_us(self) -> int:
        """Microseconds since 1970-01-01 UTC."""
        return int(self.now_s * 1_000_000)

    def monotonic_s(self) -> float:
        """Seconds."""
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        """Time passes."""
        self.now_s += seconds
        await asyncio.sleep(0)


# --- mutations --------------------------------------------------------------------------------------------------------


def paths(value: Any, at: Path_ = ()) -> Iterator[Path_]:
    """Every place in a JSON value; of a long list the first and the last few."""
    yield at
    if isinstance(value, dict):
        for key in value:
            yield from paths(value[key], (*at, key))
    elif isinstance(value, list):
        for index in {*range(min(3, len(value))), *range(max(0, len(value) - 2), len(value))}:
            yield from paths(value[index], (*at, index))


def pattern(method: str, at: Path_) -> str:
    """A place without its positions in lists: what a field is called."""
    return f"{method} {'.'.join('*' if isinstance(step, int) else step for step in at)}"


def mutated(chance: random.Random, value: Any, at: Path_) -> Any:
    """The value with something else at a place."""
    if not at:
        return chance.choice(ODD)
    value = copy.deepcopy(value)
    holder = value
    for step in at[:-1]:
        holder = holder[step]
    key, kind = at[-1], chance.random()
    if kind < 0.15:
        del holder[key]
    elif kind < 0.3 and isinstance(holder, list):
        holder.insert(key, copy.deepcopy(holder[key]))
    elif kind < 0.65 and isinstance(holder[key], str) and len(holder[key]) > 2:
        holder[key] = _respelled(chance, holder[key])
    else:
        holder[key] = chance.choice(ODD)
    return value


def _respelled(chance: random.Random, text: str) -> str:
    at, digit = chance.randrange(2, len(text)), chance.choice("0123456789abcdef")
    return chance.choice([
        text[:at] + digit + text[at + 1 :], text[:-1], text + digit,
        text.upper(), "0x" + "f" * (len(text) - 2), "0x" + "0" * (len(text) - 2), text[:at] + " " + text[at:], text[2:],
    ])  # fmt: skip


@dataclass(slots=True)
class Mutator:
    """A transport that gives a node's replies from memory, one of each exchange's about `field` changed."""

    url: str
    chance: random.Random
    target: str = ""
    hits: int = 0
    fields: dict[str, None] = field(default_factory=dict)
    _real: HttpTransport = field(default_factory=HttpTransport)
    _known: dict[str, Any] = field(default_factory=dict)

    async def post(self, source: str, url: str, body: bytes, timeout_s: float) -> Posted:
        """One exchange, from memory where the same was asked before."""
        asks = json.loads(body)
        many = asks if isinstance(asks, list) else [asks]
        replies = [{"jsonrpc": "2.0", "id": ask["id"], **(await self._reply(ask))} for ask in many]
        if self.target:
            replies = self._changed(many, replies)
        given = json.dumps(replies if isinstance(asks, list) else replies[0] if replies else None).encode()
        if self.target == "bytes" and self.hits < 1:
            given = self._damaged(given)
        return Posted(200, None, given)

    async def close(self) -> None:
        """Let go of connections."""
        await self._real.close()

    async def _reply(self, ask: dict[str, Any]) -> dict[str, Any]:
        key = json.dumps([ask["method"], ask["params"]])
        if key not in self._known:
            posted = await self._real.post("node", self.url, json.dumps({**ask, "jsonrpc": "2.0"}).encode(), 30)
            reply = json.loads(posted.body)
            self._known[key] = {name: reply[name] for name in ("result", "error") if name in reply}
            for at in paths(reply.get("result")) if "result" in reply else ():
                self.fields.setdefault(pattern(ask["method"], at))
        found: dict[str, Any] = self._known[key]
        return found

    def _changed(self, asks: list[dict[str, Any]], replies: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The replies with the target changed in one of them; nothing where none has it."""
        if self.target == "envelope":
            self.hits += 1
            at = self.chance.choice([place for place in paths(replies) if 0 < len(place) < 3])
            changed: list[dict[str, Any]] = mutated(self.chance, replies, at)
            return changed
        places = [
            (number, at)
            for number, (ask, reply) in enumerate(zip(asks, replies, strict=True))
            if self.target.startswith(f"{ask['method']} ") and "result" in reply
            for at in paths(reply["result"])
            if pattern(ask["method"], at) == self.target
        ]
        if not places:
            return replies
        self.hits += 1
        number, at = self.chance.choice(places)
        reply = {**replies[number], "result": mutated(self.chance, replies[number]["result"], at)}
        return [*replies[:number], reply, *replies[number + 1 :]]

    def _damaged(self, given: bytes) -> bytes:
        self.hits += 1
        damaged = bytearray(given)
        for _ in range(3):
            damaged[self.chance.randrange(len(damaged))] = self.chance.randrange(256)
        return bytes(damaged[: self.chance.randrange(len(damaged))] if self.chance.random() < 0.3 else damaged)


# --- trials -----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Outcome:
    """What became of the mutants: `faults` are those that should not be, by what they were and the field."""

    mutants: int = 0
    equal: int = 0
    believed: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    fields: int = 0
    slowest_s: float = 0.0
    wall_s: float = 0.0


def _chain(folder: Path, transport: Mutator, integrity: str = "roots") -> EvmChain:
    path = folder / "mutants.toml"
    path.write_text(
        'key = "mutants"\nfamily = "evm"\nchain_id = 31337\nname = "Mutants"\nblock_time_ms = 200\nfinality = 2\n'
        'native = {symbol = "ETH", name = "Ether", decimals = 18, slip44 = 60}\n'
    )
    settings = Chain(rpc=["http://node.test"], facts=str(path), integrity=integrity, sample=1, span=WINDOW)
    seams = Seams(clock=Hasty(), random=transport.chance)
    return family("mutants", settings, seams, configs=folder, transport=transport)


def covered(tables: dict[str, pa.Table]) -> dict[str, list[Any]]:
    """The rows of some tables without what no hash covers."""
    found = {}
    for name, table in sorted(tables.items()):
        rows = table.to_pylist()
        if name == "transfers":
            rows = [
                {k: v for k, v in row.items() if not (row["standard"] == "native" and k in ("sender", "recipient"))}
                for row in rows
                if row["standard"] != "internal"
            ]
        gone = {"sender", "created", "gas_price", "fee"} if name == "transactions" else set()
        found[name] = [{k: v for k, v in row.items() if k not in gone} for row in rows]
    return found


async def attack(node: LocalNode, folder: Path, mutants: int, seed: int) -> Outcome:
    """So many mutants, one after the other; field after field in turn."""
    chance, outcome, start_s = random.Random(seed), Outcome(), time.monotonic()
    transport = Mutator(node.url, chance)
    chain = _chain(folder, transport)
    last = (await chain.heads()).finalized
    span = Span(last - WINDOW + 1, last)
    clean = (await chain.collect(span, DATASETS)).tables
    truth, targets = covered(clean), [*transport.fields, "envelope", "bytes"]
    outcome.fields = len(targets)
    chance.shuffle(targets)
    while outcome.mutants < mutants:
        transport.target, transport.hits = targets[outcome.mutants % len(targets)], 0
        began_s = time.monotonic()
        try:
            async with asyncio.timeout(LIMIT_S):
                await chain.heads()
                found = covered((await chain.collect(span, DATASETS)).tables)
            outcome.equal += found == truth
            if found != truth and chain.settings.integrity == "bloom":
                outcome.believed += 1
            elif found != truth:
                outcome.faults[f"other rows: {transport.target}"] += 1
        except ChainfolioError as error:
            outcome.refused[type(error).__name__] += 1
        except TimeoutError:
            outcome.faults[f"took longer than {LIMIT_S:.0f} s: {transport.target}"] += 1
        except Exception as error:  # what is looked for: an error outside the tree
            outcome.faults[f"{type(error).__name__}: {transport.target}"] += 1
        outcome.slowest_s = max(outcome.slowest_s, time.monotonic() - began_s)
        outcome.mutants += 1
        if outcome.mutants % AFTER_EVERY == 0:
            transport.target = ""
            chain = await _recovered(chain, span, clean, outcome, folder, transport)
    await transport.close()
    outcome.wall_s = time.monotonic() - start_s
    return outcome


async def _recovered(
    chain: EvmChain, span: Span, clean: dict[str, pa.Table], outcome: Outcome, folder: Path, transport: Mutator
) -> EvmChain:
    """The same chain with an honest node gives the rows of a clean index; then a new one, that has learnt nothing."""
    try:
        await chain.heads()
        found = (await chain.collect(span, DATASETS)).tables
        if found.keys() != clean.keys() or not all(found[name].equals(clean[name]) for name in clean):
            outcome.faults["an honest node afterwards: other rows"] += 1
    except Exception as error:  # nothing may be left of a lie
        outcome.faults[f"an honest node afterwards: {type(error).__name__}"] += 1
    return _chain(folder, transport, "bloom" if chain.settings.integrity == "roots" else "roots")


async def judge(mutants: int, seed: int) -> Outcome:
    """The outcome on a chain of its own."""
    with LocalNode() as node, tempfile.TemporaryDirectory() as folder:
        trade(node, deploy(node), BLOCKS)
        return await attack(node, Path(folder), mutants, seed)


def run(options: argparse.Namespace) -> list[Figure]:
    """Measure."""
    for name in ("chainfolio.node", "chainfolio.supervisor"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    outcome = asyncio.run(judge(options.mutants, options.seed))
    faults, refused = sum(outcome.faults.values()), sum(outcome.refused.values())
    value = (
        f"{faults} of {outcome.mutants:,}; {refused:,} refused, {outcome.equal:,} without effect, {outcome.believed:,} "
        f"believed where only blooms are looked at; {outcome.fields} fields, slowest {outcome.slowest_s:.1f} s"
    )
    detail = {
        "faults": dict(outcome.faults), "refused": dict(outcome.refused), "wallS": round(outcome.wall_s, 1),
        "seed": options.seed,
    }  # fmt: skip
    name = "mutated replies that end otherwise than in clean rows or a typed error"
    return [Figure("mutants", name, value, "0", faults == 0, detail)]


def add(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument("--mutants", type=int, default=1_000_000, help="how many replies are changed")
    parser.add_argument("--seed", type=int, default=1, help="of every choice")


if __name__ == "__main__":
    main(__doc__, run, add)
