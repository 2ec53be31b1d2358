"""Measure the exact value of a million holdings by account: in columns, by DuckDB, by pandas.

python -m bench.valuation [--holdings 1000000] [--accounts 20000] [--assets 5000] [--repeat 5]

All three begin with the same rows (account, asset, raw of 32 bytes, as in the lake) in memory, each in its format,
and with the same prices. They end with the exact value of each account, and the digests of these have to be equal.
Most raws are like those of real tokens, every hundredth is any number of 256 bits. A tenth of the assets has no price.
The market of every third one limits the value of a holding of it.

- Ours: prices are decimals. Everything after that is counted.
- DuckDB cannot multiply integers of 256 bits. So the query cuts raws into limbs of 64 bits and multiplies them, as
  HUGEINT, with limbs of 32 bits that are made of the prices beforehand.
- pandas: merge, raws as integers of Python, product, bound, sum by account; the prices are integers made beforehand.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from bench.figures import Figure, main, options, spread
from bench.places import HERE, MissingPrerequisite, home, scratch
from chainfolio.amounts import EXACT
from chainfolio.assets import Asset
from chainfolio.blocks import Block
from chainfolio.contracts import Holding, Price, Snapshot, Token
from chainfolio.portfolio.columns import AssetQuote, values_by_account
from chainfolio.portfolio.valuation import valuate
from chainfolio.portfolio.worths import net_worth, net_worths

PLACES = 54  # of the unit in which peers have prices: 36 of a price and 18 decimals
LIMBS, BOUND_LIMBS, BITS = 6, 7, 32  # of a price and of a bound in it
PEERS = ("duckdb", "pandas")


def make(folder: Path, holdings: int, accounts: int, assets: int) -> None:
    """Write holdings and prices to files; equal arguments give equal files."""
    import polars as pl

    chance = random.Random(7)
    tokens = [f"0x{chance.getrandbits(160):040x}" for _ in range(assets)]
    decimals = [chance.choice((6, 8, 18, 18, 18)) for _ in tokens]
    usd = [None if chance.random() < 0.1 else str(_price(chance)) for _ in tokens]
    depth = [str(chance.randrange(10**4, 10**9)) if chance.random() < 0.3 else None for _ in tokens]
    rows: dict[str, list[Any]] = {"account": [], "asset": [], "raw": []}
    for _ in range(accounts):
        account = f"0x{chance.getrandbits(160):040x}"
        for at in chance.sample(range(assets), holdings // accounts):
            raw = chance.getrandbits(256) if chance.random() < 0.01 else _raw(chance, decimals[at])
            rows["account"].append(account)
            rows["asset"].append(tokens[at])
            rows["raw"].append(raw.to_bytes(32, "big"))
    pl.DataFrame(rows).write_parquet(folder / "holdings.parquet")
    prices = {"asset": tokens, "decimals": decimals, "usd": usd, "depth": depth}
    pl.DataFrame(prices).filter(pl.col("usd").is_not_null()).write_parquet(folder / "prices.parquet")


def _price(chance: random.Random) -> Decimal:
    """Return a random price with the digits of a feed, of a vendor, or of a pool."""
    digits, decimals = chance.choice(((12, 8), (12, 8), (24, 20), (38, 36)))
    return Decimal(f"{chance.randrange(1, 10**digits)}E-{decimals}")


def _raw(chance: random.Random, decimals: int) -> int:
    """Return a random raw amount, from a tenth of a coin to a million, as many of each size."""
    return chance.randrange(1, 10 ** (decimals + chance.randrange(7)))


Read = Callable[[Path], Callable[[], Mapping[str, Decimal]]]


def in_columns(folder: Path) -> Callable[[], Mapping[str, Decimal]]:
    """Return a function that computes values by the path of `chainfolio nav --from`, without its reads."""
    import polars as pl

    holdings, prices = pl.read_parquet(folder / "holdings.parquet"), pl.read_parquet(folder / "prices.parquet").rows()

    def values() -> Mapping[str, Decimal]:
        quotes = {asset: AssetQuote(decimals, Decimal(usd), _decimal(depth)) for asset, decimals, usd, depth in prices}
        totals: dict[str, Decimal] = values_by_account(holdings, quotes)
        return totals

    return values


def _decimal(text: str | None) -> Decimal | None:
    return None if text is None else Decimal(text)


def duckdb(folder: Path) -> Callable[[], Mapping[str, Decimal]]:
    """Return a function that computes the values by one query in DuckDB."""
    import duckdb
    import polars as pl

    connection = duckdb.connect()
    connection.execute(f"CREATE TABLE holdings AS SELECT * FROM '{folder / 'holdings.parquet'}'")
    rows = []
    for asset, decimals, usd, depth in pl.read_parquet(folder / "prices.parquet").iter_rows():
        price = int(EXACT.scaleb(Decimal(usd), PLACES - decimals))
        bound = None if depth is None else int(EXACT.scaleb(Decimal(depth), PLACES))
        max_raw = None if bound is None else (bound // price).to_bytes(32, "big")
        rows.append((asset, max_raw, *_limbs(price, LIMBS), *_limbs(bound or 0, BOUND_LIMBS)))
    names = ["asset", "most", *(f"price{at}" for at in range(LIMBS)), *(f"bound{at}" for at in range(BOUND_LIMBS))]
    limbs = pl.DataFrame(rows, dict.fromkeys(names, pl.UInt32) | {"asset": pl.String, "most": pl.Binary}, orient="row")
    connection.register("limbs", limbs)
    connection.execute("CREATE TABLE prices AS SELECT * FROM limbs")
    # The one of three ways to cut a blob that was fastest: as a bit string, and not by hex or as integers of 32 bits.
    cut = [f"raw[{25 - 8 * at}:{32 - 8 * at}]::BIT::UBIGINT::HUGEINT AS raw{at}" for at in range(4)]
    powers: dict[int, list[str]] = {}
    for raw in range(4):
        for price in range(LIMBS):
            powers.setdefault(2 * raw + price, []).append(f"raw{raw} * price{price}")
    sums = [
        f"sum(CASE WHEN capped THEN {f'bound{power}' if power < BOUND_LIMBS else 0} ELSE {' + '.join(parts)} END)"
        for power, parts in powers.items()
    ]
    query = (
        f"SELECT account, {', '.join(sums)} FROM (SELECT *, {', '.join(cut)}, coalesce(raw > most, false) AS capped "
        "FROM holdings JOIN prices USING (asset)) GROUP BY account"
    )

    def values() -> Mapping[str, Decimal]:
        totals = {}
        for account, *parts in connection.execute(query).fetchall():
            units = sum(part << (BITS * power) for power, part in zip(powers, parts, strict=True))
            totals[account] = EXACT.scaleb(Decimal(units), -PLACES)
        return totals

    return values


def _limbs(units: int, count: int) -> list[int]:
    assert units < 2 ** (BITS * count), f"{units} has more limbs"
    return [units >> (BITS * at) & (2**BITS - 1) for at in range(count)]


def measure_in_child(read: Read, folder: Path) -> dict[str, Any]:
    """Run one method twice in this process; return the figures of the second run.

    Keys: `wall_s`, `cpu_s`, `digest` (SHA-256 of the values by account), `accounts` (their number).
    """
    values = read(folder)
    values()
    before_s, began_s = time.process_time(), time.perf_counter()
    totals = values()
    wall_s, cpu_s = time.perf_counter() - began_s, time.process_time() - before_s
    lines = sorted(f"{account} {int(EXACT.scaleb(usd, PLACES))}" for account, usd in totals.items())
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    return {"wall_s": wall_s, "cpu_s": cpu_s, "digest": digest, "accounts": len(lines)}


def measured(name: str, folder: Path) -> dict[str, Any]:
    """Run one method in a separate process; MissingPrerequisite if pandas is not installed."""
    if name == "pandas":
        python = home() / "pandas" / "bin" / "python"
        if not python.exists():
            raise MissingPrerequisite("pandas is not installed: run bench/setup.sh pandas, or set PEERS_HOME")
        command = [str(python), str(HERE / "peers" / "pandas" / "run.py"), str(folder)]
    else:
        command = [sys.executable, "-m", "bench.valuation", "--child", name, "--folder", str(folder)]
    result: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return result


def rows_and_columns(folder: Path) -> dict[str, float]:
    """Return processor seconds for the values of a snapshot's accounts, row by row and in columns."""
    import polars as pl

    tokens, prices = {}, []
    for contract, decimals, usd, depth in pl.read_parquet(folder / "prices.parquet").iter_rows():
        tokens[contract] = Token(Asset("eip155:1", "erc20", contract), "T", "T", decimals)
        prices.append(Price(tokens[contract].asset, Decimal(usd), "bench", 0, Decimal(1), depth_usd=_decimal(depth)))
    holdings = [
        Holding(
            account,
            tokens.get(contract) or Token(Asset("eip155:1", "erc20", contract), "T", "T", None),
            int.from_bytes(raw, "big"),
        )
        for account, contract, raw in pl.read_parquet(folder / "holdings.parquet").iter_rows()
    ]
    accounts = tuple(dict.fromkeys(each.account for each in holdings))
    snapshots = [Snapshot("ethereum", Block(1, "0x1", "", 0), accounts, tuple(holdings), tuple(prices), ())]
    began_s = time.process_time()
    by_columns = net_worths(snapshots)
    between_s = time.process_time()
    by_rows = {account: net_worth(part) for account, part in valuate(snapshots).by_account().items()}
    ended_s = time.process_time()
    assert by_columns == by_rows, "both ways say the same"
    return {"columns": between_s - began_s, "rows": ended_s - between_s}


def run(options: argparse.Namespace) -> list[Figure]:
    """Measure, and return the figures."""
    with scratch() as folder:
        make(folder, options.holdings, options.accounts, options.assets)
        turns = [{name: measured(name, folder) for name in ("ours", *PEERS)} for _ in range(options.repeat)]
        snapshot = rows_and_columns(folder)
    digests = {each["digest"] for turn in turns for each in turn.values()}
    subject = f"{options.holdings:,} holdings of {options.accounts:,} accounts at {options.assets:,} prices, exact"
    figures = [
        Figure(
            "valuation",
            f"{subject}: wall / {peer}",
            f"{spread([turn['ours']['wall_s'] / turn[peer]['wall_s'] for turn in turns])}, CPU "
            f"{statistics.median(turn['ours']['cpu_s'] / turn[peer]['cpu_s'] for turn in turns):.2f}; ours "
            f"{_ms(turns, 'ours')}, {peer} {_ms(turns, peer)}",
            "< 1",
            all(turn["ours"]["wall_s"] < turn[peer]["wall_s"] for turn in turns),
            {"turns": turns},
        )
        for peer in PEERS
    ]
    is_same = len(digests) == 1
    return [
        *figures,
        Figure(
            "valuation",
            f"{subject}: all three say the same of {turns[0]['ours']['accounts']:,} accounts",
            "equal" if is_same else f"{len(digests)} answers",
            "equal",
            is_same,
        ),
        Figure(
            "valuation",
            "the same from a snapshot: CPU in columns / row by row",
            f"{snapshot['columns'] / snapshot['rows']:.2f} ({snapshot['columns']:.1f} s, {snapshot['rows']:.1f} s)",
            "< 1",
            snapshot["columns"] < snapshot["rows"],
            snapshot,
        ),
    ]


def _ms(turns: Sequence[Mapping[str, Any]], name: str) -> str:
    return f"{1000 * statistics.median(turn[name]['wall_s'] for turn in turns):,.0f} ms"


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark to a parser."""
    parser.add_argument("--holdings", type=int, default=1_000_000)
    parser.add_argument("--accounts", type=int, default=20_000)
    parser.add_argument("--assets", type=int, default=5_000)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--child", choices=("ours", "duckdb"), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)


if __name__ == "__main__":
    if "--child" in sys.argv:
        chosen = options(__doc__, add, sys.argv[1:])
        print(json.dumps(measure_in_child({"ours": in_columns, "duckdb": duckdb}[chosen.child], chosen.folder)))
    else:
        main(__doc__, run, add)
