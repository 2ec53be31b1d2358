"""Indexed interactions of accounts: the tokens that they may hold and the contracts that they used."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING

from chainfolio.assets import Asset
from chainfolio.blocks import Span, Spans
from chainfolio.contracts import Issue
from chainfolio.engine.rows import ChainIndex, rows_of
from chainfolio.engine.snapshots.account_rows import AccountRows
from chainfolio.indexer.materialise import of_events
from chainfolio.indexer.scopes import indexed_for
from chainfolio.interactions import EventRow, Interactions, contract_of
from chainfolio.tables import ACCOUNT_EVENTS, ACCOUNT_TRANSFERS

if TYPE_CHECKING:
    import pyarrow as pa

    from chainfolio.chain_results import ChainInfo
    from chainfolio.chains import Chain
    from chainfolio.storage.tail import Tail

ADAPTER = "index"
EVENTS, TRANSFERS = "events", "transfers"
ZERO_RAW = bytes(32)
TRANSFER_COLUMNS = ("account", "direction", "counterparty", "standard", "token", "token_id")
EVENT_COLUMNS = ("account", "address", "topic0", "place", "topic1", "topic2", "topic3", "data")


def interactions_of(
    index: ChainIndex,
    accounts: Sequence[str],
    height: int,
    info: ChainInfo,
    events: Mapping[str, Mapping[str, Spans]] | None = None,
    recent: pa.Table | None = None,
    rows: AccountRows | None = None,
) -> dict[str, Interactions]:
    """Return the interactions of accounts up to a height, by account, with one scan for all of them.

    Args:
      events: The event filters to look for, by account, each with the heights that are not indexed (see `unindexed`).
      recent: Transfers of blocks that are not indexed yet; they count as well.
      rows: The rows of the accounts up to `height`; None to read them.
    """
    import polars as pl

    from chainfolio.portfolio.ledger import by_account

    columns = [*(pl.col(name) for name in TRANSFER_COLUMNS), (pl.col("raw") != ZERO_RAW).alias("moved")]
    transfers = (rows or AccountRows(index, accounts, height)).of(ACCOUNT_TRANSFERS, accounts, columns)
    if recent is not None:
        account_events = by_account(ACCOUNT_TRANSFERS, pl.LazyFrame(recent)).filter(pl.col("account").is_in(accounts))
        new = account_events.filter(pl.col("height") <= height).select(columns).collect()
        transfers = pl.concat([transfers, new]).unique()
    assets: dict[tuple[str, str | None], Asset] = {}
    collectors = {account: _InteractionCollector(info, assets) for account in accounts}
    for account, *row in transfers.iter_rows():
        collectors[account].add(*row)
    interactions = {account: each.interactions for account, each in collectors.items()}
    filters = {event for account_events in (events or {}).values() for event in account_events}
    if not events or not filters:
        return interactions
    events_by_account = _events(index, accounts, height, filters)
    covered = {
        account: frozenset(event for event, unindexed_spans in account_events.items() if not unindexed_spans)
        for account, account_events in events.items()
    }
    return {
        account: replace(each, events=events_by_account[account], covered=covered[account])
        for account, each in interactions.items()
    }


def _events(
    index: ChainIndex, accounts: Sequence[str], height: int, filters: Collection[str]
) -> dict[str, dict[str, tuple[EventRow, ...]]]:
    """Return the distinct events of some filters that name accounts, by account and filter.

    Each account has an entry; filters without events are absent.
    """
    rows = rows_of(index, ACCOUNT_EVENTS, accounts, EVENT_COLUMNS, span=Span(0, height), where=of_events(filters))
    events: dict[str, dict[str, list[EventRow]]] = {account: {} for account in accounts}
    for row in rows.sort(EVENT_COLUMNS).iter_rows(named=True):
        events[row["account"]].setdefault(f"{row['address']}/{row['topic0']}", []).append(row)
    return {
        account: {event: tuple(event_rows) for event, event_rows in account_events.items()}
        for account, account_events in events.items()
    }


@dataclass(slots=True)
class _InteractionCollector:
    """Collects the interactions of one account; `assets` is shared by all accounts, as a cache."""

    info: ChainInfo
    assets: dict[tuple[str, str | None], Asset]
    tokens: set[Asset] = field(default_factory=set)
    ids: defaultdict[Asset, set[int]] = field(default_factory=lambda: defaultdict(set))
    left_ids: defaultdict[Asset, set[int]] = field(default_factory=lambda: defaultdict(set))
    exchanged: defaultdict[str, set[Asset]] = field(default_factory=lambda: defaultdict(set))
    paid_out: defaultdict[str, set[Asset]] = field(default_factory=lambda: defaultdict(set))

    def add(
        self,
        direction: str,
        counterparty: str,
        standard: str,
        token: str | None,
        token_id: bytes | None,
        is_nonzero: bool,
    ) -> None:
        """Add one distinct kind of transfer.

        `is_nonzero` is False if all such transfers moved nothing: anybody can log those for the account.
        """
        number = None if token_id is None else int.from_bytes(token_id, "big")
        asset = self.assets.get((standard, token))
        if asset is None:
            asset = self.assets[standard, token] = self.info.asset(standard, token, number).collection
        self.exchanged[counterparty].add(asset)
        if direction == "out" and is_nonzero:
            self.paid_out[counterparty].add(asset)
        if number is not None:
            (self.ids if direction == "in" else self.left_ids)[asset].add(number)
        elif not asset.is_native:
            self.tokens.add(asset)

    @property
    def interactions(self) -> Interactions:
        """Return everything that was collected."""
        return Interactions(
            frozenset(self.tokens),
            {collection: frozenset(ids) for collection, ids in self.ids.items()},
            {counterparty: frozenset(tokens) for counterparty, tokens in self.exchanged.items()},
            {counterparty: frozenset(tokens) for counterparty, tokens in self.paid_out.items()},
            sent_ids={collection: frozenset(ids) for collection, ids in self.left_ids.items()},
        )


def unindexed(
    tail: Tail, chain: str, height: int, events: Collection[str], accounts: Collection[str]
) -> dict[str, dict[str, Spans]]:
    """Return, by account and event filter, the unindexed heights up to `height`.

    Heights that are indexed for the account alone count as indexed: they have all events that name it.
    """
    all_heights = Spans([Span(0, height)])
    missing = {event: all_heights - tail.indexed_ranges(chain, EVENTS, event) for event in events}
    account_spans = {account: indexed_for(tail, chain, EVENTS, account) for account in accounts}
    return {
        account: {event: spans - account_spans[account] for event, spans in missing.items()} for account in accounts
    }


def unindexed_transfers(tail: Tail, chain: str, height: int, accounts: Collection[str]) -> dict[str, Spans]:
    """Return, by account, the heights up to `height` whose transfers are not indexed."""
    all_heights = Spans([Span(0, height)])
    return {account: all_heights - indexed_for(tail, chain, TRANSFERS, account) for account in accounts}


def gap_issues(
    chain: str,
    missing_transfers: Mapping[str, Spans],
    missing_events: Mapping[str, Mapping[str, Spans]],
    candidates: int = 0,
) -> list[Issue]:
    """Return issues about unindexed blocks, without an account if they concern all accounts alike.

    Args:
      missing_transfers: By account, the heights without transfers.
      missing_events: By account and event filter, the heights without events.
      candidates: Number of listed tokens that were read because transfers are missing.
    """
    accounts_by_issues: dict[tuple[Issue, ...], list[str]] = {}
    address = next(iter(missing_transfers)) if len(missing_transfers) == 1 else "ADDRESS"
    remedy = f"; chainfolio watch {address} --chain {chain} reads it"
    for account, events in missing_events.items():
        issues = tuple(_account_gaps(chain, missing_transfers[account], events, candidates, remedy))
        accounts_by_issues.setdefault(issues, []).append(account)
    if len(accounts_by_issues) == 1:  # the same for all requested accounts
        return list(next(iter(accounts_by_issues)))
    issue_accounts = [
        (issue, account)
        for issues, same_accounts in accounts_by_issues.items()
        for issue in issues
        for account in same_accounts
    ]
    return [replace(issue, account=account) for issue, account in issue_accounts]


def unexplained_issues(tail: Tail, chain: Chain, accounts: Collection[str]) -> Iterator[Issue]:
    """Yield an issue for each account with balance changes that no movement explains; it names the first.

    This happens if an account is indexed alone. Blocks that are now indexed for all accounts are skipped: they lack
    nothing.
    """
    indexed_ranges = [
        tail.indexed_ranges(chain.key, each.name) for each in chain.datasets.values() if each.by_account == "places"
    ]
    indexed = reduce(Spans.__and__, indexed_ranges) if indexed_ranges else Spans()
    for account in accounts:
        rows = [row for row in tail.unexplained_changes(chain.key, account) if not indexed.covers(Span(row[0], row[0]))]
        if rows:
            height, asset, raw, reason = rows[0]
            description = f"block {height}: {raw} of {asset}: {reason}" if raw else f"up to block {height}: {reason}"
            remark = f" (and {len(rows) - 1} more; chainfolio status lists them)" if rows[1:] else ""
            yield Issue(ADAPTER, chain.key, f"movements may be missing: {description}{remark}", account=account)


def _account_gaps(
    chain: str, missing_transfers: Spans, events: Mapping[str, Spans], candidates: int, remedy: str
) -> Iterator[Issue]:
    """Yield the issues of one account: blocks without transfers, then contracts without events.

    Events are only reported for blocks that have transfers.
    """
    if missing_transfers:
        reason = f"token transfers are not indexed for blocks {_format_spans(missing_transfers)}"
        reason += ": what was met only there may be missing"
        exception = f", except the {candidates:,} tokens that public lists name" if candidates else ""
        yield Issue(ADAPTER, chain, f"{reason}{exception}{remedy}")
    spans_by_contract: dict[str, Spans] = {}
    for event, spans in events.items():
        contract = contract_of(event)
        spans_by_contract[contract] = spans_by_contract.get(contract, Spans()) | (spans - missing_transfers)
    for contract, spans in spans_by_contract.items():
        if spans:
            reason = f"events of {contract} are not indexed for blocks {_format_spans(spans)}"
            reason += ": what others put there for an account may be missing (dataset `events`)"
            yield Issue(ADAPTER, contract, reason)


def _format_spans(spans: Spans) -> str:
    """Return the first three spans as text."""
    ranges = [f"{span.first}..{span.last}" for span in spans]
    return ", ".join([*ranges[:3], *(["…"] if len(ranges) > 3 else [])])
