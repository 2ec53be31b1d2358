"""The contents of an account by contract, and their translation to CAIP-19 assets.

Decoders work with the contracts of their chain; everything that leaves the adapter has assets as keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from chainfolio.abi import AssetNames
from chainfolio.adapters.evm.reads import AbiValue
from chainfolio.assets import ZERO_ADDRESS, Asset
from chainfolio.contracts import Issue
from chainfolio.positions import AccountState, OpenPosition
from chainfolio.protocols import DecodedPosition, TokenAmount
from chainfolio.reads import ReadResult


@dataclass(slots=True)
class Underlying:
    """The tokens that parts of a position stand for, with the reads that show it and their issues.

    `unlisted`: shares among them that anybody could have made.
    """

    parts: dict[str, int] = field(default_factory=dict)
    issues: list[Issue] = field(default_factory=list)
    calls: list[ReadResult] = field(default_factory=list)
    unlisted: set[str] = field(default_factory=set)

    def add(self, part: TokenAmount) -> None:
        """Add an amount of a token."""
        self.parts[part.token] = self.parts.get(part.token, 0) + part.raw

    def merge(self, addition: Underlying) -> None:
        """Add all tokens, issues, reads and unlisted shares of `addition` to this one."""
        for token, raw in addition.parts.items():
            self.add(TokenAmount(token, raw))
        self.issues += addition.issues
        self.calls += addition.calls
        self.unlisted |= addition.unlisted


@dataclass(frozen=True, slots=True)
class UnfoldedPosition:
    """A decoded position with the tokens that its supplied parts stand for.

    `curates_tokens`: its protocol chose which tokens lie in it.
    """

    account: str
    protocol: str
    decoded: DecodedPosition
    underlying: Underlying
    curates_tokens: bool = False

    @property
    def is_empty(self) -> bool:
        """True if all its amounts are zero."""
        parts = (*self.decoded.borrowed, *self.decoded.rewards)
        return not any(self.underlying.parts.values()) and not any(part.raw for part in parts)

    def by_asset(self, names: AssetNames) -> OpenPosition:
        """Return the position with assets instead of contracts; amounts of the same asset are added."""
        decoded, underlying = self.decoded, self.underlying
        ground = decoded.replaces or {part.token for part in decoded.supplied}
        return OpenPosition(
            self.account,
            self.protocol,
            decoded.position_type,
            decoded.name,
            _sum_by_asset(underlying.parts.items(), names),
            _sum_by_asset(((part.token, part.raw) for part in decoded.borrowed), names),
            _sum_by_asset(((part.token, part.raw) for part in decoded.rewards), names),
            decoded.health,
            decoded.unlock_s,
            decoded.vault,
            decoded.pool,
            tuple(asset_of(share, names) for share in decoded.replaces),
            frozenset(asset_of(token, names) for token in ground),
            frozenset(asset_of(share, names) for share in underlying.unlisted),
            self.curates_tokens,
            tuple(dict.fromkeys(underlying.calls)),
            decoded.unverified,
            debts=tuple(asset_of(token, names) for token in decoded.debts),
        )


@dataclass(frozen=True, slots=True)
class AccountContents:
    """The results of reading one account: native coins, token balances by contract, positions, issues.

    Balances are int, or `Unknown` or `Reverted` if the read has no value.
    """

    native: AbiValue
    balances: Mapping[str, AbiValue]
    positions: tuple[UnfoldedPosition, ...]
    issues: tuple[Issue, ...]

    def by_asset(self, tokens: Sequence[Asset], names: AssetNames) -> AccountState:
        """Return the contents with assets instead of contracts, and the balances of `tokens` only."""
        balances = {asset: self.balances[asset.reference] for asset in tokens}
        positions = tuple(position.by_asset(names) for position in self.positions)
        return AccountState(self.native, balances, positions, self.issues)


def asset_of(contract: str, names: AssetNames) -> Asset:
    """Return the asset of a contract; the zero address is the native coin."""
    return names.native_asset if contract == ZERO_ADDRESS else names.token_asset(contract)


def _sum_by_asset(parts: Iterable[tuple[str, int]], names: AssetNames) -> dict[Asset, int]:
    """Return the sum of raw amounts by asset, from pairs of contract and amount."""
    raws: dict[Asset, int] = {}
    for contract, raw in parts:
        asset = asset_of(contract, names)
        raws[asset] = raws.get(asset, 0) + raw
    return raws
