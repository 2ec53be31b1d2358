"""Measure decoding of cached data, and adding a contract: time and requests.

python -m bench.cache [--repeat 5]
"""

from __future__ import annotations

import argparse
import hashlib
import statistics
from collections.abc import Sequence
from pathlib import Path

from bench import truth
from bench.figures import Figure, main, spread
from bench.node import ReplayNode, replay
from bench.places import recorded, scratch
from bench.runs import FULL, Run, index, product, product_env
from bench.runs import run as run_command

BAR = 200_000


def run(options: argparse.Namespace) -> list[Figure]:
    """Measure, and return the figures."""
    with replay() as node, scratch() as folder:
        return [*_repeated_run(node, folder / "again", options.repeat), *_one_more(node, folder / "more")]


def _repeated_run(node: ReplayNode, data: Path, repeat: int) -> list[Figure]:
    index(node.url, data, datasets=f"{FULL},account_transfers").checked()
    before = _contents(data)
    node.reset()
    _derive(node, data, "transfers,approvals")
    decoded = [_derive(node, data, "transfers,approvals").wall_s for _ in range(repeat)]
    full_s = [_derive(node, data, "").wall_s for _ in range(max(2, repeat // 2))]
    requests, is_equal = node.stats()["http"], _contents(data) == before
    rates = [recorded().events / wall_s / 1000 for wall_s in decoded]
    all_rates = [recorded().events / wall_s / 1000 for wall_s in full_s]
    is_fast = statistics.median(rates) * 1000 >= BAR
    name = "decoded again, k events/s with process start"
    return [
        Figure("cache", name, spread(rates, 0), f"≥ {BAR // 1000}", is_fast, {"walls_s": decoded}),
        Figure("cache", "as above and all derived tables too", spread(all_rates, 0), detail={"walls_s": full_s}),
        Figure(
            "cache",
            "requests, and tables before and after",
            f"{requests}, {'equal' if is_equal else 'DIFFERENT'}",
            "0, equal",
            requests == 0 and is_equal,
        ),
    ]


def _derive(node: ReplayNode, data: Path, tables: str) -> Run:
    arguments = ["--tables", tables] if tables else []
    return run_command(
        [*product(), "materialise", "local", "--json", *arguments], product_env(node.url, data)
    ).checked()


def _contents(data: Path) -> tuple[str, str, str, int]:
    balances, allowances = (sorted(of(data).items()) for of in (truth.stored_balances, truth.stored_allowances))
    events = truth.digest(truth.stored_events(data))
    return events, _hash(balances), _hash(allowances), truth.count(data, "account_transfers")


def _hash(rows: Sequence[object]) -> str:
    return hashlib.sha256(repr(rows).encode()).hexdigest()


def _one_more(node: ReplayNode, data: Path) -> list[Figure]:
    """Index two contracts, then the same and one more; compare requested with missing data."""
    chain = recorded()
    first, second, third = chain.tokens[:3]
    index(node.url, data, "--contracts", f"{first},{second}").checked()
    files_before = _files(data)
    node.reset()
    index(node.url, data, "--contracts", f"{first},{second},{third}").checked()
    spans = node.stats()["asked"]
    only_missing = all([token.lower() for token in tokens] == [third] for _, _, tokens in spans)
    heights = sorted(height for low, high, _ in spans for height in range(low, high + 1))
    is_once = heights == list(range(chain.first, chain.last + 1))
    untouched = files_before.items() <= _files(data).items()
    expected = {e for e in truth.recorded_events(chain.folder, chain.first, chain.last) if e.token in chain.tokens[:3]}
    stored = truth.stored_events(data)
    is_exact = len(stored) == len(expected) and set(stored) == expected
    node.reset()
    index(node.url, data, "--contracts", f"{first},{second},{third}").checked()
    again_count = len(node.stats()["asked"])
    return [
        Figure(
            "cache",
            "adding a contract to two: what was asked, older files, rows",
            f"{len(spans)} requests, "
            f"{'only the missing, once' if only_missing and is_once else 'MORE than the missing'}; "
            f"{'untouched' if untouched else 'CHANGED'}; {'exact' if is_exact else 'WRONG'}; again: {again_count}",
            "only the missing",
            only_missing and is_once and untouched and is_exact and again_count == 0,
            {"asked": spans},
        )
    ]


def _files(data: Path) -> dict[str, str]:
    files = sorted((data / "lake").rglob("*.parquet"))
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark to a parser."""
    parser.add_argument("--repeat", type=int, default=5, help="how often")


if __name__ == "__main__":
    main(__doc__, run, add)
