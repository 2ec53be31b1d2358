"""Prices of shares by what they redeem for at the block: vaults, lending markets, pairs, and tokens with a rate.

Only contracts that the configuration names vouch for a share. One whose redemption jumped within the block, as that of
a vault to which somebody gave something, or of a pair that was traded off its price, has no price until it stood.
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
from chainfolio.plans import Plan
from chainfolio.reads import AtParent, Read, ReadResult
from pricing.fixed import canonical
from pricing.markets import factor, percent, unread
from pricing.quotes import PriceSection, Quotes, Refusal, Relative
from pricing.redeemables import DECIMALS, NATIVE, Kind, Markets, Pairs, Redeemed, Reserves, Vaults
from pricing.venues.section import KIND, address_of, call

SOURCE: Final = "shares"
MAX_TOKENS: Final = 5_000  # of one plan
TOO_MANY: Final = "too many tokens at once: what they are shares of was not asked"
MAX_DECIMALS: Final = 36
MAX_MOVE: Final = 1 + Fraction(5, 100)  # within one block: interest of years
REDEEMED: Final = Decimal("0.95")
ROLES: Final = ("vault", "data_provider", "comptroller", "factory")
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

    def prices(self, assets: Sequence[Asset], block: Block) -> Plan[Any, Any, Quotes]:
        """A relative price, or the reason for none, for each asset that is a share of something."""
        chain = self.native.chain if self.native else ""
        tokens = [each for each in assets if each.kind == "erc20" and each.chain == chain and each not in self.rates]
        rated = [each for each in assets if each in self.rates]
        wanted, left_out = tokens[:MAX_TOKENS], tokens[MAX_TOKENS:]
        questions = [DECIMALS, *dict.fromkeys(question for kind in self.kinds for question in kind.questions)]
        asked = [call(token.reference, question) for token in wanted for question in questions] if self.kinds else []
        of_rates = [read for token in rated for read in self._rate_reads(token)]
        if not asked and not of_rates:
            return Quotes()
        known: dict[Any, Any] = dict(zip((*asked, *of_rates), (yield [*asked, *of_rates]), strict=True))
        found = [share for token in wanted if self.kinds for share in self._shares(token, questions, known)]
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

    def _shares(self, token: Asset, questions: Sequence[str], known: Mapping[Any, Any]) -> list[_Share]:
        """What a token may be a share of, by what it says."""
        said = {question: known[call(token.reference, question)] for question in questions}
        if not (isinstance(said[DECIMALS], int) and said[DECIMALS] <= MAX_DECIMALS):
            return []
        places = [(kind, kind.underlying(token.reference, said)) for kind in self.kinds]
        return [
            _Share(token, kind, said[DECIMALS], self._assets(token, of), [*kind.reads(token.reference, said)])
            for kind, of in places
            if of and (self.native is not None or NATIVE not in of)
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
    """A token that may be a share of some assets: what its kind asks, and the decimals of what is behind it."""

    token: Asset
    kind: Kind
    decimals: int
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
        one = 10**self.decimals
        now, before = (
            tuple(part * Fraction(one, scale) for part, scale in zip(parts, scales, strict=True)) if parts else None
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
    if asset.kind != "erc20":
        return RATE_SCALE  # native coins of the EVM have 18 decimals
    said = known[call(asset.reference, DECIMALS)]
    return 10**said if isinstance(said, int) and said <= MAX_DECIMALS else 0


def shares(section: Mapping[str, Any], where: str) -> Shares:
    """The source behind a chain's section; `where` is what a BadSettings calls it."""
    for key in sorted(section.keys() - {*ROLES, "rates", "native"}):
        raise BadSettings(where, f"unknown key `{key}`")
    named = {role: _addresses(section.get(role, []), role, where) for role in ROLES}
    kinds: list[Kind] = []
    if named["vault"]:
        kinds.append(Vaults(frozenset(named["vault"])))
    if named["data_provider"]:
        kinds.append(Reserves(named["data_provider"]))
    if named["comptroller"]:
        kinds.append(Markets(frozenset(named["comptroller"])))
    if named["factory"]:
        kinds.append(Pairs(frozenset(named["factory"])))
    rates = section.get("rates", {})
    if not isinstance(rates, Mapping):
        raise BadSettings(where, "`rates` has lines asset = {of, function}")
    native = canonical(section["native"], where) if "native" in section else None
    if kinds and native is None:
        raise BadSettings(where, "needs `native`, the chain's native coin")
    return Shares(kinds, {canonical(each, where): _rate(facts, each, where) for each, facts in rates.items()}, native)


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


def _of_chain(section: Mapping[str, Any], chain: str, where: str) -> Shares:
    of_chain = section.get(chain, {})
    if not isinstance(of_chain, Mapping):
        raise BadSettings(f"{where}.{chain}", "is not a section")
    return shares(of_chain, f"{where}.{chain}")


SECTION = PriceSection(_of_chain, order=60, kinds=(KIND,))
