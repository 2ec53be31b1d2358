"""Measure finding one account among millions of transfers: its bucket compared with a full scan.

python -m bench.lookup [--rows 10000000] [--repeat 15]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
import polars as pl

from bench.figures import Figure, main
from bench.places import scratch
from chainfolio.indexer.materialise import in_schema
from chainfolio.portfolio.ledger import in_buckets
from chainfolio.storage.lake import Lake
from chainfolio.tables import ACCOUNT_TRANSFERS, TRANSFERS

CHAIN = "local"
ACCOUNTS = 200_000
TOKENS = 500
PER_BLOCK = 100
PORTION = 500_000
BAR = 1 / 50


def run(options: argparse.Namespace) -> list[Figure]:
    """Measure, and return the figures."""
    with scratch() as folder:
        lake = Lake(str(folder / "lake"))
        fill(lake, options.rows // 2)
        rows = lake.count(ACCOUNT_TRANSFERS)
        return _compared(lake, rows, options.repeat)


def fill(lake: Lake, transfers: int) -> None:
    """Store transfers among many idle and few busy accounts, and their histories, as the product does."""
    chance = np.random.default_rng(7)
    accounts, tokens = (_addresses(chance, count) for count in (ACCOUNTS, TOKENS))
    for number, start in enumerate(range(0, transfers, PORTION), 1):
        frame = _portion(chance, accounts, tokens, start, min(PORTION, transfers - start))
        for table, rows in ((TRANSFERS, frame), (ACCOUNT_TRANSFERS, in_buckets(ACCOUNT_TRANSFERS, frame))):
            lake.append(table, in_schema(rows, table), stream=f"{CHAIN}/bench", batch=number)
    for table in (TRANSFERS, ACCOUNT_TRANSFERS):
        lake.compact(table, CHAIN)


def _addresses(chance: np.random.Generator, count: int) -> pl.Series:
    body = chance.bytes(20 * count).hex()
    return pl.Series(["0x" + body[40 * k : 40 * k + 40] for k in range(count)])


def _portion(
    chance: np.random.Generator, accounts: pl.Series, tokens: pl.Series, start: int, count: int
) -> pl.DataFrame:
    positions = np.arange(start, start + count)
    hashes = chance.bytes(32 * count).hex()
    raws = chance.bytes(9 * count)

    def somebody() -> pl.Series:
        return accounts.gather(np.minimum(chance.pareto(0.6, count) * 20, len(accounts) - 1).astype(np.int64))

    columns = {
        "chain": pl.repeat(CHAIN, count, eager=True),
        "height": pl.Series(positions // PER_BLOCK, dtype=pl.Int64),
        "time": pl.Series(1_700_000_000_000_000 + positions // PER_BLOCK * 12_000_000).cast(pl.Datetime("us", "UTC")),
        "tx_index": pl.Series(positions % PER_BLOCK // 5, dtype=pl.Int32),
        "log_index": pl.Series(positions % PER_BLOCK, dtype=pl.Int32),
        "item": pl.repeat(0, count, dtype=pl.Int32, eager=True),
        "tx_hash": pl.Series(["0x" + hashes[64 * (k // 5) : 64 * (k // 5) + 64] for k in range(count)]),
        "standard": pl.repeat("erc20", count, eager=True),
        "token": tokens.gather(chance.integers(0, len(tokens), count)),
        "operator": pl.repeat(None, count, dtype=pl.String, eager=True),
        "sender": somebody(),
        "recipient": somebody(),
        "token_id": pl.repeat(None, count, dtype=pl.Binary, eager=True),
        "raw": pl.Series([bytes(23) + raws[9 * k : 9 * k + 9] for k in range(count)], dtype=pl.Binary),
        "layout": pl.repeat(None, count, dtype=pl.String, eager=True),
    }
    return pl.DataFrame(columns).select(TRANSFERS.names)


def _usual(lake: Lake, repeat: int) -> list[str]:
    """Return accounts with 20 to 60 received transfers."""
    sizes = lake.scan(TRANSFERS, chain=CHAIN).group_by("recipient").len().filter(pl.col("len").is_between(20, 60))
    return sizes.sort("recipient").head(repeat + 1).collect()["recipient"].to_list()


def _compared(lake: Lake, rows: int, repeat: int) -> list[Figure]:
    histories, scans, counts = list[float](), list[float](), list[int]()
    for account in _usual(lake, repeat):
        spent_s, history = _timed(lake, account, _history)
        scan_s, scanned = _timed(lake, account, _scan)
        legs = len(scanned) + len(scanned.filter(pl.col("sender") == pl.col("recipient")))
        assert len(history) == legs, f"{len(history)} rows of history, {legs} by the scan"
        histories.append(spent_s)
        scans.append(scan_s)
        counts.append(len(history))
    ratios = [a / b for a, b in zip(histories[1:], scans[1:], strict=True)]
    middle = statistics.median(ratios)
    times = f"{statistics.median(histories[1:]) * 1000:.1f} ms / {statistics.median(scans[1:]) * 1000:.0f} ms"
    return [
        Figure(
            "lookup",
            f"history of an account in {rows / 1e6:.0f} M rows / full scan of transfers",
            f"1/{1 / middle:.0f} [1/{1 / min(ratios):.0f}–1/{1 / max(ratios):.0f}] (n={len(ratios)}), {times}",
            "≤ 1/50",
            middle <= BAR,
            {"histories_s": histories, "scans_s": scans, "rows": counts},
        )
    ]


def _history(lake: Lake, account: str) -> pl.LazyFrame:
    return lake.of_accounts(ACCOUNT_TRANSFERS, CHAIN, [account]).select(ACCOUNT_TRANSFERS.names)


def _scan(lake: Lake, account: str) -> pl.LazyFrame:
    is_own = (pl.col("sender") == account) | (pl.col("recipient") == account)
    return lake.scan(TRANSFERS, chain=CHAIN).select(TRANSFERS.names).filter(is_own)


def _timed(lake: Lake, account: str, ask: Callable[[Lake, str], pl.LazyFrame]) -> tuple[float, pl.DataFrame]:
    start_s = time.perf_counter()
    rows = ask(lake, account).collect()
    return time.perf_counter() - start_s, rows


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark to a parser."""
    parser.add_argument("--rows", type=int, default=10_000_000, help="of account_transfers")
    parser.add_argument("--repeat", type=int, default=15, help="accounts looked up")


if __name__ == "__main__":
    main(__doc__, run, add)
