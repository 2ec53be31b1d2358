"""Accounts as a scope of indexing: whose histories are wanted, what is indexed of them, and what is still to be read.

The ranges of an account stand under its own filter beside those of everything and of contracts. What is known of an
account is what is indexed of everything, and what is indexed of it alone: `indexed_for` is the one answer to that.
The datasets that are read together (`by_account`) are asked together, whichever of them is lacking: a log is only known
to be no transfer by whoever decodes all of them. One that no node could give is remembered as unread, so that nobody
asks for it again and again; it does not count as indexed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import TYPE_CHECKING

from chainfolio.blocks import Span, Spans
from chainfolio.chains import Capability
from chainfolio.scopes import account_filter, account_of

if TYPE_CHECKING:
    from chainfolio.chains import Chain
    from chainfolio.datasets import Dataset
    from storage.tail import Tail, Watch

UNREAD = "unread/"  # before the name of a dataset: heights at which no node could give it
NO_END = 2**62


@dataclass(frozen=True, slots=True)
class Scope:
    """The accounts whose histories are wanted of a chain, each from a height on, up to another one or for ever."""

    watches: tuple[Watch, ...] = ()

    def until(self, last: int) -> dict[str, Span]:
        """The heights that are wanted of each account, up to one."""
        ends = [(each, last if each.last is None else min(each.last, last)) for each in self.watches]
        return {each.account: Span(each.first, end) for each, end in ends if each.first <= end}

    def at(self, span: Span) -> list[str]:
        """The accounts of which some height of a span is wanted."""
        return [account for account, wanted in self.until(span.last).items() if wanted.last >= span.first]

    @property
    def goes_on(self) -> bool:
        """Whether new blocks are wanted of any account."""
        return any(each.last is None for each in self.watches)


def indexed_for(tail: Tail, chain: str, dataset: str, account: str) -> Spans:
    """The heights that are known of an account: those of everything, and those of it alone."""
    return tail.indexed_ranges(chain, dataset) | tail.indexed_ranges(chain, dataset, account_filter(account))


def indexed_for_all(tail: Tail, chain: str, dataset: str, accounts: Iterable[str]) -> Spans:
    """The heights that are known of each of some accounts."""
    whole = tail.indexed_ranges(chain, dataset)
    own = [whole | tail.indexed_ranges(chain, dataset, account_filter(each)) for each in accounts]
    return reduce(Spans.__and__, own) if own else whole


def accounts_of(filters: Iterable[str]) -> list[str]:
    """The accounts among some filters."""
    return [account for account in map(account_of, filters) if account is not None]


def can_be_read(chain: Chain) -> bool:
    """Whether the history of an account can be read alone."""
    return Capability.ACCOUNT_HISTORY in chain.capabilities


def groups(datasets: Mapping[str, Dataset]) -> list[tuple[str, ...]]:
    """The datasets that can be read by account: those that are read together, together. Logs come first, for they cost
    little and tell most; epochs last, for by then it is known what accounts did."""
    found: dict[str, list[str]] = {}
    for each in datasets.values():
        if each.by_account:
            found.setdefault(each.by_account, []).append(each.name)
    return [tuple(found[way]) for way in ("logs", "places", "epochs") if way in found]


def group_of(datasets: Mapping[str, Dataset], name: str) -> tuple[str, ...]:
    """The datasets that are read together with one of them."""
    return next(group for group in groups(datasets) if name in group)


def lacking(
    tail: Tail, chain: str, group: Sequence[str], wanted: Mapping[str, Span], *, again: bool = False
) -> Iterator[tuple[Spans, tuple[str, ...]]]:
    """What is still to be read of some accounts for the datasets of a group: heights, and the accounts that lack them.

    Accounts that lack the same heights are read together. `again`: also what no node could give before.
    """
    whole = {name: tail.indexed_ranges(chain, name) for name in group}
    left = {
        account: reduce(Spans.__or__, (_left(tail, chain, name, account, span, whole, again) for name in group))
        for account, span in wanted.items()
    }
    found: dict[tuple[str, ...], list[Span]] = {}
    for span in _elementary(left.values()):
        who = tuple(sorted(account for account, spans in left.items() if spans.covers(span)))
        if who:
            found.setdefault(who, []).append(span)
    yield from ((Spans(spans), who) for who, spans in found.items())


def _left(
    tail: Tail, chain: str, dataset: str, account: str, span: Span, whole: Mapping[str, Spans], again: bool
) -> Spans:
    own = account_filter(account)
    left = Spans([span]) - whole[dataset] - tail.indexed_ranges(chain, dataset, own)
    return left if again else left - tail.indexed_ranges(chain, UNREAD + dataset, own)


def _elementary(several: Collection[Spans]) -> Iterator[Span]:
    """The heights of several sets in pieces, each of which any of them has wholly or not at all."""
    cuts = sorted({cut for spans in several for span in spans for cut in (span.first, span.last + 1)})
    for first, behind in pairwise(cuts):
        yield Span(first, behind - 1)
