"""Values that parts exchange: holdings, prices, positions, snapshots and issues."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final, Literal

from chainfolio.assets import Asset
from chainfolio.blocks import Block
from chainfolio.reads import ReadResult

# The currencies of a net asset value.
FIAT: Final = ("USD", "EUR", "CAD", "AED", "CHF", "SGD")
CRYPTO: Final = ("ETH", "SOL", "cbBTC", "EURC", "BNB")
CURRENCIES: Final = (*FIAT, *CRYPTO)

# How gains choose the lot that is sold first.
GAIN_METHODS: Final = ("fifo", "lifo", "hifo", "lofo", "average", "uk", "ca")
# Which side of a trade gives both sides their value: the one with the stronger price, or always the same one.
TRADE_VALUES: Final = ("market", "received", "given")


@dataclass(frozen=True, slots=True)
class Issue:
    """A gap in an answer: the failed part (`adapter`), its `subject`, and a reason for users.

    `makes_partial`: True if the answer is partial because of it. A contract that answers nonsense does not make an
    answer partial: anybody could send one to anybody. `account`: the account that the issue is about, empty for all
    accounts. `count`: the number of subjects that share the issue; above 1, `subject` names none of them. `assets`:
    the assets of the account that it is about, if a reader cannot know whether they are trusted. The engine decides:
    the answer is partial only if one of them is trusted (engine/snapshots/trust.py), and the issue loses them.
    """

    adapter: str
    subject: str
    reason: str
    makes_partial: bool = True
    account: str = ""
    count: int = 1
    assets: tuple[Asset, ...] = ()


@dataclass(frozen=True, slots=True)
class Token:
    """The metadata of a token contract; `decimals` is None if it gave none that is valid."""

    asset: Asset
    symbol: str
    name: str
    decimals: int | None


@dataclass(frozen=True, slots=True)
class Holding:
    """A balance: `raw` units of `token` held by `account`.

    `protocol` is `wallet` for assets outside of protocols.
    """

    account: str
    token: Token
    raw: int
    protocol: str = "wallet"
    position: str = "WALLET"


@dataclass(frozen=True, slots=True)
class Price:
    """USD per unit of one asset: exact, with source, time of observation and confidence (0 to 1).

    `calls` are the reads that it follows from; a fixed price has none. `depth_usd` is the amount that its market
    could pay; None if it comes from no market. `alternatives` are prices by other sources for the same moment.
    """

    asset: Asset
    usd: Decimal
    source: str
    time_us: int
    confidence: Decimal
    detail: str = ""
    calls: tuple[ReadResult, ...] = field(default=(), compare=False)
    depth_usd: Decimal | None = None
    alternatives: tuple[Price, ...] = ()


@dataclass(frozen=True, slots=True)
class EpochReward:
    """The reward of a position in one epoch of its chain; the position's amounts include it.

    `raw` is in the smallest unit of a coin with `decimals`, None if not known. `height` and `time_s` are those of the
    block that paid it. `commission` is the validator's share in per cent.
    """

    epoch: int
    raw: int | None
    decimals: int
    height: int | None = None
    time_s: int | None = None
    commission: int | None = None


@dataclass(frozen=True, slots=True)
class Position:
    """One position of an account inside a protocol: supplied, borrowed and claimable amounts.

    Its `type` is one of the service's; borrowed amounts are positive. `replaces`: tokens of the wallet that represent
    this position; `debts`: those that stand for what is owed. `calls`: the reads behind it. `unverified`: the reason
    why its amounts are only claims, so that it has no value; empty otherwise. `epoch_rewards`: recent rewards, the
    newest epoch first.

    Raises:
        ValueError: a part belongs to another account.
    """

    account: str
    protocol: str
    type: str
    name: str
    supplied: tuple[Holding, ...] = ()
    borrowed: tuple[Holding, ...] = ()
    rewards: tuple[Holding, ...] = ()
    health: Decimal | None = None
    unlock_s: int = 0
    vault: str = ""
    pool: str = ""
    replaces: tuple[Asset, ...] = ()
    calls: tuple[ReadResult, ...] = field(default=(), compare=False)
    unverified: str = ""
    epoch_rewards: tuple[EpochReward, ...] = ()
    debts: tuple[Asset, ...] = ()

    def __post_init__(self) -> None:
        if any(part.account != self.account for side in (self.supplied, self.borrowed, self.rewards) for part in side):
            raise ValueError(f"a position of {self.account} in {self.protocol} has parts of another account")

    @property
    def shares(self) -> tuple[Asset, ...]:
        """The tokens of `replaces` that stand for what is supplied."""
        return tuple(each for each in self.replaces if each not in self.debts)


@dataclass(frozen=True, slots=True)
class Spam:
    """The reasons (codes) and the score (up to 100) by which a token of an account is taken for spam."""

    score: int
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Collectible:
    """A collectible that an account holds at a block of a chain. `spam` is that of its collection."""

    chain: str
    block: Block
    holding: Holding
    spam: Spam | None = None


@dataclass(frozen=True, slots=True)
class DayFlows:
    """The transfers of one account since 00:00 UTC of the snapshot's day: one holding per token.

    `outflows` include the fees that the account paid.
    """

    account: str
    inflows: tuple[Holding, ...] = ()
    outflows: tuple[Holding, ...] = ()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The reads of some accounts on one chain at one block, with an issue for each failed read.

    `holdings` are all tokens of the accounts, also those that positions replace. `spam` is by account and asset.
    `fees` are the fees paid so far, in the native coin. `day_flows` are the transfers since 00:00 UTC; an account
    without an entry is unknown, and `day_flows_problem` says why. `pegged` are assets pegged to fiat money.
    `collectibles` are in no sum. `head` is the height of the newest block if the snapshot is of now, None for a
    chosen block.
    """

    chain: str
    block: Block
    accounts: tuple[str, ...]
    holdings: tuple[Holding, ...]
    prices: tuple[Price, ...]
    issues: tuple[Issue, ...]
    requests: int = 0
    positions: tuple[Position, ...] = ()
    spam: Mapping[tuple[str, Asset], Spam] = field(default_factory=dict)
    fees: tuple[Holding, ...] = ()
    day_flows: tuple[DayFlows, ...] = ()
    pegged: frozenset[Asset] = frozenset()
    head: int | None = None
    day_flows_problem: str = ""
    collectibles: tuple[Holding, ...] = ()


@dataclass(frozen=True, slots=True)
class QuotedTokens:
    """Tokens and their prices, all of one block of one chain; `pegged` as in a snapshot."""

    block: Block
    tokens: Mapping[Asset, Token]
    prices: Mapping[Asset, Price]
    issues: tuple[Issue, ...] = ()
    pegged: frozenset[Asset] = frozenset()


@dataclass(frozen=True, slots=True)
class VirtualHolding:
    """An exact decimal `amount` of a coin in a virtual portfolio.

    With a `chain` (its key) it is the token at `contract`, or the native coin if that is empty, and is priced like
    any other. Without one it is `symbol` (for example cash at an exchange) at the price in USD that its owner fixed;
    None if the owner fixed none.
    """

    amount: str
    chain: str = ""
    contract: str = ""
    symbol: str = ""
    name: str = ""
    usd: str | None = None


@dataclass(frozen=True, slots=True)
class VirtualUser:
    """A portfolio entered by hand: `holdings` of a BALANCE or a CEX, real `accounts` of a GROUP."""

    id: str
    type: Literal["BALANCE", "CEX", "GROUP"]
    label: str
    holdings: tuple[VirtualHolding, ...] = ()
    accounts: tuple[str, ...] = ()

    @property
    def address(self) -> str:
        """The identifier in requests and answers."""
        return f"virtual:{self.id}"


@dataclass(frozen=True, slots=True)
class TransactionDetails:
    """The data of a transaction and its receipt. `raw` and `fee` are in the native coin's smallest unit.

    `selector` is the first four bytes of the call data: empty if it has none, None if its chain has no selectors.
    """

    sender: str
    recipient: str | None
    created: str | None
    raw: int
    fee: int
    failed: bool
    selector: bytes | None
