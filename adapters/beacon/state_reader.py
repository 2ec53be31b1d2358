"""Read blocks by slot, and states by epoch, of the selected validators. Each is requested once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, ParamSpec, TypeVar

import numpy as np

from chainfolio.adapters.beacon.block_responses import BlockMessage, SignedBlock
from chainfolio.adapters.beacon.memo import LIMITS, Memo
from chainfolio.adapters.beacon.node import Nodes, RequestBody
from chainfolio.adapters.beacon.registry import PAGE_SIZE, Registry
from chainfolio.adapters.beacon.responses import (
    FORKS,
    Header,
    KeyedRow,
    PendingConsolidation,
    PendingDeposit,
    Randao,
    ValidatorState,
)
from chainfolio.adapters.beacon.spec import Spec
from chainfolio.adapters.beacon.validator_table import BalanceTable, ValidatorTable, concatenate, validator_table
from chainfolio.errors import BadAnswer, HistoryUnavailable, UnsupportedMethod
from chainfolio.transport.rest import ResourceNotFound

T = TypeVar("T")
P = ParamSpec("P")
THREAD_MIN_ROWS: Final = 2_000  # fewer rows are decoded without a thread


@dataclass(slots=True)
class StateReader:
    """Reads the blocks and states of one chain for the selected validators.

    Unless they say otherwise, its methods raise HistoryUnavailable if no node has the state any more, BadAnswer if a
    response is malformed, and other SourceErrors if no node answers.

    Attributes:
        selection: Indexes of the selected validators, None for all.
        memo: Caches results.
        block_memo: Caches blocks; `memo` if None. Readers with different selections share it.
        registry: Reads all validators; made when needed.
        includes: Returns True for the index of a selected validator.
    """

    nodes: Nodes
    spec: Spec
    selection: tuple[int, ...] | None
    memo: Memo = field(default_factory=lambda: Memo(LIMITS))
    block_memo: Memo | None = None
    registry: Registry | None = None
    includes: Callable[[int], bool] = field(init=False)

    def __post_init__(self) -> None:
        self.includes = _includes_all if self.selection is None else frozenset(self.selection).__contains__

    async def block(self, slot: int) -> BlockMessage | None:
        """Return the block of a slot, None if the node has none: the proposal was missed, or the node lost it."""
        return await (self.block_memo or self.memo).get("block", slot, lambda: self._read_block(slot))

    async def read_blocks(self, slots: Iterable[int]) -> list[BlockMessage]:
        """Return the blocks of some slots, in order, without missed ones; the first error is raised at once."""
        memo = self.block_memo or self.memo
        tasks = [memo.task("block", slot, partial(self._read_block, slot)) for slot in slots]
        if running := [task for task in tasks if not task.done()]:
            # Takes one callback a task, where gathering shielded tasks takes three; and it cancels none of them.
            await asyncio.wait(running, return_when=asyncio.FIRST_EXCEPTION)
            for task in tasks:
                if task.done() and (error := task.exception()) is not None:
                    raise error
        return [block for task in tasks if (block := task.result()) is not None]

    async def _read_block(self, slot: int) -> BlockMessage | None:
        """Return the block of a slot, None if the node has none; raise UnsupportedMethod for a new fork."""
        try:
            response = await self.nodes.fetch(f"/eth/v2/beacon/blocks/{slot}", SignedBlock)
        except ResourceNotFound:
            return None
        if response.version not in FORKS:
            raise UnsupportedMethod(
                self.nodes.key,
                f"slot {slot} has a block of the fork `{response.version:.20}`, which is not known here",
                remedy="upgrade Chainfolio, then index on",
            )
        block = response.data.message
        if block.slot != slot:
            raise BadAnswer(self.nodes.key, f"the block of slot {block.slot} in the place of {slot}")
        return block

    async def header(self, slot: int) -> Header:
        """Return the header at a slot.

        Raises:
            ResourceNotFound: There is none.
        """
        return await self.nodes.read(f"/eth/v1/beacon/headers/{slot}", Header)

    def last_slot(self, epoch: int) -> int:
        """Return the last slot of an epoch."""
        return (epoch + 1) * self.spec.slots_per_epoch - 1

    async def validators(self, epoch: int) -> ValidatorTable:
        """Return the selected validators at the end of an epoch."""
        return await self.memo.get("validators", epoch, lambda: self._read_validators(self.last_slot(epoch)))

    async def _read_validators(self, slot: int) -> ValidatorTable:
        if self.selection is None:
            return await self._registry().validators(slot, self.spec)
        return await self.validators_at_slot(slot, self.selection)

    def _registry(self) -> Registry:
        self.registry = self.registry or Registry(self.nodes)
        return self.registry

    async def balances(self, epoch: int) -> BalanceTable:
        """Return the balances of the selected validators at the end of an epoch.

        For a whole network only the balances are read, a tenth of the bytes of its validators.
        """
        if self.selection is not None or self.memo.has("validators", epoch):
            return await self.validators(epoch)
        return await self.memo.get("balances", epoch, lambda: self._read_balances(self.last_slot(epoch)))

    async def _read_balances(self, slot: int) -> BalanceTable:
        try:
            return await self._registry().balances(slot)
        except UnsupportedMethod:
            return await self._registry().validators(slot, self.spec)

    async def nearby_validators(self, epoch: int) -> ValidatorTable:
        """Return the selected validators at the end of an epoch, or of the one before if only that is cached."""
        return await self.validators(epoch if self.memo.has("validators", epoch) or not epoch else epoch - 1)

    async def select_validators(self, epoch: int, indexes: Sequence[int]) -> ValidatorTable:
        """Return any validators at the end of an epoch (-1: at genesis), by index, without absent ones."""
        if epoch >= 0 and self.memo.has("validators", epoch):
            table = await self.validators(epoch)
            array = np.array(indexes, np.int64)
            if table.locate(array)[1].all():
                return table.select(array)
        return await self.validators_at_slot(self.last_slot(epoch) if epoch >= 0 else 0, indexes)

    async def indexes_of_keys(self, epoch: int, pubkeys: Collection[str]) -> dict[str, int]:
        """Return indexes of selected validators at the end of an epoch by public key, without unknown keys."""
        if self.selection is not None:
            table = await self.validators(epoch)
            pairs = zip((f"0x{bytes(each).hex()}" for each in table.pubkey), table.index.tolist(), strict=True)
            return {key: index for key, index in pairs if key in pubkeys}
        keys, indexes = sorted(pubkeys), dict[str, int]()
        for start in range(0, len(keys), PAGE_SIZE):
            for each in await self.find_validators(self.last_slot(epoch), keys[start : start + PAGE_SIZE]):
                indexes[each.validator.pubkey.lower()] = each.index
        return indexes

    def release(self, epoch: int) -> None:
        """Remove the results for a whole network that no epoch after a settled one needs from the cache."""
        if self.selection is None:
            for kind, key in (("attestations", epoch - 2), ("attestations", epoch), ("reconciliation", epoch)):
                self.memo.drop(kind, key)

    async def genesis_validators(self, later: BalanceTable) -> ValidatorTable:
        """Return those of genesis, of a selection only those that `later` has. The first result is cached."""
        if self.selection is None:
            return await self.memo.get("validators", -1, lambda: self._read_validators(0))
        return await self.memo.get("validators", -1, lambda: self.validators_at_slot(0, later.index.tolist()))

    async def validators_at_slot(self, slot: int, indexes: Sequence[int]) -> ValidatorTable:
        """Return any validators in the state after a slot, by ascending index, without absent ones.

        Raises:
            BadAnswer: The node returned other validators, or left some out.
        """
        if not indexes:
            return validator_table(self.nodes.key, [])
        path, parts = f"/eth/v1/beacon/states/{slot}/validators", list[ValidatorTable]()
        for start in range(0, len(indexes), PAGE_SIZE):
            body = {"ids": [str(each) for each in indexes[start : start + PAGE_SIZE]]}
            rows = await self.read(slot, path, list[KeyedRow], body)
            parts.append(await decode_rows(len(rows), validator_table, self.nodes.key, rows))
        table, requested = concatenate(parts), set(indexes)
        present = set(table.index.tolist())
        if not present <= requested:
            raise BadAnswer(self.nodes.key, "a validator that was not requested")
        if present and min(requested - present, default=max(present)) < max(present):
            raise BadAnswer(self.nodes.key, f"leaves out validator {min(requested - present)}: later ones exist")
        return table

    async def find_validators(self, slot: int, ids: Sequence[str]) -> list[ValidatorState]:
        """Return the validators with some indexes or public keys in the state after a slot."""
        return await self.read(slot, f"/eth/v1/beacon/states/{slot}/validators", list[ValidatorState], {"ids": ids})

    async def randao_mix(self, epoch: int, state_epoch: int) -> bytes | None:
        """Return an epoch's RANDAO mix (negative: of genesis), from the state at the end of `state_epoch`.

        None if no node has that state, or if the request is refused or the response malformed. Not cached.
        """
        state = self.last_slot(state_epoch) if epoch >= 0 else "genesis"
        path = f"/eth/v1/beacon/states/{state}/randao?epoch={max(0, epoch)}"
        try:
            return bytes.fromhex((await self.nodes.read(path, Randao)).randao[2:])
        except (ResourceNotFound, BadAnswer):
            return None

    async def pending_queues(self, slot: int) -> tuple[list[PendingDeposit], list[PendingConsolidation]]:
        """Return the queues of deposits and consolidations in the state after a slot."""
        path = f"/eth/v1/beacon/states/{slot}/pending_consolidations"
        return await self.pending_deposits(slot), await self.read(slot, path, list[PendingConsolidation])

    async def pending_deposits(self, slot: int) -> list[PendingDeposit]:
        """Return the queue of deposits in the state after a slot."""
        return await self.read(slot, f"/eth/v1/beacon/states/{slot}/pending_deposits", list[PendingDeposit])

    async def read(self, slot: int, path: str, kind: type[T], body: RequestBody = None) -> T:
        """Return the data of a path about a past slot.

        Raises:
            HistoryUnavailable: No node has it.
        """
        try:
            return await self.nodes.read(path, kind, body)
        except ResourceNotFound as error:
            raise HistoryUnavailable(error.source, slot, "404 for a slot that it has passed") from None


async def decode_rows(count: int, decode: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Decode rows, in a thread if there are many."""
    return await asyncio.to_thread(decode, *args, **kwargs) if count > THREAD_MIN_ROWS else decode(*args, **kwargs)


def _includes_all(validator: int) -> bool:
    return True
