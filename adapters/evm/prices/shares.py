"""Prices of shares by redemption at the block: vaults, lending markets, pools, tokens with a rate.

Only shares that a contract of the configuration confirms are priced. A share whose redemption jumped within the block,
like that of a vault that received a gift or of a pool that was traded away from its price, has no price at that block.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Final

from chainfolio.adapters.evm.prices.markets import first_read_error
from chainfolio.adapters.evm.prices.pool_shares import BalancerPools, CurvePools, SolidlyPools, UniswapPairs
from chainfolio.adapters.evm.prices.redeemables import (
    NATIVE,
    AaveTokens,
    CompoundTokens,
    Redemption,
    Results,
    ShareKind,
    Vaults,
)
from chainfolio.adapters.evm.prices.section import KIND, VenueSection, parse_contract, raw_unit
from chainfolio.adapters.evm.prices.venues.balancer_v2 import pool_contract
from chainfolio.adapters.evm.reads import DECIMALS, Call
from chainfolio.assets import Asset
from chainfolio.blocks import Block
from chainfolio.errors import BadSettings
from chainfolio.plans import read_distinct
from chainfolio.pool_prices import percent_apart, ratio
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
from chainfolio.reads import AtParent, ContractRead, ReadResult

SOURCE: Final = "shares"
MAX_TOKENS: Final = 5_000  # of one plan
TOO_MANY_TOKENS: Final = "too many tokens at once: what they are shares of was not asked"
MAX_MOVE: Final = 1 + Fraction(5, 100)  # within one block: interest of years
CONFIDENCE: Final = Decimal("0.95")
KINDS: Final[Mapping[str, Callable[[list[str]], ShareKind]]] = {  # by the role of the contracts that confirm them
    "vault": lambda addresses: Vaults(frozenset(addresses)),
    "data_provider": AaveTokens,
    "comptroller": lambda addresses: CompoundTokens(frozenset(addresses)),
    "factory": lambda addresses: UniswapPairs(frozenset(addresses)),
    "solidly_factory": lambda addresses: SolidlyPools(frozenset(addresses)),
    "curve_factory": CurvePools,
}
RATE_UNIT: Final = 10**18


@dataclass(frozen=True, slots=True)
class ExchangeRate:
    """The rate that a token reports itself: `function` returns the `underlying` per token, times 10^18."""

    underlying: Asset
    function: str


@dataclass(frozen=True, slots=True)
class Shares:
    """The shares of one chain."""

    kinds: Sequence[ShareKind]
    rates: Mapping[Asset, ExchangeRate]
    native: Asset | None
    name: str = SOURCE
    reads_chain_only: bool = True

    def knows(self, asset: Asset) -> bool | None:
        """Return True for a configured share, None for other tokens of the chain, False otherwise."""
        if asset in self.rates:
            return True
        if asset.kind != "erc20" or self.native is None or asset.chain != self.native.chain:
            return False
        return any(kind.knows(asset.reference) for kind in self.kinds) or None

    def prices(self, assets: Sequence[Asset], block: Block) -> PricePlan:
        """Return a relative price or a refusal for each asset that is a share, in one or two rounds.

        Other assets are left out. Tokens beyond MAX_TOKENS are refused, configured shares last of all; tokens that no
        kind of share reads do not count.
        """
        rated = [asset for asset in assets if asset in self.rates]
        candidates = [asset for asset in assets if asset not in self.rates and self.knows(asset) is not False]
        reads_by_token = {token: reads for token in candidates if (reads := self._identity_reads(token))}
        readable = sorted(reads_by_token, key=lambda token: not self.knows(token))  # configured shares first
        tokens, too_many = readable[:MAX_TOKENS], readable[MAX_TOKENS:]
        identity_reads = (read for token in tokens for read in reads_by_token[token])
        reads = [*identity_reads, *(read for token in rated for read in self._rate_reads(token))]
        if not reads:
            return Quotes()
        results = yield from read_distinct(reads)
        shares = [share for token in tokens for share in self._possible_shares(token, results)]
        if shares:
            results |= yield from read_distinct(read for share in shares for read in share.reads)
        outcomes = [
            *(share.outcome(results, block) for share in shares),
            *(self._rate_outcome(token, results, block) for token in rated),
            *(Refusal(token, SOURCE, TOO_MANY_TOKENS) for token in too_many),
        ]
        return Quotes(
            refused=tuple(outcome for outcome in outcomes if isinstance(outcome, Refusal)),
            relative=tuple(outcome for outcome in outcomes if isinstance(outcome, RelativePrice)),
        )

    def _identity_reads(self, token: Asset) -> list[ContractRead]:
        reads = [read for kind in self.kinds for read in kind.identity_reads(token.reference)]
        return [Call(token.reference, DECIMALS), *reads] if reads else []

    def _possible_shares(self, token: Asset, results: Results) -> list[_Share]:
        """Return a candidate, unconfirmed, for each share kind whose asset the token's contract names.

        Each has the reads that confirm and price it. Empty if the token has no usable decimals or names no underlying.
        """
        address = token.reference
        unit = raw_unit(results.get(Call(address, DECIMALS)))
        if not unit:
            return []
        claims = [(kind, kind.underlying(address, results)) for kind in self.kinds]
        return [
            _Share(token, kind, unit, self._assets(token, underlying), [*kind.redemption_reads(address, results)])
            for kind, underlying in claims
            if underlying
        ]

    def _assets(self, token: Asset, references: Sequence[str]) -> tuple[Asset, ...]:
        native = self.native or token
        return tuple(native if ref == NATIVE else token._replace(reference=ref) for ref in references)

    def _rate_reads(self, token: Asset) -> tuple[ContractRead, ContractRead]:
        read = Call(token.reference, self.rates[token].function)
        return read, AtParent(read)

    def _rate_outcome(self, token: Asset, results: Results, block: Block) -> RelativePrice | Refusal | None:
        """Return the price by the rate that a token reports; None if it reports none."""
        reads = self._rate_reads(token)
        rates = [results[read] for read in reads]
        if fault := first_read_error(rates):
            return Refusal(token, SOURCE, f"its rate could not be read: {fault}")
        current, parent = ((Fraction(rate, RATE_UNIT),) if isinstance(rate, int) and rate else None for rate in rates)
        if current is None:
            return None
        calls = (ReadResult(reads[0], rates[0]),)
        return redemption_price(token, (self.rates[token].underlying,), Redemption(current, parent), calls, block)


@dataclass(frozen=True, slots=True)
class _Share:
    """A token that may be a share. `unit` is the number of its raw units per token."""

    token: Asset
    kind: ShareKind
    unit: int
    underlying: tuple[Asset, ...]
    kind_reads: Sequence[ContractRead]

    @property
    def reads(self) -> list[ContractRead]:
        """The reads of its kind, and of the decimals of its underlying assets."""
        tokens = (asset for asset in self.underlying if asset.kind == "erc20")
        return [*self.kind_reads, *(Call(token.reference, DECIMALS) for token in tokens)]

    def outcome(self, results: Results, block: Block) -> RelativePrice | Refusal | None:
        """Return what a share redeems for; None if no contract confirms the share.

        A refusal if a read failed or the decimals of an asset are unknown.
        """
        if fault := first_read_error([results[read] for read in self.reads]):
            return Refusal(self.token, SOURCE, f"what it redeems for could not be read: {fault}")
        raw = self.kind.redemption(self.token.reference, [results[read] for read in self.kind_reads])
        if raw is None:
            return None
        units = [_asset_unit(asset, results) for asset in self.underlying]
        if not all(units):
            return Refusal(self.token, SOURCE, "what it is a share of does not say how many decimals it has")
        current, parent = (
            tuple(amount * Fraction(self.unit, unit) for amount, unit in zip(amounts, units, strict=True))
            if amounts
            else None
            for amounts in (raw.current, raw.parent)
        )
        calls = tuple(ReadResult(read, results[read]) for read in self.reads if not isinstance(read, AtParent))
        return redemption_price(self.token, self.underlying, Redemption(current or (), parent), calls, block)


def redemption_price(
    token: Asset, underlying: Sequence[Asset], redemption: Redemption, calls: tuple[ReadResult, ...], block: Block
) -> RelativePrice | Refusal:
    """Return the price of a share in its underlying assets, or a refusal if the redemption jumped.

    An amount jumped if it is more than MAX_MOVE away from that at the parent block. A refusal, too, if the latter is
    unknown.

    Args:
        token: The share.
        underlying: The assets that it redeems for.
        redemption: Amounts (not raw) of these assets per share.
        calls: The reads that the price follows from.
        block: The block of the price.
    """
    if redemption.parent is None:
        return Refusal(token, SOURCE, "what it redeemed for before the block is not known")
    for asset, current, parent in zip(underlying, redemption.current, redemption.parent, strict=True):
        if ratio(current, parent) > MAX_MOVE:
            move = percent_apart(current, parent)
            reason = f"what it redeems for in {asset} moved by {move} within the block: manipulated?"
            return Refusal(token, SOURCE, reason)
    parts = tuple(zip(underlying, redemption.current, strict=True))
    return RelativePrice(token, parts, SOURCE, block.time_us, CONFIDENCE, "what it redeems for", calls)


def _asset_unit(asset: Asset, results: Results) -> int:
    return raw_unit(results[Call(asset.reference, DECIMALS)]) if asset.kind == "erc20" else RATE_UNIT  # native coins


def build_shares(section: Section, location: str) -> Shares:
    """Build the source from a chain's section.

    Raise BadSettings, which names `location`, if it is malformed.
    """
    for key in sorted(section.keys() - {*KINDS, "balancer_v2", "rates", "native"}):
        raise BadSettings(location, f"unknown key `{key}`")
    addresses_by_role = {role: _parse_addresses(section.get(role, []), role, location) for role in KINDS}
    kinds = [KINDS[role](addresses) for role, addresses in addresses_by_role.items() if addresses]
    if "balancer_v2" in section:
        kinds.append(_parse_balancer(section["balancer_v2"], location))
    lines = section.get("rates", {})
    if not isinstance(lines, Mapping):
        raise BadSettings(location, "`rates` has lines asset = {of, function}")
    native = parse_asset(section["native"], location) if "native" in section else None
    if kinds and native is None:
        raise BadSettings(location, "needs `native`, the chain's native coin")
    rates = {parse_asset(text, location): _parse_rate(line, text, location) for text, line in lines.items()}
    return Shares(kinds, rates, native)


def _parse_balancer(section: object, location: str) -> BalancerPools:
    venue = VenueSection({"name": "balancer_v2", **section} if isinstance(section, Mapping) else {}, location)
    vault, pool_ids = venue.address("vault"), venue.bytes32_list("pools")
    venue.reject_unread_keys()
    return BalancerPools(vault, {pool_contract(pool_id): pool_id for pool_id in pool_ids})


def _parse_addresses(value: object, role: str, location: str) -> list[str]:
    if not isinstance(value, list):
        raise BadSettings(location, f"`{role}` is not a list of addresses")
    return [parse_contract(address, f"a {role}", location) for address in value]


def _parse_rate(line: object, token: str, location: str) -> ExchangeRate:
    if not isinstance(line, Mapping) or line.keys() != {"of", "function"} or not _is_getter(line["function"]):
        fault = f"the rate of {token} needs exactly `of` and `function`"
        raise BadSettings(location, fault, remedy='of = an asset, function = "name()(uint256)"')
    return ExchangeRate(parse_asset(line["of"], location), line["function"])


def _is_getter(function: object) -> bool:
    return isinstance(function, str) and function.endswith("()(uint256)") and function[:-11].isidentifier()


SECTION = PriceSection(by_chain(build_shares), order=60, kinds=(KIND,))
