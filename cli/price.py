"""`chainfolio price ASSET`: what an asset was worth at a block or a moment, and why."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from chainfolio.cli.common import Commands, add_rpc, show_json, utc_time, with_system
from chainfolio.cli.groups import GROUPS
from chainfolio.engine.named_accounts import check_chains
from chainfolio.engine.prices.reasons import explain_price, tree
from chainfolio.engine.wiring import snapshotter_of

if TYPE_CHECKING:
    from chainfolio.indexer.wiring import System


def add(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Register the command."""
    command = commands.add_parser("price", parents=[common], help=GROUPS["price"], description=__doc__)
    command.add_argument("asset", help="CAIP-19 name, chain:address, chain:SYMBOL, or a symbol of the token lists")
    command.add_argument("--at", metavar="BLOCK|TIME", help="a height, a day or a moment (UTC); default: now")
    add_rpc(command)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the price of an asset at a block, or "no price"; the exit code is 0 for both.

    With --explain, or without a price, the answer of each source is printed too.
    """

    async def read(system: System) -> dict[str, Any]:
        check_chains(system)
        at = int(options.at) if options.at and options.at.isascii() and options.at.isdigit() else options.at
        readers = partial(snapshotter_of, system)
        return tree(await explain_price(system, readers, options.asset, at, ask=options.explain))

    report = with_system(options, read)
    if options.json:
        show_json(report)
        return 0
    block, price = report["block"], report["price"]
    print(f"{report['asset']} at block {block['height']:,} of {report['chain']} ({utc_time(block['timeUs'])})")
    is_stored = ", kept" if report["kept"] else ""
    print("no price" if price is None else f"{price['usd']} USD, {_source_text(price)}{is_stored}")
    if report["disagreement"]:
        print(report["disagreement"])
    for line in _lines(report["sources"], "") if options.explain or price is None else ():
        print(line)
    return 0


def _source_text(price: dict[str, Any]) -> str:
    text = f"{price['source']} of {utc_time(price['observedUs'])}, confidence {price['confidence']}"
    depth = f", its market could pay {price['depthUsd']} USD" if price["depthUsd"] else ""
    return f"{text}{depth}{': ' + price['detail'] if price['detail'] else ''}"


def _lines(steps: Sequence[dict[str, Any]], indent: str) -> Iterator[str]:
    """Yield the sources as lines of a tree, with the assets of relative prices and their sources below."""
    for at, step in enumerate(steps):
        last = at == len(steps) - 1
        yield f"{indent}{'└─' if last else '├─'} {_line(step)}"
        below = indent + ("   " if last else "│  ")
        parts = step.get("parts", ())
        for count, part in enumerate(parts):
            end = count == len(parts) - 1
            yield f"{below}{'└─' if end else '├─'} {part['amount']} × {part['asset']}"
            yield from _lines(part["sources"], below + ("   " if end else "│  "))


def _line(step: dict[str, Any]) -> str:
    """Return the line of one source's outcome: price, chosen, relative, refused or not known."""
    outcome = step["outcome"]
    if outcome == "refused":
        return f"{step['source']} refused: {step['reason']}"
    if outcome == "price":
        return f"{step['source']}: {step['usd']} USD, {_source_text(step)}"
    if outcome == "chosen":
        return f"chosen: {step['usd']} USD of {step['source']}"
    return f"{step['source']}: {step['detail']}" if outcome == "relative" else f"{step['source']} {outcome}"
