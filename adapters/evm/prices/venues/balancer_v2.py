"""Pools of Balancer V2 that the settings name, weighted and stable.

Stable ones may hold their own shares.

No contract lists the pools of two tokens, so the settings name the pools by their ids. Their tokens are in the vault;
tokens that are sent to the vault without a trade belong to no pool.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, NamedTuple

from chainfolio.adapters.evm.prices.markets import Market, Pair, Pool, PoolState
from chainfolio.adapters.evm.prices.section import VenueSection, raw_unit
from chainfolio.adapters.evm.prices.venues import stable
from chainfolio.adapters.evm.reads import DECIMALS, Call
from chainfolio.plans import Reverted
from chainfolio.reads import AtParent, ContractRead

POOL_TOKENS: Final = "getPoolTokens(bytes32)(address[],uint256[],uint256)"
WEIGHTS: Final = "getNormalizedWeights()(uint256[])"
AMP: Final = "getAmplificationParameter()(uint256,bool,uint256)"
FACTORS: Final = "getScalingFactors()(uint256[])"
PROVIDERS: Final = "getRateProviders()(address[])"
BASE_FACTOR: Final = 10**36  # scaling factor of a token without decimals and without a rate


@dataclass(frozen=True, slots=True)
class VaultPool:
    """A pool of the vault: its id, which begins with the address of its contract, and its tokens."""

    pool_id: bytes
    tokens: tuple[str, ...]

    @property
    def contract(self) -> str:
        """The contract of the pool, which is also the token of its shares."""
        return pool_contract(self.pool_id)


@dataclass(frozen=True, slots=True)
class BalancerV2:
    """Pools of one vault."""

    name: str
    vault: str
    ids: tuple[bytes, ...]

    def lookups(self, pair: Pair) -> Sequence[ContractRead]:
        """Return the reads of all pools' tokens, which are the same for every pair."""
        return [self._tokens_read(pool_id) for pool_id in self.ids]

    def pools(self, pair: Pair, results: Sequence[object]) -> Sequence[Pool]:
        """Return the pools that contain both tokens."""
        return [
            Pool(pair, f"{self.name} pool 0x{pool_id.hex()}", VaultPool(pool_id, result[0]))
            for pool_id, result in zip(self.ids, results, strict=True)
            if isinstance(result, tuple) and {pair.token, pair.quote} <= {*result[0]} - {pool_contract(pool_id)}
        ]

    def reads(self, pool: Pool) -> Sequence[ContractRead]:
        """Return the reads of balances and curve parameters, then the same at the parent block, then decimals.

        The decimals are those of the pool's tokens. Reads that another kind of pool has revert.
        """
        vault_pool: VaultPool = pool.key
        curve = [Call(vault_pool.contract, function) for function in (WEIGHTS, AMP, FACTORS, PROVIDERS)]
        state = [self._tokens_read(vault_pool.pool_id), *curve]
        return [*state, *map(AtParent, state), *(Call(token, DECIMALS) for token in vault_pool.tokens)]

    def market(self, pool: Pool, results: Sequence[object]) -> Market | None:
        """Return the marginal price of the pool; None if it has none."""
        units = [raw_unit(decimals) for decimals in results[10:]]
        current, parent = (
            _state(pool, units, tokens, _Curve(*curve)) for tokens, *curve in (results[:5], results[5:10])
        )
        return Market(current, parent) if current else None

    def _tokens_read(self, pool_id: bytes) -> ContractRead:
        return Call(self.vault, POOL_TOKENS, (pool_id,))


def pool_contract(pool_id: bytes) -> str:
    """Return the contract of the pool with an id."""
    return "0x" + pool_id[:20].hex()


class _Curve(NamedTuple):
    """Results of the reads in this order; an error where the pool has no such function."""

    weights: object
    amp: object
    factors: object
    providers: object


def _state(pool: Pool, units: Sequence[int], vault_tokens: object, curve: _Curve) -> PoolState | None:
    """Return price and depth by weights or the stable curve; None if unread, empty or without a price."""
    vault_pool: VaultPool = pool.key
    if not isinstance(vault_tokens, tuple) or vault_tokens[0] != vault_pool.tokens:
        return None
    balances: tuple[int, ...] = vault_tokens[1]
    sold, bought = vault_pool.tokens.index(pool.pair.token), vault_pool.tokens.index(pool.pair.quote)
    if not (balances[sold] and balances[bought]):
        return None
    weights = curve.weights
    price: Fraction | None
    if isinstance(weights, tuple) and len(weights) == len(balances) and all(weights):
        price = Fraction(balances[bought] * weights[sold], balances[sold] * weights[bought])
    else:
        price = _stable_price(vault_pool, balances, sold, bought, units, curve)
    return PoolState(price, balances[bought]) if price else None


def _stable_price(
    vault_pool: VaultPool,
    balances: Sequence[int],
    sold: int,
    bought: int,
    units: Sequence[int],
    curve: _Curve,
) -> Fraction | None:
    """Return the price of a stable pool, whose own shares are not part of the curve.

    None if it has no price.
    """
    amp, factors = curve.amp, curve.factors
    if isinstance(curve.providers, Reverted) and all(units):
        factors = tuple(BASE_FACTOR // unit for unit in units)  # an early pool, whose tokens have no rates
    if not (isinstance(amp, tuple) and amp[2] and isinstance(factors, tuple) and len(factors) == len(balances)):
        return None
    coins = [i for i, token in enumerate(vault_pool.tokens) if token != vault_pool.contract]
    coin_balances, rates = [balances[i] for i in coins], [factors[i] for i in coins]
    return stable.price(coin_balances, rates, Fraction(amp[0], amp[2]), coins.index(sold), coins.index(bought))


def build(section: VenueSection) -> BalancerV2:
    """Build the venue from its section."""
    return BalancerV2(section.name, section.address("vault"), section.bytes32_list("pools"))
