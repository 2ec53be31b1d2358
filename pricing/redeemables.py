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
from pricing.venues.section import DECIMALS, call

ASSET: Final = "asset()(address)"
TO_ASSETS: Final = "convertToAssets(uint256)(uint256)"
UNDERLYING_OF_AAVE: Final = "UNDERLYING_ASSET_ADDRESS()(address)"
TOKENS_OF_RESERVE: Final = "getReserveTokensAddresses(address)(address,address,address)"
COMPTROLLER: Final = "comptroller()(address)"
UNDERLYING: Final = "underlying()(address)"
MARKET: Final = "markets(address)(bool)"
RATE: Final = "exchangeRateStored()(uint256)"
MANY: Final = 10**9  # shares are asked for by the billion, so that what is rounded is small
WAD: Final = 10**18
NATIVE: Final = ""  # in the place of a token's address

Said = Mapping[Read, Any]  # what was answered of a token
Parts = tuple[Fraction, ...]


@dataclass(frozen=True, slots=True)
class Redeemed:
    """What one share gives of each underlying now, and what it gave as the block began (None: that is not known)."""

    now: Parts
    before: Parts | None


class Kind(Protocol):
    """One kind of shares, with the contracts that vouch for them."""

    def knows(self, token: str) -> bool:
        """Whether a token is surely one of these."""

    def asks(self, token: str) -> Sequence[Read]:
        """What to ask of any token."""

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

    def knows(self, token: str) -> bool:
        """Those that are named."""
        return token in self.named

    def asks(self, token: str) -> Sequence[Read]:
        """Its asset, if the vault is named."""
        return [call(token, ASSET)] if token in self.named else []

    def underlying(self, token: str, said: Said) -> tuple[str, ...]:
        """What was answered."""
        return tuple(said[read] for read in self.asks(token) if is_there(said[read]))

    def reads(self, token: str, said: Said) -> Sequence[Read | AtParent]:
        """Its answer, now and before."""
        read = call(token, TO_ASSETS, (MANY * 10 ** said[call(token, DECIMALS)],))
        return [read, AtParent(read), call(token, DECIMALS)]

    def redeemed(self, token: str, answers: Sequence[Any]) -> Redeemed | None:
        """What was told, for one."""
        now, before = (_ratio(each, MANY * 10 ** answers[2]) for each in answers[:2])
        return Redeemed(now, before) if now else None


@dataclass(frozen=True, slots=True)
class Reserves:
    """Supplied tokens of Aave's markets, of which the configuration names the data providers: one for one."""

    providers: Sequence[str]

    def knows(self, token: str) -> bool:
        """None without asking."""
        return False

    def asks(self, token: str) -> Sequence[Read]:
        """What was supplied."""
        return [call(token, UNDERLYING_OF_AAVE)]

    def underlying(self, token: str, said: Said) -> tuple[str, ...]:
        """What the token says."""
        (read,) = self.asks(token)
        return (said[read],) if is_there(said[read]) else ()

    def reads(self, token: str, said: Said) -> Sequence[Read | AtParent]:
        """Which token each market has for it."""
        supplied = self.underlying(token, said)
        return [call(provider, TOKENS_OF_RESERVE, supplied) for provider in self.providers]

    def redeemed(self, token: str, answers: Sequence[Any]) -> Redeemed | None:
        """One, if a market has this very token for what is supplied."""
        one = (Fraction(1),)
        return Redeemed(one, one) if any(isinstance(each, tuple) and each[0] == token for each in answers) else None


@dataclass(frozen=True, slots=True)
class Markets:
    """Tokens of Compound's markets, whose comptrollers the configuration names: at the rate of the last accrual."""

    comptrollers: frozenset[str]

    def knows(self, token: str) -> bool:
        """None without asking."""
        return False

    def asks(self, token: str) -> Sequence[Read]:
        """Whose market it is, and what of."""
        return [call(token, COMPTROLLER), call(token, UNDERLYING)]

    def underlying(self, token: str, said: Said) -> tuple[str, ...]:
        """What the token says; one that does not is of native coins."""
        comptroller, supplied = (said[read] for read in self.asks(token))
        if comptroller not in self.comptrollers:
            return ()
        return (supplied if is_there(supplied) else NATIVE,)

    def reads(self, token: str, said: Said) -> Sequence[Read | AtParent]:
        """Whether the comptroller lists it; the rate, now and before."""
        rate = call(token, RATE)
        return [call(said[call(token, COMPTROLLER)], MARKET, (token,)), rate, AtParent(rate)]

    def redeemed(self, token: str, answers: Sequence[Any]) -> Redeemed | None:
        """The rate, if it is listed."""
        now, before = (_ratio(each, WAD) for each in answers[1:])
        return Redeemed(now, before) if now and answers[0] is True else None


def _ratio(raw: Any, whole: int) -> Parts | None:
    return (Fraction(raw, whole),) if isinstance(raw, int) and raw else None
