"""Measure the histories of five wallets on a chain of 200,000 blocks, read from ordinary nodes.

python -m bench.accounts [--kills 50] [--parts rows,spans] [--wallets FOLDER]
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench import wallet_truth
from bench.figures import Figure, main, table
from bench.node import ReplayNode, replay, served
from bench.places import HERE, MissingPrerequisite, home, scratch
from bench.runs import empty, product, product_env, run
from bench.wallet_truth import Row, Wallets

# Capabilities of each kind of endpoint, in addition to logs, blocks and state at past blocks.
ENDPOINTS = {"traces": ("--serve", "trace"), "address search": ("--serve", "ots"), "explorer": (), "state alone": ()}
SPAN = 10_000
LOGS, PER_SPAN, BYTES, MANY, PER_OWN = 30, 3 * 1.1, 1 / 50, 1.5, 40
BATCH = 1000  # maximum number of calls in one request
LIMIT_S = 1800
# The command's names of the planted differences.
CAUSES = {"rebasing": "rebasing", "fee on transfer": "fee_on_transfer", "without events": "without_events"}


@dataclass(frozen=True, slots=True)
class Node:
    """A replay node of the long chain, and how it is named in settings."""

    node: ReplayNode
    has_explorer: bool = False

    def env(self, data: Path) -> dict[str, str]:
        """Return the environment of a command that indexes accounts from this node into a data folder."""
        # Ganache runs contracts in JavaScript, which is slow; the benchmark does not measure that.
        overrides = {"CHAINFOLIO_CHAINS__LOCAL__INDEX": "accounts", "CHAINFOLIO_CHAINS__LOCAL__TIMEOUT_S": "1800"}
        if self.has_explorer:
            overrides["CHAINFOLIO_CHAINS__LOCAL__EXPLORER"] = f"{self.node.url}/api"
        return {**product_env(self.node.url, data), **overrides}


def watch(node: Node, data: Path, chain: Wallets, accounts: Sequence[str], *more: str) -> dict[str, Any]:
    """Run `chainfolio watch` over the whole chain, and return the node's counters of it.

    The counters are reset before.
    """
    node.node.reset()
    span = ["--from", str(chain.first), "--to", str(chain.last)]
    command = [*product(), "watch", *accounts, "--chain", "local", *span, "--json", *more]
    run(command, node.env(data), limit_s=LIMIT_S).checked()
    return node.node.stats()


def run_all(options: argparse.Namespace) -> list[Figure]:
    """Measure all parts; MissingPrerequisite if there is no recorded chain."""
    folder = Path(options.wallets or home() / "wallets")
    if not (folder / "chain.json").exists():
        raise MissingPrerequisite("there is no long chain: run bench/setup.sh wallets, or set PEERS_HOME")
    chain, figures = wallet_truth.read(folder), []
    expected_rows = wallet_truth.expected(chain)
    modules = str(options.modules or home() / "ganache" / "node_modules")
    state = ["node", str(HERE / "chain" / "wallet_state.mjs"), "--modules", modules, "--data", str(folder)]
    parts = options.parts.split(",")

    def finish(part: str, measured: Callable[[], list[Figure]]) -> None:
        if part in parts:
            figures.extend(new := measured())
            print(table(new), flush=True)

    with served(state) as url, scratch() as data:
        for name, flags in ENDPOINTS.items():
            with _node(chain, url, *flags, has_explorer=name == "explorer") as node:
                finish("rows", partial(_exact, name, node, data, chain, expected_rows))
                if name == "traces":
                    finish("bytes", partial(_against_whole, node, data, chain))
                    finish("many", partial(_many_wallets, node, data, chain))
                    finish("kills", partial(_kills, node, data, chain, expected_rows, options))
                if name == "state alone":
                    finish("reconcile", partial(_reconciled, node, data, chain))
        with _node(chain, url, "--serve", "trace", "--max-range", str(SPAN)) as node:
            finish("spans", partial(_narrow, node, data, chain))
    return figures


@contextmanager
def _node(chain: Wallets, state: str, *flags: str, has_explorer: bool = False) -> Iterator[Node]:
    with replay("--state", state, "--payer", chain.payer, *flags, folder=chain.folder) as node:
        yield Node(node, has_explorer)


def _exact(name: str, node: Node, data: Path, chain: Wallets, expected_rows: dict[str, set[Row]]) -> list[Figure]:
    stats = watch(node, empty(data), chain, chain.wallets)
    differences = wallet_truth.compared(expected_rows, wallet_truth.stored(data, chain))
    total = sum(map(len, expected_rows.values()))
    figures = [
        Figure(
            "accounts",
            f"rows of five wallets, by {name}: missing, too many, twice ({total:,} rows)",
            ", ".join(f"{table} {a}/{b}/{c}" for table, (a, b, c) in differences.items()),
            "0/0/0",
            all(not any(each) for each in differences.values()),
            {"stats": _without_spans(stats)},
        ),
    ]
    logs = stats["requests"].get("eth_getLogs", 0)
    if name == "state alone":
        own_count = sum(1 for row in expected_rows["transactions"] if row[3] in chain.wallets)
        other_requests = stats["http"] - logs
        figures.append(
            Figure(
                "accounts",
                f"requests beside those for logs, by {name}, per 100 own transactions ({own_count:,} own)",
                f"{100 * other_requests / own_count:.1f} ({other_requests:,} requests)",
                f"≤ {PER_OWN}",
                100 * other_requests / own_count <= PER_OWN,
            )
        )
    if name == "traces":
        figures.append(Figure("accounts", "requests for logs, unlimited node", str(logs), f"≤ {LOGS}", logs <= LOGS))
    return figures


def _narrow(node: Node, data: Path, chain: Wallets) -> list[Figure]:
    """Compare the requests for logs with the spans of 10,000 blocks, the most that a node serves at once."""
    logs = watch(node, empty(data), chain, chain.wallets)["requests"]["eth_getLogs"]
    spans = -(-chain.blocks // SPAN)
    name = f"requests for logs, spans of {SPAN:,} blocks: per span"
    return [Figure("accounts", name, f"{logs / spans:.2f} ({logs})", f"≤ {PER_SPAN:.1f}", logs <= PER_SPAN * spans)]


def _against_whole(node: Node, data: Path, chain: Wallets) -> list[Figure]:
    """Compare the bytes of five wallets with those of an index of everything, of the same datasets."""
    scoped = watch(node, empty(data), chain, chain.wallets)["bytes"]
    node.node.reset()
    span = ["--from", str(chain.first), "--to", str(chain.last)]
    datasets = ["--datasets", "blocks,transfers,approvals,transactions,native,internal"]
    env = {**node.env(empty(data)), "CHAINFOLIO_CHAINS__LOCAL__INDEX": "chain"}
    run([*product(), "index", "local", *span, *datasets, "--json"], env, limit_s=LIMIT_S).checked()
    all_bytes = node.node.stats()["bytes"]
    return [
        Figure(
            "accounts",
            "bytes read: histories of five wallets / an index of everything",
            f"1/{all_bytes / scoped:.0f} ({scoped / 1e6:.1f} MB, {all_bytes / 1e6:.0f} MB)",
            "≤ 1/50",
            scoped / all_bytes <= BYTES,
        )
    ]


def _many_wallets(node: Node, data: Path, chain: Wallets) -> list[Figure]:
    """Compare the requests of a hundred wallets with those of one; idle wallets should add few."""
    single_requests = watch(node, empty(data), chain, chain.wallets[-1:])["http"]
    idle = [f"0x{0x5EED << 144 | number:040x}" for number in range(99)]
    many_requests = watch(node, empty(data), chain, [chain.wallets[-1], *idle])["http"]
    busy = watch(node, empty(data), chain, [*chain.wallets, *idle[4:]])["http"]
    return [
        Figure(
            "accounts",
            "requests for a wallet and 99 without history / for it alone",
            f"{many_requests / single_requests:.2f} ({many_requests}, {single_requests})",
            f"≤ {MANY}",
            many_requests <= MANY * single_requests,
        ),
        Figure(
            "accounts",
            "requests for five wallets and 95 without history / for the busiest alone",
            f"{busy / single_requests:.2f} ({busy}, {single_requests})",
            f"≤ {MANY}",
            busy <= MANY * single_requests,
        ),
    ]


def _kills(
    node: Node, data: Path, chain: Wallets, expected_rows: dict[str, set[Row]], options: argparse.Namespace
) -> list[Figure]:
    """Kill back-fills at random moments until each is complete, and compare their rows and requests."""
    chance, kills, bad, repeated = random.Random(options.seed), 0, 0, 0
    began_s = time.perf_counter()
    unbroken = watch(node, empty(data), chain, chain.wallets)["http"]
    wall_s = time.perf_counter() - began_s
    while kills < options.kills:
        empty(data)
        node.node.reset()
        while not _killed(node, data, chain, chance.uniform(0.1, 1.0) * wall_s):
            kills += 1
            if kills >= options.kills:
                break
        span = ["--from", str(chain.first), "--to", str(chain.last)]
        command = [*product(), "watch", *chain.wallets, "--chain", "local", *span, "--json"]
        run(command, node.env(data), limit_s=LIMIT_S).checked()
        repeated += max(0, node.node.stats()["http"] - unbroken)
        differences = wallet_truth.compared(expected_rows, wallet_truth.stored(data, chain))
        bad += sum(map(sum, differences.values()))
    return [
        Figure(
            "accounts",
            f"{kills} kills of a back-fill, seed {options.seed}: wrong rows; requests more for each kill",
            f"{bad}; {repeated / max(1, kills):.1f}",
            "0",
            bad == 0,
            {"unbroken": unbroken},
        )
    ]


def _killed(node: Node, data: Path, chain: Wallets, after_s: float) -> bool:
    """Start a back-fill and kill it after some seconds; return True if it had completed."""
    span = ["--from", str(chain.first), "--to", str(chain.last)]
    command = [*product(), "watch", *chain.wallets, "--chain", "local", *span, "--json"]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, env=node.env(data), stdout=quiet, stderr=quiet) as process:
        try:
            return process.wait(after_s) == 0
        except subprocess.TimeoutExpired:
            process.kill()
            return False


def _reconciled(node: Node, data: Path, chain: Wallets) -> list[Figure]:
    """Check that `reconcile` finds each planted difference at its block with its cause, and no other one."""
    watch(node, empty(data), chain, chain.wallets)
    node.node.reset()
    command = [*product(), "reconcile", *chain.wallets, "--chain", "local", "--json"]
    result = run(command, node.env(data), limit_s=LIMIT_S)
    differences = {
        (each["address"], difference["asset"].rpartition(":")[2], difference["block"], difference["cause"])
        for each in json.loads(result.output)
        for difference in each["differences"]
    }
    planted = {(wallet, token, height, CAUSES[kind]) for kind, wallet, token, height in chain.planted}
    return [
        Figure(
            "accounts",
            f"reconcile: {len(planted)} planted differences: not found at their block by name; invented",
            f"{len(planted - differences)}; {len(differences - planted)}; {node.node.stats()['http']} requests",
            "0; 0",
            planted == differences,
            {"found": sorted(map(str, differences)), "seconds": result.wall_s},
        )
    ]


def _without_spans(stats: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in stats.items() if name != "asked"}


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark to a parser."""
    parser.add_argument("--wallets", help="the folder of the long chain (default: below PEERS_HOME)")
    parser.add_argument("--modules", help="where ganache is installed (default: below PEERS_HOME)")
    parser.add_argument("--parts", default="rows,bytes,many,kills,reconcile,spans", help="what is measured")
    parser.add_argument("--kills", type=int, default=50, help="at least so many")
    parser.add_argument("--seed", type=int, default=7, help="of the moments")


if __name__ == "__main__":
    main(__doc__, run_all, add)
