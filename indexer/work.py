"""What is still to be fetched of a chain: heights, datasets, and of what they are wanted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from chainfolio import kinds
from chainfolio.blocks import Span, Spans
from chainfolio.scopes import account_filter
from indexer.scopes import Scope, accounts_of, can_be_read, groups, lacking

if TYPE_CHECKING:
    from chainfolio.chains import Chain
    from storage.tail import Tail

EVERYTHING = ("",)


@dataclass(frozen=True, slots=True)
class Work:
    """Datasets of some contracts (`""`: of all), some events or some accounts, that are missing in some spans."""

    spans: Spans
    datasets: tuple[str, ...]
    filters: tuple[str, ...] = EVERYTHING

    @property
    def contracts(self) -> tuple[str, ...]:
        """The contracts to name to the node; none for everything."""
        return () if self.filters == EVERYTHING or self.events or self.accounts else self.filters

    @property
    def events(self) -> tuple[str, ...]:
        """The filters of a dataset that is indexed by events, which is always on its own."""
        return self.filters if filtered_by(self.datasets[0]) == "event" and not self.accounts else ()

    @property
    def accounts(self) -> tuple[str, ...]:
        """The accounts that are read alone; the datasets are then a group of those that are read together."""
        return tuple(accounts_of(self.filters))


def filters(dataset: str, contracts: Sequence[str], events: Sequence[str]) -> Sequence[str]:
    """Of what a dataset is wanted; `""` stands for all."""
    by = filtered_by(dataset)
    if by == "event":
        return events
    return contracts if contracts and by == "contract" else EVERYTHING


def filtered_by(dataset: str) -> str:
    """By what a dataset can be asked for: contracts, events, or nothing: of the others there is only everything."""
    known = kinds.datasets().get(dataset)
    return known.filtered_by if known else ""


def missing(
    tail: Tail, chain: str, span: Span, datasets: Sequence[str], contracts: Sequence[str], events: Sequence[str] = ()
) -> list[Work]:
    """What is still to be fetched of a span, equal needs together; a contract is covered by everything, too.

    `events` are the filters that the dataset of this name is wanted of.
    """
    needs: dict[tuple[Spans, str], list[str]] = {}
    for dataset in dict.fromkeys(datasets):
        whole = tail.indexed_ranges(chain, dataset, "")
        for name in dict.fromkeys(filters(dataset, contracts, events)):
            left = Spans([span]) - whole - (tail.indexed_ranges(chain, dataset, name) if name else ())
            if left:
                needs.setdefault((left, name), []).append(dataset)
    grouped: dict[tuple[Spans, tuple[str, ...], bool], list[str]] = {}
    for (left, name), names in needs.items():
        grouped.setdefault((left, tuple(names), bool(name)), []).append(name)
    return [Work(left, names, tuple(sorted(wanted))) for (left, names, _), wanted in grouped.items()]


def missing_of(tail: Tail, chain: Chain, scope: Scope, last: int, *, again: bool = False) -> list[Work]:
    """What is still to be fetched of accounts up to a height. `again`: also what no node could give before."""
    if not can_be_read(chain):
        return []
    wanted = scope.until(last)
    return [
        Work(spans, group, tuple(account_filter(each) for each in accounts))
        for group in groups(chain.datasets)
        for spans, accounts in lacking(tail, chain.key, group, wanted, again=again)
    ]


def heights(work: Sequence[Work]) -> int:
    """How many blocks some work is about: one that several parts of it read is still one block."""
    return len(Spans(span for item in work for span in item.spans))
