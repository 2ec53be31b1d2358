"""The price of one asset at one block with its reasons: all sources, their outcomes, and the choice."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from chainfolio import addresses
from chainfolio.assets import Asset
from chainfolio.assets import asset as parsed
from chainfolio.block_search import block_before
from chainfolio.blocks import Block
from chainfolio.contracts import Price, Token
from chainfolio.errors import BadRequest
from chainfolio.plans import run_batched
from chainfolio.portfolio.frames import frame
from chainfolio.portfolio.pnl.entries import iso_time
from chainfolio.positions import MAX_READS, MAX_ROUNDS
from chainfolio.price_sources import RelativePrice
from chainfolio.pricing.rules import rules_of
from chainfolio.pricing.source_chain import SourceOutcome, query_sources

if TYPE_CHECKING:
    import polars as pl

    from chainfolio.chains import Chain
    from chainfolio.engine.snapshots.snapshotter import Snapshotter
    from chainfolio.indexer.parts import Chains

    SnapshotterOf = Callable[[Chain], Snapshotter]

COLUMNS = (
    "asset",
    "chain",
    "block",
    "hash",
    "time",
    "usd",
    "source",
    "observed",
    "confidence",
    "detail",
    "disagreement",
)
MAX_SHOWN = 8  # of the tokens or chains that a name may stand for
PLAIN_SYMBOL = re.compile(r"[\w.-]+", re.ASCII)  # needs no quotes in a shell, is no CAIP-19 name


@dataclass(frozen=True, slots=True)
class PriceReasons:
    """A price and the outcomes of its sources.

    Attributes:
        stored: The stored price, which answers about this block use; None if there is none.
        current: The price that the sources give now; None if they were not asked, or have none.
        outcomes: The outcomes of sources for the asset, and for the assets from which its price is derived.
    """

    asset: Asset
    chain: str
    block: Block
    stored: Price | None
    current: Price | None
    outcomes: tuple[SourceOutcome, ...] = ()
    disagreement: str = ""

    @property
    def price(self) -> Price | None:
        """The price: the stored one if there is one."""
        return self.stored or self.current

    def to_polars(self) -> pl.DataFrame:
        """Return one row (see `chainfolio.portfolio.frames`), without the sources' outcomes.

        Its price columns are null without a price.
        """
        fields = tree(self)
        price, block = fields["price"] or {}, fields["block"]
        row = [
            fields["asset"],
            fields["chain"],
            block["height"],
            block["hash"],
            iso_time(block["timeUs"]),
            *(price.get(name) for name in ("usd", "source")),
            iso_time(price.get("observedUs")),
            *(price.get(name) for name in ("confidence", "detail")),
            fields["disagreement"],
        ]
        return frame(COLUMNS, [row], numbers=("usd", "confidence"), times=("time", "observed"), counts=("block",))


async def explain_price(
    system: Chains, snapshotter_of: SnapshotterOf, asset_name: str, at: int | str | None, *, ask: bool
) -> PriceReasons:
    """Return the price of an asset at a block, with its reasons; store the price if none was stored.

    Args:
        asset_name: The asset, as for `find_asset`.
        at: A height, or a time or day (its 00:00 UTC) as text for the last block before it; None for the newest block.
        ask: Ask the sources even if a price is stored.

    Raises:
        BadRequest: The asset or the block is unknown.
        SourceError: The chain could not be read.
    """
    chain, target = find_asset(system, snapshotter_of, asset_name)
    snapshotter = snapshotter_of(chain)
    block = await _block(chain, at, system.environment.clock.now_us())
    store, rules = snapshotter.store, rules_of(snapshotter.sources)
    stored = (await asyncio.to_thread(store.at, block)).get(target) if store is not None else None
    if stored is not None and not ask:
        return PriceReasons(target, chain.key, block, stored, None, (), rules.guards.disagreements(stored))
    last = await asyncio.to_thread(store.recent, block, rules.guards.step_days) if store is not None else {}
    journal: list[SourceOutcome] = []
    plan = query_sources(snapshotter.sources, [target], block, last, journal)
    reports = await run_batched(
        {"": plan}, lambda reads: snapshotter.chain.answer(reads, block), max_rounds=MAX_ROUNDS, max_reads=MAX_READS
    )
    if (error := reports[""].error) is not None:
        raise error
    current = reports[""].result.prices[0] if reports[""].result and reports[""].result.prices else None
    if store is not None and stored is None and current is not None:
        used = await asyncio.to_thread(store.add, block, [current], final=chain.is_final(block.height))
        current = used.get(target, current)
        await snapshotter.settle_prices()
    price = stored or current
    disagreement = "" if price is None else rules.guards.disagreements(price)
    return PriceReasons(target, chain.key, block, stored, current, tuple(journal), disagreement)


def find_asset(system: Chains, snapshotter_of: SnapshotterOf, asset_name: str) -> tuple[Chain, Asset]:
    """Return the chain and asset of a name: CAIP-19, `chain:address`, `chain:SYMBOL` or a listed symbol.

    Raises:
        BadRequest: No asset has the name, or several have it.
    """
    if "/" in asset_name:
        target = parsed(asset_name)
        chain = next((each for each in system.chains if each.info.native.asset.chain == target.chain), None)
        if chain is None:
            raise BadRequest("asset", f"no configured chain is {target.chain}", remedy=_configured(system.chains))
        return chain, target
    key, colon, name = asset_name.rpartition(":")
    chains = [system.chain(key)] if colon else system.chains
    if colon and (address := addresses.rules_of(chains[0].kind).canonical(name)):
        return chains[0], chains[0].info.token_asset(address)
    matches = [(chain, asset) for chain in chains for asset in _tokens_with_symbol(snapshotter_of(chain), name)]
    if len(matches) != 1:
        problem = "several tokens have" if matches else "no token of the lists has"
        raise BadRequest("asset", f"{problem} the symbol {name[:40]!r}", remedy=_name_hint(matches, name, chains))
    return matches[0][0], matches[0][1].asset


def _tokens_with_symbol(snapshotter: Snapshotter, symbol: str) -> list[Token]:
    tokens = (snapshotter.native, *snapshotter.book.listed.values())
    return [token for token in tokens if token.symbol.casefold() == symbol.casefold()]


def _name_hint(matches: Sequence[tuple[Chain, Token]], symbol: str, chains: Sequence[Chain]) -> str:
    """Return a hint how to write the names of up to MAX_SHOWN matches; without matches, of any token."""
    if not matches:
        addressed = " or ".join(f"{chain.key}:ADDRESS" for chain in chains[:MAX_SHOWN])
        return f"write its CAIP-19 name, or its address: {addressed}"
    times = Counter(chain.key for chain, _ in matches)
    names = [
        f"{chain.key}:{symbol}"
        if times[chain.key] == 1 and PLAIN_SYMBOL.fullmatch(symbol)
        else _by_address(chain, token)
        for chain, token in matches[:MAX_SHOWN]
    ]
    remainder = (
        f" (and {len(matches) - MAX_SHOWN} more: name the chain, as in {names[0]})" if len(matches) > MAX_SHOWN else ""
    )
    return f"write {' or '.join(names)}{remainder}"


def _by_address(chain: Chain, token: Token) -> str:
    name = str(token.asset) if token.asset.is_native else f"{chain.key}:{token.asset.reference}"
    return f"{name} ({token.name})"


def _configured(chains: Sequence[Chain]) -> str:
    return f"configured are {', '.join(sorted(chain.info.native.asset.chain for chain in chains)) or 'none'}"


async def _block(chain: Chain, at: int | str | None, now_us: int) -> Block:
    """Return the block at a height, the last one before a time as text, or the newest one.

    Raises:
        BadRequest: The block is before the chain began, above the head, or in the future.
    """
    head = (await chain.heads()).latest
    if at is None:
        return head
    if isinstance(at, int):
        if at > head.height:
            raise BadRequest("at", f"block {at} is above the head of {chain.key}, which is block {head.height}")
        return await chain.block(at)
    moment_us = _parse_time_us(at)
    if moment_us > now_us:
        raise BadRequest("at", f"{at} is in the future")
    block = head if moment_us > head.time_us else await block_before(chain, moment_us)
    if block is None:
        raise BadRequest("at", f"{chain.key} began after {at}")
    return block


def _parse_time_us(text: str) -> int:
    """Return a time, or 00:00 of a day, as microseconds since 1970; UTC without a zone. Raises BadRequest."""
    try:
        parsed_time = datetime.fromisoformat(text)
        parsed_time = parsed_time.replace(tzinfo=UTC) if parsed_time.tzinfo is None else parsed_time.astimezone(UTC)
    except (ValueError, OverflowError):
        raise BadRequest(
            "at",
            f"{text[:40]!r} is no block and no moment",
            remedy="for example 2024-02-29, or 2024-02-29T12:00:00Z",
        ) from None
    return (parsed_time - datetime(1970, 1, 1, tzinfo=UTC)) // (datetime.resolution)


def tree(reasons: PriceReasons) -> dict[str, Any]:
    """Return the reasons as `asset`, `chain`, `block`, `price`, `kept`, `disagreement` and `sources`.

    Values are plain, exact numbers are text. `kept` is True if the price was stored before.
    """
    return {
        "asset": str(reasons.asset),
        "chain": reasons.chain,
        "block": {"height": reasons.block.height, "hash": reasons.block.hash, "timeUs": reasons.block.time_us},
        "price": _price_fields(reasons.price),
        "kept": reasons.stored is not None,
        "disagreement": reasons.disagreement or None,
        "sources": _sources(reasons.asset, reasons.outcomes, ()),
    }


def _sources(of: Asset, outcomes: Sequence[SourceOutcome], above: tuple[Asset, ...]) -> list[dict[str, Any]]:
    """Return `source` and `outcome` of each source for an asset, and the price, the reason or the parts.

    Args:
        above: Assets that the asset is a part of: their sources are not repeated.
    """
    steps: list[dict[str, Any]] = []
    for _, source, outcome in (each for each in outcomes if each.asset == of):
        if outcome is None:
            steps.append({"source": source, "outcome": "does not know it"})
        elif isinstance(outcome, Price):
            steps.append(
                {
                    "source": source or outcome.source,
                    "outcome": "price" if source else "chosen",
                    **(_price_fields(outcome) or {}),
                }
            )
        elif isinstance(outcome, RelativePrice):
            parts = [
                {
                    "asset": str(part),
                    "amount": str(amount),
                    "sources": [] if part in (*above, of) else _sources(part, outcomes, (*above, of)),
                }
                for part, amount in outcome.parts
            ]
            steps.append({"source": source, "outcome": "relative", "detail": outcome.detail, "parts": parts})
        else:
            steps.append({"source": source, "outcome": "refused", "reason": outcome.reason})
    return steps


def _price_fields(price: Price | None) -> dict[str, Any] | None:
    """Return the fields of a price for JSON, exact numbers as text; None without a price."""
    if price is None:
        return None
    return {
        "usd": f"{price.usd:f}",
        "source": price.source,
        "observedUs": price.time_us,
        "confidence": str(price.confidence),
        "depthUsd": None if price.depth_usd is None else f"{price.depth_usd:f}",
        "detail": price.detail or None,
    }
