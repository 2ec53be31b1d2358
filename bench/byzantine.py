"""Count wrong results of 100,000 reads (balances, logs, blocks) with one byzantine node among three.

python -m bench.byzantine [--reads 100000] [--seed 1]

Three endpoints over one real chain; one of them changes what it passes on: amounts, logs left out, altered or made up,
wrong headers and receipts; half of the headers get a valid hash. Each round begins without any quarantine, with
another position of the byzantine node and another method that it lies about, from the first read to the last.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from bench.damage import with_results
from bench.figures import Figure, main
from chainfolio.adapters.evm.chain import EvmChain, build
from chainfolio.adapters.evm.reads import Call, NativeBalance, Read
from chainfolio.adapters.evm.roots import header_hash
from chainfolio.adapters.evm.scan import ROUTE
from chainfolio.adapters.evm.scanner import SINGLES
from chainfolio.adapters.evm.settings import EvmSettings
from chainfolio.blocks import Block, Span
from chainfolio.environment import Environment
from chainfolio.errors import SourceError
from chainfolio.kinds import EndpointMemory
from chainfolio.localchain.deploy import Deployment, deploy
from chainfolio.localchain.node import LocalNode
from chainfolio.localchain.trade import trade
from chainfolio.transport.exchange import HttpResponse
from chainfolio.transport.http import HttpTransport

URLS = ("http://one.test", "http://two.test", "http://three.test")
DATASETS = ("blocks", "transactions", "native", "transfers", "approvals")
BLOCKS, FINALITY, WINDOW = 120, 16, 20
BALANCE = "balanceOf(address)(uint256)"
OFTEN = (0.1, 0.5, 1.0)
MADE_UP = "0x" + "ba" * 32


@dataclass(slots=True)
class ByzantineNode:
    """A transport to one real node that changes a share of the answers of `byzantine` to one method."""

    url: str
    byzantine: str
    method: str
    chance: random.Random
    often: float  # share of changed answers, no amount of a chain
    lies: Counter[str] = field(default_factory=Counter)
    requests: int = 0
    _real: HttpTransport = field(default_factory=HttpTransport)

    async def post(self, source: str, url: str, body: bytes, timeout_s: float) -> HttpResponse:
        """Post to the real node; results of the byzantine URL are changed at random."""
        self.requests += 1
        posted = await self._real.post(source, self.url, body, timeout_s)
        if url != self.byzantine:
            return posted
        replies = with_results(json.loads(body), json.loads(posted.body), self._changed)
        return replace(posted, body=json.dumps(replies, separators=(",", ":")).encode())

    async def close(self) -> None:
        """Close the connections to the real node."""
        await self._real.close()

    def _changed(self, method: str, params: list[Any], result: object) -> Any:
        if method != self.method or not result or self.chance.random() >= self.often:
            return result
        lie = LIES[method](self.chance, result)
        self.lies[method] += lie != result
        return lie


def _number(chance: random.Random, result: str) -> str:
    return chance.choice(["0x0", "0x1", hex(int(result, 16) + 1), hex(int(result, 16) * 2 + 1)])


def _returned(chance: random.Random, result: str) -> str:
    """Change one digit of return data, most often in an amount; it may stay the same."""
    if len(result) < 3:
        return result
    at = chance.randrange(2, len(result))
    return result[:at] + chance.choice("0123456789abcdef") + result[at + 1 :]


def _logs(chance: random.Random, result: list[dict[str, Any]]) -> list[dict[str, Any]]:
    kind = chance.randrange(5)
    if kind == 0:
        return []
    at = chance.randrange(len(result))
    log = dict(result[at])
    if kind == 1:
        return [*result[:at], *result[at + 1 :]]
    if kind == 2:
        log["data"] = _returned(chance, log["data"])
    elif kind == 3:
        log["transactionHash"] = MADE_UP
    else:
        log["topics"] = [*log["topics"][:-1], MADE_UP] if len(log["topics"]) > 1 else log["topics"]
    return [*result[:at], log, *result[at + 1 :]]


def _block(chance: random.Random, result: dict[str, Any]) -> dict[str, Any] | None:
    name = chance.choice(["timestamp", "gasUsed", "gasLimit", "miner", "logsBloom", "hash", "transactions", "null"])
    if name == "null":
        return None
    changed = dict(result)
    if name in ("timestamp", "gasUsed", "gasLimit"):
        changed[name] = hex(int(result[name], 16) + 1)
    elif name == "miner":
        changed[name] = "0x" + "ba" * 20
    elif name == "logsBloom":
        changed[name] = "0x" + chance.choice(["00", "ff"]) * 256
    elif name == "hash":
        changed[name] = MADE_UP
    else:
        changed[name] = _bodies(chance, result["transactions"])
    if chance.randrange(2):
        changed["hash"] = "0x" + header_hash("liar", changed).hex()
    return changed


def _bodies(chance: random.Random, bodies: list[Any]) -> list[Any]:
    if not bodies or isinstance(bodies[0], str):
        return bodies[1:]
    at = chance.randrange(len(bodies))
    changed = {**bodies[at], "value": hex(int(bodies[at]["value"], 16) + 1)}
    return [*bodies[:at], changed, *bodies[at + 1 :]]


def _receipts(chance: random.Random, result: list[dict[str, Any]]) -> list[dict[str, Any]]:
    at = chance.randrange(len(result))
    receipt = dict(result[at])
    kind = chance.randrange(3)
    if kind == 0:
        receipt["status"] = "0x0" if receipt["status"] == "0x1" else "0x1"
    elif kind == 1:
        receipt["gasUsed"] = hex(int(receipt["gasUsed"], 16) + 1)
    else:
        receipt["logs"] = receipt["logs"][1:]
    return [*result[:at], receipt, *result[at + 1 :]]


LIES: Mapping[str, Callable[[random.Random, Any], Any]] = {
    "eth_getBalance": _number,
    "eth_call": _returned,
    "eth_getLogs": _logs,
    "eth_getBlockByNumber": _block,
    "eth_getBlockReceipts": _receipts,
}


# --- the reads -------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class GroundTruth:
    """Correct results, read from the node itself once."""

    blocks: dict[int, Block] = field(default_factory=dict)
    balances: dict[int, list[Any]] = field(default_factory=dict)
    tables: dict[Span, dict[str, pa.Table]] = field(default_factory=dict)


@dataclass(slots=True)
class Outcome:
    """Counts over all reads. `refusals` are typed errors, which are not wrong values."""

    reads: int = 0
    wrong: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    lies: Counter[str] = field(default_factory=Counter)
    requests: int = 0
    rounds: int = 0
    quarantines: int = 0
    innocent: int = 0
    wall_s: float = 0.0


@dataclass(slots=True)
class Trial:
    """One real chain with a byzantine proxy."""

    node: LocalNode
    deployment: Deployment
    folder: Path
    seed: int = 1
    truth: GroundTruth = field(default_factory=GroundTruth)

    def chain(
        self, byzantine: str, chance: random.Random, *, quorum: int = 1, integrity: str = "roots"
    ) -> tuple[EvmChain, ByzantineNode]:
        """Return a new chain of the three endpoints in random order, none quarantined, and its transport."""
        path = self.folder / "liars.toml"
        path.write_text(
            'key = "byzantine"\nkind = "evm"\nchain_id = 31337\nname = "Liars"\nblock_time_ms = 200\n'
            f"finality = {FINALITY}\n"
            'native = {symbol = "ETH", name = "Ether", decimals = 18, slip44 = 60}\n'
        )
        urls = list(URLS)
        chance.shuffle(urls)
        settings = EvmSettings(rpc=urls, facts=str(path), quorum=quorum, integrity=integrity, sample=10, span=WINDOW)
        method = chance.choice(list(LIES))
        transport = ByzantineNode(self.node.url, byzantine, method, chance, chance.choice(OFTEN))
        # `eth_getBalance` is only used by endpoints that know neither state overrides nor creation code.
        capabilities = {ROUTE: SINGLES} if method == "eth_getBalance" else {}
        chain = build(
            "byzantine",
            settings,
            Environment(random=chance),
            configs=self.folder,
            transport=transport,
            memory=EndpointMemory(lambda endpoint: capabilities),
        )
        return chain, transport

    def reads(self) -> list[Read]:
        """Return the reads of one block: coins and all token balances of each account."""
        accounts = [account.lower() for account in self.deployment.accounts.values()]
        tokens = [token.address.lower() for token in self.deployment.tokens.values()]
        return [
            *(NativeBalance(account) for account in accounts),
            *(Call(token, BALANCE, (account,)) for token in tokens for account in accounts),
        ]

    async def read_truth(self) -> int:
        """Read the correct results from the node; return the requests of one round without quorum."""
        chain, transport = self.chain("", random.Random(0))
        heads = await chain.heads()
        for height in range(heads.finalized + 1):
            self.truth.blocks[height] = await chain.block(height)
            if height > self.deployment.height:
                self.truth.balances[height] = await chain.answer(self.reads(), self.truth.blocks[height])
        for first in range(0, heads.finalized - WINDOW, 7):
            span = Span(first, first + WINDOW - 1)
            self.truth.tables[span] = (await chain.collect(span, DATASETS)).tables
        await chain.close()
        plain, transport = self.chain("", random.Random(0))
        await self._round(plain, Outcome(), random.Random(0))
        await plain.close()
        return transport.requests

    async def run(self, reads: int, *, quorum: int = 2, integrity: str = "roots") -> Outcome:
        """Run rounds until at least `reads` values were read, and return their outcome."""
        outcome, chance, start_s = Outcome(), random.Random(self.seed), time.monotonic()
        while outcome.reads < reads:
            byzantine = chance.choice(URLS)
            chain, transport = self.chain(byzantine, chance, quorum=quorum, integrity=integrity)
            await self._round(chain, outcome, chance)
            outcome.rounds += 1
            outcome.requests += transport.requests
            outcome.lies += transport.lies
            caught = [endpoint.url for endpoint in chain.node.endpoints if endpoint.health.evidence is not None]
            outcome.quarantines += byzantine in caught
            outcome.innocent += len(set(caught) - {byzantine})
            await chain.close()
        outcome.wall_s = time.monotonic() - start_s
        return outcome

    async def _round(self, chain: EvmChain, outcome: Outcome, chance: random.Random) -> None:
        """Read the head, then rows, blocks and balances in random order; count wrong and refused reads."""
        parts = [self._rows, self._blocks, self._balances]
        chance.shuffle(parts)
        try:
            heads = await chain.heads()
            outcome.wrong["head"] += heads.finalized != max(self.truth.blocks)
        except SourceError as error:
            outcome.refusals[type(error).__name__] += 1
        for part in parts:
            try:
                await part(chain, outcome, chance)
            except SourceError as error:
                outcome.refusals[type(error).__name__] += 1

    async def _rows(self, chain: EvmChain, outcome: Outcome, chance: random.Random) -> None:
        span = chance.choice(list(self.truth.tables))
        truth = self.truth.tables[span]
        outcome.reads += sum(len(rows) for rows in truth.values())
        tables = (await chain.collect(span, DATASETS)).tables
        for name in truth.keys() | tables.keys():
            theirs, node_rows = truth.get(name), tables.get(name)
            if theirs is None or node_rows is None or not theirs.equals(node_rows):
                outcome.wrong[f"rows of {name}"] += _differing(theirs, node_rows)

    async def _blocks(self, chain: EvmChain, outcome: Outcome, chance: random.Random) -> None:
        heights = chance.sample(sorted(self.truth.blocks), 10)
        outcome.reads += len(heights)
        for height, block in zip(heights, await chain.blocks(heights), strict=True):
            outcome.wrong["blocks"] += block != self.truth.blocks[height]

    async def _balances(self, chain: EvmChain, outcome: Outcome, chance: random.Random) -> None:
        height = chance.choice(list(self.truth.balances))
        truth = self.truth.balances[height]
        outcome.reads += len(truth)
        balances = await chain.answer(self.reads(), self.truth.blocks[height])
        outcome.wrong["balances"] += sum(balance != expected for balance, expected in zip(balances, truth, strict=True))


def _differing(theirs: pa.Table | None, node_rows: pa.Table | None) -> int:
    a, b = (Counter(map(repr, rows.to_pylist() if rows is not None else [])) for rows in (theirs, node_rows))
    return max(1, sum((a - b).values()) + sum((b - a).values()))


# --- the benchmark ---------------------------------------------------------------------------------------------------


async def judge(reads: int, seed: int) -> tuple[Outcome, int]:
    """Run the reads on a new chain; return the outcome, and the requests of one round without quorum."""
    with LocalNode() as node, tempfile.TemporaryDirectory() as folder:
        deployment = deploy(node)
        trade(node, deployment, BLOCKS)
        trial = Trial(node, deployment, Path(folder), seed)
        plain = await trial.read_truth()
        return await trial.run(reads), plain


def run(options: argparse.Namespace) -> list[Figure]:
    """Measure, and return the figures."""
    logging.getLogger("chainfolio.node").setLevel(logging.CRITICAL)
    outcome, plain = asyncio.run(judge(options.reads, options.seed))
    wrong, refusals, lies = (sum(counts.values()) for counts in (outcome.wrong, outcome.refusals, outcome.lies))
    ratio = outcome.requests / (outcome.rounds * plain)
    value = (
        f"{wrong} wrong of {outcome.reads:,} reads; {lies:,} lies told, it was quarantined in {outcome.quarantines} of "
        f"{outcome.rounds} rounds, {outcome.innocent} innocent ones, {refusals} refused; {ratio:.1f} x the requests"
    )
    detail = {
        "wrong": dict(outcome.wrong),
        "refused": dict(outcome.refusals),
        "lies": dict(outcome.lies),
        "requests": outcome.requests,
        "plainRequestsARound": plain,
        "wallS": round(outcome.wall_s, 1),
        "seed": options.seed,
    }
    is_met = wrong == 0 and outcome.innocent == 0
    name = "1 byzantine node among 3 nodes: balances, logs, blocks (quorum = 2, roots)"
    return [Figure("byzantine", name, value, "0 wrong values stored or answered", is_met, detail)]


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark to a parser."""
    parser.add_argument("--reads", type=int, default=100_000, help="values read: balances, rows, blocks")
    parser.add_argument("--seed", type=int, default=1, help="of every choice, the byzantine node's too")


if __name__ == "__main__":
    main(__doc__, run, add)
