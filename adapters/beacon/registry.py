"""Read the whole registry of a network, up to a million validators, in SSZ or in pages of JSON."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec
import numpy as np

from chainfolio.adapters.beacon.node import Nodes, RequestBody
from chainfolio.adapters.beacon.responses import BalanceRow, KeyedRow, RegistryRow
from chainfolio.adapters.beacon.validator_table import (
    BalanceTable,
    ValidatorTable,
    balance_table,
    concatenate,
    share_columns,
    validator_table,
)
from chainfolio.errors import BadAnswer, HistoryUnavailable
from chainfolio.transport.rest import ResourceNotFound

if TYPE_CHECKING:
    from chainfolio.adapters.beacon.spec import Spec

Table = TypeVar("Table", bound=BalanceTable)
T = TypeVar("T")
PAGE_SIZE: Final = 50_000  # validators in one request
MAX_VALIDATORS: Final = 2**24  # of a network: the largest has two million


def check_count(source: str, count: int) -> None:
    """Raise BadAnswer if a node has listed more validators than a network can have."""
    if count > MAX_VALIDATORS:
        raise BadAnswer(source, f"lists more than {MAX_VALIDATORS:,} validators")


@lru_cache(maxsize=64)
def encoded_indexes(first: int, count: int) -> msgspec.Raw:
    """Return `count` consecutive indexes as JSON. Requests of all states share them."""
    return msgspec.Raw(msgspec.json.encode([str(each) for each in range(first, first + count)]))


@dataclass(slots=True)
class Registry:
    """Reads the validators of states, one state at a time.

    Columns that equal those of the last state share their memory, and public keys are decoded once.
    """

    nodes: Nodes
    _last: ValidatorTable | None = None
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def validators(self, slot: int, spec: Spec) -> ValidatorTable:
        """Return all validators in the state after a slot, and store them to share columns with later ones.

        Raises:
            HistoryUnavailable: No node has the state.
            BadAnswer: Validators are missing or malformed.
        """
        async with self._lock:
            table = await self._read(slot, spec)
            self._last = table if self._last is None else await asyncio.to_thread(share_columns, table, self._last)
            return self._last

    async def balances(self, slot: int) -> BalanceTable:
        """Return all balances in the state after a slot, which take a tenth of the bytes of the validators.

        Not cached; one call at a time reads.

        Raises:
            HistoryUnavailable: No node has the state.
            BadAnswer: Validators are missing or malformed.
        """
        async with self._lock:
            return await self._read_pages(lambda first, count: self._read_balances(slot, first, count))

    async def _read(self, slot: int, spec: Spec) -> ValidatorTable:
        """Read all validators: in SSZ if nodes serve it and there is more than one page, else in pages.

        For few validators, the whole state in SSZ is larger than their JSON.
        """
        pages = [] if self._last is not None else [await self._read_validators(slot, 0, PAGE_SIZE)]
        count = len(pages[0] if self._last is None else self._last)
        if count >= PAGE_SIZE and (table := await self.nodes.fetch_ssz_validators(slot, spec)) is not None:
            return table
        return await self._read_pages(lambda first, count: self._read_validators(slot, first, count), pages)

    async def _read_pages(
        self, read: Callable[[int, int], Coroutine[object, object, Table]], first_pages: Sequence[Table] = ()
    ) -> Table:
        """Read pages until one is not full, and join them; `first_pages` were read already.

        `read` takes the first index and the number of validators. Raises an error if there are too many rows, their
        indexes have gaps, or another validator follows the last page: nodes may limit their answers.
        """
        pages: list[Table] = [self._check_indexes(each, 0) for each in first_pages]
        while not pages or len(pages[-1]) == PAGE_SIZE:
            first = len(pages) * PAGE_SIZE
            check_count(self.nodes.key, first)
            pages.append(self._check_indexes(await read(first, PAGE_SIZE), first))
        if (last_count := len(pages[-1])) and len(await read((len(pages) - 1) * PAGE_SIZE + last_count, 1)):
            raise BadAnswer(self.nodes.key, f"lists {last_count:,} validators where more follow")
        return await asyncio.to_thread(concatenate, pages)

    def _check_indexes(self, page: Table, first: int) -> Table:
        if not np.array_equal(page.index, np.arange(first, first + len(page))):
            raise BadAnswer(self.nodes.key, "validators that were not requested, or some are left out")
        return page

    async def _read_balances(self, slot: int, first: int, count: int) -> BalanceTable:
        path = f"/eth/v1/beacon/states/{slot}/validator_balances"
        rows = await self._fetch(slot, path, list[BalanceRow], encoded_indexes(first, count))
        return await asyncio.to_thread(balance_table, rows)

    async def _read_validators(self, slot: int, first: int, count: int) -> ValidatorTable:
        """Read a page of validators; public keys come from the last table if it has the whole page."""
        pubkeys = None
        if self._last is not None and first + count <= len(self._last):
            pubkeys = self._last.pubkey[first : first + count]
        path, body = f"/eth/v1/beacon/states/{slot}/validators", {"ids": encoded_indexes(first, count)}
        rows: list[KeyedRow] | list[RegistryRow]
        if pubkeys is None:
            rows = await self._fetch(slot, path, list[KeyedRow], body)
        else:
            rows = await self._fetch(slot, path, list[RegistryRow], body)
            pubkeys = pubkeys[: len(rows)]  # an older state may have fewer validators than the last one read
        return await asyncio.to_thread(validator_table, self.nodes.key, rows, pubkeys)

    async def _fetch(self, slot: int, path: str, kind: type[T], body: RequestBody) -> T:
        try:
            return await self.nodes.read(path, kind, body)
        except ResourceNotFound as error:
            raise HistoryUnavailable(error.source, slot, "404 for a slot that it has passed") from None
