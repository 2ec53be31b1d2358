"""Prices of tokens that stand for staked SOL: what the pool that issues them would give for one, in SOL.

Only pools that the settings name vouch for a token. Nodes keep no old state, so what it redeemed for a block before is
not compared: a pool counts what it has once an epoch, by its own program, and gifts do not move it within a block.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

from chainfolio.assets import Asset
from chainfolio.blocks import Block
from chainfolio.errors import BadSettings
from chainfolio.plans import Plan, Unknown
from chainfolio.reads import Read, ReadResult
from pricing.fixed import canonical
from pricing.programs import KIND, account, address_of, token_of
from pricing.quotes import PriceSection, Quotes, Refusal, Relative, by_chain
from pricing.relatives import rounded

SOURCE: Final = "liquid_stake"
REDEEMED: Final = Decimal("0.95")
MOST: Final = 100  # SOL that one token can stand for: interest of decades
LEAST: Final = Fraction(1, 10)  # SOL: what slashing could leave
MARINADE_ONE: Final = 1 << 32
LAYOUTS: Final = ("stake_pool", "marinade")


@dataclass(frozen=True, slots=True)
class Pool:
    """The account that says what a token redeems for, of which program it is and how it is read."""

    program: str
    layout: str
    address: str

    @property
    def read(self) -> Read:
        """The account."""
        return account(self.program, self.layout, self.address)


@dataclass(frozen=True, slots=True)
class LiquidStake:
    """The tokens of some pools."""

    pools: Mapping[Asset, Pool]
    native: Asset | None
    name: str = SOURCE
    reads_chain_only: bool = True

    def knows(self, asset: Asset) -> bool:
        """Whether a pool is named for an asset."""
        return asset in self.pools

    def prices(self, assets: Sequence[Asset], block: Block) -> Plan[Any, Any, Quotes]:
        """A price in SOL, or the reason for none, for each token of a pool."""
        known = [each for each in assets if each in self.pools]
        if not known:
            return Quotes()
        said = yield [self.pools[each].read for each in known]
        outcomes = [self._outcome(token, answer, block) for token, answer in zip(known, said, strict=True)]
        return Quotes(
            refused=tuple(each for each in outcomes if isinstance(each, Refusal)),
            relative=tuple(each for each in outcomes if isinstance(each, Relative)),
        )

    def _outcome(self, token: Asset, said: Any, block: Block) -> Relative | Refusal:
        if isinstance(said, Unknown):
            return Refusal(token, SOURCE, f"what it redeems for could not be read: {said.reason}")
        if said.mint != token.reference:
            return Refusal(token, SOURCE, f"the pool that is named for it issues another token: {said.mint}")
        pool, native = self.pools[token], self.native
        redeemed = _marinade(said) if pool.layout == "marinade" else _stake_pool(said)
        if redeemed is None or native is None:
            return Refusal(token, SOURCE, "the pool has nothing, or has issued nothing")
        if not LEAST <= redeemed <= MOST:
            return Refusal(token, SOURCE, f"the pool says that one is {rounded(redeemed):.6g} SOL, which cannot be")
        calls = (ReadResult(pool.read, said),)
        return Relative(
            token, ((native, redeemed),), SOURCE, block.time_us, REDEEMED, f"what pool {pool.address} redeems", calls
        )


def _stake_pool(said: Any) -> Fraction | None:
    """Lamports for each of its tokens, which have the decimals of SOL."""
    return Fraction(said.lamports, said.supply) if said.lamports and said.supply else None


def _marinade(said: Any) -> Fraction | None:
    return Fraction(said.price, MARINADE_ONE) if said.price else None


def _build(section: Mapping[str, Any], where: str) -> LiquidStake:
    if not section:
        return LiquidStake({}, None)
    if "native" not in section:
        raise BadSettings(where, "needs `native`, the chain's native coin")
    lines = {token_of(written, where): facts for written, facts in section.items() if written != "native"}
    pools = {token: _pool(facts, f"{where}: {token}") for token, facts in lines.items()}
    return LiquidStake(pools, canonical(section["native"], where))


def _pool(facts: Any, where: str) -> Pool:
    if not isinstance(facts, Mapping) or facts.keys() != {"program", "layout", "pool"}:
        raise BadSettings(where, "needs exactly program, layout and pool")
    if facts["layout"] not in LAYOUTS:
        raise BadSettings(where, f"layout is {facts['layout']!r:.40}", remedy=f"one of {', '.join(LAYOUTS)}")
    return Pool(address_of(facts, "program", where), facts["layout"], address_of(facts, "pool", where))


SECTION = PriceSection(by_chain(_build), order=60, kinds=(KIND,))
