"""The result of reading accounts on one chain: balances, and positions with their underlying tokens.

A chain reads them with `account_reader`; the engine does not know how.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, Protocol, runtime_checkable

from chainfolio.assets import Asset
from chainfolio.blocks import Block
from chainfolio.contracts import EpochReward, Holding, Issue, Position, Token
from chainfolio.interactions import Interactions
from chainfolio.plans import Output, Plan, Reverted, Unknown
from chainfolio.reads import ReadResult

# Of the plan of a whole account; decoders inside it have bounds of their own.
MAX_ROUNDS: Final = 64
MAX_READS: Final = 10_000_000

Amounts = Mapping[Asset, int]
BalanceResult = int | Unknown | Reverted
TokenUri = str | Unknown | Reverted
Describe = Callable[[Iterable[Asset]], Plan[None]]


@dataclass(frozen=True, slots=True)
class OpenPosition:
    """A position before its tokens have metadata.

    `has_trusted_assets`: its protocol chose the tokens in it. `unlisted_shares`: shares in it that anybody could have
    deployed. `required_assets`: tokens that the account must have acquired itself for the position to count: its
    shares, or the tokens that it supplied.
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
    required_assets: frozenset[Asset] = frozenset()
    unlisted_shares: frozenset[Asset] = frozenset()
    has_trusted_assets: bool = False
    calls: tuple[ReadResult, ...] = ()
    unverified: str = ""
    epoch_rewards: tuple[EpochReward, ...] = ()
    debts: tuple[Asset, ...] = ()

    @property
    def owned(self) -> set[Asset]:
        """The supplied and reward tokens."""
        return {*self.supplied, *self.rewards}

    @property
    def tokens(self) -> set[Asset]:
        """Every token in it."""
        return {*self.owned, *self.borrowed}

    @property
    def is_empty(self) -> bool:
        """True if all amounts are zero."""
        return not any(raw for side in (self.supplied, self.borrowed, self.rewards) for raw in side.values())

    def with_tokens(self, tokens: Mapping[Asset, Token]) -> Position:
        """Return the position with token metadata, without amounts of zero.

        Without a name it is named by its supplied tokens. Each asset needs an entry in `tokens`.
        """
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
            self.account,
            self.protocol,
            self.type,
            self.name or " / ".join(symbols),
            supplied,
            borrowed,
            rewards,
            self.health,
            self.unlock_s,
            self.vault,
            self.pool,
            self.replaces,
            self.calls,
            self.unverified,
            self.epoch_rewards,
            self.debts,
        )


def _shown_order(assets: Iterable[Asset]) -> list[Asset]:
    """Return assets in the order of the contracts that answers show."""
    return sorted(assets, key=lambda asset: (asset.shown_contract, asset))


@dataclass(frozen=True, slots=True)
class AccountState:
    """The result of reading one account: native balance, token balances, positions and issues.

    `block` is the block of the read if the chain stores no old state and cannot choose one; all accounts that are
    read together have the same block. Otherwise None.
    """

    native: BalanceResult
    balances: Mapping[Asset, BalanceResult]
    positions: tuple[OpenPosition, ...]
    issues: tuple[Issue, ...]
    block: Block | None = None


class BlockReader(Protocol):
    """Reads accounts at one block; facts about tokens are shared between accounts."""

    def read(
        self,
        account: str,
        interactions: Interactions,
        assets: Sequence[Asset],
        describe: Describe | None = None,
        prefetch: Plan[None] | None = None,
    ) -> Plan[AccountState]:
        """Read native balance, balances of `assets`, and all positions of an account.

        Args:
            account: The account.
            interactions: Its indexed transfers and events, by which positions are found.
            assets: The tokens whose balances are read.
            describe: Reads names and prices of tokens with a balance (or an unknown one), beside positions.
            prefetch: Reads names that are needed with high probability, in the first round.
        """


@runtime_checkable
class SameBlockReader(Protocol):
    """An optional part of a `BlockReader`, for chains whose nodes serve the newest block only.

    Without it, all reads of a snapshot are at one block anyway.
    """

    def at_same_block(self, plan: Callable[[], Plan[Output]]) -> Plan[Output]:
        """Return the result of a plan that runs together with the accounts, with its state at their block.

        Args:
            plan: Makes the plan; it is called again for each pass.

        Raises:
            Unavailable: The state changes faster than it can be read.
        """


class AccountReader(Protocol):
    """Reads accounts of a chain with the installed protocols, at any number of blocks."""

    @property
    def events(self) -> Sequence[str]:
        """The filters of events that its protocols need from the index: `contract/event`."""

    @property
    def issues(self) -> Sequence[Issue]:
        """The issues that concern all accounts."""

    @property
    def finds_tokens(self) -> bool:
        """True if the chain itself lists the tokens of an account, so that no index is needed to find them."""

    def unread_protocols(self, account: str, interactions: Interactions) -> Iterator[Issue]:
        """Yield an issue per protocol that the account used and no installed family reads."""

    def at(self, block: Block) -> BlockReader:
        """Return a reader at one block."""
