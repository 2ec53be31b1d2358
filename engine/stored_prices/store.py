"""Stored prices: a price at a final block never changes, whatever its source says later.

A price is first stored in the tail, where the first of several processes wins. Prices of final blocks move on to the
lake (`prices`); the others wait until their block is final, or are deleted with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

import msgspec

from chainfolio.assets import Asset, asset
from chainfolio.blocks import Block, Span
from chainfolio.contracts import Price
from chainfolio.errors import Locked
from chainfolio.reads import Read, ReadResult
from chainfolio.tables import BLOCKS, PRICES

if TYPE_CHECKING:
    import polars as pl

    from chainfolio.storage.lake import Lake
    from chainfolio.storage.tail import Tail

STREAM: Final = "prices"
REFUSED: Final = "/unpriced/1/"  # before a digest of the sources, in the store of looked-up transactions
DAY_US: Final = 86_400_000_000
MAX_BATCH_ROWS: Final = 50_000  # rows of one commit
CallFields = tuple[str, str | None, str | None, tuple[str, ...], tuple[str, ...]]


class StoredPrice(msgspec.Struct, frozen=True, array_like=True):
    """A price as it is stored: exact numbers as text, reads as answers show them."""

    usd: str
    source: str
    time_us: int
    confidence: str
    depth_usd: str | None = None
    detail: str = ""
    others: tuple[StoredPrice, ...] = ()
    calls: tuple[CallFields, ...] = ()

    def price(self, of: Asset) -> Price:
        """Return the price, as one of the asset `of`, with its alternatives."""
        return Price(
            of,
            Decimal(self.usd),
            self.source,
            self.time_us,
            Decimal(self.confidence),
            self.detail,
            tuple(ReadResult(StoredRead(call[:4]), call[4]) for call in self.calls),
            None if self.depth_usd is None else Decimal(self.depth_usd),
            tuple(alternative.price(of) for alternative in self.others),
        )


@dataclass(frozen=True, slots=True)
class StoredRead(Read[object]):
    """A read that was made earlier, reduced to the fields that answers show."""

    label: tuple[str, str | None, str | None, tuple[str, ...]]


_PRICE: Final = msgspec.json.Decoder(StoredPrice)
_ALTERNATIVES: Final = msgspec.json.Decoder(tuple[StoredPrice, ...])
_CALLS: Final = msgspec.json.Decoder(tuple[CallFields, ...])


def stored_price(price: Price) -> StoredPrice:
    """Return a price in its stored form, with its alternatives and reads."""
    return StoredPrice(
        str(price.usd),
        price.source,
        price.time_us,
        str(price.confidence),
        None if price.depth_usd is None else str(price.depth_usd),
        price.detail,
        tuple(stored_price(alternative) for alternative in price.alternatives),
        tuple(map(_call_fields, price.calls)),
    )


def _call_fields(call: ReadResult) -> CallFields:
    method, to, function, arguments = call.read.label
    results = call.result if isinstance(call.result, tuple) else (call.result,)
    return method, to, function, tuple(map(_text, arguments)), tuple(map(_text, results))


def _text(value: object) -> str:
    return f"0x{value.hex()}" if isinstance(value, bytes) else str(value)


@dataclass(slots=True)
class PriceStore:
    """The stored prices of one chain. Every method reads or writes files: call them in a thread.

    Attributes:
        repeats_reads: Answers of nodes are stored for a while, so reads of a new block are sent as they were before.
        sources: Digest of the sources of prices. Refusals of other sources do not count; empty to store none.
    """

    chain: str
    lake: Lake
    tail: Tail
    repeats_reads: bool = False
    sources: str = ""
    _newest: tuple[Block, dict[Asset, Price]] | None = None
    _lock: Lock = field(default_factory=Lock)

    def at(self, block: Block) -> dict[Asset, Price]:
        """Return the stored prices at a block: those in the lake first, then those of its hash."""
        return self.at_each([block])[block.height]

    def at_each(self, blocks: Sequence[Block]) -> dict[int, dict[Asset, Price]]:
        """Return the stored prices at each block, by height; empty for a block without prices.

        Prices of the tail count if their block was final or has the same hash. Those of the lake win.
        """
        prices = self._in_lake(block.height for block in blocks)
        for block in blocks:
            block_prices = prices.setdefault(block.height, {})
            waiting = sorted(
                self.tail.prices(self.chain, block.height)
            )  # prices of final blocks have no hash and come first
            for hash_, of, blob in waiting:
                priced_asset = asset(of)
                if hash_ in ("", block.hash) and priced_asset not in block_prices:
                    block_prices[priced_asset] = _decoded(blob).price(priced_asset)
        return prices

    def add(self, block: Block, prices: Iterable[Price], *, final: bool) -> dict[Asset, Price]:
        """Store prices at a block, and return the stored ones: another process may have been first.

        Nothing is stored for a block without a hash that is not final. Then the result is empty.
        """
        encoded = {str(price.asset): msgspec.json.encode(stored_price(price)) for price in prices}
        if not encoded or not (final or block.hash):
            return {}
        at = Block(block.height, "" if final else block.hash, "", block.time_us)
        stored = self.tail.store_prices(self.chain, at, encoded)
        stored_prices = {asset(of): _decoded(blob).price(asset(of)) for of, blob in stored.items()}
        # Another process may have moved an older price to the lake before this one was stored in the tail.
        lake_prices = self._in_lake([block.height])[block.height] if final else {}
        used = {of: lake_prices.get(of, price) for of, price in stored_prices.items()}
        with self._lock:
            if self._newest is not None and block.height >= self._newest[0].height:
                self._newest = block, {**self._newest[1], **used}
        return used

    def add_refused(self, height: int, assets: Iterable[Asset]) -> None:
        """Store that the sources refuse to price assets at a final block."""
        if names := [self._refused_name(height, each) for each in assets] if self.sources else []:
            self.tail.add_lookups(self.chain, [(name, height, None, b"") for name in names])

    def refused(self, assets_by_height: Mapping[int, Iterable[Asset]]) -> dict[int, list[Asset]]:
        """Return those of the assets that the sources refused to price at final blocks, by height."""
        if not self.sources:
            return {}
        named = {
            self._refused_name(height, each): (height, each)
            for height, assets in assets_by_height.items()
            for each in assets
        }
        refused: dict[int, list[Asset]] = {}
        for name in self.tail.lookups(self.chain, named) if named else ():
            height, refused_asset = named[name]
            refused.setdefault(height, []).append(refused_asset)
        return refused

    def _refused_name(self, height: int, refused_asset: Asset) -> str:
        return f"{REFUSED}{self.sources}/{height}/{refused_asset}"

    def recent(self, block: Block, days: int) -> dict[Asset, Price]:
        """Return the last stored price of each asset in the `days` before a block.

        The newest prices are cached: prices that this store adds at the block itself are included, those that other
        processes add later are not. After a price of a newer block was added, older blocks are read from the store
        again, without prices of the block itself.
        """
        since_us = block.time_us - days * DAY_US
        with self._lock:  # while files are read, `add` waits: its prices would be absent from what was read
            if self._newest is None:
                self._newest = block, self._last_before(block, since_us)
            newest = self._newest
        if newest[0].height > block.height:
            newest = block, self._last_before(block, since_us)
        return {of: price for of, price in newest[1].items() if price.time_us >= since_us}

    def before_each(self, blocks: Sequence[Block], days: int) -> list[tuple[int, Price]]:
        """Return stored prices below the highest of the blocks, by height.

        They are at most `days` older than the earliest block. From the lake, only the last price of each asset before
        each block is returned, from the tail all prices. There is at least one block.
        """
        import polars as pl

        heights = sorted(block.height for block in blocks)
        since_us = min(block.time_us for block in blocks) - days * DAY_US
        waiting = self.tail.pending_prices(self.chain, heights[-1] - 1)
        prices = [(height, _decoded(blob).price(asset(of))) for _, height, _, _, of, blob in waiting]
        if self.lake.exists(PRICES):
            turn = pl.lit(pl.Series(heights)).search_sorted(pl.col("height"), side="right")
            rows = (
                self.lake.scan(PRICES, chain=self.chain, heights=[Span(0, max(heights[-1] - 1, 0))])
                .filter((pl.col("height") < heights[-1]) & (pl.col("observed") >= _timestamp(since_us)))
                .sort("height")
                .unique([turn.alias("turn"), "asset"], keep="last")
            )
            prices += _prices_of(rows)
        return sorted((each for each in prices if each[1].time_us >= since_us), key=lambda each: each[0])

    def _last_before(self, block: Block, since_us: int) -> dict[Asset, Price]:
        """Return the newest stored price of each asset below a block and observed since a time.

        They come from the lake and the tail; assets without one are left out.
        """
        import polars as pl

        prices: dict[Asset, Price] = {}
        if self.lake.exists(PRICES):
            rows = (
                self.lake.scan(PRICES, chain=self.chain, heights=[Span(0, max(block.height - 1, 0))])
                .filter((pl.col("height") < block.height) & (pl.col("observed") >= _timestamp(since_us)))
                .sort("height")
                .unique("asset", keep="last")
            )
            prices = {price.asset: price for _, price in _prices_of(rows)}
        waiting = self.tail.pending_prices(self.chain, block.height - 1)
        for _, _, _, _, of, blob in sorted(waiting, key=lambda row: row[1]):
            price = _decoded(blob).price(asset(of))
            if price.asset not in prices or price.time_us >= prices[price.asset].time_us:
                prices[price.asset] = price
        return prices

    def has_waiting(self) -> bool:
        """Return True if prices wait for their move to the lake."""
        return self.tail.has_prices(self.chain)

    def settle_final(self) -> int:
        """Move prices at final blocks to the lake, and return their number.

        Blocks up to the newest one that was stored as final are final. At most MAX_BATCH_ROWS are moved.
        """
        final = self.tail.last_final_price(self.chain)
        return 0 if final is None else self.move_final(final)[0]

    def move_final(self, final: int, hashes: Mapping[int, str] | None = None) -> tuple[int, list[int]]:
        """Move prices at final blocks to the lake, and delete those of blocks that left the chain.

        At most MAX_BATCH_ROWS prices are handled; the caller repeats.

        Args:
            final: The height up to which blocks are final.
            hashes: Hashes of blocks, in addition to those of the index.

        Returns:
            The number of moved rows, and the heights of blocks without a known hash.
            (0, []) if another process moves them.
        """
        try:
            with self.tail.lock_prices(self.chain):
                return self._move_final(final, hashes or {})
        except Locked:  # another process moves them
            return 0, []

    def _move_final(self, final: int, hashes: Mapping[int, str]) -> tuple[int, list[int]]:
        """Move at most MAX_BATCH_ROWS final prices from the tail to the lake; return as `move_final`.

        Prices of blocks that left the chain are dropped. Prices with a block hash stay in the tail until the hash of
        their height is known, from `hashes` or the index. Prices that the lake has are deleted from the tail only.
        """
        waiting = self.tail.pending_prices(self.chain, final)[:MAX_BATCH_ROWS]
        if not waiting:
            return 0, []
        batch = self.lake.last(PRICES, self._stream) + 1  # before the lake is read: another process may write meanwhile
        known_hashes = {**self._hashes({height for _, height, hash_, *_ in waiting if hash_}), **hashes}
        reorged = [
            number for number, height, hash_, *_ in waiting if hash_ and known_hashes.get(height, hash_) != hash_
        ]
        confirmed = [row for row in waiting if not row[2] or known_hashes.get(row[1]) == row[2]]
        stored = self._in_lake({height for _, height, *_ in confirmed})
        rows: dict[tuple[int, str], dict[str, Any]] = {}
        for _, height, _, time_us, of, blob in sorted(confirmed, key=lambda row: (row[2] != "", row[0])):
            # The lake has the price if a process died between the commit and the deletion from the tail.
            if asset(of) not in stored[height]:
                rows.setdefault((height, of), self._row(height, time_us, of, _decoded(blob)))
        if rows:
            self._append([rows[key] for key in sorted(rows)], batch)
        self.tail.drop_prices(self.chain, [*reorged, *(row[0] for row in confirmed)])
        return len(rows), sorted({row[1] for row in waiting if row[2] and row[1] not in known_hashes})

    @property
    def _stream(self) -> str:
        return f"{self.chain}/{STREAM}"

    def _append(self, rows: list[dict[str, Any]], batch: int) -> None:
        """Write rows to the lake as one batch; Locked if another process wrote it."""
        import pyarrow as pa

        content = pa.Table.from_pylist(rows, schema=PRICES.schema())
        if not self.lake.append(PRICES, content, stream=self._stream, batch=batch):
            raise Locked("lake", f"another process moved prices of {self.chain}", remedy="try again")

    def _row(self, height: int, time_us: int, of: str, price: StoredPrice) -> dict[str, Any]:
        """Return the row of a price for the lake; `time_us` is the time of the block."""
        return {
            "chain": self.chain,
            "height": height,
            "time": time_us,
            "asset": of,
            "usd": price.usd,
            "source": price.source,
            "observed": price.time_us,
            "confidence": price.confidence,
            "depth_usd": price.depth_usd,
            "detail": price.detail,
            "others": msgspec.json.encode(price.others).decode(),
            "calls": msgspec.json.encode(price.calls).decode(),
        }

    def _in_lake(self, heights: Iterable[int]) -> dict[int, dict[Asset, Price]]:
        """Return the prices in the lake at some heights; each height has an entry."""
        import polars as pl

        prices: dict[int, dict[Asset, Price]] = {height: {} for height in heights}
        if prices and self.lake.exists(PRICES):
            spans = [Span(height, height) for height in prices]
            rows = self.lake.scan(PRICES, chain=self.chain, heights=spans).filter(pl.col("height").is_in(list(prices)))
            for height, price in _prices_of(rows):
                prices[height][price.asset] = price
        return prices

    def _hashes(self, heights: set[int]) -> dict[int, str]:
        """Return the hashes of blocks that the index knows, by height: of the tail, its anchor, and the lake."""
        import polars as pl

        hashes = {block.height: block.hash for block in self.tail.blocks(self.chain) if block.height in heights}
        anchor, missing = self.tail.anchor(self.chain), heights - hashes.keys()
        if anchor is not None and anchor.height in missing:
            hashes[anchor.height] = anchor.hash
        if missing and self.lake.exists(BLOCKS):
            rows = self.lake.scan(BLOCKS, chain=self.chain, heights=[Span(each, each) for each in missing])
            rows_of_blocks = rows.filter(pl.col("height").is_in(list(missing))).select("height", "hash").collect()
            hashes |= dict(rows_of_blocks.iter_rows())
        return hashes


def _timestamp(time_us: int) -> Any:
    import polars as pl

    return pl.lit(time_us).cast(pl.Datetime("us", "UTC"))


def _decoded(blob: bytes | str) -> StoredPrice:
    return _PRICE.decode(blob)


def _prices_of(rows: pl.LazyFrame) -> Iterator[tuple[int, Price]]:
    """Yield height and price of each row of the lake, with its alternatives and calls."""
    import polars as pl

    asset_of = cache(asset)
    observed_us = pl.col("observed").dt.epoch("us")
    fields = ("usd", "source", observed_us, "confidence", "depth_usd", "detail", "others", "calls")
    for height, name, *values in rows.select("height", "asset", *fields).collect().iter_rows():
        usd, source, time_us, confidence, depth_usd, detail, others, calls = values
        alternatives, reads = _ALTERNATIVES.decode(others), _CALLS.decode(calls)
        price = StoredPrice(usd, source, time_us, confidence, depth_usd, detail, alternatives, reads)
        yield height, price.price(asset_of(name))
