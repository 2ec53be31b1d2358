"""Reads of a Solana chain as values, and their results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from chainfolio.adapters.solana.forms import Plain
from chainfolio.adapters.solana.layouts import BadLayout, Mint
from chainfolio.adapters.solana.trees import Leaf, Tree
from chainfolio.adapters.solana.trees import read as read_tree
from chainfolio.blocks import Block
from chainfolio.plans import Unknown
from chainfolio.reads import Read, ReadLabel

__all__ = [
    "LeafList",
    "LeavesRead",
    "Mint",
    "MintBalance",
    "MintRead",
    "NameRead",
    "Note",
    "Reward",
    "RewardRead",
    "TreeRead",
    "Wallet",
    "WalletRead",
    "WalletStake",
]


@dataclass(frozen=True, slots=True)
class WalletRead(Read["Wallet"]):
    """A read of the lamports, token accounts and stake accounts of an account. Its result is a `Wallet`."""

    account: str

    @property
    def label(self) -> ReadLabel:
        """The read as answers show it."""
        return "getTokenAccountsByOwner", self.account, None, ()


@dataclass(frozen=True, slots=True)
class MintRead(Read[Mint | Unknown]):
    """A read of a mint and its metadata. Its result is a `Mint`, or Unknown if there is no such mint."""

    mint: str

    @property
    def label(self) -> ReadLabel:
        """The read as answers show it."""
        return "getMultipleAccounts", self.mint, None, ()


@dataclass(frozen=True, slots=True)
class LeavesRead(Read["LeafList | Unknown"]):
    """A read of the compressed NFTs that an endpoint lists for an account, with their proofs.

    Its result is a `LeafList`, or Unknown with the cause `absent` if no endpoint has an index of compressed NFTs.
    """

    account: str

    @property
    def label(self) -> ReadLabel:
        """The read as answers show it."""
        return "getAssetsByOwner", self.account, None, ()


@dataclass(frozen=True, slots=True)
class TreeRead(Read[Tree | Unknown]):
    """A read of the first `size` bytes of a Merkle tree account. Its result is a `Tree` or Unknown."""

    address: str
    size: int

    @property
    def label(self) -> ReadLabel:
        """The read as answers show it."""
        return "getMultipleAccounts", self.address, None, (self.size,)

    def result(self, account: Plain | None, content: bytes) -> Tree | Unknown:
        """Return the tree, or Unknown if the account does not exist (None) or is no tree."""
        if account is None:
            return Unknown(f"there is no tree {self.address}", "absent")
        try:
            return read_tree(content, account.owner)
        except BadLayout as error:
            return Unknown(f"the account {self.address} is no tree: {error}", "contract")


@dataclass(frozen=True, slots=True)
class LeafList:
    """The compressed NFTs of an account as an endpoint lists them, before they are proven.

    Attributes:
        leaves: The NFTs that can be checked.
        tree_sizes: By tree: the bytes of its account that have to be read.
        faults: Ids of NFTs that cannot be checked, each with the reason. The account stands for an unreadable id.
    """

    leaves: tuple[Leaf, ...] = ()
    tree_sizes: Mapping[str, int] = field(default_factory=dict)
    faults: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class NameRead(Read[tuple[str, str] | Unknown]):
    """A read of the symbol and name in the last list with a compressed NFT; Unknown without a list."""

    id: str

    @property
    def label(self) -> ReadLabel:
        """The read as answers show it."""
        return "getAssetsByOwner", self.id, None, ()


@dataclass(frozen=True, slots=True)
class RewardRead(Read["Reward | Unknown | None"]):
    """A read of a stake account's reward in a past epoch: a `Reward`, None for none, or Unknown."""

    stake: str
    epoch: int

    @property
    def label(self) -> ReadLabel:
        """The read as answers show it."""
        return "getInflationReward", self.stake, None, (self.epoch,)


@dataclass(frozen=True, slots=True)
class Reward:
    """A reward that was paid to a stake account.

    Attributes:
        lamports: The amount.
        slot: The slot that paid it.
        time_s: The time of the slot; None if the node does not have it.
        commission: The part that the validator kept, in per cent; None if the node does not have it.
    """

    lamports: int
    slot: int
    time_s: int | None
    commission: int | None


@dataclass(frozen=True, slots=True)
class Note:
    """A remark about an amount, which becomes an issue of the answer.

    Attributes:
        subject: The mint or account that it is about.
        reason: The text for users.
        is_partial: True if the answer lacks an amount.
        mint: The token that is lacking; empty if it is no token.
    """

    subject: str
    reason: str
    is_partial: bool = False
    mint: str = ""


class MintBalance(msgspec.Struct, frozen=True, gc=False):
    """The sum of all token accounts of one mint. `program` is the token program of the mint."""

    raw: int
    decimals: int
    program: str


@dataclass(frozen=True, slots=True)
class WalletStake:
    """A stake account that the wallet may withdraw from.

    Attributes:
        address: Of the stake account.
        lamports: All lamports in it.
        delegated: The delegated part.
        active: The active part of the delegation.
        voter: The vote account of the delegation; empty if there is none.
        state: `active`, `activating`, `deactivating` or `inactive`.
        unlock_s: The time until which it is locked; 0 if it is not.
        reward_epochs: The first and last epoch in which its delegation may earn rewards; None without a delegation.
    """

    address: str
    lamports: int
    delegated: int
    active: int
    voter: str
    state: str
    unlock_s: int
    reward_epochs: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Wallet:
    """The lamports, tokens and stake accounts of an account, all read at the slot of `block`."""

    block: Block
    lamports: int
    tokens: Mapping[str, MintBalance]  # by mint
    stakes: tuple[WalletStake, ...]
    notes: tuple[Note, ...]
    epoch: int = 0
