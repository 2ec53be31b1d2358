"""Measure values of stored portfolios, inline and in processes: at one block, and for account-days.

python -m bench.recompute [--accounts 10000] [--days 100] [--tokens 20] [--workers 2] [--repeat 3]

The lake has a snapshot of each account and day, of some of 500 tokens, with prices of each day. Inline and processes
take turns on the same lake. Each turn is a command, so its time includes the start of processes and reading files. Both
have to write the same bytes. The share of the ideal is inline / (workers x processes).
"""

from __future__ import annotations

import argparse
import hashlib
import random
import statistics
import sys
import time
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from bench.figures import Figure, main, spread
from bench.places import scratch
from bench.runs import environment
from bench.runs import run as run_command
from chainfolio.storage.lake import Lake
from chainfolio.table import bucket
from chainfolio.tables import PRICES, SNAPSHOT_HOLDINGS, SNAPSHOTS

FIRST = date(2025, 1, 1)
TOKENS = [f"0x{number:040x}" for number in range(1, 501)]
DAYS_OF_COMMIT = 10


def fill(lake: Lake, accounts: list[str], days: int, tokens: int) -> None:
    """Store the snapshots, holdings and prices, some days a commit."""
    chance = random.Random(7)
    tokens_by_account = {account: chance.sample(TOKENS, tokens) for account in accounts}
    for batch, first in enumerate(range(0, days, DAYS_OF_COMMIT)):
        numbers = range(first, min(first + DAYS_OF_COMMIT, days))
        for table, rows in (
            (SNAPSHOTS, _snapshots(accounts, numbers)),
            (SNAPSHOT_HOLDINGS, _holdings(tokens_by_account, numbers, chance)),
            (PRICES, _prices(numbers, chance)),
        ):
            content = pa.Table.from_pylist(list(rows), schema=table.schema())
            lake.append(table, content, stream="bench", batch=batch)


def _key(account: str, day: int) -> dict[str, Any]:
    key = {"chain": "ethereum", "bucket": bucket(account), "account": account, "day": _midnight(day), "attempt": 0}
    return {**key, "height": 1_000 + day}


def _midnight(day: int) -> datetime:
    return datetime(FIRST.year, FIRST.month, FIRST.day, tzinfo=UTC) + timedelta(days=day)


def _snapshots(accounts: list[str], days: range) -> Iterator[dict[str, Any]]:
    for account in accounts:
        for day in days:
            midnight = _midnight(day)
            yield {
                **_key(account, day),
                **{"time": midnight, "hash": "0x00", "taken": midnight, "batch": 0, "retry": False},
                **{"completeness": "complete", "value": "0"},
            }


def _holdings(tokens_by_account: dict[str, list[str]], days: range, chance: random.Random) -> Iterator[dict[str, Any]]:
    for account, tokens in tokens_by_account.items():
        for day in days:
            key = _key(account, day)
            for item, token in enumerate(tokens):
                raw = chance.randrange(1, 10**24).to_bytes(32, "big")
                wallet = {"protocol": "wallet", "position": "WALLET", "name": "", "side": "owned", "symbol": "T"}
                yield {**key, **wallet, "item": item, "asset": token, "decimals": 18, "raw": raw, "spam": False}


def _prices(days: range, chance: random.Random) -> Iterator[dict[str, Any]]:
    for day in days:
        for token in TOKENS:
            usd = f"{chance.randrange(1, 10**12)}E-8"
            texts = {"source": "bench", "confidence": "1", "detail": "", "others": "[]", "calls": "[]"}
            asset = {"asset": f"eip155:1/erc20:{token}", "usd": usd}
            yield {"chain": "ethereum", "height": 1_000 + day, "time": _midnight(day), "observed": _midnight(day)} | {
                **asset,
                **texts,
            }


def _timed(folder: Path, executor: str, workers: int, *options: str) -> tuple[float, str]:
    """Run the command; return its seconds and the digest of its file."""
    target = folder / f"{executor}.parquet"
    command = [sys.executable, "-m", "chainfolio", "recompute", "--config", str(folder / "c.toml")]
    command += ["--accounts", str(folder / "wallets.txt"), "--chain", "ethereum", "--out", str(target), *options]
    began_s = time.monotonic()
    run_command([*command, "--executor", executor, "--workers", str(workers)], environment()).checked()
    return time.monotonic() - began_s, hashlib.sha256(target.read_bytes()).hexdigest()


def run(chosen: argparse.Namespace) -> list[Figure]:
    """Measure the inline and the process executor in turns."""
    accounts = [f"0x{random.Random(number).getrandbits(160):040x}" for number in range(chosen.accounts)]
    at_block = ("--block", "1000")
    by_day = ("--from", str(FIRST), "--to", str(FIRST + timedelta(days=chosen.days - 1)))
    figures = []
    with scratch() as folder:
        (folder / "c.toml").write_text('data = "d"\n[chains.ethereum]\nrpc = ["http://127.0.0.1:9"]\n')
        (folder / "wallets.txt").write_text("\n".join(accounts))
        fill(Lake(str(folder / "d" / "lake")), accounts, chosen.days, chosen.tokens)
        pairs = (
            (f"{chosen.accounts:,} portfolios at one block", at_block),
            (f"{chosen.accounts * chosen.days:,} account-days", by_day),
        )
        for name, selection in pairs:
            turns = [
                [_timed(folder, executor, chosen.workers, *selection) for executor in ("inline", "processes")]
                for _ in range(chosen.repeat)
            ]
            figures += _figures(name, chosen, turns)
    return figures


def _figures(name: str, chosen: argparse.Namespace, turns: list[list[tuple[float, str]]]) -> list[Figure]:
    shares = [inline / (chosen.workers * processes) for (inline, _), (processes, _) in turns]
    walls = [statistics.median(turn[at][0] for turn in turns) for at in (0, 1)]
    digests = {digest for turn in turns for _, digest in turn}
    title, detail = f"{name}: {chosen.workers} processes", {"turns": turns}
    seconds = f"inline {walls[0]:.1f} s, processes {walls[1]:.1f} s"
    share = statistics.median(shares)
    return [
        Figure("recompute", f"{title} / the ideal", f"{spread(shares)}, {seconds}", "≥ 0.8", share >= 0.8, detail),
        Figure("recompute", f"{name}: files that differ", str(len(digests) - 1), "0", len(digests) == 1),
    ]


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark to a parser."""
    parser.add_argument("--accounts", type=int, default=10_000)
    parser.add_argument("--days", type=int, default=100)
    parser.add_argument("--tokens", type=int, default=20)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=3)


if __name__ == "__main__":
    main(__doc__, run, add)
