"""What is read of an account on one chain: balances, and positions unfolded to what lies behind shares.

A chain reads them with `account_reader`; the rest of the engine knows nothing of how.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, Protocol

from chainfolio.assets import Asset
from chainfolio.blocks import Block
from chainfolio.contracts import Earning, Holding, Issue, Position, Token
from chainfolio.interactions import Interactions
from chainfolio.plans import Plan
from chainfolio.reads import ReadResult

# Of the plan of a whole account; decoders inside it have bounds of their own.
MAX_ROUNDS: Final = 64
MAX_READS: Final = 10_000_000

Amounts = Mapping[Asset, int]
Describe = Callable[[Iterable[Asset]], Plan[Any, Any, None]]


@dataclass(frozen=True, slots=True)
class OpenPosition:
    """A position before its tokens have names.

    `vouches`: its protocol chose which tokens lie in it. `unlisted` are the shares in it that anybody could have made,
    `ground` the tokens that its account must have come by: the shares that it holds, else what it put into it.
    """

    account: str
    protocol: str
    type: str
    name: str
    supplied: Amounts
    borrowed: Amounts
    rewards: Amounts
    health: Decimal | None = None
    unlock_s: int = 0
    vault: str = ""
    pool: str = ""
    replaces: tuple[Asset, ...] = ()
    ground: frozenset[Asset] = frozenset()
    unlisted: frozenset[Asset] = frozenset()
    vouches: bool = False
    calls: tuple[ReadResult, ...] = ()
    unverified: str = ""
    earned: tuple[Earning, ...] = ()

    @property
    def owned(self) -> set[Asset]:
        """The tokens in it that are the account's."""
        return {*self.supplied, *self.rewards}

    @property
    def tokens(self) -> set[Asset]:
        """Every token in it."""
        return {*self.owned, *self.borrowed}

    @property
    def empty(self) -> bool:
        """Whether there is nothing in it."""
        return not any(raw for side in (self.supplied, self.borrowed, self.rewards) for raw in side.values())

    def named(self, tokens: Mapping[Asset, Token]) -> Position:
        """The position with its tokens; called by what was supplied, where it has no name of its own."""
        supplied, borrowed, rewards = (
            tuple(
                Holding(self.account, tokens[token], side[token], self.protocol, self.type)
                for token in _shown_order(side)
                if side[token]
            )
            for side in (self.supplied, self.borrowed, self.rewards)
        )
        symbols = (tokens[each].symbol.upper() or each.shown_contract for each in _shown_order(self.supplied))
        return Position(
            self.account, self.protocol, self.type, self.name or " / ".join(symbols), supplied, borrowed, rewards,
            self.health, self.unlock_s, self.vault, self.pool, self.replaces, self.calls, self.unverified,
            self.earned,
        )  # fmt: skip


def _shown_order(assets: Iterable[Asset]) -> list[Asset]:
    """Assets in the order of the contracts that answers show."""
    return sorted(assets, key=lambda asset: (asset.shown_contract, asset))


@dataclass(frozen=True, slots=True)
class AccountState:
    """What was read of one account: its native coins and its tokens as they were answered, positions, issues.

    `block` is the one at which it was read, where the chain keeps no old state and cannot be asked for another; all
    accounts that are read together have the same.
    """

    native: Any
    balances: Mapping[Asset, Any]
    positions: tuple[OpenPosition, ...]
    issues: tuple[Issue, ...]
    block: Block | None = None


class BlockReader(Protocol):
    """Reads accounts at one block. What it learns of tokens there serves all of them."""

    def read(
        self,
        account: str,
        interactions: Interactions,
        wanted: Sequence[Asset],
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

    @property
    def finds_tokens(self) -> bool:
        """Whether the chain itself says which tokens an account holds: then nothing is missed that was not indexed."""

    def unknown(self, account: str, interactions: Interactions) -> Iterator[Issue]:
        """What an account had to do with contracts that nobody reads, an issue a protocol."""

    def at(self, block: Block) -> BlockReader:
        """The same at one block."""
