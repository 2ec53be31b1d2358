"""What a part must offer to the others. Structural: nothing has to inherit from these."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final, Literal

from chainfolio.assets import Asset
from chainfolio.blocks import Block
from chainfolio.reads import ReadResult

# What a net asset value is asked in; how many digits of a rate are kept is the asker's.
FIAT: Final = ("USD", "EUR", "CAD", "AED", "CHF", "SGD")
CRYPTO: Final = ("ETH", "SOL", "cbBTC", "EURC", "BNB")
CURRENCIES: Final = (*FIAT, *CRYPTO)

# How gains choose the lot that is sold first.
GAIN_METHODS: Final = ("fifo", "lifo", "hifo", "lofo", "average", "uk")


@dataclass(frozen=True, slots=True)
class Issue:
    """What an answer does not know: which part failed (`adapter`), about what (`subject`), and why, in a user's words.

    `makes_partial`: whether the answer is partial for it. A contract that answers nonsense does not spoil an answer:
    anybody could send one to anybody. `account`: whose answer it is about; empty where it is about everybody's.
    `count`: how many subjects share the issue; above 1, `subject` names none of them.
    `assets`: the assets of the account that it is about, if a reader cannot know who trusts them. The engine decides:
    the answer is partial only if one of them is trusted (`engine.trust`), and the issue loses them."""

    adapter: str
    subject: str
    reason: str
    makes_partial: bool = True
    account: str = ""
    count: int = 1
    assets: tuple[Asset, ...] = ()


@dataclass(frozen=True, slots=True)
class Token:
    """What a token contract says about itself; `decimals` None means it gave none that can be meant."""

    asset: Asset
    symbol: str
    name: str
    decimals: int | None


@dataclass(frozen=True, slots=True)
class Holding:
    """`raw` units of `token` held by `account` at the snapshot's block. `protocol` `wallet` is the loose bucket."""

    account: str
    token: Token
    raw: int
    protocol: str = "wallet"
    position: str = "WALLET"


@dataclass(frozen=True, slots=True)
class Price:
    """USD per amount of one asset: exact, with its source, when it was observed and how sure the source is (0..1).

    `calls` are the reads that it follows from; a price by decree has none. `depth_usd` is how much the market that
    it comes from could pay; None: it comes from no market. `others` are what further sources said of the same moment.
    """

    asset: Asset
    usd: Decimal
    source: str
    time_us: int
    confidence: Decimal
    detail: str = ""
    calls: tuple[ReadResult, ...] = field(default=(), compare=False)
    depth_usd: Decimal | None = None
    others: tuple[Price, ...] = ()


@dataclass(frozen=True, slots=True)
class Earning:
    """What a position earned in one epoch of its chain, which is in its amounts already. `raw` is in the smallest unit
    of a coin with so many decimals, None where that is not known; `height` and `time_s` are those of the block that
    paid it; `commission` is what whoever validates kept of it, in per cent."""

    epoch: int
    raw: int | None
    decimals: int
    height: int | None = None
    time_s: int | None = None
    commission: int | None = None


@dataclass(frozen=True, slots=True)
class Position:
    """One thing inside a protocol that has parts: what was supplied, what is owed, what can be claimed.

    Its `type` is one of the service's; borrowed parts are positive like all others. `replaces`: those of the
    account's loose tokens that this is another view of. `calls`: what was read of it. `unverified`: why its amounts
    are only claimed: such a position has no value. `earned`: what it earned of late, the newest epoch first.
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
    earned: tuple[Earning, ...] = ()


@dataclass(frozen=True, slots=True)
class Spam:
    """Why a token that an account holds is taken for spam: a score up to 100, and the reasons, as codes."""

    score: int
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Day:
    """What came to one account from others since 00:00 UTC of the snapshot's block, and what left it, with the fees it
    paid: one holding a token."""

    account: str
    came: tuple[Holding, ...] = ()
    left: tuple[Holding, ...] = ()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything read for some accounts on one chain at one block, with what could not be read.

    `holdings` are all tokens that they hold, those that `positions` are another view of too. `spam` says by account and
    asset what of it is taken for spam. `fees` are what they paid so far, in the native coin, `days` what moved since
    00:00 UTC; without an entry it is not known, and `no_days` says why not. `pegged` is what is meant to be worth a
    fixed sum of fiat money. `collectibles` are those that they hold, which are in no sum. `head` is the height of the
    chain's newest block when a snapshot of now was taken, None in one of a chosen block.
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
    days: tuple[Day, ...] = ()
    pegged: frozenset[Asset] = frozenset()
    head: int | None = None
    no_days: str = ""
    collectibles: tuple[Holding, ...] = ()


@dataclass(frozen=True, slots=True)
class Quoted:
    """Tokens and their prices, all of one block of one chain; `pegged` as in a snapshot."""

    block: Block
    tokens: Mapping[Asset, Token]
    prices: Mapping[Asset, Price]
    issues: tuple[Issue, ...] = ()
    pegged: frozenset[Asset] = frozenset()


@dataclass(frozen=True, slots=True)
class VirtualHolding:
    """`amount`, an exact decimal, of a coin that somebody wrote down.

    On a chain (by its key) it is of the token at `contract`, or of the native coin where that is empty, and priced like
    any other. On no chain it is of `symbol`, cash at an exchange for example, at the price in USD that its owner fixed;
    None: nobody did.
    """

    amount: str
    chain: str = ""
    contract: str = ""
    symbol: str = ""
    name: str = ""
    usd: str | None = None


@dataclass(frozen=True, slots=True)
class VirtualUser:
    """A portfolio that its owner made up: `holdings` of a BALANCE or a CEX, real `accounts` of a GROUP."""

    id: str
    type: Literal["BALANCE", "CEX", "GROUP"]
    label: str
    holdings: tuple[VirtualHolding, ...] = ()
    accounts: tuple[str, ...] = ()

    @property
    def address(self) -> str:
        """How requests and answers name it."""
        return f"virtual:{self.id}"


@dataclass(frozen=True, slots=True)
class TransactionDetails:
    """What the transaction and its receipt say. `raw` and `fee` are in the native coin's smallest unit; `selector` is
    the first four bytes of the call data: empty where it has none, None where its chain has none."""

    sender: str
    recipient: str | None
    created: str | None
    raw: int
    fee: int
    failed: bool
    selector: bytes | None
