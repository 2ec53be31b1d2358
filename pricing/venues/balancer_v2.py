"""Pools of Balancer V2 that the settings name: weighted ones, and stable ones, which may have their own shares, too.

No contract says which pools two tokens have, so the pools are named, by their ids. Their tokens lie in the vault; what
is sent there without a trade is no pool's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from chainfolio.plans import Reverted
from chainfolio.reads import AtParent, Read
from pricing.markets import Market, Pair, Pool, State
from pricing.venues import stable
from pricing.venues.section import DECIMALS, Facts, call, scale

POOL_TOKENS: Final = "getPoolTokens(bytes32)(address[],uint256[],uint256)"
WEIGHTS: Final = "getNormalizedWeights()(uint256[])"
AMP: Final = "getAmplificationParameter()(uint256,bool,uint256)"
FACTORS: Final = "getScalingFactors()(uint256[])"
PROVIDERS: Final = "getRateProviders()(address[])"
PLAIN: Final = 10**36  # the factor of a coin without decimals that has no rate


@dataclass(frozen=True, slots=True)
class Place:
    """A pool of the vault: its id, which begins with the pool's address, and the tokens in it."""

    number: bytes
    tokens: tuple[str, ...]

    @property
    def contract(self) -> str:
        """The pool itself, which is the token of its shares, too."""
        return shares_of(self.number)


@dataclass(frozen=True, slots=True)
class BalancerV2:
    """Some pools of one vault."""

    name: str
    vault: str
    ids: tuple[bytes, ...]

    def lookups(self, pair: Pair) -> Sequence[Read]:
        """What lies in each: the same reads for all pairs."""
        return [self._held(number) for number in self.ids]

    def pools(self, pair: Pair, answers: Sequence[Any]) -> Sequence[Pool]:
        """Those that have both tokens."""
        return [
            Pool(pair, f"{self.name} pool 0x{number.hex()}", Place(number, said[0]))
            for number, said in zip(self.ids, answers, strict=True)
            if isinstance(said, tuple) and {pair.token, pair.quote} <= {*said[0]} - {shares_of(number)}
        ]

    def reads(self, pool: Pool) -> Sequence[Read | AtParent]:
        """What lies in it, and what its curve follows from, now and before. A pool answers the questions of its own
        kind only."""
        place: Place = pool.at
        curve = [call(place.contract, function) for function in (WEIGHTS, AMP, FACTORS, PROVIDERS)]
        state = [self._held(place.number), *curve]
        return [*state, *map(AtParent, state), *(call(token, DECIMALS) for token in place.tokens)]

    def market(self, pool: Pool, answers: Sequence[Any]) -> Market | None:
        """The price at which the pool trades the next unit."""
        scales = [scale(each) for each in answers[10:]]
        now, before = (_state(pool, scales, *each) for each in (answers[:5], answers[5:10]))
        return Market(now, before) if now else None

    def _held(self, number: bytes) -> Read:
        return call(self.vault, POOL_TOKENS, (number,))


def shares_of(number: bytes) -> str:
    """The contract of the pool that has an id."""
    return "0x" + number[:20].hex()


def _state(pool: Pool, scales: Sequence[int], held: Any, *said: Any) -> State | None:
    place: Place = pool.at
    if not isinstance(held, tuple) or held[0] != place.tokens:
        return None
    balances: tuple[int, ...] = held[1]
    sold, bought = place.tokens.index(pool.pair.token), place.tokens.index(pool.pair.quote)
    if not (balances[sold] and balances[bought]):
        return None
    weights = said[0]
    price: Fraction | None
    if isinstance(weights, tuple) and len(weights) == len(balances) and all(weights):
        price = Fraction(balances[bought] * weights[sold], balances[sold] * weights[bought])
    else:
        price = _of_curve(place, balances, sold, bought, scales, *said[1:])
    return State(price, balances[bought]) if price else None


def _of_curve(
    place: Place, balances: Sequence[int], sold: int, bought: int, scales: Sequence[int],
    amp: Any, factors: Any, providers: Any,
) -> Fraction | None:  # fmt: skip
    """The price of a stable pool, of whose coins its own shares are none."""
    if isinstance(providers, Reverted) and all(scales):
        factors = tuple(PLAIN // each for each in scales)  # an early pool, whose tokens have no rates
    if not (isinstance(amp, tuple) and amp[2] and isinstance(factors, tuple) and len(factors) == len(balances)):
        return None
    coins = [at for at, token in enumerate(place.tokens) if token != place.contract]
    own, rates = [balances[at] for at in coins], [factors[at] for at in coins]
    return stable.price(own, rates, Fraction(amp[0], amp[2]), coins.index(sold), coins.index(bought))


def of(facts: Facts) -> BalancerV2:
    """From the venue's section."""
    return BalancerV2(facts.name, facts.address("vault"), facts.words("pools"))
