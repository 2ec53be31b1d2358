"""Prices of shares by what they redeem for at the block: vaults, lending markets, pairs, and tokens with a rate.

Only contracts that the configuration names vouch for a share. One whose redemption jumped within the block, as that of
a vault to which somebody gave something, or of a pair that was traded off its price, has no price until it stood.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

from chainfolio.assets import Asset
from chainfolio.blocks import Block
from chainfolio.errors import BadSettings
from chainfolio.plans import Plan
from chainfolio.reads import AtParent, Read, ReadResult
from pricing.fixed import canonical
from pricing.markets import factor, percent, unread
from pricing.pool_shares import BalancerPools, CurvePools, Pairs, SolidlyPools
from pricing.quotes import PriceSection, Quotes, Refusal, Relative, by_chain
from pricing.redeemables import NATIVE, Kind, Markets, Redeemed, Reserves, Vaults
from pricing.venues.balancer_v2 import shares_of
from pricing.venues.section import DECIMALS, KIND, Facts, address_of, call, scale

SOURCE: Final = "shares"
MAX_TOKENS: Final = 5_000  # of one plan
TOO_MANY: Final = "too many tokens at once: what they are shares of was not asked"
MAX_MOVE: Final = 1 + Fraction(5, 100)  # within one block: interest of years
REDEEMED: Final = Decimal("0.95")
KINDS: Final[Mapping[str, Callable[[list[str]], Kind]]] = {  # by the role of the contracts that vouch for them
    "vault": lambda named: Vaults(frozenset(named)),
    "data_provider": Reserves,
    "comptroller": lambda named: Markets(frozenset(named)),
    "factory": lambda named: Pairs(frozenset(named)),
    "solidly_factory": lambda named: SolidlyPools(frozenset(named)),
    "curve_factory": CurvePools,
}
RATE_SCALE: Final = 10**18


@dataclass(frozen=True, slots=True)
class Rate:
    """A token that names its own rate: `function` answers how much of `of` one of it is, times 10^18."""

    of: Asset
    function: str


@dataclass(frozen=True, slots=True)
class Shares:
    """The shares of one chain."""

    kinds: Sequence[Kind]
    rates: Mapping[Asset, Rate]
    native: Asset | None
    name: str = SOURCE
    reads_chain_only: bool = True

    def knows(self, asset: Asset) -> bool | None:
        """Whether it is a share, as far as the configuration alone says it."""
        if asset in self.rates:
            return True
        if asset.kind != "erc20" or self.native is None or asset.chain != self.native.chain:
            return False
        return any(kind.knows(asset.reference) for kind in self.kinds) or None

    def prices(self, assets: Sequence[Asset], block: Block) -> Plan[Any, Any, Quotes]:
        """A relative price, or the reason for none, for each asset that is a share of something."""
        rated = [each for each in assets if each in self.rates]
        tokens = [each for each in assets if each not in self.rates and self.knows(each) is not False]
        wanted, left_out = tokens[:MAX_TOKENS], tokens[MAX_TOKENS:]
        asked = list(dict.fromkeys(read for token in wanted for read in self._asks(token)))
        of_rates = [read for token in rated for read in self._rate_reads(token)]
        if not asked and not of_rates:
            return Quotes()
        known: dict[Any, Any] = dict(zip((*asked, *of_rates), (yield [*asked, *of_rates]), strict=True))
        found = [share for token in wanted for share in self._shares(token, known)]
        if found:
            reads = list(dict.fromkeys(read for share in found for read in share.reads))
            known |= zip(reads, (yield reads), strict=True)
        outcomes = [
            *(each.outcome(known, block) for each in found),
            *(self._rated(each, known, block) for each in rated),
            *(Refusal(each, SOURCE, TOO_MANY) for each in left_out),
        ]
        return Quotes(
            refused=tuple(each for each in outcomes if isinstance(each, Refusal)),
            relative=tuple(each for each in outcomes if isinstance(each, Relative)),
        )

    def _asks(self, token: Asset) -> list[Read]:
        """What shows whether a token is a share."""
        asks = [read for kind in self.kinds for read in kind.asks(token.reference)]
        return [call(token.reference, DECIMALS), *asks] if asks else []

    def _shares(self, token: Asset, known: Mapping[Any, Any]) -> list[_Share]:
        """What a token may be a share of, by what it says."""
        at = token.reference
        if not (one := scale(known.get(call(at, DECIMALS)))):
            return []
        places = [(kind, kind.underlying(at, known)) for kind in self.kinds]
        return [
            _Share(token, kind, one, self._assets(token, of), [*kind.reads(at, known)]) for kind, of in places if of
        ]

    def _assets(self, token: Asset, references: Sequence[str]) -> tuple[Asset, ...]:
        native = self.native or token
        return tuple(native if each == NATIVE else token._replace(reference=each) for each in references)

    def _rate_reads(self, token: Asset) -> tuple[Read, AtParent]:
        read = call(token.reference, self.rates[token].function)
        return read, AtParent(read)

    def _rated(self, token: Asset, known: Mapping[Any, Any], block: Block) -> Relative | Refusal | None:
        """What the rate of a token makes of it."""
        answers = [known[read] for read in self._rate_reads(token)]
        if fault := unread(answers):
            return Refusal(token, SOURCE, f"its rate could not be read: {fault}")
        now, before = ((Fraction(each, RATE_SCALE),) if isinstance(each, int) and each else None for each in answers)
        if now is None:
            return None
        calls = (ReadResult(self._rate_reads(token)[0], answers[0]),)
        return told(token, (self.rates[token].of,), Redeemed(now, before), calls, block)


@dataclass(frozen=True, slots=True)
class _Share:
    """A token that may be a share of some assets: how many raw units one is, and what its kind asks."""

    token: Asset
    kind: Kind
    one: int
    of: tuple[Asset, ...]
    own: Sequence[Read | AtParent]

    @property
    def reads(self) -> list[Read | AtParent]:
        """All that is asked of it."""
        return [*self.own, *(call(each.reference, DECIMALS) for each in self.of if each.kind == "erc20")]

    def outcome(self, known: Mapping[Any, Any], block: Block) -> Relative | Refusal | None:
        """Its price, why it has none, or nothing where nobody vouches for it."""
        answers = [known[read] for read in self.own]
        if fault := unread([known[read] for read in self.reads]):
            return Refusal(self.token, SOURCE, f"what it redeems for could not be read: {fault}")
        raw = self.kind.redeemed(self.token.reference, answers)
        if raw is None:
            return None
        scales = [_scale(each, known) for each in self.of]
        if not all(scales):
            return Refusal(self.token, SOURCE, "what it is a share of does not say how many decimals it has")
        now, before = (
            tuple(part * Fraction(self.one, scale) for part, scale in zip(parts, scales, strict=True))
            if parts
            else None
            for parts in (raw.now, raw.before)
        )
        calls = tuple(ReadResult(read, known[read]) for read in self.reads if not isinstance(read, AtParent))
        return told(self.token, self.of, Redeemed(now or (), before), calls, block)


def told(
    token: Asset, of: Sequence[Asset], redeemed: Redeemed, calls: tuple[ReadResult, ...], block: Block
) -> Relative | Refusal:
    """The price of a share in its parts, unless what it redeems for jumped within the block."""
    if redeemed.before is None:
        return Refusal(token, SOURCE, "what it redeemed for before the block is not known")
    for asset, now, before in zip(of, redeemed.now, redeemed.before, strict=True):
        if factor(now, before) > MAX_MOVE:
            reason = f"what it redeems for in {asset} moved by {percent(now, before)} within the block: manipulated?"
            return Refusal(token, SOURCE, reason)
    parts = tuple(zip(of, redeemed.now, strict=True))
    return Relative(token, parts, SOURCE, block.time_us, REDEEMED, "what it redeems for", calls)


def _scale(asset: Asset, known: Mapping[Any, Any]) -> int:
    return scale(known[call(asset.reference, DECIMALS)]) if asset.kind == "erc20" else RATE_SCALE  # as native coins


def shares(section: Mapping[str, Any], where: str) -> Shares:
    """The source behind a chain's section; `where` is what a BadSettings calls it."""
    for key in sorted(section.keys() - {*KINDS, "balancer_v2", "rates", "native"}):
        raise BadSettings(where, f"unknown key `{key}`")
    named = {role: _addresses(section.get(role, []), role, where) for role in KINDS}
    kinds = [KINDS[role](addresses) for role, addresses in named.items() if addresses]
    if "balancer_v2" in section:
        kinds.append(_balancer(section["balancer_v2"], where))
    rates = section.get("rates", {})
    if not isinstance(rates, Mapping):
        raise BadSettings(where, "`rates` has lines asset = {of, function}")
    native = canonical(section["native"], where) if "native" in section else None
    if kinds and native is None:
        raise BadSettings(where, "needs `native`, the chain's native coin")
    return Shares(kinds, {canonical(each, where): _rate(facts, each, where) for each, facts in rates.items()}, native)


def _balancer(section: Any, where: str) -> BalancerPools:
    facts = Facts({"name": "balancer_v2", **section} if isinstance(section, Mapping) else {}, where)
    vault, ids = facts.address("vault"), facts.words("pools")
    facts.done()
    return BalancerPools(vault, {shares_of(number): number for number in ids})


def _addresses(value: Any, role: str, where: str) -> list[str]:
    if not isinstance(value, list):
        raise BadSettings(where, f"`{role}` is not a list of addresses")
    return [address_of(each, f"a {role}", where) for each in value]


def _rate(facts: Any, written: str, where: str) -> Rate:
    if not isinstance(facts, Mapping) or facts.keys() != {"of", "function"} or not _is_getter(facts["function"]):
        said = f"the rate of {written} needs exactly `of` and `function`"
        raise BadSettings(where, said, remedy='of = an asset, function = "name()(uint256)"')
    return Rate(canonical(facts["of"], where), facts["function"])


def _is_getter(function: Any) -> bool:
    return isinstance(function, str) and function.endswith("()(uint256)") and function[:-11].isidentifier()


SECTION = PriceSection(by_chain(shares), order=60, kinds=(KIND,))
