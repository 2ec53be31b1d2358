"""Knowledge of the index about accounts: interactions, the day's flows, and gaps."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from chainfolio.assets import Asset
from chainfolio.blocks import Block, Span, Spans
from chainfolio.contracts import Issue
from chainfolio.engine.rows import ChainIndex
from chainfolio.engine.snapshots.account_index import gap_issues, interactions_of, unindexed, unindexed_transfers
from chainfolio.engine.snapshots.account_rows import AccountRows
from chainfolio.engine.snapshots.day_flows import Flows, day_gap, flows_of_day
from chainfolio.engine.snapshots.sent_transactions import are_fees_indexed, fees_of
from chainfolio.errors import SourceError
from chainfolio.interactions import Interactions
from chainfolio.positions import AccountReader

if TYPE_CHECKING:
    import pyarrow as pa

    from chainfolio.chain_results import SpanTables
    from chainfolio.chains import Chain
    from chainfolio.storage.lake import Lake
    from chainfolio.storage.tail import Tail

MAX_UNINDEXED_BLOCKS: Final = 64  # behind the head, whose transfers a snapshot reads from the node


@dataclass(frozen=True, slots=True)
class IndexView:
    """The index's knowledge of some accounts at one block, all by account.

    Attributes:
        interactions: Tokens, collectibles and contracts that the account met.
        flows: Amounts that moved since the day began; empty if unknown, and `no_days` says why.
        fees: Fees paid so far; empty if transactions are not completely indexed.
        rows: The rows from which all this was computed.
        missing_transfers: Blocks whose transfers are not known; they may have moved unknown tokens.
        missing_events: Blocks without events, by event filter.
    """

    interactions: Mapping[str, Interactions]
    flows: Mapping[str, Flows]
    no_days: str
    fees: Mapping[str, int]
    rows: AccountRows
    missing_transfers: Mapping[str, Spans]
    missing_events: Mapping[str, Mapping[str, Spans]]

    @property
    def may_lack_tokens(self) -> bool:
        """True if some account may hold tokens that the index does not know of."""
        return any(self.missing_transfers.values())

    def tokens(self, extra: Iterable[Asset]) -> dict[str, set[Asset]]:
        """Return the tokens that each account met, and `extra` ones."""
        return {account: {*each.tokens, *extra} for account, each in self.interactions.items()}

    def gap_issues(self, chain: str, candidate_count: int) -> list[Issue]:
        """Return the issues about missing blocks, see `account_index.gap_issues`."""
        return gap_issues(chain, self.missing_transfers, self.missing_events, candidate_count)


async def read_index(
    chain: Chain, lake: Lake, tail: Tail, reader: AccountReader, accounts: Sequence[str], block: Block
) -> IndexView:
    """Read the index of accounts up to a block, and transfers of newer blocks from the node.

    Blocks that are not indexed are noted as missing by account, except those whose transfers the node gave. A node that
    does not give them raises nothing. A reader that finds tokens itself needs no transfers.
    """
    # Gaps are determined before the rows are read, so that blocks indexed meanwhile count as gaps.
    missing_events = unindexed(tail, chain.key, block.height, reader.events, accounts)
    missing_transfers = (
        dict.fromkeys(accounts, Spans())
        if reader.finds_tokens
        else unindexed_transfers(tail, chain.key, block.height, accounts)
    )
    recent = None if reader.finds_tokens else await _recent_transfers(chain, tail, block)
    transfers = recent.tables["transfers"] if recent else None
    rows = AccountRows(ChainIndex(lake, tail, chain.key), accounts, block.height)
    interactions, (flows, no_days), fees = await asyncio.to_thread(
        _computed, rows, chain, block, missing_events, transfers
    )
    if recent is not None:
        missing_transfers = {each: spans - Spans([recent.span]) for each, spans in missing_transfers.items()}
    return IndexView(interactions, flows, no_days, fees, rows, missing_transfers, missing_events)


def _computed(
    rows: AccountRows,
    chain: Chain,
    block: Block,
    missing_events: Mapping[str, Mapping[str, Spans]],
    recent: pa.Table | None,
) -> tuple[dict[str, Interactions], tuple[dict[str, Flows], str], dict[str, int]]:
    """Return interactions, flows of the day (and why they are unknown) and fees, from one reading of rows.

    Fees are empty if they are not indexed.
    """
    (lake, tail, _), accounts = rows.index, rows.accounts
    # Both are determined before the rows are read, as the gaps are.
    gap = day_gap(lake, tail, chain, accounts, block)
    has_fees = are_fees_indexed(tail, chain.key, accounts, block)
    interactions = interactions_of(rows.index, accounts, block.height, chain.info, missing_events, recent, rows)
    flows = ({}, gap) if gap else flows_of_day(rows, chain, block)
    return interactions, flows, fees_of(rows, block) if has_fees else {}


async def _recent_transfers(chain: Chain, tail: Tail, block: Block) -> SpanTables | None:
    """Read the transfers between the index and the block, so that tokens that just arrived are not missed.

    None if the index has the block, is more than `MAX_UNINDEXED_BLOCKS` behind, or if the node does not return them.
    """
    top = tail.top(chain.key)
    if top is None or not top.height < block.height <= top.height + MAX_UNINDEXED_BLOCKS:
        return None
    try:
        recent = await chain.collect(Span(top.height + 1, block.height), ("transfers",), before=top)
    except SourceError:
        return None
    return recent if recent.last is None or recent.last.hash == block.hash else None
