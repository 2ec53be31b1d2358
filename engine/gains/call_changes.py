"""Read changes of positions by calls of programs; each transaction is read once."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from chainfolio.capabilities import Capability, find_capability
from chainfolio.engine.gains.stored_changes import StoredChanges
from chainfolio.engine.gains.vault_changes import parties
from chainfolio.position_changes import CallChange

if TYPE_CHECKING:
    from chainfolio.indexer.parts import DecodedChains
    from chainfolio.portfolio.pnl.transaction_records import TransactionRecord
    from chainfolio.protocols import InstalledProtocol

STORED: Final = "/calls/3/"  # after the hash, before a digest of the programs and of their instructions
CallChanges = dict[tuple[str, str], tuple[CallChange, ...] | None]


async def call_changes(system: DecodedChains, records: Sequence[TransactionRecord]) -> CallChanges:
    """Return changes of positions by chain and transaction; empty for chains without calls of programs.

    Failed transactions, spam and those that moved nothing are absent. The value is None if the node did not record all
    calls. Transactions are read from the node once; results of final blocks are stored.

    Raises:
        SourceError: The node of a chain does not give a transaction.
    """
    changes: CallChanges = {}
    for key in sorted({record.chain for record in records}):
        chain = system.chain(key)
        reader = find_capability(chain, Capability.PROGRAM_CALLS)
        if reader is None:
            continue
        protocols = [each for each in system.registry.rows(key, chain.kind, system.families) if each.contracts]
        named = sorted((each.family.name, str(sorted(each.contracts.items())), _rules(each)) for each in protocols)
        digest = hashlib.sha256(repr(named).encode()).hexdigest()[:8]
        read = partial(reader.call_changes, protocols=protocols)
        stored = StoredChanges(system.tail, key, f"{STORED}{digest}", read, CallChange)
        of_chain = [record for record in records if record.chain == key and _may_change(record)]
        changes |= {(key, tx_hash): each for tx_hash, each in (await _of_chain(stored, of_chain)).items()}
    return changes


def _rules(protocol: InstalledProtocol) -> str:
    """Return the meaning of the instructions of a protocol, as text: results of an older table are stale."""
    return repr(getattr(protocol.family, "instructions", ""))


async def _of_chain(
    stored: StoredChanges[CallChange], records: Sequence[TransactionRecord]
) -> Mapping[str, tuple[CallChange, ...] | None]:
    """Return the changes of an account's own transactions, and of received ones that may concern its positions.

    An own transaction was sent by the account, or moved assets out of it. Anybody can send tokens to an account: a
    received transaction is read only if its addresses include one from an own transaction with changes.
    """
    own = [record for record in records if record.sender == record.wallet or record.assets_out]
    changes = await stored.read(own)
    used = {party for record in own if changes[record.hash] != () for party in parties(record)}
    used -= {record.wallet for record in records}
    others = [record for record in records if record.hash not in changes and not used.isdisjoint(parties(record))]
    return {**changes, **await stored.read(others)}


def _may_change(record: TransactionRecord) -> bool:
    """Return True if a transaction may have changed a position of its account, or closed an account of it."""
    is_reward = any(row.stays_staked for row in record.assets_in)  # of a block, and no transaction
    return record.type not in ("FAILED", "SPAM") and not is_reward
