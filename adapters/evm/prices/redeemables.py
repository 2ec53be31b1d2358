"""Kinds of shares: the reads that identify a share, confirm it, and show what it redeems for.

A token's own claim is not trusted, because anyone can deploy one: the configuration names the contract of the share, or
a contract that confirms it. All numbers are raw units of the underlying asset per raw unit of the share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, Protocol

from chainfolio.adapters.evm.prices.markets import is_contract
from chainfolio.adapters.evm.reads import DECIMALS, Call
from chainfolio.reads import AtParent, ContractRead

ASSET: Final = "asset()(address)"
TO_ASSETS: Final = "convertToAssets(uint256)(uint256)"
AAVE_UNDERLYING: Final = "UNDERLYING_ASSET_ADDRESS()(address)"
AAVE_RESERVE_TOKENS: Final = "getReserveTokensAddresses(address)(address,address,address)"
COMPTROLLER: Final = "comptroller()(address)"
UNDERLYING: Final = "underlying()(address)"
MARKET: Final = "markets(address)(bool)"
RATE: Final = "exchangeRateStored()(uint256)"
SHARES_PER_READ: Final = 10**9  # converted at once, so that rounding is negligible
WAD: Final = 10**18
NATIVE: Final = ""  # instead of a token's address

Results = Mapping[ContractRead, Any]
Amounts = tuple[Fraction, ...]  # of each underlying asset


@dataclass(frozen=True, slots=True)
class Redemption:
    """The amounts that one share redeems for at a block, and at its parent (None: unknown)."""

    current: Amounts
    parent: Amounts | None


class ShareKind(Protocol):
    """A kind of shares, with the contracts that confirm them."""

    def knows(self, token: str) -> bool:
        """Return True if the configuration names the token as a share of this kind."""

    def identity_reads(self, token: str) -> Sequence[ContractRead]:
        """Return the reads that show whether any token may be a share of this kind."""

    def underlying(self, token: str, results: Results) -> tuple[str, ...]:
        """Return the assets that a token claims to redeem for (`NATIVE`: native coins).

        Empty if it is no share.
        """

    def redemption_reads(self, token: str, results: Results) -> Sequence[ContractRead]:
        """Return the reads that confirm a share and show its redemption, given those of its identity."""

    def redemption(self, token: str, results: Sequence[object]) -> Redemption | None:
        """Return what a share redeems for, given its `redemption_reads`.

        None if it is not confirmed or worth zero.
        """


@dataclass(frozen=True, slots=True)
class Vaults:
    """ERC-4626 vaults that the configuration names: a share redeems for what its vault converts it to."""

    addresses: frozenset[str]

    def knows(self, token: str) -> bool:
        """Return True for a named vault."""
        return token in self.addresses

    def identity_reads(self, token: str) -> Sequence[ContractRead]:
        """Return the read of the asset of a named vault; empty for other tokens."""
        return [Call(token, ASSET)] if token in self.addresses else []

    def underlying(self, token: str, results: Results) -> tuple[str, ...]:
        """Return the asset of the vault; empty for other tokens, or if the read has no address."""
        return tuple(results[read] for read in self.identity_reads(token) if is_contract(results[read]))

    def redemption_reads(self, token: str, results: Results) -> Sequence[ContractRead]:
        """Return the reads of the conversion, now and before, and of the decimals."""
        read = Call(token, TO_ASSETS, (SHARES_PER_READ * 10 ** results[Call(token, DECIMALS)],))
        return [read, AtParent(read), Call(token, DECIMALS)]

    def redemption(self, token: str, results: Sequence[object]) -> Redemption | None:
        """Return the assets per share; None if the vault converts to nothing."""
        *conversions, decimals = results
        assert isinstance(decimals, int), "a share without decimals is not read"
        current, parent = (_ratio(raw, SHARES_PER_READ * 10**decimals) for raw in conversions)
        return Redemption(current, parent) if current else None


@dataclass(frozen=True, slots=True)
class AaveTokens:
    """Supply tokens of Aave's markets, whose data providers are configured: redeemed one for one."""

    providers: Sequence[str]

    def knows(self, token: str) -> bool:
        """Return False: only reads show it."""
        return False

    def identity_reads(self, token: str) -> Sequence[ContractRead]:
        """Return the read of the supplied asset."""
        return [Call(token, AAVE_UNDERLYING)]

    def underlying(self, token: str, results: Results) -> tuple[str, ...]:
        """Return the asset that the token names; empty if it names none."""
        (read,) = self.identity_reads(token)
        return (results[read],) if is_contract(results[read]) else ()

    def redemption_reads(self, token: str, results: Results) -> Sequence[ContractRead]:
        """Return the reads of the token that each market has for the asset."""
        supplied = self.underlying(token, results)
        return [Call(provider, AAVE_RESERVE_TOKENS, supplied) for provider in self.providers]

    def redemption(self, token: str, results: Sequence[object]) -> Redemption | None:
        """Return one for one; None if no market has this token for the asset."""
        par = (Fraction(1),)
        is_confirmed = any(isinstance(tokens, tuple) and tokens[0] == token for tokens in results)
        return Redemption(par, par) if is_confirmed else None


@dataclass(frozen=True, slots=True)
class CompoundTokens:
    """Tokens of Compound's markets, whose comptrollers are configured, at the rate of the last accrual."""

    comptrollers: frozenset[str]

    def knows(self, token: str) -> bool:
        """Return False: only reads show it."""
        return False

    def identity_reads(self, token: str) -> Sequence[ContractRead]:
        """Return the reads of the comptroller and of the underlying asset."""
        return [Call(token, COMPTROLLER), Call(token, UNDERLYING)]

    def underlying(self, token: str, results: Results) -> tuple[str, ...]:
        """Return the asset that the token names; native coins if it names none.

        Empty if its comptroller is not configured.
        """
        comptroller, supplied = (results[read] for read in self.identity_reads(token))
        if comptroller not in self.comptrollers:
            return ()
        return (supplied if is_contract(supplied) else NATIVE,)

    def redemption_reads(self, token: str, results: Results) -> Sequence[ContractRead]:
        """Return the read of the comptroller's list, and those of the rate, now and before."""
        rate = Call(token, RATE)
        return [Call(results[Call(token, COMPTROLLER)], MARKET, (token,)), rate, AtParent(rate)]

    def redemption(self, token: str, results: Sequence[object]) -> Redemption | None:
        """Return the exchange rate; None if the comptroller does not list the token, or it is zero."""
        current, parent = (_ratio(rate, WAD) for rate in results[1:])
        return Redemption(current, parent) if current and results[0] is True else None


def _ratio(raw: object, divisor: int) -> Amounts | None:
    return (Fraction(raw, divisor),) if isinstance(raw, int) and raw else None
