"""What a reader finds, by contract, and the same by asset: the one place where the two meet.

Decoders work with the contracts of their chain. All that leaves the adapter has CAIP-19 assets as keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from chainfolio.abi import NamesAssets
from chainfolio.assets import ZERO_ADDRESS, Asset
from chainfolio.contracts import Issue
from chainfolio.positions import AccountState, OpenPosition
from chainfolio.protocols import DecodedPosition, TokenAmount
from chainfolio.reads import ReadResult


@dataclass(slots=True)
class Underlying:
    """What lies behind parts of a position, with the calls that say so and what is not known."""

    parts: dict[str, int] = field(default_factory=dict)
    issues: list[Issue] = field(default_factory=list)
    calls: list[ReadResult] = field(default_factory=list)
    unlisted: set[str] = field(default_factory=set)  # shares among them that anybody could have made

    def add(self, part: TokenAmount) -> None:
        """Add an amount of a token to what is there of it."""
        self.parts[part.token] = self.parts.get(part.token, 0) + part.raw

    def merge(self, other: Underlying) -> None:
        """Add all of another."""
        for token, raw in other.parts.items():
            self.add(TokenAmount(token, raw))
        self.issues += other.issues
        self.calls += other.calls
        self.unlisted |= other.unlisted


@dataclass(frozen=True, slots=True)
class FoundPosition:
    """A position as it was unfolded. `vouches`: its protocol chose which tokens lie in it."""

    account: str
    protocol: str
    found: DecodedPosition
    behind: Underlying
    vouches: bool = False

    @property
    def empty(self) -> bool:
        """Whether there is nothing in it."""
        parts = (*self.found.borrowed, *self.found.rewards)
        return not any(self.behind.parts.values()) and not any(part.raw for part in parts)

    def by_asset(self, names: NamesAssets) -> OpenPosition:
        """The same by asset, as everything but a decoder knows it."""
        found, behind = self.found, self.behind
        return OpenPosition(
            self.account, self.protocol, found.position_type, found.name, _summed(behind.parts.items(), names),
            _summed(((part.token, part.raw) for part in found.borrowed), names),
            _summed(((part.token, part.raw) for part in found.rewards), names),
            found.health, found.unlock_s, found.vault, found.pool,
            tuple(asset_of(share, names) for share in found.replaces),
            frozenset(asset_of(each, names) for each in found.replaces or {part.token for part in found.supplied}),
            frozenset(asset_of(share, names) for share in behind.unlisted), self.vouches,
            tuple(dict.fromkeys(behind.calls)), found.unverified,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Found:
    """What was read of one account: its native coins and its tokens as they were answered, positions, issues."""

    native: Any
    balances: Mapping[str, Any]
    positions: tuple[FoundPosition, ...]
    issues: tuple[Issue, ...]

    def by_asset(self, wanted: Sequence[Asset], names: NamesAssets) -> AccountState:
        """The same by asset, with the balances of the tokens that were wanted."""
        balances = {asset: self.balances[asset.reference] for asset in wanted}
        opened = tuple(each.by_asset(names) for each in self.positions)
        return AccountState(self.native, balances, opened, self.issues)


def asset_of(contract: str, names: NamesAssets) -> Asset:
    """What decoders name by a contract; the zero address is the native coin."""
    return names.native_asset if contract == ZERO_ADDRESS else names.token_asset(contract)


def _summed(parts: Iterable[tuple[str, int]], names: NamesAssets) -> dict[Asset, int]:
    raws: dict[Asset, int] = {}
    for contract, raw in parts:
        asset = asset_of(contract, names)
        raws[asset] = raws.get(asset, 0) + raw
    return raws
