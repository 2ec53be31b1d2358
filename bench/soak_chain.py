"""A generated chain for `bench.soak`: blocks appear by the clock; seed and height determine each row.

It has reorganisations, outages and pauses. Its nodes announce several blocks at once, so that a follower reads them
together.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from chainfolio.adapters.evm.datasets.registry import DATASETS
from chainfolio.adapters.evm.settings import EvmSettings
from chainfolio.assets import Asset
from chainfolio.blocks import Block, Span
from chainfolio.capabilities import Capability
from chainfolio.chain_results import ChainInfo, Heads, IndexedTransaction, SpanTables
from chainfolio.contracts import Token, TransactionDetails
from chainfolio.datasets import Dataset
from chainfolio.errors import NodeBehind, Reorged, Unavailable
from chainfolio.plans import Unknown
from chainfolio.reads import Read
from chainfolio.table import Table
from chainfolio.tables import BLOCKS, TRANSACTIONS, TRANSFERS
from tests.chains.invented.chainfolio_invented.accounts import Balance
from tests.chains.invented.chainfolio_invented.chain import InventedChain, TokenDetails

KEY: Final = "local"
CAIP2: Final = "eip155:31337"
START_US: Final = 1_767_225_600_000_000  # 2026-01-01
TOKENS: Final = tuple(f"0x{0xC0 + number:040x}" for number in range(20))
HELD: Final = 10**18  # raw balance of each account and token
_MIXED: Final = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
Numbers = np.ndarray[Any, np.dtype[np.uint64]]


def mixed(numbers: Numbers, step: int) -> Numbers:
    """Return numbers that look random and follow from `numbers` and `step` alone (splitmix64)."""
    result = numbers + np.uint64(step * 0x9E3779B97F4A7C15 % 2**64)
    for shift, factor in zip((30, 27), _MIXED, strict=True):
        result = (result ^ (result >> np.uint64(shift))) * factor
    return result ^ (result >> np.uint64(31))


def _hashes(numbers: Numbers) -> list[str]:
    """Return a hash of 32 bytes for each number."""
    text = np.stack([mixed(numbers, 101 + part) for part in range(4)], axis=1).tobytes().hex()
    return [f"0x{text[at : at + 64]}" for at in range(0, len(text), 64)]


def _raws(numbers: Numbers) -> pa.Array:
    """Return numbers as raw amounts of 32 bytes."""
    padded = np.zeros((len(numbers), 32), np.uint8)
    padded[:, 24:] = numbers.astype(">u8").view(np.uint8).reshape(-1, 8)
    fixed = pa.Array.from_buffers(pa.binary(32), len(numbers), [None, pa.py_buffer(padded)])
    return fixed.cast(pa.binary())


def _filled(table: Table, count: int, columns: Mapping[str, object]) -> pa.Table:
    """Return rows with some columns: arrays, or one value for all rows. Other columns are null."""
    arrays = []
    for each in table.schema():
        value = columns.get(each.name)
        is_constant = value is None or isinstance(value, str | int | bytes)
        arrays.append(pa.repeat(pa.scalar(value, each.type), count) if is_constant else pa.array(value).cast(each.type))
    return pa.Table.from_arrays(arrays, schema=table.schema())


@dataclass
class GeneratedLedger:
    """The blocks of the chain, determined by the elapsed seconds.

    Attributes:
        transfers: Number of transfers in each block, two of a transaction.
        announce_s: Seconds between two announcements of new blocks.
        paused_s: Seconds without new blocks; the blocks of this time appear afterwards.
        down_until_s: Until then no node answers.
    """

    seed: int
    now_s: Callable[[], float]
    transfers: int = 6
    accounts: int = 50_000
    block_ms: int = 250
    announce_s: float = 12.5
    finality: int = 120
    standing_until_s: float = 0.0
    down_until_s: float = 0.0
    addresses: pa.Array = field(init=False)
    requests: int = 0
    _starts: list[int] = field(default_factory=lambda: [0])
    _salts: list[int] = field(default_factory=lambda: [0])
    _head: int = 0

    def __post_init__(self) -> None:
        numbers = np.arange(1, self.accounts + 1, dtype=np.uint64)
        self.addresses = pa.array([f"0x{text[2:42]}" for text in _hashes(mixed(numbers, self.seed + 7))])

    @property
    def head_height(self) -> int:
        """The newest announced height: a multiple of the announcements, unless the chain stands still."""
        now_s = self.now_s()
        if now_s >= self.standing_until_s:
            announced_s = now_s // self.announce_s * self.announce_s
            self._head = max(self._head, int(announced_s * 1000) // self.block_ms)
        return self._head

    @property
    def head(self) -> Block:
        """The newest announced block."""
        return self.block(self.head_height)

    def reorganise(self, depth: int) -> None:
        """Replace the `depth` newest blocks, but no final one."""
        first = max(1, self.head_height - min(depth, self.finality - 1) + 1)
        while self._starts[-1] >= first:
            self._starts.pop()
            self._salts.pop()
        self._starts.append(first)
        self._salts.append(self.requests * 1000 + depth)

    def block(self, height: int) -> Block:
        """Return the block at a height; its parent is the block below."""
        below = self._block_hashes(max(0, height - 1), height)
        parent = below[0] if height else f"0x{0:064x}"
        return Block(height, below[-1], parent, START_US + height * self.block_ms * 1000)

    def blocks(self, span: Span) -> list[Block]:
        """Return the blocks of a span."""
        hashes = self._block_hashes(max(0, span.first - 1), span.last)
        parents = hashes[:-1] if span.first else [f"0x{0:064x}", *hashes[:-1]]
        step_us = self.block_ms * 1000
        return [
            Block(height, hash_, parent, START_US + height * step_us)
            for height, hash_, parent in zip(
                range(span.first, span.last + 1), hashes[-len(parents) :], parents, strict=True
            )
        ]

    def _keys(self, first: int, last: int) -> Numbers:
        """Return a number for each height that differs between branches."""
        heights = np.arange(first, last + 1, dtype=np.uint64)
        salts = np.array([self._salts[bisect_right(self._starts, int(each)) - 1] for each in heights], np.uint64)
        return mixed(heights * np.uint64(1 << 20) + np.uint64(self.seed), 1) ^ mixed(salts, 2)

    def _block_hashes(self, first: int, last: int) -> list[str]:
        return _hashes(self._keys(first, last))

    def rows(self, span: Span, names: Sequence[str]) -> dict[str, pa.Table]:
        """Return the rows of some datasets in a span, in the order of the chain."""
        blocks, count = self.blocks(span), self.transfers
        heights = np.arange(span.first, span.last + 1)
        tables = {"transfers": self._transfers(span, heights)} if "transfers" in names else {}
        if "transactions" in names:
            tables["transactions"] = self._transactions(span, heights)
        if "blocks" in names:
            columns = {"hash": [each.hash for each in blocks], "parent": [each.parent for each in blocks]}
            position = {"chain": KEY, "height": heights, "time": self._times(heights)}
            tables["blocks"] = _filled(BLOCKS, len(blocks), {**position, **columns, "tx_count": (count + 1) // 2})
        return tables

    def _times(self, heights: Any) -> pa.Array:
        return pa.array(START_US + heights * (self.block_ms * 1000)).cast(pa.timestamp("us", tz="UTC"))

    def _positions(self, span: Span, heights: Any, per_block: int) -> tuple[Numbers, dict[str, Any]]:
        """Return a key for each row and the columns of its position, `per_block` rows in each block."""
        keys = np.repeat(self._keys(span.first, span.last), per_block)
        indexes = np.tile(np.arange(per_block), len(heights))
        repeated = np.repeat(heights, per_block)
        position = {"chain": KEY, "height": repeated, "time": self._times(repeated), "tx_index": indexes}
        return keys + indexes.astype(np.uint64) * np.uint64(0x2545F4914F6CDD1D), position

    def _parties(self, keys: Numbers, indexes: object) -> dict[str, pa.Array]:
        """Return two different accounts for each row. The first account takes part in each block."""
        senders = mixed(keys, 3) % np.uint64(self.accounts)
        senders[indexes == 0] = 0
        recipients = (senders + 1 + mixed(keys, 4) % np.uint64(self.accounts - 1)) % np.uint64(self.accounts)
        return {
            "sender": self.addresses.take(pa.array(senders)),
            "recipient": self.addresses.take(pa.array(recipients)),
        }

    def _transfers(self, span: Span, heights: Any) -> pa.Table:
        keys, position = self._positions(span, heights, self.transfers)
        indexes = position["tx_index"]
        of_transactions, _ = self._positions(span, heights, (self.transfers + 1) // 2)
        hashes = np.array(_hashes(of_transactions), object).reshape(len(heights), -1)
        columns = {
            "tx_index": indexes // 2,
            "log_index": indexes,
            "item": 0,
            "tx_hash": np.repeat(hashes, 2, axis=1)[:, : self.transfers].reshape(-1),
            "standard": "erc20",
            "token": pa.array(TOKENS).take(pa.array(mixed(keys, 5) % np.uint64(len(TOKENS)))),
            "raw": _raws(mixed(keys, 6) % np.uint64(10**15)),
        }
        return _filled(TRANSFERS, len(keys), {**position, **columns, **self._parties(keys, indexes)})

    def _transactions(self, span: Span, heights: object) -> pa.Table:
        keys, position = self._positions(span, heights, (self.transfers + 1) // 2)
        columns = {
            "hash": _hashes(keys),
            "nonce": 1,
            "type": 2,
            "status": 1,
            "gas_used": 50_000,
            "raw": bytes(32),
            "gas_price": _raws(mixed(keys, 8) % np.uint64(10**10)),
            "fee": _raws(mixed(keys, 9) % np.uint64(10**14)),
        }
        return _filled(TRANSACTIONS, len(keys), {**position, **columns, **self._parties(keys, position["tx_index"])})


class GeneratedChain(InventedChain):
    """The chain behind its nodes. It inherits from the tests' chain in memory."""

    kind = "evm"
    datasets: Mapping[str, Dataset] = {name: DATASETS[name] for name in ("blocks", "transactions", "transfers")}
    default_datasets = tuple(datasets)
    capabilities = frozenset([Capability.PAST_BALANCES, Capability.TRANSACTIONS, Capability.HEAD_EVENTS])
    listener_failures = 0

    def __init__(self, ledger: GeneratedLedger, settings: EvmSettings) -> None:
        """Prepare a connection to the nodes; several may share a ledger."""
        super().__init__(KEY, settings, lambda: ledger)  # type: ignore[arg-type, return-value]
        self.generated, self.caip2 = ledger, CAIP2
        native = Token(Asset(CAIP2, "slip44", "60"), "ETH", "Ether", 18)
        self.info = ChainInfo("Generated", 31337, native, "erc20", ledger.block_ms)

    def _request(self) -> GeneratedLedger:
        """Count a request; Unavailable while no node answers."""
        self.requests += 1
        self.generated.requests += 1
        if self.generated.now_s() < self.generated.down_until_s:
            raise Unavailable(KEY, "no node answers")
        return self.generated

    async def announced(self, within_s: float) -> bool:
        """Wait for the next announcement, even beyond `within_s`, because no block appears before it."""
        period_s = self.generated.announce_s
        await asyncio.sleep(max(within_s, period_s - self.generated.now_s() % period_s))
        return True

    async def heads(self) -> Heads:
        """Return the newest block and the newest final height."""
        head = self._request().head
        self._final = max(self._final, head.height - self.generated.finality, 0)
        return Heads(head, self._final)

    async def block(self, height: int) -> Block:
        """Return the block at a height; NodeBehind above the head."""
        return (await self.blocks([height]))[0]

    async def blocks(self, heights: Sequence[int]) -> list[Block]:
        """Return the blocks at some heights; NodeBehind if one is above the head."""
        ledger = self._request()
        if heights and max(heights) > ledger.head_height:
            raise NodeBehind(KEY, f"block {max(heights)} is not there yet")
        return [ledger.block(height) for height in heights]

    async def collect(
        self,
        span: Span,
        datasets: Sequence[str],
        contracts: Sequence[str] = (),
        before: Block | None = None,
        events: Sequence[str] = (),
    ) -> SpanTables:
        """Return the rows of a span. Raises NodeBehind above the head, Reorged if `before` left the chain."""
        ledger = self._request()
        if span.last > ledger.head_height:
            raise NodeBehind(KEY, f"block {span.last} is not there yet")
        blocks = ledger.blocks(span)
        if before is not None and blocks[0].parent != before.hash:
            raise Reorged(KEY, before.height, before.hash)
        tables = ledger.rows(span, datasets)
        return SpanTables(span, tables, blocks[-1], blocks, sum(map(len, tables.values())), 0, True)

    async def answer(self, reads: Sequence[Read[Any]], block: Block) -> list[Any]:
        """Answer reads at a block: all accounts have equal balances. Reorged if the block was replaced."""
        ledger = self._request()
        if block.height > ledger.head_height or ledger.block(block.height).hash != block.hash:
            raise Reorged(KEY, block.height, block.hash)
        return [self._answer(each) for each in reads]

    def _answer(self, read: Read[Any]) -> Any:
        if isinstance(read, TokenDetails):
            return (f"T{read.token[-2:]}", f"Token {read.token[-2:]}", 18)
        return HELD if isinstance(read, Balance) else Unknown("the generated chain has no contracts")

    async def look_up(self, transactions: Sequence[IndexedTransaction]) -> list[TransactionDetails]:
        """Return indexed transactions; Reorged if the chain has another one there."""
        ledger, results = self._request(), list[TransactionDetails]()
        for each in transactions:
            row = ledger.rows(Span(each.height, each.height), ["transactions"])["transactions"].slice(each.tx_index, 1)
            (columns,) = row.to_pylist()
            if columns["hash"] != each.tx_hash:
                raise Reorged(KEY, each.height, each.tx_hash)
            fee = int.from_bytes(columns["fee"], "big")
            results.append(TransactionDetails(columns["sender"], columns["recipient"], None, 0, fee, False, b""))
        return results
