"""The answer of /transactions, field by field. Amounts and values are decimal strings in plain notation."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from portfolio.document import UNKNOWN, IssueDocument

TransactionType = Literal[
    "TRANSFERIN", "TRANSFEROUT", "SELFTRANSFER", "BRIDGEIN", "BRIDGEOUT",
    "SWAP", "ADDLIQUIDITY", "REMOVELIQUIDITY", "STAKE", "UNSTAKE", "LEND", "BORROW", "DEPOSIT", "WITHDRAW",
    "CLAIM", "AIRDROP", "MINT", "WRAP", "UNWRAP", "VOTE", "APPROVAL",
    "OPENVAULT", "CLOSEVAULT", "REPAYVAULT", "COLLECT", "MULTITYPE", "INTERACTION",
    "FAILED", "SPAM", "UNDEFINED", "IGNORE", "SIGN", "FOLLOW", "DONATION", "EXPENSE",
]  # fmt: skip


class Named(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A chain or a protocol by its key."""

    key: str
    name: str
    img_small: str | UnsetType = UNSET
    img_large: str | UnsetType = UNSET


UNKNOWN_PROTOCOL = Named(key="unknown", name="Unknown")
NO_PROTOCOL = Named(key="", name="")


class Nft(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Which one of a collection."""

    token_id: str


class TransactionUser(msgspec.Struct, frozen=True, kw_only=True):
    """Which of the asked wallets a transaction belongs to."""

    address: str


def _wire(name: str) -> str:
    """`from` is no name in Python: the fields are called as in the tables, and written as clients know them."""
    head, *rest = name.split("_")
    return {"sender": "from", "recipient": "to"}.get(name, head + "".join(word.capitalize() for word in rest))


class TransactionAssetDocument(msgspec.Struct, rename=_wire, frozen=True, kw_only=True):
    """One asset that moved. `price`, `value` and `priceSource` are `N/A` where nobody priced it; `address` is its
    `contract` under the name that older clients read.

    `totalCostBasis` is the cost in USD: of what came the cost of its lot, of what was disposed of that of the lots that
    it came from; `costBasis` is the same by unit. `closedPnl` is what its disposal gained, "0" where it was none. What
    is not known is `N/A`, and an issue of the adapter `pnl` says why. `staysStaked`: the stake that earned it, its
    `from`, keeps it, and the balance of the wallet did not change.
    """

    symbol: str
    name: str
    balance: str
    price: str
    value: str
    contract: str
    chain_contract: str
    chain_key: str
    decimal: str
    sender: str
    recipient: str
    is_asset_in: bool
    is_native_asset_fees: bool = False
    total_cost_basis: str = UNKNOWN
    cost_basis: str = UNKNOWN
    closed_pnl: str = UNKNOWN
    stays_staked: bool | UnsetType = UNSET
    nft: Nft | UnsetType = UNSET
    price_source: str = UNKNOWN
    address: str = ""
    img_small: str | UnsetType = UNSET
    img_large: str | UnsetType = UNSET
    explorer_url: str | UnsetType = UNSET


class Flag(msgspec.Struct, frozen=True):
    """A warning about a transaction: what for, why, about which address, and which real one that looks like."""

    kind: Literal["SPAM", "POISONING"]
    reason: str
    address: str | UnsetType = UNSET
    resembles: str | UnsetType = UNSET


class TransactionDocument(msgspec.Struct, rename=_wire, frozen=True, kw_only=True):
    """One transaction of one wallet. `timestamp` is in Unix seconds; fiat is USD, `N/A` where nobody priced it.
    `closedPnl` is what its disposals gained, the fee among them: all of a wallet together are the `closedPnl` of its
    portfolio. `validators` are the indexes of those whose withdrawals it is, where the beacon chain is indexed.
    `flags` are warnings; what has some is not left out for that, only what has the type SPAM is, where
    `hideSpam` says so."""

    hash: str
    timestamp: str
    block_number: int
    chain: Named
    sender: str
    recipient: str
    type: TransactionType
    value: str
    value_fiat: str
    fees: str
    fees_fiat: str
    native_asset_fees: TransactionAssetDocument
    assets_in: tuple[TransactionAssetDocument, ...]
    assets_out: tuple[TransactionAssetDocument, ...]
    user: TransactionUser
    protocol: Named = UNKNOWN_PROTOCOL
    sub_protocol: Named = NO_PROTOCOL
    function_name: str = ""
    closed_pnl: str = UNKNOWN
    flags: tuple[Flag, ...] = ()
    validators: tuple[int, ...] | UnsetType = UNSET
    explorer_url: str | UnsetType = UNSET


class Transactions(msgspec.Struct, frozen=True):
    """One page; a client goes on until a page is not full. `completeness` is `partial` where something is not indexed,
    and `issues` say what."""

    transactions: tuple[TransactionDocument, ...]
    completeness: Literal["complete", "partial"] = "complete"
    issues: tuple[IssueDocument, ...] = ()
