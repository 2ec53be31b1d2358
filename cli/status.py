"""`chainfolio status`: indexed and missing blocks of each chain, its lag, and disk used."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chainfolio.blocks import Span, Spans
from chainfolio.capabilities import missing_capabilities
from chainfolio.chain_settings import EVERYTHING
from chainfolio.cli.common import Commands, add_csv, add_rpc, count_text, show_csv, show_json, show_table, with_system
from chainfolio.cli.groups import GROUPS
from chainfolio.engine.history.snapshot_store import SnapshotStore
from chainfolio.engine.named_accounts import check_chains
from chainfolio.engine.reconciliations import stored_results
from chainfolio.errors import ChainfolioError, StoreError
from chainfolio.indexer.disk_trend import disk_trend
from chainfolio.indexer.scopes import indexed_for
from chainfolio.indexer.work import filters

if TYPE_CHECKING:
    from chainfolio.chains import Chain
    from chainfolio.engine.reconciliations import Reconciliation
    from chainfolio.indexer.wiring import System
    from chainfolio.storage.watches import WatchedAccount

SHEET = ("chain", "head", "final", "newest", "behind", "dataset", "blocks", "missingBlocks", "missing", "problem")
SHOWN = 3  # missing ranges that are named for people


def add(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Register the command."""
    command = commands.add_parser("status", parents=[common], help=GROUPS["status"], description=__doc__)
    add_csv(command)
    add_rpc(command)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the state of each chain; the exit code is 3 if the node of a chain cannot be read, else 0."""
    report = with_system(options, examine)
    if options.json:
        show_json(report)
    elif options.csv:
        show_csv(SHEET, _sheet(report))
    else:
        _show(report)
    return 3 if any(chain["problem"] for chain in report["chains"]) else 0


async def examine(system: System) -> dict[str, Any]:
    """Return the report for --json: every chain with its datasets, and the bytes of the local stores.

    A chain whose node does not answer has a `problem`.
    """
    check_chains(system)
    chains = [await _chain(system, system.chain(key)) for key in sorted(system.settings.chains)]
    folders = {"lake": Path(system.lake.uri), "data": system.settings.data_dir}
    sizes = {name: _bytes(folder) for name, folder in folders.items() if name == "data" or system.lake.is_local}
    return {"chains": chains, "disk": {**sizes, **_growth(system)}}


def _growth(system: System) -> dict[str, Any]:
    """Return the growth of the lake; no files, None and a `warning` if a table cannot be read.

    Keys are `files` (counts by table), `bytesPerDay`, `freeBytes`, `daysLeft` and `warning`.
    """
    try:
        trend = disk_trend(system.lake, system.chains)
    except StoreError as error:
        warning = f"the growth is unknown: {error.message}"
        return {"files": {}, "bytesPerDay": None, "freeBytes": None, "daysLeft": None, "warning": warning}
    return {
        "files": trend.file_counts,
        "bytesPerDay": trend.day_bytes,
        "freeBytes": trend.free_bytes,
        "daysLeft": trend.days_left,
        "warning": trend.warning,
    }


async def _chain(system: System, chain: Chain) -> dict[str, Any]:
    """Return the state of one chain for --json; errors of its node are its `problem`, and are not raised.

    Ranges are missing up to the newest final block, or without a node up to the newest indexed one.
    """
    head = final = None
    problem = ""
    try:
        heads = await chain.heads()
        head, final = heads.latest.height, heads.finalized
    except ChainfolioError as error:
        problem = error.message
    top = system.tail.top(chain.key) or system.tail.anchor(chain.key)
    ranges = {name: _indexed_ranges(system, chain, name) for name in system.followed_datasets(chain)}
    indexed = {name: indexed_ranges for name, indexed_ranges in ranges.items() if indexed_ranges is not None}
    ends = [span.last for indexed_ranges in indexed.values() for span in indexed_ranges]
    end = max([*ends, chain.settings.start_block - 1]) if final is None else final
    begin = chain.settings.start_block
    # A chain that is indexed for accounts reads only the headers of new blocks, so none is missing.
    is_whole = chain.settings.index == EVERYTHING
    expected = Spans([Span(begin, end)] if is_whole and end >= begin else [])
    datasets = [_dataset(name, indexed_ranges, expected) for name, indexed_ranges in indexed.items()]
    accounts = [of_account(system, chain, each) for each in system.scope(chain).watches]
    return {
        "chain": chain.key,
        "head": head,
        "final": final,
        "newest": top.height if top else None,
        "kind": chain.kind,
        "capabilities": sorted(chain.capabilities),
        "lacks": missing_capabilities(chain),
        "behind": None if head is None or top is None else max(0, head - top.height),
        "problem": problem,
        "index": chain.settings.index,
        "datasets": datasets,
        "accounts": accounts,
        "hints": hints(chain.key, datasets, accounts, is_whole=is_whole),
        "places": _watch_places(system, chain),
        "reconciled": [_reconciled(each) for each in stored_results(system.tail, chain.key)],
        "snapshots": SnapshotStore(system.lake, system.tail).summary(chain.key),
    }


def hints(
    chain: str, datasets: Sequence[Mapping[str, Any]], accounts: Sequence[Mapping[str, Any]], *, is_whole: bool
) -> list[str]:
    """Return the commands to run next, each with its reason; empty if nothing is missing.

    They are for missing blocks, for missing data of accounts (SHOWN of them are named), and for a chain that is indexed
    for accounts and has none.

    Args:
        chain: the chain's key.
        datasets: rows as of `_dataset`, of the whole chain.
        accounts: rows as of `of_account`.
        is_whole: True if the settings have the whole chain indexed, False if only accounts.
    """
    result = []
    if is_whole and any(each["missingBlocks"] for each in datasets):
        result.append(f"to index what is missing: chainfolio index {chain}")
    if gaps := [each["account"] for each in accounts if any(of["missing"] for of in each["datasets"])]:
        names = " ".join(gaps[:SHOWN]) + (" …" if len(gaps) > SHOWN else "")
        result.append(f"to read what is missing of accounts: chainfolio watch {names} --chain {chain}")
    if not is_whole and not accounts:
        result.append(f"no account is watched: chainfolio watch ADDRESS --chain {chain}")
    return result


def _watch_places(system: System, chain: Chain) -> list[dict[str, Any]]:
    """Count the watched addresses that accounts of the API have: synced ones, and subscribed ones."""
    counts: dict[str, Counter[bool]] = {}
    for watch in system.tail.owned_watches(chain.key, system.environment.clock.now_us()):
        counts.setdefault(watch.owner, Counter())[watch.is_sold] += 1
    return [
        {"account": owner, "synced": count[False], "subscribed": count[True]} for owner, count in sorted(counts.items())
    ]


def _indexed_ranges(system: System, chain: Chain, dataset: str) -> Spans | None:
    """Return the indexed spans of a dataset; None if no filter of this chain selects it."""
    event_filters = filters(dataset, chain.settings.chosen, system.event_filters(chain, [dataset]))
    indexed = system.tail.indexed_ranges(chain.key, dataset)
    covers = [indexed | system.tail.indexed_ranges(chain.key, dataset, name) for name in event_filters]
    return reduce(Spans.__and__, covers) if covers else None


def _dataset(name: str, indexed_ranges: Spans, expected: Spans) -> dict[str, Any]:
    """Return a dataset for --json: its name (`dataset`), counts of blocks, and ranges as pairs of heights.

    The counts are `blocks` and `missingBlocks`, the ranges `indexed` and `missing`, both ends included.
    """
    missing = expected - indexed_ranges
    return {
        "dataset": name,
        "blocks": len(indexed_ranges),
        "missingBlocks": len(missing),
        "indexed": [[span.first, span.last] for span in indexed_ranges],
        "missing": [[span.first, span.last] for span in missing],
    }


def of_account(system: System, chain: Chain, watch: WatchedAccount) -> dict[str, Any]:
    """Return an account's indexed and missing ranges by dataset, and its unexplained changes.

    Keys are `account`, `datasets` (each with `dataset`, `ways` of reading it, `indexed` and `missing`) and
    `unexplained`. Missing is what `watch` asked for: up to its last block, or the newest followed one.
    """
    ways_by_dataset: dict[str, list[str]] = {}
    for dataset, source in system.tail.history_methods(chain.key, watch.account):
        ways_by_dataset.setdefault(dataset, []).append(source)
    indexed = {
        name: indexed_for(system.tail, chain.key, name, watch.account)
        for name, each in chain.datasets.items()
        if each.by_account
    }
    top = system.tail.top(chain.key) or system.tail.anchor(chain.key)
    end = top.height if watch.last is None and top is not None else watch.last or 0
    expected = Spans([Span(watch.first, end)] if watch.first <= end else [])
    return {
        "account": watch.account,
        "datasets": [
            {
                "dataset": name,
                "ways": ways_by_dataset.get(name, []),
                "indexed": [[s.first, s.last] for s in spans],
                "missing": [[s.first, s.last] for s in expected - spans],
            }
            for name, spans in indexed.items()
        ],
        "unexplained": [
            {"height": height, "asset": asset, "raw": str(raw), "reason": reason}
            for height, asset, raw, reason in system.tail.unexplained_changes(chain.key, watch.account)
        ],
    }


def _reconciled(reconciliation: Reconciliation) -> dict[str, Any]:
    """Return a stored reconciliation for --json: span, block hash, counts by status, and differences."""
    return {
        "account": reconciliation.address,
        "first": reconciliation.first_block,
        "last": reconciliation.last_block,
        "blockHash": reconciliation.block_hash,
        "counts": reconciliation.counts,
        "differences": reconciliation.differences,
    }


def show_accounts(accounts: Sequence[Mapping[str, Any]]) -> None:
    """Print a table of datasets for each watched account, and differences that are not explained."""
    for each in accounts:
        rows = [
            (of["dataset"], ", ".join(of["ways"]), _ranges(of["indexed"]), _ranges(of["missing"]))
            for of in each["datasets"]
        ]
        columns = [("dataset", ""), ("read by", ""), ("indexed", ""), ("missing", "")]
        show_table(f"  {each['account']}", columns, rows)
        for difference in each["unexplained"]:
            print(
                f"    not explained: block {difference['height']:,}: {difference['raw']} of {difference['asset']}:"
                f" {difference['reason']}"
            )


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _sheet(report: dict[str, Any]) -> list[list[Any]]:
    """Return the rows for --csv, in the columns of `SHEET` and without the header.

    There is one per dataset, and one for each chain without datasets.
    """
    return [
        [
            *(chain[name] for name in SHEET[:5]),
            each.get("dataset"),
            each.get("blocks"),
            each.get("missingBlocks"),
            " ".join(f"{first}-{last}" for first, last in each.get("missing", [])),
            chain["problem"],
        ]
        for chain in report["chains"]
        for each in chain["datasets"] or [{}]
    ]


def _show(report: dict[str, Any]) -> None:
    """Print each chain with datasets, accounts and snapshots, and the bytes on disk."""
    for chain in report["chains"]:
        newest_text = "nothing yet" if chain["newest"] is None else f"block {chain['newest']:,}"
        node = chain["problem"] or f"the node is at {chain['head']:,}, final is {chain['final']:,}"
        rows = [
            (each["dataset"], f"{each['blocks']:,}", f"{each['missingBlocks']:,}", _ranges(each["missing"]))
            for each in chain["datasets"]
        ]
        columns = [("dataset", ""), ("blocks", "right"), ("missing", "right"), ("missing blocks", "")]
        show_table(f"{chain['chain']}: followed to {newest_text}; {node}", columns, rows)
        show_accounts(chain["accounts"])
        for each in chain["places"]:
            print(f"  watched for {each['account']}: {each['synced']:,} synced, {each['subscribed']:,} subscribed")
        for each in chain["reconciled"]:
            counts = ", ".join(f"{count:,} {status}" for status, count in each["counts"].items() if count)
            print(f"  {each['account']} reconciled from block {each['first']:,} to {each['last']:,}: {counts}")
        if (days := chain["snapshots"])["accounts"]:
            counts = ", ".join(f"{days[kind]:,} {kind}" for kind in ("complete", "partial", "unreadable") if days[kind])
            accounts_text = count_text(days["accounts"], "account")
            print(f"  snapshots of {accounts_text} from {days['first']} to {days['last']}: {counts}")
        if chain["lacks"]:
            print(f"  it lacks: {', '.join(chain['lacks'])}")
        for hint in chain["hints"]:
            print(f"  {hint}")
    disk = report["disk"]
    sizes = [f"{name} {disk[name] / 1e6:,.1f} MB" for name in ("lake", "data") if name in disk]
    growth = ""
    if disk["bytesPerDay"] is not None:
        growth = f"; {sum(disk['files'].values()):,} files, {disk['bytesPerDay'] / 1e6:,.1f} MB a day"
    days = "" if disk["daysLeft"] is None else f", full in {disk['daysLeft']:,} days"
    print(f"disk: {', '.join(sizes)}{growth}{days}")
    if disk["warning"]:
        print(f"  {disk['warning']}")


def _ranges(spans: list[list[int]]) -> str:
    rest_text = f" and {len(spans) - SHOWN} more" if len(spans) > SHOWN else ""
    return ", ".join(f"{first}-{last}" for first, last in spans[:SHOWN]) + rest_text
