"""`chainfolio record ADDRESS`: record what decoders read at one block, for a replay without a node."""

from __future__ import annotations

import argparse
import asyncio
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from chainfolio.addresses import rules_of
from chainfolio.chain_settings import DEFAULT_KIND
from chainfolio.cli.common import Commands, show_json, with_system
from chainfolio.cli.groups import GROUPS
from chainfolio.cli.names import account_of
from chainfolio.engine.named_accounts import check_chains
from chainfolio.engine.rows import ChainIndex
from chainfolio.engine.snapshots import account_index
from chainfolio.errors import BadRequest
from chainfolio.kinds import decoder_kit
from chainfolio.protocols import InstalledProtocols

if TYPE_CHECKING:
    from chainfolio.indexer.wiring import System
    from chainfolio.recordings import DecoderKit, Recording


def add(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Register the command."""
    command = commands.add_parser("record", parents=[common], help=GROUPS["record"], description=__doc__)
    command.add_argument("address")
    command.add_argument("--chain", required=True)
    command.add_argument("--block", type=int, metavar="N", help="the block (default: the newest final one)")
    command.add_argument("--protocol", metavar="KEY", help="only this protocol: shares of others stay shares")
    command.add_argument(
        "--met",
        action="append",
        default=[],
        metavar="CONTRACT[/NUMBER]",
        help="what the address had to do with beside what is indexed; a token of a collection by its number",
    )
    command.add_argument("--to", required=True, metavar="FILE", help="where to write; a recording there is replaced")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Record the reads of a protocol's decoder into a file, and print its positions and issues; returns 0."""
    file = Path(options.to)
    recording = with_system(options, partial(recorded, options=options, file=file))
    result, calls = recording.found, len(recording.calls)
    if options.json:
        report = {"file": str(file), "block": recording.block, "calls": calls, "found": result}
        show_json(report)
        return 0
    print(f"{file}: block {recording.block.height}, {calls} calls, {len(result.positions)} positions")
    for position in result.positions:
        print(f"  {position.protocol}: {position.kind} {position.name or position.pool}")
    for issue in result.issues:
        print(f"  not known: {issue.protocol}: {issue.subject}: {issue.reason}")
    return 0


async def recorded(system: System, options: argparse.Namespace, file: Path) -> Recording:
    """Write a recording at the given block, or the newest final one, and return it.

    What the index has of the account is met as well as --met.

    Raises:
        BadRequest: An option is wrong, the file is no recording, or nothing reads the protocol.
        SourceError: A node does not answer.
    """
    kit = decoder_kit(system.chain_kinds.get(options.chain, DEFAULT_KIND))
    _check_replaced(kit, file)
    check_chains(system)
    chain, owner = system.chain(options.chain), await account_of(system, options.address, options.chain)
    account, interactions = rules_of(chain.kind).address(owner.address), kit.interactions(chain.info, options.met)
    if options.block is not None and options.block < 0:
        raise BadRequest("block", "a block height is at least 0")
    rows = system.installed_protocols(chain).rows
    if options.protocol is not None:
        rows = tuple(row for row in rows if row.protocol == options.protocol)
        if not rows:
            raise BadRequest(
                "protocol",
                f"nothing here reads `{options.protocol}` on {chain.key}",
                remedy="its file names a family that is installed (chainfolio doctor) and contracts on that chain",
            )
    height = (await chain.heads()).finalized if options.block is None else options.block
    block = await chain.block(height)
    events = chain.account_reader(InstalledProtocols(rows)).events
    unindexed = account_index.unindexed(system.tail, chain.key, height, events, [account])
    index = ChainIndex(system.lake, system.tail, chain.key)
    interacted = await asyncio.to_thread(account_index.interactions_of, index, [account], height, chain.info, unindexed)
    recording = await kit.record(chain, block, account, interacted[account] | interactions, rows)
    kit.save(file, recording)
    return recording


def _check_replaced(kit: DecoderKit, file: Path) -> None:
    """Raise BadRequest if the file exists and is no recording."""
    if file.exists():
        kit.read(file)
