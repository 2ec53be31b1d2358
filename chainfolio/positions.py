"""What is read of an account on one chain: balances, and positions unfolded to what lies behind shares.

A chain reads them with `account_reader`; the rest of the engine knows nothing of how.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from chainfolio.blocks import Block
from chainfolio.calls import ReadResult
from chainfolio.contracts import Holding, Issue, Position, Token
from chainfolio.interactions import Interactions
from chainfolio.plans import Plan
from chainfolio.protocols import DecodedPosition, TokenAmount

# Of the plan of a whole account; decoders inside it have bounds of their own.
MAX_ROUNDS: Final = 64
MAX_READS: Final = 10_000_000

Describe = Callable[[Iterable[str]], Plan[Any, Any, None]]


@dataclass(slots=True)
class Underlying:
    """What lies behind parts of a position, with the calls that say so and what is not known."""

    parts: dict[str, int] = field(default_factory=dict)
    issues: list[Issue] = field(default_factory=list)
    calls: list[ReadResult] = field(default_factory=list)
    unlisted: set[str] = field(default_factory=set)  # shares among them that anybody could have made

    def add(self, part: TokenAmount) -> None:
        """Add an amount of a token to what is there of it."""
        self.parts[part.token] = self.parts.get(part.token, 0) + part.raw

    def merge(self, other: Underlying) -> None:
        """Add all of another."""
        for token, raw in other.parts.items():
            self.add(TokenAmount(token, raw))
        self.issues += other.issues
        self.calls += other.calls
        self.unlisted |= other.unlisted


@dataclass(frozen=True, slots=True)
class OpenPosition:
    """A position before its tokens have names. `vouches`: its protocol chose which tokens lie in it."""

    account: str
    protocol: str
    found: DecodedPosition
    behind: Underlying
    vouches: bool = False

    @property
    def tokens(self) -> set[str]:
        """Every token in it."""
        return {*self.behind.parts, *(part.token for part in (*self.found.borrowed, *self.found.rewards))}

    @property
    def owned(self) -> set[str]:
        """The tokens in it that are the account's."""
        return {*self.behind.parts, *(part.token for part in self.found.rewards)}

    @property
    def empty(self) -> bool:
        """Whether there is nothing in it."""
        parts = (*self.found.borrowed, *self.found.rewards)
        return not any(self.behind.parts.values()) and not any(part.raw for part in parts)

    def named(self, tokens: Mapping[str, Token]) -> Position:
        """The position with its tokens; called by what was supplied, where it has no name of its own."""
        found, merged = self.found, [Underlying(), Underlying()]
        for side, parts in zip(merged, (found.borrowed, found.rewards), strict=True):
            for part in parts:
                side.add(part)
        supplied, borrowed, rewards = (
            tuple(
                Holding(self.account, tokens[token], raw, self.protocol, found.position_type)
                for token, raw in sorted(side.parts.items())
                if raw
            )
            for side in (self.behind, *merged)
        )
        name = found.name or " / ".join(tokens[each].symbol.upper() or each for each in sorted(self.behind.parts))
        return Position(
            self.account, self.protocol, found.position_type, name, supplied, borrowed, rewards, found.health,
            found.unlock_s, found.vault, found.pool, found.replaces, tuple(dict.fromkeys(self.behind.calls)),
            found.unverified,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class AccountState:
    """What was read of one account: its native coins and its tokens as they were answered, positions, issues."""

    native: Any
    balances: Mapping[str, Any]
    positions: tuple[OpenPosition, ...]
    issues: tuple[Issue, ...]


class BlockReader(Protocol):
    """Reads accounts at one block. What it learns of tokens there serves all of them."""

    def read(
        self,
        account: str,
        interactions: Interactions,
        wanted: Sequence[str],
        named: Describe | None = None,
        expected: Plan[Any, Any, None] | None = None,
    ) -> Plan[Any, Any, AccountState]:
        """The native coins of an account, its balances of the wanted tokens, and every position by what it met.

        `named` asks for names and prices of tokens: of those that are held, or do not say whether they are, while
        positions are still being read; `expected` asks for names in the first round, where they can be foretold.
        """


class AccountReader(Protocol):
    """What a chain reads of accounts, with the protocols that are installed. It serves any number of blocks."""

    @property
    def events(self) -> Sequence[str]:
        """The filters of events that its protocols ask the index for: `contract/event`."""

    @property
    def issues(self) -> Sequence[Issue]:
        """What it cannot read of anybody."""

    def unknown(self, account: str, interactions: Interactions) -> Iterator[Issue]:
        """What an account had to do with contracts that nobody reads, an issue a protocol."""

    def at(self, block: Block) -> BlockReader:
        """The same at one block."""
