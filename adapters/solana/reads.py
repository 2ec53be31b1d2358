"""Reads of a Solana chain as values, and what they give."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from adapters.solana.forms import Plain
from adapters.solana.layouts import BadLayout, Mint
from adapters.solana.trees import Leaf, Tree
from adapters.solana.trees import read as tree_of
from chainfolio.blocks import Block
from chainfolio.plans import Unknown

__all__ = [
    "Held", "Leaves", "LeavesRead", "Mint", "MintRead", "NameRead", "Note", "Reward", "RewardRead", "Staking",
    "TreeRead", "Wallet", "WalletRead",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class WalletRead:
    """Everything that an account has: its lamports, all its token accounts, its stake accounts. Answered with a
    `Wallet`."""

    account: str

    @property
    def shown(self) -> tuple[str, str | None, str | None, tuple[Any, ...]]:
        """How answers name it."""
        return "getTokenAccountsByOwner", self.account, None, ()


@dataclass(frozen=True, slots=True)
class MintRead:
    """What a mint says of itself, and what its metadata says. Answered with a `Mint` or Unknown."""

    mint: str

    @property
    def shown(self) -> tuple[str, str | None, str | None, tuple[Any, ...]]:
        """How answers name it."""
        return "getMultipleAccounts", self.mint, None, ()


@dataclass(frozen=True, slots=True)
class LeavesRead:
    """The compressed NFTs that an endpoint says an account has, with their proofs. Answered with `Leaves`, or Unknown:
    `absent` where no endpoint has an index of them."""

    account: str

    @property
    def shown(self) -> tuple[str, str | None, str | None, tuple[Any, ...]]:
        """How answers name it."""
        return "getAssetsByOwner", self.account, None, ()


@dataclass(frozen=True, slots=True)
class TreeRead:
    """The tree at an address, of which so many bytes are read. Answered with a `Tree` or Unknown."""

    address: str
    size: int

    @property
    def shown(self) -> tuple[str, str | None, str | None, tuple[Any, ...]]:
        """How answers name it."""
        return "getMultipleAccounts", self.address, None, (self.size,)

    def result(self, account: Plain | None, content: bytes) -> Tree | Unknown:
        """What the account says."""
        if account is None:
            return Unknown(f"there is no tree {self.address}", "absent")
        try:
            return tree_of(content, account.owner)
        except BadLayout as error:
            return Unknown(f"the account {self.address} is no tree: {error}", "contract")


@dataclass(frozen=True, slots=True)
class Leaves:
    """Compressed NFTs of an account by the word of an endpoint, not proven yet; the size of each of their trees as far
    as it has to be read; and what cannot be proven, each with the reason."""

    found: tuple[Leaf, ...] = ()
    sizes: Mapping[str, int] = field(default_factory=dict)
    faults: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class NameRead:
    """What an endpoint called a compressed NFT when it listed it. Answered with symbol and name, or Unknown."""

    id: str

    @property
    def shown(self) -> tuple[str, str | None, str | None, tuple[Any, ...]]:
        """How answers name it."""
        return "getAssetsByOwner", self.id, None, ()


@dataclass(frozen=True, slots=True)
class RewardRead:
    """What a stake account earned in an epoch that is over. Answered with a `Reward`, None where it earned nothing, or
    Unknown."""

    stake: str
    epoch: int

    @property
    def shown(self) -> tuple[str, str | None, str | None, tuple[Any, ...]]:
        """How answers name it."""
        return "getInflationReward", self.stake, None, (self.epoch,)


@dataclass(frozen=True, slots=True)
class Reward:
    """What was paid to a stake account, at which slot, and when, where that is known. `commission`, in per cent, is
    what its validator kept."""

    lamports: int
    slot: int
    time_s: int | None
    commission: int | None


@dataclass(frozen=True, slots=True)
class Note:
    """What has to be said beside an amount: about which mint or account, and whether the answer lacks something.
    `mint`: the token that is lacking, if it is one."""

    subject: str
    reason: str
    is_partial: bool = False
    mint: str = ""


class Held(msgspec.Struct, frozen=True, gc=False):
    """What all token accounts of one mint hold together. `program` is whose mint it is."""

    raw: int
    decimals: int
    program: str


@dataclass(frozen=True, slots=True)
class Staking:
    """One stake account: what lies in it altogether, what of it is delegated, what of that is active, to whom, and how
    far that is. `earning` are the first and the last epoch that it may have earned something in, by its delegation."""

    address: str
    lamports: int
    delegated: int
    active: int
    voter: str
    state: str
    unlock_s: int
    earning: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Wallet:
    """What an account has at `block`, in an epoch: everything in it was read at that one slot."""

    block: Block
    lamports: int
    tokens: Mapping[str, Held]
    stakes: tuple[Staking, ...]
    notes: tuple[Note, ...]
    epoch: int = 0
