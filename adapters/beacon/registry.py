"""The whole registry of a network: a million validators, read in pieces, one state after the other."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

import msgspec
import numpy as np

from adapters.beacon.answers import KeyedRow, RegistryRow
from adapters.beacon.node import Nodes
from adapters.beacon.states import States, columns, joined, shared
from chainfolio.errors import BadAnswer, HistoryUnavailable
from transport.rest import Absent

PIECE: Final = 50_000  # validators in one request


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

    async def at(self, slot: int) -> States:
        """All validators in the state after a slot."""
        async with self._turn:
            parts: list[States] = []
            while not parts or len(parts[-1]) == PIECE:
                parts.append(await self._piece(slot, len(parts) * PIECE))
            found = await asyncio.to_thread(joined, parts)
            self._last = found if self._last is None else await asyncio.to_thread(shared, found, self._last)
            return self._last

    async def _piece(self, slot: int, first: int) -> States:
        wanted = np.arange(first, first + PIECE)
        known = None
        if self._last is not None and first + PIECE <= len(self._last):
            known = self._last.pubkey[first : first + PIECE]
        path, asked = f"/eth/v1/beacon/states/{slot}/validators", {"ids": numbered(first, PIECE)}
        try:
            rows: list[KeyedRow] | list[RegistryRow]
            if known is None:
                rows = await self.nodes.data(path, list[KeyedRow], asked)
            else:
                rows = await self.nodes.data(path, list[RegistryRow], asked)
        except Absent as error:
            raise HistoryUnavailable(error.source, slot, "404 for a slot that it has passed") from None
        part = await asyncio.to_thread(columns, self.nodes.key, rows, known)
        if not np.array_equal(part.index, wanted[: len(part)]):
            raise BadAnswer(self.nodes.key, "validators that nobody asked for, or some are left out")
        return part
