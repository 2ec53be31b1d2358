"""What a part must offer to the others. Structural: nothing has to inherit from these."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from chainfolio.assets import Asset
from chainfolio.blocks import Block


@dataclass(frozen=True, slots=True)
class Issue:
    """What an answer does not know: which part failed (`adapter`), about what (`subject`), and why, in a user's words.

    `spoils`: whether the answer is partial for it. A contract that answers nonsense does not spoil an answer: anybody
    could send one to anybody.
    """

    adapter: str
    subject: str
    reason: str
    spoils: bool = True


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
    """USD per amount of one asset: exact, with its source, when it was observed and how sure the source is (0..1)."""

    asset: Asset
    usd: Decimal
    source: str
    time_us: int
    confidence: Decimal
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything read for some accounts on one chain at one block, with what could not be read."""

    chain: str
    block: Block
    accounts: tuple[str, ...]
    holdings: tuple[Holding, ...]
    prices: tuple[Price, ...]
    issues: tuple[Issue, ...]
    requests: int = 0


@dataclass(frozen=True, slots=True)
class VirtualHolding:
    """An amount that somebody wrote down. On a chain: its key and the token's contract, `native` for the coin. Else
    both are empty, `symbol` says of what, and `price_usd` what one is worth, where the writer knows."""

    chain: str
    contract: str
    amount: Decimal
    symbol: str = ""
    price_usd: Decimal | None = None


@dataclass(frozen=True, slots=True)
class VirtualUser:
    """A portfolio that its account defined. `type` BALANCE and CEX have `holdings`; GROUP has `accounts`, each a real
    address in its one form. `id` is a UUID: answers show it as `virtual:<id>`."""

    id: str
    type: str
    label: str
    holdings: tuple[VirtualHolding, ...] = ()
    accounts: tuple[str, ...] = ()
