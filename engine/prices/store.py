"""Prices that answers used, kept for ever: what was said of a final block once is said again, whatever its source says
later.

A price is kept in the tail first, where of two processes the first one wins. Prices of final blocks go on to the lake
(`prices`); the others wait until their block is final, or go with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import msgspec

from chainfolio.assets import Asset, asset
from chainfolio.blocks import Block, Span
from chainfolio.contracts import Price
from chainfolio.errors import Locked
from chainfolio.reads import ReadResult
from chainfolio.tables import BLOCKS, PRICES

if TYPE_CHECKING:
    from chainfolio.storage.lake import Lake
    from chainfolio.storage.tail import Tail

STREAM: Final = "prices"
DAY_US: Final = 86_400_000_000
MAX_MOVED: Final = 50_000  # rows of one commit
Shown = tuple[str, str | None, str | None, tuple[str, ...], tuple[str, ...]]


class KeptPrice(msgspec.Struct, frozen=True, array_like=True):
    """A price as it is kept: exact numbers as text, reads as answers show them."""

    usd: str
    source: str
    time_us: int
    confidence: str
    depth_usd: str | None = None
    detail: str = ""
    others: tuple[KeptPrice, ...] = ()
    calls: tuple[Shown, ...] = ()

    def price(self, of: Asset) -> Price:
        """The price of an asset."""
        return Price(
            of,
            Decimal(self.usd),
            self.source,
            self.time_us,
            Decimal(self.confidence),
            self.detail,
            tuple(ReadResult(KeptRead(shown[:4]), shown[4]) for shown in self.calls),
            None if self.depth_usd is None else Decimal(self.depth_usd),
            tuple(other.price(of) for other in self.others),
        )


@dataclass(frozen=True, slots=True)
class KeptRead:
    """A read that was made once, by what answers show of it."""

    shown: tuple[str, str | None, str | None, tuple[str, ...]]


def kept(price: Price) -> KeptPrice:
    """How a price is kept."""
    return KeptPrice(
        str(price.usd),
        price.source,
        price.time_us,
        str(price.confidence),
        None if price.depth_usd is None else str(price.depth_usd),
        price.detail,
        tuple(kept(other) for other in price.alternatives),
        tuple(map(_shown, price.calls)),
    )


def _shown(call: ReadResult) -> Shown:
    method, to, function, arguments = call.read.shown
    results = call.result if isinstance(call.result, tuple) else (call.result,)
    return method, to, function, tuple(map(_text, arguments)), tuple(map(_text, results))


def _text(value: object) -> str:
    return f"0x{value.hex()}" if isinstance(value, bytes) else str(value)


@dataclass(slots=True)
class PriceStore:
    """What is kept of one chain. Every method reads or writes files: call them in a thread."""

    chain: str
    lake: Lake
    tail: Tail
    _newest: tuple[Block, dict[Asset, Price]] | None = None

    def at(self, block: Block) -> dict[Asset, Price]:
        """The prices that are kept of a block: what the lake has, then what was said of its hash."""
        return self.at_each([block])[block.height]

    def at_each(self, blocks: Sequence[Block]) -> dict[int, dict[Asset, Price]]:
        """The same of several blocks, by height."""
        found = self._stored(block.height for block in blocks)
        for block in blocks:
            here = found.setdefault(block.height, {})
            waiting = sorted(self.tail.prices(self.chain, block.height))  # those of a final block, without hash, first
            for hash_, of, blob in waiting:
                known = asset(of)
                if hash_ in ("", block.hash) and known not in here:
                    here[known] = _decoded(blob).price(known)
        return found

    def keep(self, block: Block, prices: Iterable[Price], *, final: bool) -> dict[Asset, Price]:
        """Keep prices of a block; what is kept of these assets then: another process may have been first."""
        written = {str(price.asset): msgspec.json.encode(kept(price)) for price in prices}
        if not written or not (final or block.hash):
            return {}
        at = Block(block.height, "" if final else block.hash, "", block.time_us)
        said = self.tail.store_prices(self.chain, at, written)
        mine = {asset(of): _decoded(blob).price(asset(of)) for of, blob in said.items()}
        # What another process had moved before this one was put into the tail is in the lake.
        moved = self._stored([block.height])[block.height] if final else {}
        used = {of: moved.get(of, price) for of, price in mine.items()}
        if self._newest is not None and block.height >= self._newest[0].height:
            self._newest = block, {**self._newest[1], **used}
        return used

    def recent(self, block: Block, days: int) -> dict[Asset, Price]:
        """The last price of each asset that is kept of the days before a block."""
        since_us = block.time_us - days * DAY_US
        known = self._newest
        if known is None or known[0].height > block.height:
            found = self._last_before(block, since_us)
            if known is None:
                self._newest = block, found
            known = block, found
        return {of: price for of, price in known[1].items() if price.time_us >= since_us}

    def before_each(self, blocks: Sequence[Block], days: int) -> list[tuple[int, Price]]:
        """The prices that are kept of before some blocks and of the days before the first of them, by height: of each
        asset those that are the last before one of the blocks."""
        import polars as pl

        heights = sorted(block.height for block in blocks)
        since_us = min(block.time_us for block in blocks) - days * DAY_US
        waiting = self.tail.pending_prices(self.chain, heights[-1] - 1)
        found = [(height, _decoded(blob).price(asset(of))) for _, height, _, _, of, blob in waiting]
        if self.lake.exists(PRICES):
            turn = pl.lit(pl.Series(heights)).search_sorted(pl.col("height"), side="right")
            rows = (
                self.lake.scan(PRICES, chain=self.chain, heights=[Span(0, max(heights[-1] - 1, 0))])
                .filter((pl.col("height") < heights[-1]) & (pl.col("observed") >= _moment(since_us)))
                .sort("height")
                .unique([turn.alias("turn"), "asset"], keep="last")
                .collect()
            )
            found += [(row["height"], _of_row(row)) for row in rows.to_dicts()]
        return sorted((each for each in found if each[1].time_us >= since_us), key=lambda each: each[0])

    def _last_before(self, block: Block, since_us: int) -> dict[Asset, Price]:
        import polars as pl

        found: dict[Asset, Price] = {}
        if self.lake.exists(PRICES):
            rows = (
                self.lake.scan(PRICES, chain=self.chain, heights=[Span(0, max(block.height - 1, 0))])
                .filter((pl.col("height") < block.height) & (pl.col("observed") >= _moment(since_us)))
                .sort("height")
                .unique("asset", keep="last")
                .collect()
            )
            found = {asset(row["asset"]): _of_row(row) for row in rows.to_dicts()}
        waiting = self.tail.pending_prices(self.chain, block.height - 1)
        for _, _, _, _, of, blob in sorted(waiting, key=lambda row: row[1]):
            price = _decoded(blob).price(asset(of))
            if price.asset not in found or price.time_us >= found[price.asset].time_us:
                found[price.asset] = price
        return found

    def waits(self) -> bool:
        """Whether there are prices on their way to the lake."""
        return self.tail.has_prices(self.chain)

    def settle_final(self) -> int:
        """Move the prices of blocks that were final when they were kept, and so of all below; how many."""
        final = self.tail.last_final_price(self.chain)
        return 0 if final is None else self.settle(final)[0]

    def settle(self, final: int, hashes: Mapping[int, str] | None = None) -> tuple[int, list[int]]:
        """Move what is kept of final blocks to the lake, and drop what is of blocks that left the chain. How many rows
        were moved, and the heights whose block is known neither to the index nor to `hashes`."""
        try:
            with self.tail.lock_prices(self.chain):
                return self._settled(final, hashes or {})
        except Locked:  # another process does it
            return 0, []

    def _settled(self, final: int, hashes: Mapping[int, str]) -> tuple[int, list[int]]:
        waiting = self.tail.pending_prices(self.chain, final)[:MAX_MOVED]
        if not waiting:
            return 0, []
        known = {**self._hashes({height for _, height, hash_, *_ in waiting if hash_}), **hashes}
        lost = [number for number, height, hash_, *_ in waiting if hash_ and known.get(height, hash_) != hash_]
        sure = [row for row in waiting if not row[2] or known.get(row[1]) == row[2]]
        stored = self._stored({height for _, height, *_ in sure})
        rows: dict[tuple[int, str], dict[str, Any]] = {}
        for _, height, _, time_us, of, blob in sorted(sure, key=lambda row: (row[2] != "", row[0])):
            # The lake has it where this was killed before the tail let go of it.
            if asset(of) not in stored[height]:
                rows.setdefault((height, of), self._row(height, time_us, of, _decoded(blob)))
        if rows:
            self._append([rows[key] for key in sorted(rows)])
        self.tail.drop_prices(self.chain, [*lost, *(row[0] for row in sure)])
        return len(rows), sorted({row[1] for row in waiting if row[2] and row[1] not in known})

    def _append(self, rows: list[dict[str, Any]]) -> None:
        import pyarrow as pa

        stream = f"{self.chain}/{STREAM}"
        content = pa.Table.from_pylist(rows, schema=PRICES.schema())
        self.lake.append(PRICES, content, stream=stream, batch=self.lake.last(PRICES, stream) + 1)

    def _row(self, height: int, time_us: int, of: str, price: KeptPrice) -> dict[str, Any]:
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

    def _stored(self, heights: Iterable[int]) -> dict[int, dict[Asset, Price]]:
        """What the lake has of some heights."""
        import polars as pl

        found: dict[int, dict[Asset, Price]] = {height: {} for height in heights}
        if found and self.lake.exists(PRICES):
            spans = [Span(height, height) for height in found]
            rows = self.lake.scan(PRICES, chain=self.chain, heights=spans).filter(pl.col("height").is_in(list(found)))
            for row in rows.collect().to_dicts():
                found[row["height"]][asset(row["asset"])] = _of_row(row)
        return found

    def _hashes(self, heights: set[int]) -> dict[int, str]:
        """The hashes of blocks that the index knows."""
        import polars as pl

        known = {block.height: block.hash for block in self.tail.blocks(self.chain) if block.height in heights}
        anchor, left = self.tail.anchor(self.chain), heights - known.keys()
        if anchor is not None and anchor.height in left:
            known[anchor.height] = anchor.hash
        if left and self.lake.exists(BLOCKS):
            rows = self.lake.scan(BLOCKS, chain=self.chain, heights=[Span(each, each) for each in left])
            found = rows.filter(pl.col("height").is_in(list(left))).select("height", "hash").collect()
            known |= dict(found.iter_rows())
        return known


def _moment(time_us: int) -> Any:
    import polars as pl

    return pl.lit(time_us).cast(pl.Datetime("us", "UTC"))


def _decoded(blob: bytes | str) -> KeptPrice:
    return msgspec.json.decode(blob, type=KeptPrice)


def _of_row(row: Mapping[str, Any]) -> Price:
    observed_us = int(row["observed"].timestamp()) * 1_000_000 + row["observed"].microsecond
    others = msgspec.json.decode(row["others"], type=tuple[KeptPrice, ...])
    calls = msgspec.json.decode(row["calls"], type=tuple[Shown, ...])
    price = KeptPrice(
        row["usd"], row["source"], observed_us, row["confidence"], row["depth_usd"], row["detail"], others, calls
    )
    return price.price(asset(row["asset"]))
