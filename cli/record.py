"""`chainfolio record ADDRESS`: what decoders read of an address at one block, to be replayed without a node."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from chainfolio.errors import BadRequest
from cli.common import Commands, check_chains, show_json, with_system
from cli.names import account_of

if TYPE_CHECKING:
    from chainfolio.recordings import DecoderKit, Recording
    from indexer.wiring import System


def add(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Register the command."""
    command = commands.add_parser("record", parents=[common], help="record what decoders read", description=__doc__)
    command.add_argument("address")
    command.add_argument("--chain", required=True)
    command.add_argument("--block", type=int, metavar="N", help="the block (default: the newest final one)")
    command.add_argument("--protocol", metavar="KEY", help="only this protocol: shares of others stay shares")
    command.add_argument(
        "--met", action="append", default=[], metavar="CONTRACT[/NUMBER]",
        help="what the address had to do with beside what is indexed; a token of a collection by its number",
    )  # fmt: skip
    command.add_argument("--to", required=True, metavar="FILE", help="where to write; a recording there is replaced")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    file = Path(options.to)
    recording = with_system(options, partial(recorded, options=options, file=file))
    result, calls = recording.found, len(recording.calls)
    if options.json:
        shown = {"file": str(file), "block": recording.block, "calls": calls, "found": result}
        show_json(shown)
        return 0
    print(f"{file}: block {recording.block.height}, {calls} calls, {len(result.positions)} positions")
    for position in result.positions:
        print(f"  {position.protocol}: {position.kind} {position.name or position.pool}")
    for issue in result.issues:
        print(f"  not known: {issue.protocol}: {issue.subject}: {issue.reason}")
    return 0


async def recorded(system: System, options: argparse.Namespace, file: Path) -> Recording:
    """The recording, at the block asked for or the newest final one, once it is written."""
    import asyncio

    from chainfolio.addresses import rules_of
    from chainfolio.chain_settings import DEFAULT_KIND
    from chainfolio.kinds import decoder_kit
    from chainfolio.protocols import InstalledProtocols
    from engine import account_index

    kit = decoder_kit(system.chain_kinds.get(options.chain, DEFAULT_KIND))
    _check_replaced(kit, file)
    check_chains(system)
    chain, owner = system.chain(options.chain), await account_of(system, options.address, options.chain)
    account, named = rules_of(chain.kind).address(owner.address), kit.interactions(chain.info, options.met)
    if options.block is not None and options.block < 0:
        raise BadRequest("block", "a block height is at least 0")
    rows = system.installed(chain).rows
    if options.protocol is not None:
        rows = tuple(row for row in rows if row.protocol == options.protocol)
        if not rows:
            raise BadRequest(
                "protocol", f"nothing here reads `{options.protocol}` on {chain.key}",
                remedy="its file names a family that is installed (chainfolio doctor) and contracts on that chain",
            )  # fmt: skip
    height = (await chain.heads()).finalized if options.block is None else options.block
    block = await chain.block(height)
    events = chain.account_reader(InstalledProtocols(rows)).events
    unindexed = account_index.unindexed(system.tail, chain.key, height, events, [account])
    met = await asyncio.to_thread(
        account_index.interactions_of, system.lake, system.tail, chain.key, [account], height, chain.info, unindexed
    )
    recording = await kit.record(chain, block, account, met[account] | named, rows)
    kit.save(file, recording)
    return recording


def _check_replaced(kit: DecoderKit, file: Path) -> None:
    """BadRequest where something else than a recording lies in the file's place: it stays."""
    if file.exists():
        kit.read(file)
