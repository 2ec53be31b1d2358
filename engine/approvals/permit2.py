"""What Permit2 lets others take: allowances inside that contract, found by its events, read from it at a block."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from chainfolio import amounts
from chainfolio.assets import Asset
from chainfolio.blocks import Block, Span, Spans
from chainfolio.chains import Capability, require_capability
from chainfolio.contracts import Holding, Price, Token
from chainfolio.engine.answers import Permitted, Place
from chainfolio.engine.approvals.pages import time_us
from chainfolio.engine.rows import rows_of
from chainfolio.engine.snapshots.account_index import unindexed
from chainfolio.engine.snapshots.snapshotter import Snapshotter
from chainfolio.errors import BadAnswer, NotIndexed, NotSupported
from chainfolio.indexer.materialise import of_events
from chainfolio.plans import run_batched
from chainfolio.portfolio.valuation import value_holding
from chainfolio.tables import ACCOUNT_EVENTS

if TYPE_CHECKING:
    from chainfolio.approvals import PermissionState
    from chainfolio.chains import Chain
    from chainfolio.storage.lake import Lake
    from chainfolio.storage.tail import Tail

US: Final = 1_000_000
COLUMNS: Final = ("account", "place", "height", "log_index", "time", "tx_hash", "address", "topic2", "topic3")


async def permitted(
    snapshotter: Snapshotter, owners: Sequence[str], contracts: Collection[str], block: Block
) -> tuple[Permitted, ...]:
    """All that Permit2 still lets others take from owners at a block, the newest first: three requests at most.

    Unserved where no Permit2 is known on the chain, NotIndexed where its events are not indexed up to the block.
    """
    chain = snapshotter.chain
    if not contracts:
        remedy = "the operator adds its address there to configs/spenders/permit2.toml"
        raise NotSupported("the allowances inside Permit2", f"No Permit2 is known on {chain.key}", remedy=remedy)
    approves = require_capability(chain, Capability.APPROVALS)
    filters = approves.permission_filters(contracts)
    _check(snapshotter.tail, chain.key, owners, filters, block.height)
    granted = await asyncio.to_thread(latest, snapshotter.lake, snapshotter.tail, chain, owners, filters, block)
    if not granted:
        return ()
    tokens = {each.token: chain.info.token_asset(each.token) for each in granted}
    about = await snapshotter.token_context(tokens.values(), block)
    if about.issues:
        raise BadAnswer(chain.key, f"{about.issues[0].adapter}: {about.issues[0].reason}")
    plan = approves.permissions(granted)
    report = (await run_batched({"permit2": plan}, lambda reads: chain.answer(reads, block)))["permit2"]
    if report.result is None:
        raise BadAnswer(chain.key, f"what is left inside Permit2 could not be read: {report.reason}")
    prices = {price.asset: price for price in about.quotes.prices}
    left = (
        _left(each, state, about.tokens[tokens[each.token]], prices, block)
        for each, state in zip(granted, report.result, strict=True)
    )
    return tuple(each for each in left if each is not None)


def _left(
    permission: Permitted, state: PermissionState, token: Token, prices: Mapping[Asset, Price], block: Block
) -> Permitted | None:
    """What is left of a permission; None where it was used up or taken back, or has expired: it moves nothing."""
    raw, expires_s, allowance, balance = state
    if raw == 0 or (expires_s is not None and expires_s < block.time_us // US):
        return None
    limits = (raw, allowance, balance)
    known = [limit for limit in limits if limit is not None]
    takes = 0 if 0 in known else min(known) if len(known) == len(limits) else None
    value_usd = (
        None
        if takes is None
        else value_holding(Holding(permission.owner, token, takes), "", block, prices.get(token.asset)).value_usd
    )
    at_risk = amounts.ZERO if takes == 0 else value_usd
    return replace(permission, raw=raw, expires_s=expires_s, balance=balance, takes=takes, at_risk=at_risk)


def latest(
    lake: Lake, tail: Tail, chain: Chain, owners: Sequence[str], filters: Collection[str], block: Block
) -> list[Permitted]:
    """The last event of each owner, token and spender up to a block, the newest first; nothing is known of it yet."""
    span, events, approves = Span(0, block.height), of_events(filters), require_capability(chain, Capability.APPROVALS)
    rows = rows_of(lake, tail, chain.key, ACCOUNT_EVENTS, owners, COLUMNS, span=span, where=events)
    last: dict[tuple[str, ...], Permitted] = {}
    for row in rows.sort("height", "log_index").iter_rows(named=True):
        if (named := approves.permission_of(row)) is not None:
            owner, token, spender = row["account"], *named
            place = Place(row["height"], row["log_index"], row["tx_hash"])
            last[row["address"], owner, token, spender] = Permitted(
                place, time_us(row["time"]), row["address"], token, owner, spender
            )
    return sorted(last.values(), key=lambda each: (each.place.height, each.place.log_index), reverse=True)


def _check(tail: Tail, chain: str, owners: Sequence[str], wanted: Sequence[str], height: int) -> None:
    """NotIndexed where one of the filters lacks a block for one of the owners."""
    lacking = Spans()
    for own in unindexed(tail, chain, height, wanted, owners).values():
        lacking |= Spans(span for spans in own.values() for span in spans)
    if lacking:
        first: Span = next(iter(lacking))
        raise NotIndexed(chain, "events", first.first, first.last)
