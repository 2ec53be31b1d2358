"""Work to be done for a chain: missing spans, by dataset and filter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from chainfolio import kinds
from chainfolio.blocks import Span, Spans
from chainfolio.indexer.scopes import Scope, accounts_of, can_be_read, groups, missing_by_account
from chainfolio.scopes import account_filter

if TYPE_CHECKING:
    from chainfolio.chains import Chain
    from chainfolio.storage.tail import Tail

EVERYTHING = ("",)


@dataclass(frozen=True, slots=True)
class Work:
    """Missing spans of datasets, for all rows (`""`), or for some contracts, events or accounts."""

    spans: Spans
    datasets: tuple[str, ...]
    filters: tuple[str, ...] = EVERYTHING

    @property
    def contracts(self) -> tuple[str, ...]:
        """The contracts to request from the node; none for all."""
        return () if self.filters == EVERYTHING or self.events or self.accounts else self.filters

    @property
    def events(self) -> tuple[str, ...]:
        """The filters of a dataset that is indexed by events, which is always alone."""
        return self.filters if filtered_by(self.datasets[0]) == "event" and not self.accounts else ()

    @property
    def accounts(self) -> tuple[str, ...]:
        """The accounts to read; the datasets are then one group that is read together."""
        return tuple(accounts_of(self.filters))


def filters(dataset: str, contracts: Sequence[str], events: Sequence[str]) -> Sequence[str]:
    """Return the filters for which a dataset is indexed; `""` stands for all rows."""
    by = filtered_by(dataset)
    if by == "event":
        return events
    return contracts if contracts and by == "contract" else EVERYTHING


def filtered_by(dataset: str) -> str:
    """Return the kind of filter of a dataset: contract, event, or empty."""
    dataset_type = kinds.datasets().get(dataset)
    return dataset_type.filtered_by if dataset_type else ""


def missing(
    tail: Tail, chain: str, span: Span, datasets: Sequence[str], contracts: Sequence[str], events: Sequence[str] = ()
) -> list[Work]:
    """Return the work for a span that is not indexed yet, equal spans together; empty if all is indexed.

    All rows (`""`) include every contract.

    Args:
        contracts: The filters for datasets of single contracts; empty for all rows.
        events: The filters for the dataset `events`.
    """
    needs: dict[tuple[Spans, str], list[str]] = {}
    for dataset in dict.fromkeys(datasets):
        all_rows = tail.indexed_ranges(chain, dataset, "")
        for name in dict.fromkeys(filters(dataset, contracts, events)):
            remaining = Spans([span]) - all_rows - (tail.indexed_ranges(chain, dataset, name) if name else ())
            if remaining:
                needs.setdefault((remaining, name), []).append(dataset)
    grouped: dict[tuple[Spans, tuple[str, ...], bool], list[str]] = {}
    for (remaining, name), names in needs.items():
        grouped.setdefault((remaining, tuple(names), bool(name)), []).append(name)
    return [Work(remaining, names, tuple(sorted(filters_))) for (remaining, names, _), filters_ in grouped.items()]


def missing_for_accounts(
    tail: Tail, chain: Chain, scope: Scope, last: int, *, include_unread: bool = False
) -> list[Work]:
    """Return the work for accounts up to a height that is not indexed yet; empty if all is indexed.

    Empty too if the chain cannot read single accounts.

    Args:
        scope: The accounts, each with its first height.
        last: The last height, included.
        include_unread: Include heights at which no node had the dataset before.
    """
    if not can_be_read(chain):
        return []
    spans_by_account = scope.spans_until(last)
    return [
        Work(spans, group, tuple(account_filter(each) for each in accounts))
        for group in groups(chain.datasets)
        for spans, accounts in missing_by_account(
            tail, chain.key, group, spans_by_account, include_unread=include_unread
        )
    ]


def heights(work: Sequence[Work]) -> int:
    """Return the number of distinct blocks of some work."""
    return len(Spans(span for item in work for span in item.spans))
