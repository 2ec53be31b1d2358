"""Which validators some filters name: indexes, public keys, and addresses to which validators withdraw."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from chainfolio.adapters.beacon.answers import (
    BlockMessage,
    DepositData,
    DepositRequest,
    KeyedRow,
    PendingDeposit,
    ValidatorState,
)
from chainfolio.adapters.beacon.node import Nodes
from chainfolio.adapters.beacon.registry import PIECE, check_count
from chainfolio.adapters.beacon.states import columns
from chainfolio.blocks import Span
from chainfolio.validators import ADDRESS, KEY

Queue = Callable[[], Awaitable[tuple[int, Sequence[PendingDeposit] | None]]]


def address_of(credentials: bytes) -> str | None:
    """The address to which credentials withdraw; None for a BLS key."""
    return f"0x{credentials[12:].hex()}" if credentials[0] in (1, 2) else None


def deposits_in(blocks: Iterable[BlockMessage]) -> Iterator[tuple[str, str]]:
    """For which public keys blocks pay, each with the address that the deposit names."""
    for body in (block.body for block in blocks):
        paid: list[DepositData | DepositRequest] = [each.data for each in body.deposits]
        for each in (*paid, *body.execution_requests.deposits):
            yield each.pubkey.lower(), f"0x{each.withdrawal_credentials[26:].lower()}"


def keys_in(blocks: Iterable[BlockMessage]) -> set[str]:
    """The public keys for which blocks pay, or ask something."""
    found = set[str]()
    for body in (each.body for each in blocks):
        asked = body.execution_requests
        found |= {each.data.pubkey.lower() for each in body.deposits}
        found |= {each.pubkey.lower() for each in asked.deposits}
        found |= {each.validator_pubkey.lower() for each in asked.withdrawals}
        found |= {each.source_pubkey.lower() for each in asked.consolidations}
    return found


@dataclass(slots=True)
class Chosen:
    """The validators of filters. The registry is read once, for addresses, and from then on what is new in it: pieces
    that are on their way together wait for one another here, so that none skips or repeats what another reads."""

    nodes: Nodes
    _by_key: dict[str, int] = field(default_factory=dict)
    _by_address: dict[str, set[int]] = field(default_factory=dict)
    _keys: dict[int, str] = field(default_factory=dict)
    _read: int = 0  # validators of the registry that were looked through
    _waiting: dict[str, set[str]] = field(default_factory=dict)  # keys by the address that a deposit for them named
    _noted: int = -1  # the last slot whose deposits are among those, or were credited before they were noted
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def indexes(self, filters: Sequence[str], blocks: Iterable[BlockMessage] = ()) -> tuple[int, ...]:
        """The indexes of all that there are by now. `blocks` may say that a validator withdraws elsewhere."""
        async with self._turn:
            return await self._indexes(filters, blocks)

    async def _indexes(self, filters: Sequence[str], blocks: Iterable[BlockMessage]) -> tuple[int, ...]:
        found = {int(each) for each in filters if not each.startswith("0x")}
        for key in (each for each in filters if len(each) == KEY):
            if key not in self._by_key:
                await self._find(key)
            found |= {self._by_key[key]} if key in self._by_key else set()
        if addresses := [each for each in filters if len(each) == ADDRESS]:
            await self._look_through()
            for block in blocks:
                for change in block.body.bls_to_execution_changes:
                    address = change.message.to_execution_address.lower()
                    self._by_address.setdefault(address, set()).add(change.message.validator_index)
            for address in addresses:
                found |= self._by_address.get(address, set())
        return tuple(sorted(found))

    async def keys(self, indexes: Sequence[int], blocks: Iterable[BlockMessage]) -> frozenset[str]:
        """The public keys of those that there are by now: whoever pays for them names nothing else. As long as some are
        not there yet, also the keys in `blocks` that no validator has: each may become that of one of them."""
        async with self._turn:
            new = self._without_key(indexes)
            for part in (new[start : start + PIECE] for start in range(0, len(new), PIECE)):
                await self._ask_keys(map(str, part))
            unborn = frozenset[str]()
            if (left := self._without_key(indexes)) and (named := sorted(keys_in(blocks))):
                # One question, and so one state: a key that gets its validator meanwhile is in the answer as both.
                taken = await self._ask_keys([*map(str, left), *named])
                unborn = frozenset(named) - taken if self._without_key(left) else unborn
        return unborn | {self._keys[each] for each in indexes if each in self._keys}

    async def waiting(
        self, filters: Collection[str], span: Span, blocks: Sequence[BlockMessage], queue: Queue
    ) -> frozenset[str]:
        """The public keys in `blocks`, which are all of a span, of validators that are not there yet and for which a
        deposit that waits names one of some addresses: whoever else pays for them may name another. To be asked before
        `indexes`, which finds those that are there. `queue` tells what waits now, and after which slot that is; None
        where no node tells it: then the keys of all that are not there yet."""
        async with self._turn:
            paid = list(deposits_in(blocks))
            if span.first > self._noted + 1 and paid:
                slot, queued = await queue()
                if queued is None:
                    return await self._unborn({key for key, _ in paid})
                self._noted = max(self._noted, slot)
                for each in queued:
                    self._note(each.pubkey.lower(), f"0x{each.withdrawal_credentials[26:].lower()}")
            for key, address in paid:
                self._note(key, address)
            if span.first <= self._noted + 1:
                self._noted = max(self._noted, span.last)
            own = set[str]().union(*(self._waiting.get(each, ()) for each in filters))
            return await self._unborn(own & {key for key, _ in paid})

    def _note(self, key: str, address: str) -> None:
        self._waiting.setdefault(address, set()).add(key)

    async def _unborn(self, keys: Collection[str]) -> frozenset[str]:
        """Those of some keys that no validator has."""
        return frozenset(keys) - await self._ask_keys(sorted(keys)) if keys else frozenset()

    def _without_key(self, indexes: Sequence[int]) -> list[int]:
        return [each for each in indexes if each not in self._keys]

    async def _ask_keys(self, ids: Iterable[str]) -> set[str]:
        """Notes the keys of the validators that some indexes and keys name; those keys."""
        found = await self.nodes.data("/eth/v1/beacon/states/head/validators", list[ValidatorState], {"ids": list(ids)})
        told = {each.index: each.validator.pubkey.lower() for each in found}
        self._keys |= told
        return set(told.values())

    async def _find(self, key: str) -> None:
        path = "/eth/v1/beacon/states/head/validators"
        for each in await self.nodes.data(path, list[ValidatorState], {"ids": [key]}):
            if each.validator.pubkey.lower() == key:
                self._by_key[key] = each.index

    async def _look_through(self) -> None:
        path = "/eth/v1/beacon/states/head/validators"
        while True:
            check_count(self.nodes.key, self._read)
            asked = {"ids": [str(each) for each in range(self._read, self._read + PIECE)]}
            part = columns(self.nodes.key, await self.nodes.data(path, list[KeyedRow], asked))
            for index, credentials in zip(part.index.tolist(), part.credentials, strict=True):
                if (address := address_of(bytes(credentials))) is not None:
                    self._by_address.setdefault(address, set()).add(index)
            self._read += len(part)
            if len(part) < PIECE:
                return
