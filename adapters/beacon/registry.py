"""The whole registry of a network: a million validators, one state after the other, read in one piece or in several."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
import numpy as np

from chainfolio.adapters.beacon.answers import BalanceRow, KeyedRow, RegistryRow
from chainfolio.adapters.beacon.node import Nodes
from chainfolio.adapters.beacon.states import Held, States, columns, held, joined, shared
from chainfolio.errors import BadAnswer, HistoryUnavailable
from chainfolio.transport.rest import Absent

if TYPE_CHECKING:
    from chainfolio.adapters.beacon.spec import Spec

H = TypeVar("H", bound=Held)
T = TypeVar("T")
PIECE: Final = 50_000  # validators in one request
MAX_VALIDATORS: Final = 2**24  # of a network: the largest has two million


def check_count(source: str, count: int) -> None:
    """Raise BadAnswer if a node has listed more validators than a network can have."""
    if count > MAX_VALIDATORS:
        raise BadAnswer(source, f"lists more than {MAX_VALIDATORS:,} validators")


@lru_cache(maxsize=64)
def numbered(first: int, count: int) -> msgspec.Raw:
    """The indexes from one on as JSON: they are the same for every state."""
    return msgspec.Raw(msgspec.json.encode([str(each) for each in range(first, first + count)]))


@dataclass(slots=True)
class Registry:
    """Reads states. What a state shares with the one that was read before is kept once, and no public key is read
    twice."""

    nodes: Nodes
    _last: States | None = None
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def at(self, slot: int, spec: Spec) -> States:
        """All validators in the state after a slot."""
        async with self._turn:
            found = await self._read(slot, spec)
            self._last = found if self._last is None else await asyncio.to_thread(shared, found, self._last)
            return self._last

    async def held(self, slot: int) -> Held:
        """What all validators have in the state after a slot: a tenth of the bytes."""
        async with self._turn:
            return await self._whole(lambda first: self._held(slot, first))

    async def _read(self, slot: int, spec: Spec) -> States:
        """All of them: by SSZ, where nodes offer it and they are more than one piece. Of few the whole state would be
        more bytes than their part of it."""
        first = [] if self._last is not None else [await self._states(slot, 0)]
        known = len(first[0] if self._last is None else self._last)
        if known >= PIECE and (found := await self.nodes.whole(slot, spec)) is not None:
            return found
        return await self._whole(lambda start: self._states(slot, start), first)

    async def _whole(self, read: Callable[[int], Coroutine[Any, Any, H]], begun: Sequence[H] = ()) -> H:
        parts: list[H] = [self._in_order(each, 0) for each in begun]
        while not parts or len(parts[-1]) == PIECE:
            first = len(parts) * PIECE
            check_count(self.nodes.key, first)
            parts.append(self._in_order(await read(first), first))
        return await asyncio.to_thread(joined, parts)

    def _in_order(self, part: H, first: int) -> H:
        if not np.array_equal(part.index, np.arange(first, first + len(part))):
            raise BadAnswer(self.nodes.key, "validators that nobody asked for, or some are left out")
        return part

    async def _held(self, slot: int, first: int) -> Held:
        path = f"/eth/v1/beacon/states/{slot}/validator_balances"
        found = await self._of(slot, path, list[BalanceRow], numbered(first, PIECE))
        return await asyncio.to_thread(held, found)

    async def _states(self, slot: int, first: int) -> States:
        known = None
        if self._last is not None and first + PIECE <= len(self._last):
            known = self._last.pubkey[first : first + PIECE]
        path, asked = f"/eth/v1/beacon/states/{slot}/validators", {"ids": numbered(first, PIECE)}
        rows: list[KeyedRow] | list[RegistryRow]
        if known is None:
            rows = await self._of(slot, path, list[KeyedRow], asked)
        else:
            rows = await self._of(slot, path, list[RegistryRow], asked)
        # An older state may have fewer validators than the one that was read before.
        return await asyncio.to_thread(columns, self.nodes.key, rows, None if known is None else known[: len(rows)])

    async def _of(self, slot: int, path: str, kind: type[T], asked: Any) -> T:
        try:
            return await self.nodes.data(path, kind, asked)
        except Absent as error:
            raise HistoryUnavailable(error.source, slot, "404 for a slot that it has passed") from None
