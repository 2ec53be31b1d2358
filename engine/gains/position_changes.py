"""Read the changes of positions that are collectibles from the logs of transactions.

The index has what an account moved, and not the events of position managers. So the logs of a few transactions are read
from a node, once: those of final blocks are stored.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from chainfolio.capabilities import Capability, EventLogReader, find_capability
from chainfolio.engine.gains.stored_changes import StoredChanges, decoded_logs
from chainfolio.position_changes import CallChange, EventLog, PositionChange

if TYPE_CHECKING:
    from chainfolio.indexer.parts import DecodedChains
    from chainfolio.portfolio.pnl.transaction_records import TransactionRecord

STORED: Final = "/positions/3"  # after the hash, in the store of looked-up transactions
Changes = dict[tuple[str, str], tuple[PositionChange | CallChange, ...] | None]

log = logging.getLogger(__name__)


async def position_changes(system: DecodedChains, records: Sequence[TransactionRecord]) -> Changes:
    """Return changes of positions by chain and transaction; empty for chains without readable logs.

    Transactions that cannot have changed a position are absent. The value is None if a protocol could not decode the
    logs. Logs are read from the node once; results of final blocks are stored.

    Raises:
        SourceError: The node of a chain does not give the logs of a transaction.
    """
    changes: Changes = {}
    for key in sorted({record.chain for record in records}):
        reader = find_capability(system.chain(key), Capability.EVENT_LOGS)
        if reader is not None:
            changes |= await _of_chain(system, key, reader, [record for record in records if record.chain == key])
    return changes


async def _of_chain(
    system: DecodedChains, chain: str, reader: EventLogReader, records: Sequence[TransactionRecord]
) -> Changes:
    """Return the changes of positions by chain and hash; logs of other transactions are not read.

    First those of transactions that created positions, then of those that used the contracts or pools of such positions
    or of received collectibles.
    """
    created = [record for record in records if _creates_position(record)]
    changes = await _read(system, chain, reader, created)
    decoded = [change for each in changes.values() for change in each or () if isinstance(change, PositionChange)]
    used = {contract for change in decoded for contract in (change.contract, change.pool)}
    for record in records:
        used |= {row.contract for row in record.assets_in if row.is_collectible and record.type != "SPAM"}
    others = [record for record in records if used and (chain, record.hash) not in changes and _uses(record, used)]
    return changes | await _read(system, chain, reader, others)


def _creates_position(record: TransactionRecord) -> bool:
    """Return True if a collectible came and something else left; False for spam."""
    is_new = any(row.is_collectible for row in record.assets_in)
    return is_new and any(not row.is_collectible for row in record.assets_out) and record.type != "SPAM"


def _uses(record: TransactionRecord, contracts: set[str]) -> bool:
    """Return True if a transaction may have changed a position.

    A call of a wallet contract or a farm without movements may have removed liquidity that is collected later.
    """
    rows = (*record.assets_in, *record.assets_out)
    if not rows and record.type in ("INTERACTION", "UNDEFINED", "REMOVELIQUIDITY"):
        return True
    return record.type != "FAILED" and not contracts.isdisjoint(
        {record.recipient, *(row.sender for row in rows), *(row.recipient for row in rows)}
    )


async def _read(
    system: DecodedChains, chain: str, reader: EventLogReader, records: Sequence[TransactionRecord]
) -> Changes:
    """Return the changes of some transactions, from the store or from the node."""
    read = partial(decoded_logs, reader, partial(_changes, system))
    logs = StoredChanges(system.tail, chain, STORED, read, PositionChange)
    return {(chain, tx_hash): each for tx_hash, each in (await logs.read(records)).items()}


def _changes(system: DecodedChains, tx_hash: str, logs: Sequence[EventLog]) -> tuple[PositionChange, ...] | None:
    """Return the changes that the families read from a transaction's logs.

    None if one fails, which is logged.
    """
    changes: list[PositionChange] = []
    for name, family in system.families.items():
        try:
            for change in family.changes(logs) if family.changes is not None else ():
                changes.append(msgspec.convert(change, PositionChange, from_attributes=True))
        except Exception:  # third-party code: any error is its fault, and does not affect other transactions
            log.warning("protocol %s could not read the changes of positions in %s", name, tx_hash, exc_info=True)
            return None
    return tuple(changes)
