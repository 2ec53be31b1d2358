"""`chainfolio history ADDRESS…`: what addresses were worth day by day, as a table, a chart or a file.

Each day is read at the last block before 00:00 UTC of it, and kept: what was read once is never asked again, and a run
that is stopped goes on where it ended.
"""

from __future__ import annotations

import argparse
import csv
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from chainfolio.cli.common import (
    Commands,
    add_csv,
    add_rpc,
    count_text,
    money,
    show_csv,
    show_json,
    with_system,
)
from chainfolio.cli.groups import GROUPS
from chainfolio.cli.names import accounts_of
from chainfolio.cli.plot import check, write
from chainfolio.cli.progress_bar import duration_text, watch
from chainfolio.cli.table import Column, Group, print_wrapped, show_groups
from chainfolio.engine.history.day_values import COLUMNS as SHEET
from chainfolio.engine.history.day_values import frame, total
from chainfolio.engine.named_accounts import chains_with_past
from chainfolio.engine.requests.days import days_between, read_day_values, today
from chainfolio.engine.service import Engine
from chainfolio.errors import BadRequest
from chainfolio.portfolio.chart import chart, gaps

if TYPE_CHECKING:
    from chainfolio.assets import Account
    from chainfolio.chains import Chain
    from chainfolio.engine.history.day_values import DayValue
    from chainfolio.environment import Clock
    from chainfolio.indexer.wiring import System

USUAL_DAYS: Final = 30
INTERVALS: Final = ("day", "week", "month")
FILES: Final = (".png", ".svg", ".csv", ".parquet")
COLUMNS: Final = (Column("day"), Column("address"), Column("worth USD", "number"), Column("remark"))
AGAIN: Final = "--again reads the partial ones anew"


def add(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Register the command."""
    command = commands.add_parser("history", parents=[common], help=GROUPS["history"], description=__doc__)
    command.add_argument("address", nargs="+", help="addresses of any kind, or names")
    command.add_argument("--from", dest="first", metavar="DAY", help=f"YYYY-MM-DD (default {USUAL_DAYS} days before)")
    command.add_argument("--to", dest="last", metavar="DAY", help="YYYY-MM-DD, included (default today)")
    command.add_argument("--interval", choices=INTERVALS, default="day", help="a value each day, week or month")
    command.add_argument("--chain", action="append", default=[], metavar="KEY", help="only this chain; repeatable")
    command.add_argument("--plot", action="store_true", help="draw a chart of all addresses together")
    command.add_argument("--again", action="store_true", help="read the days anew of which a read failed")
    command.add_argument(
        "-o",
        "--output",
        action="append",
        default=[],
        metavar="FILE",
        help=f"write FILE, as its ending says: {', '.join(FILES)}; repeatable",
    )
    add_csv(command)
    add_rpc(command, keeps=True)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the value of each account and day as a table, --plot, --json or --csv.

    Each --output file is written. The exit code is 0 even if values are unknown.

    Raises:
        BadRequest: The ending of a file, a day or the number of values is wrong.
        MissingDependency: The library that draws charts is not installed.
    """
    _check_files(options.output)
    values, days = with_system(options, lambda system: _read(system, options))
    for name in options.output:
        _write(Path(name), values)
    if options.json:
        show_json(_document(values))
    elif options.csv:
        show_csv(SHEET, (each.row for each in values))
    else:
        _show(values, days, options)
    return 0


def _check_files(names: Sequence[str]) -> None:
    """Raise BadRequest for a file ending not in `FILES`, MissingDependency if a picture cannot be drawn."""
    for name in names:
        if Path(name).suffix not in FILES:
            raise BadRequest("output", f"{name} ends with none of {', '.join(FILES)}")
    if any(Path(name).suffix in (".png", ".svg") for name in names):
        check()


async def _read(system: System, options: argparse.Namespace) -> tuple[list[DayValue], list[date]]:
    """Return the values of the accounts, and the days that were asked for."""
    days = days_of(system, options)
    accounts = await accounts_of(system, options.address, options.chain)
    chains = chains_with_past(system, accounts, options.chain)
    return await read_values(system, accounts, chains, days, options), days


async def read_values(
    system: System,
    accounts: Sequence[Account],
    chains: Sequence[Chain],
    days: Sequence[date],
    options: argparse.Namespace,
) -> list[DayValue]:
    """Return the values of accounts on some days, and store those that are read."""
    progress = _Progress(system.environment.clock, chains, len(days) * len(accounts) * len(chains), quiet=options.json)
    return await read_day_values(Engine(system), accounts, chains, days, retry=options.again, progress=progress.add)


def days_of(system: System, options: argparse.Namespace) -> list[date]:
    """Return the days from --from to --to at the interval; raises the errors of `days_between`."""
    return days_between(options.first, options.last, options.interval, today(system.environment.clock))


@dataclass(slots=True)
class _Progress:
    """Progress of a run, with an estimate of the pending requests."""

    clock: Clock
    chains: Sequence[Chain]
    total: int
    quiet: bool
    done: int = 0
    _began_s: float = field(init=False)
    _show: Any = field(init=False)

    def __post_init__(self) -> None:
        self._began_s, self._show = self.clock.monotonic_s(), watch("history")

    def add(self, count: int) -> None:
        """Count some more values as read, and show the progress."""
        self.done += count
        if not self.quiet:
            seconds = self.clock.monotonic_s() - self._began_s
            self._show(self.done / self.total, seconds, lambda: self._text(seconds))

    def _text(self, seconds: float) -> str:
        """Return values read of all and requests, and what the rest needs at this pace."""
        requests, pending = sum(chain.requests for chain in self.chains), self.total - self.done
        text = f"{self.done:,} of {count_text(self.total, 'value')}, {count_text(requests, 'request')}"
        if not pending:
            return text
        remaining = duration_text(seconds * pending / self.done)
        return f"{text}, about {requests * pending // self.done:,} more, {remaining} left"


# --- how it is shown -------------------------------------------------------------------------------------------------


def _document(values: Sequence[DayValue]) -> list[dict[str, Any]]:
    """Return the values for --json: `address` and `days` of each account; unknown values are null.

    A day has `day`, `value`, `completeness`, `reason`, and `chains` with the part of each chain.
    """
    days_by_account: dict[str, list[dict[str, Any]]] = {}
    for each in values:
        day, _, value, completeness, reason, _ = each.row
        chains = [
            {
                "chain": part.chain,
                "block": part.block.height if part.block.hash else None,
                "hash": part.block.hash or None,
                "value": part.value,
                "completeness": part.completeness,
                "reason": part.reason or None,
                "digest": part.digest or None,
            }
            for part in each.parts
        ]
        days_by_account.setdefault(each.account, []).append(
            {"day": day, "value": value, "completeness": completeness, "reason": reason or None, "chains": chains}
        )
    return [{"address": account, "days": days} for account, days in days_by_account.items()]


def _show(values: Sequence[DayValue], days: Sequence[date], options: argparse.Namespace) -> None:
    """Print a chart with --plot, else a table unless --output is given; then written files and remarks."""
    if options.plot:
        _plot(values)
    elif not options.output:
        has_several_accounts = len({each.account for each in values}) > 1
        rows = [
            (
                str(each.day),
                each.account if has_several_accounts else "",
                "-" if each.value is None else money(str(each.value)),
                "" if each.completeness == "complete" else each.completeness,
            )
            for each in values
        ]
        title = count_text(len({each.account for each in values}), "wallet") if has_several_accounts else _title(values)
        show_groups(title, COLUMNS, [Group("", rows)])
    for name in options.output:
        print(f"{name}: {count_text(len(values), 'value')}")
    _remarks(values)


def _title(values: Sequence[DayValue]) -> str:
    return ", ".join(dict.fromkeys(each.account for each in values))


def _remarks(values: Sequence[DayValue]) -> None:
    """Print how many values lack something, and what, most frequent first, at most five reasons.

    At last, --again is named if it may help.
    """
    reasons: dict[tuple[str, str], int] = {}
    for each in values:
        if each.completeness != "complete" or each.reason:
            key = each.completeness, each.reason
            reasons[key] = reasons.get(key, 0) + 1
    sorted_reasons = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    for (completeness, reason), count in sorted_reasons[:5]:
        print_wrapped(f"{count_text(count, 'value')} {completeness}: {reason}", indent=2)
    if len(sorted_reasons) > 5:
        print(f"  and {len(sorted_reasons) - 5:,} other reasons: --csv has all of them")
    if any(part.retry and part.digest for each in values for part in each.parts):
        print(f"  {AGAIN}")


def _plot(values: Sequence[DayValue]) -> None:
    """Print the sum of all accounts by day as a chart of the terminal's size, and days without a value."""
    points = total(values)
    encoding = (sys.stdout.encoding or "ascii").lower().replace("-", "")
    width, height = shutil.get_terminal_size((80, 24))
    print(f"{_title(values)}: worth in USD")
    print("\n".join(chart(points, width - 1, min(height - 4, 24), braille=encoding.startswith("utf"))))
    for first, last in gaps(points):
        print(f"  not known: {first}" + (f" to {last}" if last != first else ""))


# --- files -----------------------------------------------------------------------------------------------------------


def _write(path: Path, values: Sequence[DayValue]) -> None:
    """Write the values to a file, over an existing one, by its ending.

    CSV and Parquet have a row per account and day, other endings a chart with a line per account.
    """
    if path.suffix == ".csv":
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(SHEET)
            writer.writerows(each.row for each in values)
    elif path.suffix == ".parquet":
        frame(values).write_parquet(path)
    else:
        by_account: dict[str, list[DayValue]] = {}
        for each in values:
            by_account.setdefault(each.account, []).append(each)
        write(path, {account: total(account_values) for account, account_values in by_account.items()})
