"""Allowances inside the Permit2 contract: found by its events, read from it at one block."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from chainfolio import amounts
from chainfolio.assets import Asset
from chainfolio.blocks import Block, Span, Spans
from chainfolio.capabilities import Capability, require_capability
from chainfolio.contracts import Holding, Price, Token
from chainfolio.engine.approvals.pages import time_us
from chainfolio.engine.results import EventPosition, Permit2Allowance
from chainfolio.engine.rows import ChainIndex, rows_of
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


async def read_permit2_allowances(
    snapshotter: Snapshotter, owners: Sequence[str], contracts: Collection[str], block: Block
) -> tuple[Permit2Allowance, ...]:
    """Read the Permit2 allowances in force at a block, newest first: at most three requests.

    Raises:
        NotSupported: No Permit2 contract of the chain is known.
        NotIndexed: Its events are not indexed up to the block.
        BadAnswer: The tokens or the allowances could not be read.
        SourceError: The node does not answer.
    """
    chain = snapshotter.chain
    if not contracts:
        remedy = "the operator adds its address there to configs/spenders/permit2.toml"
        raise NotSupported("the allowances inside Permit2", f"No Permit2 is known on {chain.key}", remedy=remedy)
    approves = require_capability(chain, Capability.APPROVALS)
    filters = approves.permission_filters(contracts)
    _check_indexed(snapshotter.tail, chain.key, owners, filters, block.height)
    granted = await asyncio.to_thread(
        latest_permissions, snapshotter.lake, snapshotter.tail, chain, owners, filters, block
    )
    if not granted:
        return ()
    tokens = {each.token: chain.info.token_asset(each.token) for each in granted}
    context = await snapshotter.token_context(tokens.values(), block)
    if context.issues:
        raise BadAnswer(chain.key, f"{context.issues[0].adapter}: {context.issues[0].reason}")
    plan = approves.permissions(granted)
    report = (await run_batched({"permit2": plan}, lambda reads: chain.answer(reads, block)))["permit2"]
    if report.result is None:
        raise BadAnswer(chain.key, f"what is left inside Permit2 could not be read: {report.reason}")
    prices = {price.asset: price for price in context.quotes.prices}
    permissions = (
        _current(each, state, context.tokens[tokens[each.token]], prices, block)
        for each, state in zip(granted, report.result, strict=True)
    )
    return tuple(each for each in permissions if each is not None)


def _current(
    permission: Permit2Allowance, state: PermissionState, token: Token, prices: Mapping[Asset, Price], block: Block
) -> Permit2Allowance | None:
    """Return the permission with its current state; None if it is used up, revoked or expired.

    What can be taken is the least of the permission, the allowance of Permit2 and the balance. It is None if one of
    them is unknown and none is 0. Nothing is at risk if nothing can be taken; the value is None if it is unknown.
    """
    raw, expires_s, allowance, balance = state
    if raw == 0 or (expires_s is not None and expires_s < block.time_us // US):
        return None
    limits = (raw, allowance, balance)
    known_limits = [limit for limit in limits if limit is not None]
    takeable = 0 if 0 in known_limits else min(known_limits) if len(known_limits) == len(limits) else None
    value_usd = (
        None
        if takeable is None
        else value_holding(Holding(permission.owner, token, takeable), "", block, prices.get(token.asset)).value_usd
    )
    at_risk = amounts.ZERO if takeable == 0 else value_usd
    return replace(permission, raw=raw, expires_s=expires_s, balance=balance, takeable=takeable, at_risk=at_risk)


def latest_permissions(
    lake: Lake, tail: Tail, chain: Chain, owners: Sequence[str], filters: Collection[str], block: Block
) -> list[Permit2Allowance]:
    """Return the last permission per owner, token and spender up to a block, newest first, without state.

    Contracts of Permit2 count separately. Revoked permissions are included: only the state shows it.
    """
    span, events, approves = Span(0, block.height), of_events(filters), require_capability(chain, Capability.APPROVALS)
    rows = rows_of(ChainIndex(lake, tail, chain.key), ACCOUNT_EVENTS, owners, COLUMNS, span=span, where=events)
    last_by_key: dict[tuple[str, ...], Permit2Allowance] = {}
    for row in rows.sort("height", "log_index").iter_rows(named=True):
        if (named_permission := approves.permission_of(row)) is not None:
            owner, token, spender = row["account"], *named_permission
            position = EventPosition(row["height"], row["log_index"], row["tx_hash"])
            last_by_key[row["address"], owner, token, spender] = Permit2Allowance(
                position, time_us(row["time"]), row["address"], token, owner, spender
            )
    return sorted(last_by_key.values(), key=lambda each: (each.position.height, each.position.log_index), reverse=True)


def _check_indexed(tail: Tail, chain: str, owners: Sequence[str], filters: Sequence[str], height: int) -> None:
    """Raise NotIndexed for the first missing blocks of any of the filters for any of the owners."""
    missing = Spans()
    for unindexed_by_filter in unindexed(tail, chain, height, filters, owners).values():
        missing |= Spans(span for spans in unindexed_by_filter.values() for span in spans)
    if missing:
        first: Span = next(iter(missing))
        raise NotIndexed(chain, "events", first.first, first.last)
