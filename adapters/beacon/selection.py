"""Find the validators that filters select: indexes, public keys, and withdrawal addresses."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from chainfolio.adapters.beacon.block_responses import BlockMessage, DepositData, DepositRequest
from chainfolio.adapters.beacon.node import Nodes
from chainfolio.adapters.beacon.registry import PAGE_SIZE, check_count
from chainfolio.adapters.beacon.responses import KeyedRow, PendingDeposit, ValidatorState
from chainfolio.adapters.beacon.validator_table import ValidatorTable, validator_table
from chainfolio.blocks import Span
from chainfolio.errors import BadAnswer
from chainfolio.validators import ADDRESS, KEY

# Returns a slot and the deposits that are queued after it, None if no node serves them.
ReadQueue = Callable[[], Awaitable[tuple[int, Sequence[PendingDeposit] | None]]]
PATH: Final = "/eth/v1/beacon/states/head/validators"


def withdrawal_address(credentials: bytes) -> str | None:
    """Return the withdrawal address in credentials, None for a BLS key."""
    return f"0x{credentials[12:].hex()}" if credentials[0] in (1, 2) else None


def deposits_in(blocks: Iterable[BlockMessage]) -> Iterator[tuple[str, str]]:
    """Yield public key and withdrawal address of each deposit in blocks."""
    for body in (block.body for block in blocks):
        deposits: list[DepositData | DepositRequest] = [each.data for each in body.deposits]
        for each in (*deposits, *body.execution_requests.deposits):
            yield each.pubkey.lower(), f"0x{each.withdrawal_credentials[26:].lower()}"


def keys_in(blocks: Iterable[BlockMessage]) -> set[str]:
    """Return the public keys in deposits and requests of blocks."""
    keys = set[str]()
    for body in (each.body for each in blocks):
        requests = body.execution_requests
        keys |= {each.data.pubkey.lower() for each in body.deposits}
        keys |= {each.pubkey.lower() for each in requests.deposits}
        keys |= {each.validator_pubkey.lower() for each in requests.withdrawals}
        keys |= {each.source_pubkey.lower() for each in requests.consolidations}
    return keys


@dataclass(slots=True)
class ValidatorSelector:
    """Finds the validators of filters.

    For withdrawal addresses, the registry is read once, and later only its new validators. A lock keeps spans that are
    read in parallel from skipping or repeating a part of it.
    """

    nodes: Nodes
    _by_key: dict[str, int] = field(default_factory=dict)
    _by_address: dict[str, set[int]] = field(default_factory=dict)
    _keys: dict[int, str] = field(default_factory=dict)
    _scanned_count: int = 0  # validators of the registry that were read for their addresses
    _deposit_keys: dict[str, set[str]] = field(default_factory=dict)  # by the address in a deposit for the key
    _last_slot: int = -1  # deposits up to this slot are in `_deposit_keys`, or were credited before that
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def indexes(self, filters: Sequence[str], blocks: Iterable[BlockMessage] = ()) -> tuple[int, ...]:
        """Return the ascending indexes for indexes, public keys and withdrawal addresses.

        An index is returned unchecked; unknown keys and addresses give none.

        Args:
            filters: Indexes, public keys and withdrawal addresses.
            blocks: Changes of credentials in them count as well.

        Raises:
            SourceError: The registry could not be read.
        """
        async with self._lock:
            return await self._find_indexes(filters, blocks)

    async def _find_indexes(self, filters: Sequence[str], blocks: Iterable[BlockMessage]) -> tuple[int, ...]:
        """Return the sorted indexes for indexes, public keys and addresses; unknown ones have none.

        An index is returned although no validator may have it yet. Addresses need a scan of the registry, and learn
        from the blocks' credential changes.
        """
        indexes = {int(each) for each in filters if not each.startswith("0x")}
        for key in (each for each in filters if len(each) == KEY):
            if key not in self._by_key:
                await self._find_key(key)
            indexes |= {self._by_key[key]} if key in self._by_key else set()
        if addresses := [each for each in filters if len(each) == ADDRESS]:
            await self._scan_registry()
            for block in blocks:
                for change in block.body.bls_to_execution_changes:
                    address = change.message.to_execution_address.lower()
                    self._by_address.setdefault(address, set()).add(change.message.validator_index)
            for address in addresses:
                indexes |= self._by_address.get(address, set())
        return tuple(sorted(indexes))

    async def keys(self, indexes: Sequence[int], blocks: Iterable[BlockMessage]) -> frozenset[str]:
        """Return the public keys of validators that exist now, as deposits have no index.

        If some do not exist yet, the result also has the keys in `blocks` without a validator: they may become theirs.

        Raises:
            SourceError: The validators could not be read.
        """
        async with self._lock:
            unread = self._without_key(indexes)
            for page in (unread[start : start + PAGE_SIZE] for start in range(0, len(unread), PAGE_SIZE)):
                await self._read_keys(map(str, page))
            without_validator = frozenset[str]()
            if (missing := self._without_key(indexes)) and (block_keys := sorted(keys_in(blocks))):
                # One request, and so one state: a key that gets its validator meanwhile is in the response as both.
                existing = await self._read_keys([*map(str, missing), *block_keys])
                if self._without_key(missing):
                    without_validator = frozenset(block_keys) - existing
        return without_validator | {self._keys[each] for each in indexes if each in self._keys}

    async def pending_keys(
        self, filters: Collection[str], span: Span, blocks: Sequence[BlockMessage], read_queue: ReadQueue
    ) -> frozenset[str]:
        """Store the deposits of `blocks`, and return the selected keys in them that have no validator yet.

        Such a key is selected if any pending deposit for it names a selected address: the first one decides, and the
        deposits in `blocks` may name others. Call this before `indexes`, which finds the existing validators.

        Args:
            filters: The withdrawal addresses count.
            span: The slots of `blocks`.
            blocks: All blocks of the span.
            read_queue: Reads the pending deposits. Called only if `blocks` have deposits and do not follow the slots
                whose deposits are stored. If no node serves them, nothing is stored, and every key without a validator
                is returned.

        Raises:
            SourceError: The queue or the validators could not be read.
        """
        async with self._lock:
            deposits = list(deposits_in(blocks))
            if span.first > self._last_slot + 1 and deposits:
                slot, queue = await read_queue()
                if queue is None:
                    return await self._without_validator({key for key, _ in deposits})
                self._last_slot = max(self._last_slot, slot)
                for each in queue:
                    self._add_deposit(each.pubkey.lower(), f"0x{each.withdrawal_credentials[26:].lower()}")
            for key, address in deposits:
                self._add_deposit(key, address)
            if span.first <= self._last_slot + 1:
                self._last_slot = max(self._last_slot, span.last)
            selected = set[str]().union(*(self._deposit_keys.get(each, ()) for each in filters))
            return await self._without_validator(selected & {key for key, _ in deposits})

    def _add_deposit(self, key: str, address: str) -> None:
        self._deposit_keys.setdefault(address, set()).add(key)

    async def _without_validator(self, keys: Collection[str]) -> frozenset[str]:
        """Return the keys that no validator has."""
        return frozenset(keys) - await self._read_keys(sorted(keys)) if keys else frozenset()

    def _without_key(self, indexes: Sequence[int]) -> list[int]:
        return [each for each in indexes if each not in self._keys]

    async def _read_keys(self, ids: Iterable[str]) -> set[str]:
        """Store the public keys of the validators with some indexes or keys, and return these keys."""
        validators = await self.nodes.read(PATH, list[ValidatorState], {"ids": list(ids)})
        keys = {each.index: each.validator.pubkey.lower() for each in validators}
        self._keys |= keys
        return set(keys.values())

    async def _find_key(self, key: str) -> None:
        for each in await self.nodes.read(PATH, list[ValidatorState], {"ids": [key]}):
            if each.validator.pubkey.lower() == key:
                self._by_key[key] = each.index

    async def _scan_registry(self) -> None:
        """Read all validators not scanned yet, and store indexes by withdrawal address, in memory.

        The caller holds the lock. A page may be shorter than requested, because nodes may limit their answers: only one
        without validators is the end.

        Raises:
            SourceError: They could not be read, have gaps, or are more than a network can have.
        """
        while len(table := await self._read_page()):
            count = self._scanned_count + len(table)
            check_count(self.nodes.key, count)
            if not np.array_equal(table.index, np.arange(self._scanned_count, count)):
                raise BadAnswer(self.nodes.key, "validators that were not requested, or some are left out")
            for index, credentials in zip(table.index.tolist(), table.credentials, strict=True):
                if (address := withdrawal_address(bytes(credentials))) is not None:
                    self._by_address.setdefault(address, set()).add(index)
            self._scanned_count = count

    async def _read_page(self) -> ValidatorTable:
        """Read the next `PAGE_SIZE` validators that are not scanned yet, as far as they exist."""
        ids = [str(each) for each in range(self._scanned_count, self._scanned_count + PAGE_SIZE)]
        return validator_table(self.nodes.key, await self.nodes.read(PATH, list[KeyedRow], {"ids": ids}))
