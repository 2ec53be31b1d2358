"""`chainfolio history ADDRESS…`: what addresses were worth day by day, as a table, a chart or a file.

Each day is read at the last block before 00:00 UTC of it, and kept: what was read once is never asked again, and a run
that is stopped goes on where it ended.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from chainfolio.errors import BadRequest
from cli.common import Commands, add_csv, add_rpc, counted, money, parse_day, show_csv, show_json, with_system
from cli.names import accounts_of, chains_with_past
from cli.progress_bar import clock, watch
from cli.table import Column, Group, say, show_groups

if TYPE_CHECKING:
    from chainfolio.assets import Account
    from chainfolio.chains import Chain
    from chainfolio.seams import Clock
    from engine.day_values import DayValue
    from indexer.wiring import System

MAX_VALUES: Final = 20_000  # days of addresses
USUAL_DAYS: Final = 30
INTERVALS: Final = ("day", "week", "month")
FILES: Final = (".png", ".svg", ".csv", ".parquet")
SHEET: Final = ("day", "address", "value", "completeness", "reason", "blocks")
COLUMNS: Final = (Column("day"), Column("address"), Column("worth USD", "number"), Column("remark"))
AGAIN: Final = "--again reads the partial ones anew"


def add(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Register the command."""
    command = commands.add_parser(
        "history", parents=[common], help="what addresses were worth day by day", description=__doc__
    )
    command.add_argument("address", nargs="+", help="addresses of any kind, or names")
    command.add_argument("--from", dest="first", metavar="DAY", help=f"YYYY-MM-DD (default {USUAL_DAYS} days before)")
    command.add_argument("--to", dest="last", metavar="DAY", help="YYYY-MM-DD, included (default today)")
    command.add_argument("--interval", choices=INTERVALS, default="day", help="a value each day, week or month")
    command.add_argument("--chain", action="append", default=[], metavar="KEY", help="only this chain; repeatable")
    command.add_argument("--plot", action="store_true", help="draw a chart of all addresses together")
    command.add_argument("--again", action="store_true", help="read the days anew of which a read failed")
    command.add_argument(
        "-o", "--output", action="append", default=[], metavar="FILE",
        help=f"write FILE, as its ending says: {', '.join(FILES)}; repeatable",
    )  # fmt: skip
    add_csv(command)
    add_rpc(command, keeps=True)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    _check_files(options.output)
    values, days = with_system(options, lambda system: _read(system, options))
    for name in options.output:
        _write(Path(name), values)
    if options.json:
        show_json(_document(values))
    elif options.csv:
        show_csv(SHEET, map(_row, values))
    else:
        _show(values, days, options)
    return 0


def _check_files(names: Sequence[str]) -> None:
    """Before anything is read: whether files of these kinds can be written."""
    for name in names:
        if Path(name).suffix not in FILES:
            raise BadRequest("output", f"{name} ends with none of {', '.join(FILES)}")
    if any(Path(name).suffix in (".png", ".svg") for name in names):
        from cli.plot import check

        check()


async def _read(system: System, options: argparse.Namespace) -> tuple[list[DayValue], list[date]]:
    days = days_of(options, datetime.fromtimestamp(system.seams.clock.now_us() // 1_000_000, UTC).date())
    accounts = await accounts_of(system, options.address, options.chain)
    chains = chains_with_past(system, accounts, options.chain)
    return await read_values(system, accounts, chains, days, options), days


async def read_values(
    system: System, accounts: Sequence[Account], chains: Sequence[Chain], days: Sequence[date],
    options: argparse.Namespace,
) -> list[DayValue]:  # fmt: skip
    """What accounts were worth on some days; what was not kept is by now."""
    from engine.day_values import day_values

    if len(days) * len(accounts) > MAX_VALUES:
        asked = f"{len(days) * len(accounts):,} values are more than {MAX_VALUES:,}"
        raise BadRequest("from", asked, remedy="--interval week or month, or fewer addresses at a time")
    progress = _Progress(system.seams.clock, chains, len(days) * len(accounts) * len(chains), quiet=options.json)
    found = await asyncio.gather(*(_chain(system, chain, accounts, days, options, progress) for chain in chains))
    wallets = [each.address for each in accounts]
    return day_values(wallets, days, (each for some in found for each in some))


async def _chain(
    system: System, chain: Chain, accounts: Sequence[Account], days: Sequence[date], options: argparse.Namespace,
    progress: _Progress,
) -> list[Any]:  # fmt: skip
    from engine.history import addresses_of
    from engine.service import Engine

    wallets, found = addresses_of(chain, accounts), []
    async for some in Engine(system).history.read(chain, dict.fromkeys(days, wallets), again=options.again):
        found += some
        progress.add(len(some))
    return found


def days_of(options: argparse.Namespace, today: date) -> list[date]:
    """The days asked for; BadRequest for what is no day, for one in the future, and for none at all."""
    from engine.days import days_from

    last = today if options.last is None else parse_day("to", options.last)
    first = last - timedelta(days=USUAL_DAYS) if options.first is None else parse_day("from", options.first)
    for name, day in (("from", first), ("to", last)):
        if day > today:
            raise BadRequest(name, f"{day} is in the future: today is {today} (UTC)")
    if first > last:
        raise BadRequest("from", f"{first} is after {last}")
    return days_from(first, last, options.interval)


@dataclass(slots=True)
class _Progress:
    """How far a run is, with what is probably left to ask."""

    clock: Clock
    chains: Sequence[Chain]
    total: int
    quiet: bool
    done: int = 0
    _began_s: float = field(init=False)
    _shown: Any = field(init=False)

    def __post_init__(self) -> None:
        self._began_s, self._shown = self.clock.monotonic_s(), watch("history")

    def add(self, count: int) -> None:
        """So many more values are known."""
        self.done += count
        if not self.quiet:
            seconds = self.clock.monotonic_s() - self._began_s
            self._shown(self.done / self.total, seconds, lambda: self._said(seconds))

    def _said(self, seconds: float) -> str:
        requests, left = sum(chain.requests for chain in self.chains), self.total - self.done
        said = f"{self.done:,} of {counted(self.total, 'value')}, {counted(requests, 'request')}"
        if not left:
            return said
        return f"{said}, about {requests * left // self.done:,} more, {clock(seconds * left / self.done)} left"


# --- how it is shown -------------------------------------------------------------------------------------------------


def _row(each: DayValue) -> list[object]:
    from chainfolio import amounts

    blocks = " ".join(f"{part.chain}:{part.block.height}" for part in each.parts if part.block.hash)
    value = None if each.value is None else amounts.text(each.value)
    return [str(each.day), each.account, value, each.completeness, each.reason, blocks]


def _document(values: Sequence[DayValue]) -> list[dict[str, Any]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for each in values:
        day, _, value, completeness, reason, _ = _row(each)
        chains = [
            {"chain": part.chain, "block": part.block.height if part.block.hash else None,
             "hash": part.block.hash or None, "value": part.value, "completeness": part.completeness,
             "reason": part.reason or None, "digest": part.digest or None}
            for part in each.parts
        ]  # fmt: skip
        found.setdefault(each.account, []).append(
            {"day": day, "value": value, "completeness": completeness, "reason": reason or None, "chains": chains}
        )
    return [{"address": account, "days": days} for account, days in found.items()]


def _show(values: Sequence[DayValue], days: Sequence[date], options: argparse.Namespace) -> None:
    if options.plot:
        _plot(values)
    elif not options.output:
        several = len({each.account for each in values}) > 1
        rows = [
            (str(each.day), each.account if several else "", "-" if each.value is None else money(str(each.value)),
             "" if each.completeness == "complete" else each.completeness)
            for each in values
        ]  # fmt: skip
        title = counted(len({each.account for each in values}), "wallet") if several else _whose(values)
        show_groups(title, COLUMNS, [Group("", rows)])
    for name in options.output:
        print(f"{name}: {counted(len(values), 'value')}")
    _remarks(values)


def _whose(values: Sequence[DayValue]) -> str:
    return ", ".join(dict.fromkeys(each.account for each in values))


def _remarks(values: Sequence[DayValue]) -> None:
    """How many values are not complete, and why."""
    reasons: dict[tuple[str, str], int] = {}
    for each in values:
        if each.completeness != "complete":
            key = each.completeness, each.reason
            reasons[key] = reasons.get(key, 0) + 1
    shown = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    for (completeness, reason), count in shown[:5]:
        say(f"{counted(count, 'value')} {completeness}: {reason}", indent=2)
    if len(shown) > 5:
        print(f"  and {len(shown) - 5:,} other reasons: --csv has all of them")
    if any(part.retry and part.digest for each in values for part in each.parts):
        print(f"  {AGAIN}")


def _plot(values: Sequence[DayValue]) -> None:
    import shutil
    import sys

    from engine.day_values import total
    from portfolio.chart import chart, gaps

    points = total(values)
    encoding = (sys.stdout.encoding or "ascii").lower().replace("-", "")
    width, height = shutil.get_terminal_size((80, 24))
    print(f"{_whose(values)}: worth in USD")
    print("\n".join(chart(points, width - 1, min(height - 4, 24), braille=encoding.startswith("utf"))))
    for first, last in gaps(points):
        print(f"  not known: {first}" + (f" to {last}" if last != first else ""))


# --- files -----------------------------------------------------------------------------------------------------------


def _write(path: Path, values: Sequence[DayValue]) -> None:
    if path.suffix == ".csv":
        import csv

        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(SHEET)
            writer.writerows(_row(each) for each in values)
    elif path.suffix == ".parquet":
        _frame(values).write_parquet(path)
    else:
        from cli.plot import write
        from engine.day_values import total

        by_account: dict[str, list[DayValue]] = {}
        for each in values:
            by_account.setdefault(each.account, []).append(each)
        write(path, {account: total(some) for account, some in by_account.items()})


def _frame(values: Sequence[DayValue]) -> Any:
    """The values as a table: `value` is the exact text, `value_usd` the same rounded to 12 places, for computing."""
    from fractions import Fraction

    import polars as pl

    from portfolio.document import rounded

    texts = dict.fromkeys(SHEET[1:], pl.String)
    frame = pl.DataFrame([_row(each) for each in values], {"day": pl.String, **texts}, orient="row")
    usd = [None if each.value is None else rounded(Fraction(each.value), 12) for each in values]
    return frame.with_columns(pl.col("day").str.to_date(), pl.Series("value_usd", usd, dtype=pl.Decimal(38, 12)))
