"""Accounts as a scope of indexing: their histories, what is indexed of them, and what is missing.

The ranges of an account have a filter of their own. An account is indexed where all rows are, or where its own rows
are: `indexed_for` combines both. Datasets that are read together (`by_account`) are always requested together, because
only a decoder of all logs can tell that a log is not a transfer. A dataset that no node could provide is stored as
unread, so that it is not requested again and again; it does not count as indexed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import TYPE_CHECKING

from chainfolio.blocks import Span, Spans
from chainfolio.capabilities import Capability
from chainfolio.scopes import account_filter, account_of

if TYPE_CHECKING:
    from chainfolio.chains import Chain
    from chainfolio.datasets import Dataset
    from chainfolio.storage.tail import Tail
    from chainfolio.storage.watches import WatchedAccount

UNREAD = "unread/"  # prefix of a dataset's name: heights at which no node could provide it
NO_END = 2**62


@dataclass(frozen=True, slots=True)
class Scope:
    """The accounts of a chain whose histories are indexed, each from a height on, with or without an end."""

    watches: tuple[WatchedAccount, ...] = ()

    def spans_until(self, last: int) -> dict[str, Span]:
        """Return the heights to index of each account, up to `last`."""
        ends = [(each, last if each.last is None else min(each.last, last)) for each in self.watches]
        return {each.account: Span(each.first, end) for each, end in ends if each.first <= end}

    def accounts_at(self, span: Span) -> list[str]:
        """Return the accounts with heights to index in a span."""
        return [account for account, heights in self.spans_until(span.last).items() if heights.last >= span.first]

    @property
    def goes_on(self) -> bool:
        """True if new blocks are indexed for an account."""
        return any(each.last is None for each in self.watches)


def indexed_for(tail: Tail, chain: str, dataset: str, account: str) -> Spans:
    """Return the indexed heights of an account: those of all rows, and its own."""
    return tail.indexed_ranges(chain, dataset) | tail.indexed_ranges(chain, dataset, account_filter(account))


def indexed_for_all(tail: Tail, chain: str, dataset: str, accounts: Iterable[str]) -> Spans:
    """Return the heights at which every account is indexed: by its own ranges or by those of all rows.

    Without accounts, return the heights at which all rows are indexed.
    """
    all_rows = tail.indexed_ranges(chain, dataset)
    indexed = [all_rows | tail.indexed_ranges(chain, dataset, account_filter(each)) for each in accounts]
    return reduce(Spans.__and__, indexed) if indexed else all_rows


def accounts_of(filters: Iterable[str]) -> list[str]:
    """Return the accounts among some filters."""
    return [account for account in map(account_of, filters) if account is not None]


def can_be_read(chain: Chain) -> bool:
    """Return True if the chain can read the history of a single account."""
    return Capability.ACCOUNT_HISTORY in chain.capabilities


def groups(datasets: Mapping[str, Dataset]) -> list[tuple[str, ...]]:
    """Return groups of datasets that are read together by account.

    Logs come first, because they are cheap and tell most; epochs come last, because they depend on the accounts'
    actions.
    """
    by_group: dict[str, list[str]] = {}
    for each in datasets.values():
        if each.by_account:
            by_group.setdefault(each.by_account, []).append(each.name)
    return [tuple(by_group[group]) for group in ("logs", "places", "epochs") if group in by_group]


def group_of(datasets: Mapping[str, Dataset], name: str) -> tuple[str, ...]:
    """Return the group that contains a dataset; StopIteration if it cannot be read by account."""
    return next(group for group in groups(datasets) if name in group)


def missing_by_account(
    tail: Tail, chain: str, group: Sequence[str], requested: Mapping[str, Span], *, include_unread: bool = False
) -> Iterator[tuple[Spans, tuple[str, ...]]]:
    """Yield the missing heights of a group of datasets, with the accounts that miss them.

    Accounts that miss the same heights are read together.

    Args:
        requested: The heights to index by account.
        include_unread: Include heights at which no node had the dataset before.
    """
    all_rows = {name: tail.indexed_ranges(chain, name) for name in group}
    missing = {
        account: reduce(
            Spans.__or__, (_missing_of(tail, chain, name, account, span, all_rows, include_unread) for name in group)
        )
        for account, span in requested.items()
    }
    spans_by_accounts: dict[tuple[str, ...], list[Span]] = {}
    for span in _partition(missing.values()):
        members = tuple(sorted(account for account, spans in missing.items() if spans.covers(span)))
        if members:
            spans_by_accounts.setdefault(members, []).append(span)
    yield from ((Spans(spans), members) for members, spans in spans_by_accounts.items())


def _missing_of(
    tail: Tail, chain: str, dataset: str, account: str, span: Span, all_rows: Mapping[str, Spans], include_unread: bool
) -> Spans:
    filter_ = account_filter(account)
    missing = Spans([span]) - all_rows[dataset] - tail.indexed_ranges(chain, dataset, filter_)
    return missing if include_unread else missing - tail.indexed_ranges(chain, UNREAD + dataset, filter_)


def _partition(sets: Collection[Spans]) -> Iterator[Span]:
    """Yield spans that each of the sets contains either completely or not at all."""
    cuts = sorted({cut for spans in sets for span in spans for cut in (span.first, span.last + 1)})
    for first, next_cut in pairwise(cuts):
        yield Span(first, next_cut - 1)
