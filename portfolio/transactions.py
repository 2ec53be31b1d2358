"""The answer of /transactions, field by field. Amounts and values are decimal strings in plain notation."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
from msgspec import UNSET, UnsetType

from chainfolio.portfolio.document import UNKNOWN, IssueDocument
from chainfolio.portfolio.frames import frame

if TYPE_CHECKING:
    import polars as pl

TransactionType = Literal[
    "TRANSFERIN",
    "TRANSFEROUT",
    "SELFTRANSFER",
    "BRIDGEIN",
    "BRIDGEOUT",
    "SWAP",
    "ADDLIQUIDITY",
    "REMOVELIQUIDITY",
    "STAKE",
    "UNSTAKE",
    "LEND",
    "BORROW",
    "DEPOSIT",
    "WITHDRAW",
    "CLAIM",
    "AIRDROP",
    "MINT",
    "WRAP",
    "UNWRAP",
    "VOTE",
    "APPROVAL",
    "OPENVAULT",
    "CLOSEVAULT",
    "REPAYVAULT",
    "COLLECT",
    "MULTITYPE",
    "INTERACTION",
    "FAILED",
    "SPAM",
    "UNDEFINED",
    "IGNORE",
    "SIGN",
    "FOLLOW",
    "DONATION",
    "EXPENSE",
]


class NamedEntity(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A chain or a protocol by its key."""

    key: str
    name: str
    img_small: str | UnsetType = UNSET
    img_large: str | UnsetType = UNSET


COLUMNS: Final = (
    "chain",
    "block",
    "time",
    "hash",
    "type",
    "flags",
    "protocol",
    "from",
    "to",
    "direction",
    "symbol",
    "contract",
    "tokenId",
    "amount",
    "price",
    "value",
    "fee",
    "feeSymbol",
)
UNKNOWN_PROTOCOL = NamedEntity(key="unknown", name="Unknown")
NO_PROTOCOL = NamedEntity(key="", name="")


class Nft(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Which one of a collection."""

    token_id: str


class TransactionUser(msgspec.Struct, frozen=True, kw_only=True):
    """Which of the asked wallets a transaction belongs to."""

    address: str


def _wire(name: str) -> str:
    """`from` is no name in Python: the fields are called as in the tables, and written as clients know them."""
    head, *parts = name.split("_")
    return {"sender": "from", "recipient": "to"}.get(name, head + "".join(word.capitalize() for word in parts))


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
    chain: NamedEntity
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
    protocol: NamedEntity = UNKNOWN_PROTOCOL
    sub_protocol: NamedEntity = NO_PROTOCOL
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

    def to_polars(self) -> pl.DataFrame:
        """A row for each asset that moved, or one where none did, as `chainfolio.portfolio.frames` says; the fee is in
        the first row of a transaction, so that it is summed once."""
        rows = (row for each in self.transactions for row in transaction_rows(each))
        numbers = ("amount", "price", "value", "fee")
        return frame(COLUMNS, rows, numbers=numbers, times=("time",), counts=("block",))


def transaction_rows(transaction: TransactionDocument) -> Iterator[list[Any]]:
    """The cells of `COLUMNS` for each asset that moved, numbers as they are in the answer."""
    time = datetime.fromtimestamp(int(transaction.timestamp), UTC)
    shared_cells = [
        transaction.chain.key,
        transaction.block_number,
        f"{time:%Y-%m-%dT%H:%M:%SZ}",
        transaction.hash,
        transaction.type,
        " ".join(sorted({flag.kind for flag in transaction.flags})),
        transaction.protocol.key,
        transaction.sender,
        transaction.recipient,
    ]
    fee = (
        [transaction.fees, transaction.native_asset_fees.symbol]
        if transaction.sender == transaction.user.address
        else [None, None]
    )
    assets = [("in", asset) for asset in transaction.assets_in] + [("out", asset) for asset in transaction.assets_out]
    for direction, asset in assets:
        number = None if asset.nft is UNSET else asset.nft.token_id
        cells = [direction, asset.symbol, asset.contract, number, asset.balance, asset.price, asset.value]
        yield [*shared_cells, *cells, *fee]
        fee = [None, None]
    if not assets:
        yield [*shared_cells, *[None] * 7, *fee]
