"""Measure each command for a wallet of 140 transactions in 6,000 blocks, over a rented endpoint.

python -m bench.newcomer [--seed 1] [--latency 0.05]
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench.figures import Figure, main
from bench.places import scratch
from bench.runs import product, product_env, run
from chainfolio.localchain.newcomer import TRANSACTIONS, Newcomer, newcomer
from chainfolio.localchain.node import LocalNode
from chainfolio.localchain.rented import Limits, RentedEndpoint

REFUSED = 0.05
LIMIT_S = 600


@dataclass(frozen=True, slots=True)
class Bar:
    """Limits of a command."""

    name: str
    arguments: tuple[str, ...]
    seconds: float
    requests: int | None = None


BARS = (
    Bar("watch --estimate", ("watch", "--estimate"), 60, 20),
    Bar("watch", ("watch",), 60, 250),
    Bar("watch again", ("watch",), 3),
    Bar("reconcile", ("reconcile",), 20),
    Bar("pnl", ("pnl",), 3, 0),
    Bar("transactions", ("transactions", "--limit", "250"), 3, 0),
)


def run_all(options: argparse.Namespace) -> list[Figure]:
    """Measure, and return the figures."""
    limits = replace(Limits(), latency_s=options.latency)
    with LocalNode() as node, scratch() as folder:
        chain = newcomer(node)
        with RentedEndpoint(node.url, limits, options.seed).serving() as endpoint:
            facts = _facts(chain, folder)
            env = {
                **product_env(endpoint.url, folder / "data"),
                "CHAINFOLIO_CHAINS__LOCAL__INDEX": "accounts",
                "CHAINFOLIO_CHAINS__LOCAL__FACTS": str(facts),
            }
            outputs = dict[str, Any]()
            figures = [_figure(bar, endpoint, chain, env, outputs) for bar in BARS]
    return [*figures, *_truth(chain, outputs)]


def _figure(
    bar: Bar, endpoint: RentedEndpoint, chain: Newcomer, env: dict[str, str], outputs: dict[str, Any]
) -> Figure:
    """Run one command, store its JSON in `outputs`, and return its time, requests and refusals."""
    endpoint.reset()
    result = run(
        [*product(), bar.arguments[0], chain.wallet, *bar.arguments[1:], "--json"], env, limit_s=LIMIT_S
    ).checked()
    outputs[bar.name] = json.loads(result.output)
    refused_share = endpoint.refusals / max(1, endpoint.requests)
    is_met = result.wall_s <= bar.seconds and refused_share <= REFUSED
    is_met = is_met and (bar.requests is None or endpoint.requests <= bar.requests)
    text = f"{result.wall_s:.1f} s, {endpoint.requests} requests, {100 * refused_share:.1f} % refused"
    bounds = (
        f"≤ {bar.seconds:g} s" + ("" if bar.requests is None else f", ≤ {bar.requests} requests") + ", ≤ 5 % refused"
    )
    return Figure("newcomer", bar.name, text, bounds, is_met, {"calls": dict(endpoint.calls)})


def _truth(chain: Newcomer, outputs: dict[str, Any]) -> list[Figure]:
    """Compare the estimate with the run, and count missing rows."""
    (estimate,), (spent,) = outputs["watch --estimate"], outputs["watch"]
    ratios = [
        max(estimate[name] / spent[name], spent[name] / estimate[name]) for name in ("requests", "seconds", "rows")
    ]
    sent_count = sum(each["from"] == chain.wallet for each in outputs["transactions"]["transactions"])
    differences = sum(len(each["differences"]) for each in outputs["reconcile"])
    return [
        Figure(
            "newcomer",
            "estimate of watch: requests, seconds, rows, each off by a factor of",
            ", ".join(f"{ratio:.2f}" for ratio in ratios),
            "≤ 2",
            max(ratios) <= 2,
        ),
        Figure(
            "newcomer",
            "own transactions that are missing; balances that differ",
            f"{TRANSACTIONS - sent_count}; {differences}",
            "0; 0",
            (sent_count, differences) == (TRANSACTIONS, 0),
        ),
    ]


def _facts(chain: Newcomer, folder: Path) -> Path:
    """Write the file of facts of the chain, whose blocks are final after 64 others; return its path."""
    weth = chain.deployment.tokens["WETH"].address.lower()
    path = folder / "local.toml"
    path.write_text(
        'key = "local"\nkind = "evm"\nchain_id = 31337\nname = "Local"\nblock_time_ms = 12000\nfinality = 64\n'
        'native = {symbol = "ETH", name = "Ether", decimals = 18, slip44 = 60}\n'
        f'wrapped = {{address = "{weth}", symbol = "WETH"}}\n'
    )
    return path


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark to a parser."""
    parser.add_argument("--seed", type=int, default=1, help="of the faults")
    parser.add_argument("--latency", type=float, default=0.05, help="seconds before each answer")


if __name__ == "__main__":
    main(__doc__, run_all, add)
