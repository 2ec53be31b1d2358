"""What a part must offer to the others. Structural: nothing has to inherit from these."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Protocol

from chainfolio.asking import Asking
from chainfolio.assets import Asset
from chainfolio.blocks import Block
from chainfolio.calls import Read


@dataclass(frozen=True, slots=True)
class Issue:
    """What an answer does not know: which part failed (`adapter`), about what (`subject`), and why, in a user's words."""

    adapter: str
    subject: str
    reason: str


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
    """USD per amount of one asset: exact, with its source, the time it was observed and how sure the source is (0..1)."""

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


class PriceSource(Protocol):
    """One source of prices. An asset it does not know has no row: never a zero, never a guess."""

    name: str

    def prices(self, assets: Sequence[Asset], block: Block) -> Asking[Read, Any, list[Price]]:
        """An asking that returns a price for each asset it knows, observed at or before `block`."""
