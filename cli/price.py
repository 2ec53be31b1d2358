"""`chainfolio price ASSET`: what an asset was worth at a block or a moment, and why."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from cli.common import Commands, add_rpc, check_chains, moment, show_json, with_system

if TYPE_CHECKING:
    from indexer.wiring import System


def add(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Register the command."""
    command = commands.add_parser("price", parents=[common], help="what an asset was worth", description=__doc__)
    command.add_argument("asset", help="CAIP-19 name, chain:address, chain:SYMBOL, or a symbol of the token lists")
    command.add_argument("--at", metavar="BLOCK|TIME", help="a height, a day or a moment (UTC); default: now")
    add_rpc(command)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the command."""

    async def read(system: System) -> dict[str, Any]:
        from engine.price_reasons import reasons, tree

        check_chains(system)
        at = int(options.at) if options.at and options.at.isascii() and options.at.isdigit() else options.at
        return tree(await reasons(system, options.asset, at, ask=options.explain))

    found = with_system(options, read)
    if options.json:
        show_json(found)
        return 0
    block, price = found["block"], found["price"]
    print(f"{found['asset']} at block {block['height']:,} of {found['chain']} ({moment(block['timeUs'])})")
    print("no price" if price is None else f"{price['usd']} USD, {_whence(price)}{', kept' if found['kept'] else ''}")
    if found["disagreement"]:
        print(found["disagreement"])
    for line in _lines(found["sources"], "") if options.explain or price is None else ():
        print(line)
    return 0


def _whence(price: dict[str, Any]) -> str:
    said = f"{price['source']} of {moment(price['observedUs'])}, confidence {price['confidence']}"
    depth = f", its market could pay {price['depthUsd']} USD" if price["depthUsd"] else ""
    return f"{said}{depth}{': ' + price['detail'] if price['detail'] else ''}"


def _lines(steps: Sequence[dict[str, Any]], indent: str) -> Iterator[str]:
    """The tree as lines."""
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
    outcome = step["outcome"]
    if outcome == "refused":
        return f"{step['source']} refused: {step['reason']}"
    if outcome == "price":
        return f"{step['source']}: {step['usd']} USD, {_whence(step)}"
    if outcome == "chosen":
        return f"chosen: {step['usd']} USD of {step['source']}"
    return f"{step['source']}: {step['detail']}" if outcome == "relative" else f"{step['source']} {outcome}"
