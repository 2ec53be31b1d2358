"""Kinds of shares: how a token shows that it is one, which contract vouches for that, and what one share redeems for.

A token's own word is not enough, as anybody can deploy one: a share is one of a contract that the configuration names,
or the contract that it names says so itself. All numbers are raw units: how many of the underlying one of the share is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, Protocol

from chainfolio.reads import AtParent, Read
from pricing.markets import is_there
from pricing.venues.section import call

DECIMALS: Final = "decimals()(uint8)"
ASSET: Final = "asset()(address)"
TO_ASSETS: Final = "convertToAssets(uint256)(uint256)"
UNDERLYING_OF_AAVE: Final = "UNDERLYING_ASSET_ADDRESS()(address)"
TOKENS_OF_RESERVE: Final = "getReserveTokensAddresses(address)(address,address,address)"
COMPTROLLER: Final = "comptroller()(address)"
UNDERLYING: Final = "underlying()(address)"
MARKET: Final = "markets(address)(bool)"
RATE: Final = "exchangeRateStored()(uint256)"
FACTORY, TOKEN0, TOKEN1 = "factory()(address)", "token0()(address)", "token1()(address)"
GET_PAIR: Final = "getPair(address,address)(address)"
RESERVES: Final = "getReserves()(uint112,uint112)"
SUPPLY: Final = "totalSupply()(uint256)"
MANY: Final = 10**9  # shares are asked for by the billion, so that what is rounded is small
WAD: Final = 10**18
NATIVE: Final = ""  # in the place of a token's address

Said = Mapping[str, Any]  # what a token answered, by the question
Parts = tuple[Fraction, ...]


@dataclass(frozen=True, slots=True)
class Redeemed:
    """What one share gives of each underlying now, and what it gave as the block began (None: that is not known)."""

    now: Parts
    before: Parts | None


class Kind(Protocol):
    """One kind of shares, with the contracts that vouch for them."""

    @property
    def questions(self) -> Sequence[str]:
        """What is asked of any token."""

    def underlying(self, token: str, said: Said) -> tuple[str, ...]:
        """What a token that may be a share is one of (`NATIVE`: native coins); empty where it is none."""

    def reads(self, token: str, said: Said) -> Sequence[Read | AtParent]:
        """What to ask of one that may be a share."""

    def redeemed(self, token: str, answers: Sequence[Any]) -> Redeemed | None:
        """What a share gives, from the answers; None where nobody vouches for it, or it gives nothing."""


@dataclass(frozen=True, slots=True)
class Vaults:
    """ERC-4626 vaults that the configuration names: a share is worth what its vault says that it stands for."""

    named: frozenset[str]
    questions: Sequence[str] = (ASSET,)

    def underlying(self, token: str, said: Said) -> tuple[str, ...]:
        """Its asset, if the vault is named."""
        return (said[ASSET],) if token in self.named and is_there(said[ASSET]) else ()

    def reads(self, token: str, said: Said) -> Sequence[Read | AtParent]:
        """Its answer, now and before."""
        read = call(token, TO_ASSETS, (MANY * 10 ** said[DECIMALS],))
        return [read, AtParent(read), call(token, DECIMALS)]

    def redeemed(self, token: str, answers: Sequence[Any]) -> Redeemed | None:
        """What was told, for one."""
        now, before = (_ratio(each, MANY * 10 ** answers[2]) for each in answers[:2])
        return Redeemed(now, before) if now else None


@dataclass(frozen=True, slots=True)
class Reserves:
    """Supplied tokens of Aave's markets, of which the configuration names the data providers: one for one."""

    providers: Sequence[str]
    questions: Sequence[str] = (UNDERLYING_OF_AAVE,)

    def underlying(self, token: str, said: Said) -> tuple[str, ...]:
        """What the token says."""
        return (said[UNDERLYING_OF_AAVE],) if is_there(said[UNDERLYING_OF_AAVE]) else ()

    def reads(self, token: str, said: Said) -> Sequence[Read | AtParent]:
        """Which token each market has for it."""
        return [call(provider, TOKENS_OF_RESERVE, (said[UNDERLYING_OF_AAVE],)) for provider in self.providers]

    def redeemed(self, token: str, answers: Sequence[Any]) -> Redeemed | None:
        """One, if a market has this very token for what is supplied."""
        one = (Fraction(1),)
        return Redeemed(one, one) if any(isinstance(each, tuple) and each[0] == token for each in answers) else None


@dataclass(frozen=True, slots=True)
class Markets:
    """Tokens of Compound's markets, whose comptrollers the configuration names: at the rate of the last accrual."""

    comptrollers: frozenset[str]
    questions: Sequence[str] = (COMPTROLLER, UNDERLYING)

    def underlying(self, token: str, said: Said) -> tuple[str, ...]:
        """What the token says; one that does not is of native coins."""
        if said[COMPTROLLER] not in self.comptrollers:
            return ()
        return (said[UNDERLYING] if is_there(said[UNDERLYING]) else NATIVE,)

    def reads(self, token: str, said: Said) -> Sequence[Read | AtParent]:
        """Whether the comptroller lists it; the rate, now and before."""
        rate = call(token, RATE)
        return [call(said[COMPTROLLER], MARKET, (token,)), rate, AtParent(rate)]

    def redeemed(self, token: str, answers: Sequence[Any]) -> Redeemed | None:
        """The rate, if it is listed."""
        now, before = (_ratio(each, WAD) for each in answers[1:])
        return Redeemed(now, before) if now and answers[0] is True else None


@dataclass(frozen=True, slots=True)
class Pairs:
    """Shares of pairs, whose factories the configuration names: a part of both reserves."""

    factories: frozenset[str]
    questions: Sequence[str] = (FACTORY, TOKEN0, TOKEN1)

    def underlying(self, token: str, said: Said) -> tuple[str, ...]:
        """Both tokens."""
        both = said[TOKEN0], said[TOKEN1]
        return both if said[FACTORY] in self.factories and all(map(is_there, both)) else ()

    def reads(self, token: str, said: Said) -> Sequence[Read | AtParent]:
        """Whether the factory made it; reserves and number of shares, now and before."""
        state = [call(token, RESERVES), call(token, SUPPLY)]
        return [call(said[FACTORY], GET_PAIR, (said[TOKEN0], said[TOKEN1])), *state, *map(AtParent, state)]

    def redeemed(self, token: str, answers: Sequence[Any]) -> Redeemed | None:
        """The part of one share."""
        now, before = _parts(*answers[1:3]), _parts(*answers[3:5])
        return Redeemed(now, before) if now and answers[0] == token else None


def _ratio(raw: Any, whole: int) -> Parts | None:
    return (Fraction(raw, whole),) if isinstance(raw, int) and raw else None


def _parts(reserves: Any, supply: Any) -> Parts | None:
    if not (isinstance(reserves, tuple) and all(reserves) and isinstance(supply, int) and supply):
        return None
    return Fraction(reserves[0], supply), Fraction(reserves[1], supply)
