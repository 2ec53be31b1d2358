"""Shares of pools: a part of all that lies in one. The factory that made the pool vouches for them, or the vault."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from chainfolio.reads import AtParent, Read
from pricing.markets import is_there
from pricing.redeemables import Parts, Redeemed, Said
from pricing.venues import balancer_v2, curve_ng, solidly, uniswap_v2
from pricing.venues.section import call

FACTORY, TOKEN0, TOKEN1 = "factory()(address)", "token0()(address)", "token1()(address)"
SUPPLY: Final = "totalSupply()(uint256)"
IS_POOL: Final = "isPool(address)(bool)"
ACTUAL_SUPPLY: Final = "getActualSupply()(uint256)"  # of Balancer: with the fees that the protocol will take


@dataclass(frozen=True, slots=True)
class Pairs:
    """Shares of pairs of Uniswap V2, whose factories the configuration names."""

    factories: frozenset[str]

    def knows(self, token: str) -> bool:
        """None without asking."""
        return False

    def asks(self, token: str) -> Sequence[Read]:
        """Its factory and its two tokens."""
        return [call(token, question) for question in (FACTORY, TOKEN0, TOKEN1)]

    def underlying(self, token: str, said: Said) -> tuple[str, ...]:
        """Both tokens."""
        factory, *both = (said[read] for read in self.asks(token))
        return tuple(both) if factory in self.factories and all(map(is_there, both)) else ()

    def reads(self, token: str, said: Said) -> Sequence[Read | AtParent]:
        """Whether the factory made it; reserves and number of shares, now and before."""
        factory, *both = (said[read] for read in self.asks(token))
        return [call(factory, uniswap_v2.GET_PAIR, tuple(both)), *_state(token, uniswap_v2.RESERVES)]

    def redeemed(self, token: str, answers: Sequence[Any]) -> Redeemed | None:
        """The part of one share."""
        return _redeemed(*answers[1:]) if answers[0] == token else None


@dataclass(frozen=True, slots=True)
class SolidlyPools(Pairs):
    """Shares of pools of Solidly's kind, volatile and stable. What the fees of a share earn lies outside of it."""

    def reads(self, token: str, said: Said) -> Sequence[Read | AtParent]:
        """Whether the factory made it; reserves and number of shares, now and before."""
        return [call(said[call(token, FACTORY)], IS_POOL, (token,)), *_state(token, solidly.RESERVES)]

    def redeemed(self, token: str, answers: Sequence[Any]) -> Redeemed | None:
        """The part of one share."""
        now, before = (each[:2] if isinstance(each, tuple) else each for each in answers[1::2])
        return _redeemed(now, answers[2], before, answers[4]) if answers[0] is True else None


@dataclass(frozen=True, slots=True)
class CurvePools:
    """Shares of stable pools of Curve, which are the pools themselves; the configuration names their factories."""

    factories: Sequence[str]

    def knows(self, token: str) -> bool:
        """None without asking."""
        return False

    def asks(self, token: str) -> Sequence[Read]:
        """Which coins a factory has in it."""
        return [call(factory, curve_ng.COINS, (token,)) for factory in self.factories]

    def underlying(self, token: str, said: Said) -> tuple[str, ...]:
        """The coins that the first factory names that knows the pool."""
        named = (said[read] for read in self.asks(token))
        return next((coins for coins in named if isinstance(coins, tuple) and coins and all(map(is_there, coins))), ())

    def reads(self, token: str, said: Said) -> Sequence[Read | AtParent]:
        """Balances and number of shares, now and before."""
        return _state(token, curve_ng.BALANCES)

    def redeemed(self, token: str, answers: Sequence[Any]) -> Redeemed | None:
        """The part of one share."""
        return _redeemed(*answers)


@dataclass(frozen=True, slots=True)
class BalancerPools:
    """Shares of pools of Balancer V2 whose ids the configuration names, by what lies in the vault for them.

    An early pool does not say what it owes its protocol of the fees since somebody last joined or left."""

    vault: str
    named: Mapping[str, bytes]  # by the contract of the pool: its id

    def knows(self, token: str) -> bool:
        """Those that are named."""
        return token in self.named

    def asks(self, token: str) -> Sequence[Read]:
        """What lies in the vault for it."""
        return [call(self.vault, balancer_v2.POOL_TOKENS, (self.named[token],))] if token in self.named else []

    def underlying(self, token: str, said: Said) -> tuple[str, ...]:
        """The tokens there, without the pool's own shares."""
        held = [said[read] for read in self.asks(token)]
        return tuple(each for answer in held if isinstance(answer, tuple) for each in answer[0] if each != token)

    def reads(self, token: str, said: Said) -> Sequence[Read | AtParent]:
        """What lies there, and the number of shares as the pool and as the token says it, now and before."""
        state = [*self.asks(token), call(token, ACTUAL_SUPPLY), call(token, SUPPLY)]
        return [*state, *map(AtParent, state)]

    def redeemed(self, token: str, answers: Sequence[Any]) -> Redeemed | None:
        """The part of one share."""
        now, before = (_of_vault(token, *each) for each in (answers[:3], answers[3:]))
        return Redeemed(now, before) if now else None


def _of_vault(token: str, held: Any, actual: Any, supply: Any) -> Parts | None:
    if not isinstance(held, tuple):
        return None
    own = dict(zip(held[0], held[1], strict=True))
    if not isinstance(actual, int) and isinstance(supply, int):
        actual = supply - own.get(token, 0)  # shares in the pool are nobody's
    return _parts([raw for each, raw in own.items() if each != token], actual)


def _state(token: str, balances: str) -> list[Read | AtParent]:
    state = [call(token, balances), call(token, SUPPLY)]
    return [*state, *map(AtParent, state)]


def _redeemed(balances: Any, supply: Any, balances_before: Any, supply_before: Any) -> Redeemed | None:
    now, before = _parts(balances, supply), _parts(balances_before, supply_before)
    return Redeemed(now, before) if now else None


def _parts(balances: Any, supply: Any) -> Parts | None:
    if not (isinstance(balances, tuple | list) and all(balances) and isinstance(supply, int) and supply > 0):
        return None
    return tuple(Fraction(each, supply) for each in balances)
