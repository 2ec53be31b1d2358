"""What one asset was worth at one block, and why: every source that was asked, what it said, and what was chosen."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from chainfolio import addresses
from chainfolio.assets import Asset
from chainfolio.assets import asset as parsed
from chainfolio.block_search import block_before
from chainfolio.blocks import Block
from chainfolio.contracts import Price, Token
from chainfolio.engine.wiring import snapshotter_of
from chainfolio.errors import BadRequest
from chainfolio.plans import run_batched
from chainfolio.portfolio.frames import frame
from chainfolio.portfolio.pnl.report import iso_time
from chainfolio.positions import MAX_READS, MAX_ROUNDS
from chainfolio.pricing.quotes import RelativePrice
from chainfolio.pricing.rules import rules_of
from chainfolio.pricing.source_chain import SourceOutcome, query_sources

if TYPE_CHECKING:
    import polars as pl

    from chainfolio.chains import Chain
    from chainfolio.indexer.wiring import System

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
SHOWN = 8  # of the tokens or chains that somebody may have meant
PLAIN = re.compile(r"[\w.-]+", re.ASCII)  # a symbol that a shell leaves as it is, and that is no CAIP-19 name


@dataclass(frozen=True, slots=True)
class Reasons:
    """`kept` is the price that answers about this block have used, `found` what the sources say now, `said` everything
    they said of the asset and of those that it is worth some of."""

    asset: Asset
    chain: str
    block: Block
    kept: Price | None
    found: Price | None
    said: tuple[SourceOutcome, ...] = ()
    disagreement: str = ""

    @property
    def price(self) -> Price | None:
        """The price: the one that is kept, where one is."""
        return self.kept or self.found

    def to_polars(self) -> pl.DataFrame:
        """One row, as `chainfolio.portfolio.frames` says; without a price, what a price has is null."""
        found = tree(self)
        price, block = found["price"] or {}, found["block"]
        row = [
            found["asset"],
            found["chain"],
            block["height"],
            block["hash"],
            iso_time(block["timeUs"]),
            *(price.get(name) for name in ("usd", "source")),
            iso_time(price.get("observedUs")),
            *(price.get(name) for name in ("confidence", "detail")),
            found["disagreement"],
        ]
        return frame(COLUMNS, [row], numbers=("usd", "confidence"), times=("time", "observed"), counts=("block",))


async def reasons(system: System, written: str, at: int | str | None, *, ask: bool) -> Reasons:
    """The price of an asset at a block (a height, or a moment as text; None: the newest). With `ask` its sources are
    asked even where a price is kept."""
    chain, wanted = named(system, written)
    taking = snapshotter_of(system, chain)
    block = await _block(system, chain, at)
    store, rules = taking.store, rules_of(taking.sources)
    kept = (await asyncio.to_thread(store.at, block)).get(wanted) if store is not None else None
    if kept is not None and not ask:
        return Reasons(wanted, chain.key, block, kept, None, (), rules.guards.disagreements(kept))
    last = await asyncio.to_thread(store.recent, block, rules.guards.step_days) if store is not None else {}
    journal: list[SourceOutcome] = []
    plan = query_sources(taking.sources, [wanted], block, last, journal)
    reports = await run_batched(
        {"": plan}, lambda reads: taking.chain.answer(reads, block), max_rounds=MAX_ROUNDS, max_reads=MAX_READS
    )
    if (error := reports[""].error) is not None:
        raise error
    found = reports[""].result.prices[0] if reports[""].result and reports[""].result.prices else None
    if store is not None and kept is None and found is not None:
        used = await asyncio.to_thread(store.keep, block, [found], final=chain.is_final(block.height))
        found = used.get(wanted, found)
        await taking.settle_prices()
    price = kept or found
    disagreement = "" if price is None else rules.guards.disagreements(price)
    return Reasons(wanted, chain.key, block, kept, found, tuple(journal), disagreement)


def named(system: System, written: str) -> tuple[Chain, Asset]:
    """The chain and the asset that somebody means: a CAIP-19 name, `chain:address`, `chain:SYMBOL`, or a symbol of the
    token lists alone. BadRequest where nothing has that name, or several have."""
    if "/" in written:
        wanted = parsed(written)
        chain = next((each for each in system.chains if each.info.native.asset.chain == wanted.chain), None)
        if chain is None:
            raise BadRequest("asset", f"no configured chain is {wanted.chain}", remedy=_configured(system))
        return chain, wanted
    key, colon, name = written.rpartition(":")
    chains = [system.chain(key)] if colon else system.chains
    if colon and (address := addresses.rules_of(chains[0].kind).canonical(name)):
        return chains[0], chains[0].info.token_asset(address)
    found = [(chain, asset) for chain in chains for asset in _of_symbol(system, chain, name)]
    if len(found) != 1:
        said = "several tokens have" if found else "no token of the lists has"
        raise BadRequest("asset", f"{said} the symbol {name[:40]!r}", remedy=_ways(found, name, chains))
    return found[0][0], found[0][1].asset


def _of_symbol(system: System, chain: Chain, symbol: str) -> list[Token]:
    native = chain.info.native
    listed = snapshotter_of(system, chain).book.listed.values()
    return [token for token in (native, *listed) if token.symbol.casefold() == symbol.casefold()]


def _ways(found: Sequence[tuple[Chain, Token]], symbol: str, chains: Sequence[Chain]) -> str:
    """How each of some tokens is written, as a shell takes it; where there are none, how any token is."""
    if not found:
        addressed = " or ".join(f"{chain.key}:ADDRESS" for chain in chains[:SHOWN])
        return f"write its CAIP-19 name, or its address: {addressed}"
    times = Counter(chain.key for chain, _ in found)
    ways = [
        f"{chain.key}:{symbol}" if times[chain.key] == 1 and PLAIN.fullmatch(symbol) else _by_address(chain, token)
        for chain, token in found[:SHOWN]
    ]
    more = f" (and {len(found) - SHOWN} more: name the chain, as in {ways[0]})" if len(found) > SHOWN else ""
    return f"write {' or '.join(ways)}{more}"


def _by_address(chain: Chain, token: Token) -> str:
    way = str(token.asset) if token.asset.is_native else f"{chain.key}:{token.asset.reference}"
    return f"{way} ({token.name})"


def _configured(system: System) -> str:
    return f"configured are {', '.join(sorted(chain.info.native.asset.chain for chain in system.chains)) or 'none'}"


async def _block(system: System, chain: Chain, at: int | str | None) -> Block:
    """The block that is meant; BadRequest for one before the chain began or after now."""
    now_us = system.environment.clock.now_us()
    head = (await chain.heads()).latest
    if at is None:
        return head
    if isinstance(at, int):
        if at > head.height:
            raise BadRequest("at", f"block {at} is above the head of {chain.key}, which is block {head.height}")
        return await chain.block(at)
    moment_us = _moment_us(at)
    if moment_us > now_us:
        raise BadRequest("at", f"{at} is in the future")
    found = head if moment_us > head.time_us else await block_before(chain, moment_us)
    if found is None:
        raise BadRequest("at", f"{chain.key} began after {at}")
    return found


def _moment_us(written: str) -> int:
    from datetime import UTC, datetime

    try:
        moment = datetime.fromisoformat(written)
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        raise BadRequest(
            "at",
            f"{written[:40]!r} is no block and no moment",
            remedy="for example 2024-02-29, or 2024-02-29T12:00:00Z",
        ) from None
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // (datetime.resolution)


def tree(found: Reasons) -> dict[str, Any]:
    """The reasons as a tree of plain values: exact numbers as text."""
    return {
        "asset": str(found.asset),
        "chain": found.chain,
        "block": {"height": found.block.height, "hash": found.block.hash, "timeUs": found.block.time_us},
        "price": _priced(found.price),
        "kept": found.kept is not None,
        "disagreement": found.disagreement or None,
        "sources": _sources(found.asset, found.said, ()),
    }


def _sources(of: Asset, said: Sequence[SourceOutcome], above: tuple[Asset, ...]) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = []
    for _, source, outcome in (each for each in said if each.asset == of):
        if outcome is None:
            steps.append({"source": source, "outcome": "does not know it"})
        elif isinstance(outcome, Price):
            steps.append(
                {
                    "source": source or outcome.source,
                    "outcome": "price" if source else "chosen",
                    **(_priced(outcome) or {}),
                }
            )
        elif isinstance(outcome, RelativePrice):
            parts = [
                {
                    "asset": str(part),
                    "amount": str(amount),
                    "sources": [] if part in (*above, of) else _sources(part, said, (*above, of)),
                }
                for part, amount in outcome.parts
            ]
            steps.append({"source": source, "outcome": "relative", "detail": outcome.detail, "parts": parts})
        else:
            steps.append({"source": source, "outcome": "refused", "reason": outcome.reason})
    return steps


def _priced(price: Price | None) -> dict[str, Any] | None:
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
