"""Read the changes of vaults from the logs of transactions, also if a proxy of the wallet made them.

Only logs of contracts that a protocol file names count. The logs of a few transactions are read, once.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from chainfolio.addresses import rules_of
from chainfolio.capabilities import Capability, EventLogReader, find_capability
from chainfolio.engine.gains.stored_changes import StoredChanges, decoded_logs
from chainfolio.position_changes import EventLog, VaultChange
from chainfolio.protocols import InstalledProtocol

if TYPE_CHECKING:
    from chainfolio.chains import Chain
    from chainfolio.indexer.parts import DecodedChains
    from chainfolio.portfolio.pnl.transaction_records import TransactionRecord
    from chainfolio.storage.tail import Tail

STORED: Final = "/vaults/5/"  # after the hash, before a digest of the contracts
VaultChanges = dict[tuple[str, str], tuple[VaultChange, ...] | None]

log = logging.getLogger(__name__)


async def vault_changes(system: DecodedChains, records: Sequence[TransactionRecord]) -> VaultChanges:
    """Return the changes of vaults by chain and transaction; none if a chain has no readable logs.

    Transactions that cannot have changed a vault are absent. The value is None if a protocol could not decode the logs.
    Logs are read from the node once; results of final blocks are stored.

    Raises:
        SourceError: The node of a chain does not give the logs of a transaction.
    """
    changes: VaultChanges = {}
    for key in sorted({record.chain for record in records}):
        chain = system.chain(key)
        protocols = [
            each
            for each in system.registry.rows(key, chain.kind, system.families)
            if each.family.vault_changes is not None and each.contracts
        ]
        reader = find_capability(chain, Capability.EVENT_LOGS)
        if protocols and reader is not None:
            of_chain = [record for record in records if record.chain == key]
            decoded = await _of_chain(_VaultChain(system.tail, chain, reader, protocols), of_chain)
            changes |= {(key, tx_hash): each for tx_hash, each in decoded.items()}
    return changes


@dataclass(frozen=True, slots=True)
class _VaultChain:
    """A chain with protocols that have vaults."""

    tail: Tail
    chain: Chain
    reader: EventLogReader
    protocols: Sequence[InstalledProtocol]

    def logs(self) -> StoredChanges[VaultChange]:
        """Return the decoder of logs, with a separate store for these contracts."""
        named = sorted(
            (each.protocol, each.family.name, *map(str, sorted(each.contracts.items()))) for each in self.protocols
        )
        digest = hashlib.sha256(repr(named).encode()).hexdigest()[:8]
        read = partial(decoded_logs, self.reader, partial(_decoded, self.protocols))
        return StoredChanges(self.tail, self.chain.key, f"{STORED}{digest}", read, VaultChange)

    def is_candidate(self, record: TransactionRecord) -> bool:
        """Return True if a transaction may have changed a vault.

        An asset left in an untyped call, or a token was created there; or a contract of a file took part; or its token
        was created or destroyed.
        """
        burn_addresses = rules_of(self.chain.kind).burn_addresses
        rows = (*record.assets_in, *record.assets_out)
        minted = {row.contract for row in rows if not burn_addresses.isdisjoint((row.sender, row.recipient))}
        if record.type in ("INTERACTION", "UNDEFINED") and (record.assets_out or minted):
            return True
        named = {each for protocol in self.protocols for part in protocol.contracts.values() for each in part}
        return not named.isdisjoint(minted) or not named.isdisjoint(parties(record))


async def _of_chain(
    chain: _VaultChain, records: Sequence[TransactionRecord]
) -> Mapping[str, tuple[VaultChange, ...] | None]:
    """Read transactions that may have opened a vault, then those that used the same contracts.

    The result is by hash: None for unread logs; failed transactions and spam are absent.
    """
    readable = [record for record in records if record.type not in ("FAILED", "SPAM")]
    logs = chain.logs()
    first = [record for record in readable if chain.is_candidate(record)]
    changes = await logs.read(first)
    used = {record.recipient for record in first if changes[record.hash]}
    others = [record for record in readable if record.hash not in changes and not used.isdisjoint(parties(record))]
    return changes | await logs.read(others)


def parties(record: TransactionRecord) -> Iterable[str]:
    """Yield the called contract, and each sender and recipient of an asset."""
    yield record.recipient
    for row in (*record.assets_in, *record.assets_out):
        yield row.sender
        yield row.recipient


def _decoded(
    protocols: Sequence[InstalledProtocol], tx_hash: str, logs: Sequence[EventLog]
) -> tuple[VaultChange, ...] | None:
    """Return the changes of vaults in a transaction; None if a family fails, which is logged."""
    changes: list[VaultChange] = []
    for protocol in protocols:
        try:
            assert protocol.family.vault_changes is not None, "only such protocols are asked"
            changes += protocol.family.vault_changes(logs, protocol.contracts)
        except Exception:  # third-party code: any error is its fault, and does not affect other transactions
            log.warning("protocol %s could not read the vaults of %s", protocol.protocol, tx_hash, exc_info=True)
            return None
    return tuple(changes)
