"""Shares of pools: a part of the pool's balances, confirmed by the pool's factory or vault."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from chainfolio.adapters.evm.prices.markets import is_contract
from chainfolio.adapters.evm.prices.redeemables import Amounts, Redemption, Results
from chainfolio.adapters.evm.prices.venues import balancer_v2, curve_ng, solidly, uniswap_v2
from chainfolio.adapters.evm.reads import Call
from chainfolio.reads import AtParent, ContractRead

FACTORY, TOKEN0, TOKEN1 = "factory()(address)", "token0()(address)", "token1()(address)"
SUPPLY: Final = "totalSupply()(uint256)"
IS_POOL: Final = "isPool(address)(bool)"
ACTUAL_SUPPLY: Final = "getActualSupply()(uint256)"  # of Balancer: includes the fees that the protocol will take


@dataclass(frozen=True, slots=True)
class UniswapPairs:
    """Shares of pairs of Uniswap V2, whose factories the configuration names."""

    factories: frozenset[str]

    def knows(self, token: str) -> bool:
        """Return False: only reads show it."""
        return False

    def identity_reads(self, token: str) -> Sequence[ContractRead]:
        """Return the reads of the factory and of both tokens."""
        return [Call(token, function) for function in (FACTORY, TOKEN0, TOKEN1)]

    def underlying(self, token: str, results: Results) -> tuple[str, ...]:
        """Return both tokens; empty if the factory is not named."""
        factory, *tokens = (results[read] for read in self.identity_reads(token))
        return tuple(tokens) if factory in self.factories and all(map(is_contract, tokens)) else ()

    def redemption_reads(self, token: str, results: Results) -> Sequence[ContractRead]:
        """Return the read of the factory's pair, and those of reserves and supply, now and before."""
        factory, *tokens = (results[read] for read in self.identity_reads(token))
        return [Call(factory, uniswap_v2.GET_PAIR, tuple(tokens)), *_state_reads(token, uniswap_v2.RESERVES)]

    def redemption(self, token: str, results: Sequence[object]) -> Redemption | None:
        """Return the reserves per share; None if the factory has another pair.

        None too if reserves or supply are zero or unread.
        """
        return _redemption(*results[1:]) if results[0] == token else None


@dataclass(frozen=True, slots=True)
class SolidlyPools(UniswapPairs):
    """Shares of pools of Solidly and its forks, volatile and stable.

    The fees that a share earned are not included.
    """

    def redemption_reads(self, token: str, results: Results) -> Sequence[ContractRead]:
        """Return the read of the factory's list, and those of reserves and supply, now and before."""
        return [Call(results[Call(token, FACTORY)], IS_POOL, (token,)), *_state_reads(token, solidly.RESERVES)]

    def redemption(self, token: str, results: Sequence[object]) -> Redemption | None:
        """Return the reserves per share; None if the factory does not list the pool.

        None too if reserves or supply are zero or unread.
        """
        current, parent = (reserves[:2] if isinstance(reserves, tuple) else reserves for reserves in results[1::2])
        return _redemption(current, results[2], parent, results[4]) if results[0] is True else None


@dataclass(frozen=True, slots=True)
class CurvePools:
    """Shares of stable pools of Curve, which are the pools themselves.

    The configuration names their factories.
    """

    factories: Sequence[str]

    def knows(self, token: str) -> bool:
        """Return False: only reads show it."""
        return False

    def identity_reads(self, token: str) -> Sequence[ContractRead]:
        """Return the reads of the coins that each factory has for the pool."""
        return [Call(factory, curve_ng.COINS, (token,)) for factory in self.factories]

    def underlying(self, token: str, results: Results) -> tuple[str, ...]:
        """Return the coins from the first factory that knows the pool; empty if none does."""
        lists = (results[read] for read in self.identity_reads(token))
        valid = (coins for coins in lists if isinstance(coins, tuple) and coins and all(map(is_contract, coins)))
        return next(valid, ())

    def redemption_reads(self, token: str, results: Results) -> Sequence[ContractRead]:
        """Return the reads of balances and supply, now and before."""
        return _state_reads(token, curve_ng.BALANCES)

    def redemption(self, token: str, results: Sequence[object]) -> Redemption | None:
        """Return the balances per share; None if a balance or the supply is zero or unread."""
        return _redemption(*results)


@dataclass(frozen=True, slots=True)
class BalancerPools:
    """Shares of pools of Balancer V2 whose ids the configuration names, by the balances in the vault.

    An early pool does not report the fees that it owes to the protocol since the last join or exit.
    """

    vault: str
    pool_ids: Mapping[str, bytes]  # by the contract of the pool

    def knows(self, token: str) -> bool:
        """Return True for a named pool."""
        return token in self.pool_ids

    def identity_reads(self, token: str) -> Sequence[ContractRead]:
        """Return the read of a named pool's balances in the vault; empty for other tokens."""
        return [Call(self.vault, balancer_v2.POOL_TOKENS, (self.pool_ids[token],))] if token in self.pool_ids else []

    def underlying(self, token: str, results: Results) -> tuple[str, ...]:
        """Return the pool's tokens without its own shares; empty for other tokens."""
        balances = [results[read] for read in self.identity_reads(token)]
        return tuple(asset for result in balances if isinstance(result, tuple) for asset in result[0] if asset != token)

    def redemption_reads(self, token: str, results: Results) -> Sequence[ContractRead]:
        """Return the reads of balances and of both supplies (the pool's own and ERC-20), now and before."""
        state = [*self.identity_reads(token), Call(token, ACTUAL_SUPPLY), Call(token, SUPPLY)]
        return [*state, *map(AtParent, state)]

    def redemption(self, token: str, results: Sequence[object]) -> Redemption | None:
        """Return the balances per share; None if a balance or the supply is zero or unread."""
        current, parent = (_vault_amounts(token, *state) for state in (results[:3], results[3:]))
        return Redemption(current, parent) if current else None


def _vault_amounts(token: str, vault_tokens: object, actual_supply: object, supply: object) -> Amounts | None:
    """Return the amounts of a Balancer pool and its supply; None if the vault gave none.

    Shares in the pool itself count neither as an amount nor, without an `actual_supply`, as supply.
    """
    if not isinstance(vault_tokens, tuple):
        return None
    balances = dict(zip(vault_tokens[0], vault_tokens[1], strict=True))
    if not isinstance(actual_supply, int) and isinstance(supply, int):
        actual_supply = supply - balances.get(token, 0)  # shares in the pool itself have no owner
    return _amounts([raw for asset, raw in balances.items() if asset != token], actual_supply)


def _state_reads(token: str, balances: str) -> list[ContractRead]:
    state = [Call(token, balances), Call(token, SUPPLY)]
    return [*state, *map(AtParent, state)]


def _redemption(balances: object, supply: object, parent_balances: object, parent_supply: object) -> Redemption | None:
    current, parent = _amounts(balances, supply), _amounts(parent_balances, parent_supply)
    return Redemption(current, parent) if current else None


def _amounts(balances: object, supply: object) -> Amounts | None:
    """Return the balances per share; None if a read failed, or if a balance or the supply is zero."""
    if not (isinstance(balances, tuple | list) and all(balances) and isinstance(supply, int) and supply > 0):
        return None
    return tuple(Fraction(balance, supply) for balance in balances)
