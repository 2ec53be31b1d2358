"""A chain that the suite can judge: a real node under control, and the truth about its state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, TypeVar

from chainfolio.blocks import Block, Span
from chainfolio.capabilities import Capability
from chainfolio.chain_results import SpanTables
from chainfolio.chains import Chain

FINALITY = 64  # blocks below the head: above the deepest reorganisation that must be survived
Row = dict[str, Any]
ChainT_co = TypeVar("ChainT_co", bound=Chain, covariant=True)


@dataclass(slots=True)
class RequestLog:
    """Requests to the node: their number, and the spans of its bulk reads with the contracts they named.

    `at` is what happens just before a request, by its number since `forget`.
    """

    requests: int = 0
    spans: list[tuple[Span, tuple[str, ...]]] = field(default_factory=list)
    at: dict[int, Callable[[], None]] = field(default_factory=dict)

    def count(self) -> None:
        """One more request."""
        self.requests += 1
        self.at.pop(self.requests, lambda: None)()

    def count_spans(self, chain: Chain) -> None:
        """Note the spans that a chain collects."""
        collect = chain.collect

        async def collect_and_count(
            span: Span,
            datasets: Sequence[str],
            contracts: Sequence[str] = (),
            before: Block | None = None,
            events: Sequence[str] = (),
        ) -> SpanTables:
            self.spans.append((span, tuple(contracts)))
            return await collect(span, datasets, contracts, before, events)

        chain.collect = collect_and_count  # type: ignore[method-assign]

    def forget(self) -> None:
        """Count from here."""
        self.requests = 0
        self.spans.clear()


class Subject(Protocol[ChainT_co]):
    """One chain on a separate node, with a history of trading.

    What the chain has not is declared: capabilities in `lacks`, tables that none of its datasets fills in `no_rows`.
    Addresses are canonical. `tokens` are all fungible tokens that wallets may hold; `plain` are those of them whose
    balances change by their events alone. `birth` is the first block at which all of them lie.
    """

    request_log: RequestLog

    @property
    def asks_each_block(self) -> bool:
        """True if its nodes answer no request for many blocks, so that a span is as many requests as blocks."""

    @property
    def lacks(self) -> Set[Capability]: ...

    @property
    def no_rows(self) -> Set[str]: ...

    @property
    def datasets(self) -> Sequence[str]:
        """The datasets that the suite indexes."""

    @property
    def standards(self) -> Set[str]:
        """The standards of the transfers in its history."""

    @property
    def approval_standards(self) -> Set[str]:
        """Standards of its approvals."""

    @property
    def accounts(self) -> Sequence[str]:
        """Wallets, those that hold nothing included."""

    @property
    def tokens(self) -> Sequence[str]: ...

    @property
    def plain(self) -> Sequence[str]: ...

    @property
    def events(self) -> Sequence[str]:
        """Filters of the dataset `events`, each with some rows."""

    @property
    def birth(self) -> int: ...

    @property
    def height(self) -> int:
        """The newest block's height; final are those FINALITY below it. There may be none at a lower height."""

    def chain(self, *, contracts: Sequence[str] = (), span: int = 25) -> ChainT_co:
        """Return a new adapter of this chain, as the settings would build it; `request_log` counts its requests."""

    def mine(self, blocks: int) -> None:
        """Make blocks with nothing in them."""

    def trade(self, blocks: int, seed: int) -> None:
        """Make blocks in which wallets move coins and tokens, and approve."""

    def reorg(self, depth: int) -> None:
        """Replace the newest blocks by as many others, with other movements in them."""

    def fork(self, depth: int) -> None:
        """Start a second node with the same history, but for so many newest blocks. Only before any was added."""

    def switch(self) -> None:
        """From now on the other one of two nodes is the chain."""

    def native(self, account: str, height: int) -> int:
        """Return the node's native balance of an account at a block."""

    def balance(self, account: str, token: str, height: int) -> int | None:
        """Return the token's balance of an account at a block; None if the token answers nothing."""

    def allowance(self, owner: str, token: str, spender: str, height: int) -> int:
        """Return the token's allowance of a spender at a block."""

    def rows(self, span: Span) -> Mapping[str, list[Row]]:
        """Every row of every table that the blocks of a span are worth, by a reading as plain as can be."""


ChainUnderTest: TypeAlias = Subject[Chain]
Opening = Callable[[int], AbstractContextManager[ChainUnderTest]]
"""Opens a subject with so many blocks of trading."""
