"""Prices of liquid staking tokens of SOL: the SOL that the pool which issued a token pays for one.

Only pools of the settings are trusted. The price is not compared with an earlier block, because nodes keep no old
state: the program of a pool counts its stake once per epoch, and gifts do not change it within a block.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Final

from chainfolio.assets import Asset
from chainfolio.blocks import Block
from chainfolio.errors import BadSettings
from chainfolio.plans import Unknown, read_all
from chainfolio.price_sources import (
    PricePlan,
    PriceSection,
    Quotes,
    Refusal,
    RelativePrice,
    Section,
    by_chain,
    parse_asset,
)
from chainfolio.pricing.programs import KIND, Record, account_read, parse_address, parse_token
from chainfolio.pricing.relatives import rounded
from chainfolio.reads import ContractRead, ReadResult

SOURCE: Final = "liquid_stake"
CONFIDENCE: Final = Decimal("0.95")
MAX_SOL: Final = 100  # per token: interest of decades
MIN_SOL: Final = Fraction(1, 10)  # per token: the rest after slashing
MARINADE_SCALE: Final = 1 << 32
LAYOUTS: Final = ("stake_pool", "marinade")


@dataclass(frozen=True, slots=True)
class StakePool:
    """The account that holds the exchange rate of a token, its program, and its layout (one of `LAYOUTS`)."""

    program: str
    layout: str
    address: str

    @property
    def read(self) -> ContractRead:
        """The read of the account."""
        return account_read(self.program, self.layout, self.address)


@dataclass(frozen=True, slots=True)
class LiquidStake:
    """The stake pools of one chain by their tokens."""

    pools: Mapping[Asset, StakePool]
    native: Asset | None
    name: str = SOURCE
    reads_chain_only: bool = True

    def knows(self, asset: Asset) -> bool:
        """Return True if the settings name a pool for the asset."""
        return asset in self.pools

    def prices(self, assets: Sequence[Asset], block: Block) -> PricePlan:
        """Return a price in SOL or a refusal for each token of a pool, in one round; others are left out."""
        tokens = [asset for asset in assets if asset in self.pools]
        if not tokens:
            return Quotes()
        accounts = yield from read_all([self.pools[token].read for token in tokens])
        outcomes = [self._outcome(token, account, block) for token, account in zip(tokens, accounts, strict=True)]
        return Quotes(
            refused=tuple(outcome for outcome in outcomes if isinstance(outcome, Refusal)),
            relative=tuple(outcome for outcome in outcomes if isinstance(outcome, RelativePrice)),
        )

    def _outcome(self, token: Asset, account: Record, block: Block) -> RelativePrice | Refusal:
        """Return the price in SOL; the refusal if the pool is unread, another token's, empty or implausible."""
        if isinstance(account, Unknown):
            return Refusal(token, SOURCE, f"what it redeems for could not be read: {account.reason}")
        if account.mint != token.reference:
            return Refusal(token, SOURCE, f"the pool that is named for it issues another token: {account.mint}")
        pool, native = self.pools[token], self.native
        rate = _marinade_rate(account) if pool.layout == "marinade" else _stake_pool_rate(account)
        if rate is None or native is None:
            return Refusal(token, SOURCE, "the pool has nothing, or has issued nothing")
        if not MIN_SOL <= rate <= MAX_SOL:
            return Refusal(token, SOURCE, f"the pool says that one is {rounded(rate):.6g} SOL, which cannot be")
        detail = f"what pool {pool.address} redeems"
        calls = (ReadResult(pool.read, account),)
        return RelativePrice(token, ((native, rate),), SOURCE, block.time_us, CONFIDENCE, detail, calls)


def _stake_pool_rate(account: Record) -> Fraction | None:
    """Return the SOL per token, which has the decimals of SOL; None if the pool is empty."""
    return Fraction(account.lamports, account.supply) if account.lamports and account.supply else None


def _marinade_rate(account: Record) -> Fraction | None:
    return Fraction(account.price, MARINADE_SCALE) if account.price else None


def _build(section: Section, location: str) -> LiquidStake:
    """Build the source, an empty one without a section; raise BadSettings for invalid lines."""
    if not section:
        return LiquidStake({}, None)
    if "native" not in section:
        raise BadSettings(location, "needs `native`, the chain's native coin")
    lines = {parse_token(text, location): line for text, line in section.items() if text != "native"}
    pools = {token: _parse_pool(line, f"{location}: {token}") for token, line in lines.items()}
    return LiquidStake(pools, parse_asset(section["native"], location))


def _parse_pool(line: object, location: str) -> StakePool:
    """Return the pool of a line; raise BadSettings unless it has exactly program, layout and pool."""
    if not isinstance(line, Mapping) or line.keys() != {"program", "layout", "pool"}:
        raise BadSettings(location, "needs exactly program, layout and pool")
    if line["layout"] not in LAYOUTS:
        raise BadSettings(location, f"layout is {line['layout']!r:.40}", remedy=f"one of {', '.join(LAYOUTS)}")
    return StakePool(parse_address(line, "program", location), line["layout"], parse_address(line, "pool", location))


SECTION = PriceSection(by_chain(_build), order=60, kinds=(KIND,))
