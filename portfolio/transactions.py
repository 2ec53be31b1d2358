"""The answer of /transactions, field by field. Amounts and values are plain decimal strings."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Final, Literal

import msgspec
from msgspec import UNSET, UnsetType

from chainfolio import amounts
from chainfolio.portfolio.document import UNKNOWN, AssetDocument, IssueDocument
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
DUST_USD: Final = Decimal("0.01")
UNKNOWN_PROTOCOL = NamedEntity(key="unknown", name="Unknown")
NO_PROTOCOL = NamedEntity(key="", name="")


class Nft(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Which one of a collection."""

    token_id: str


class TransactionUser(msgspec.Struct, frozen=True, kw_only=True):
    """The requested wallet to which a transaction belongs."""

    address: str


def _wire(name: str) -> str:
    """Return the JSON name of a field: camel case, and `from` and `to` (`from` is reserved in Python)."""
    head, *parts = name.split("_")
    return {"sender": "from", "recipient": "to"}.get(name, head + "".join(part.capitalize() for part in parts))


class TransactionAssetDocument(msgspec.Struct, rename=_wire, frozen=True, kw_only=True):
    """One asset that moved. `price`, `value` and `priceSource` are `N/A` if it has no price.

    `address` equals `contract`; older clients read it. `totalCostBasis` is a cost in USD: of an incoming asset the cost
    of its lot, of a disposal the cost of the lots that it used. `costBasis` is the same per unit. `closedPnl` is the
    gain of the disposal, "0" if it was none. Unknown values are `N/A`, and an issue of the adapter `pnl` gives the
    reason. `staysStaked`: the reward stays in the stake that earned it (its `from`), and the wallet's balance did not
    change.
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
    """A warning about a transaction, with its reason.

    `address` is the address concerned, `resembles` the real address that it imitates.
    """

    kind: Literal["SPAM", "POISONING"]
    reason: str
    address: str | UnsetType = UNSET
    resembles: str | UnsetType = UNSET


class TransactionDocument(msgspec.Struct, rename=_wire, frozen=True, kw_only=True):
    """One transaction of one wallet. `timestamp` is in Unix seconds; fiat is USD, `N/A` without a price.

    `closedPnl` is the gain of its disposals, including the fee; over all transactions of a wallet they add up to the
    `closedPnl` of its portfolio. `validators` are the indexes of the withdrawing validators, if the beacon chain is
    indexed. `flags` are warnings; a transaction with warnings is still listed, unless its type is SPAM and `hideSpam`
    is set.
    """

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


def may_be_dust(transaction: TransactionDocument) -> bool:
    """Return True if another account sent it, outside of known protocols, and it only brought assets."""
    is_foreign = transaction.sender != transaction.user.address and transaction.protocol == UNKNOWN_PROTOCOL
    return is_foreign and bool(transaction.assets_in) and not transaction.assets_out


def is_dust(transaction: TransactionDocument) -> bool:
    """Return True if what a priced transaction brought is worth less than DUST_USD.

    Return False if a value is unknown; an amount of zero needs no price. The transaction is one that `may_be_dust`.
    """
    values = ["0" if each.balance == "0" else each.value for each in transaction.assets_in]
    return UNKNOWN not in values and sum(map(Decimal, values)) < DUST_USD


class Transactions(msgspec.Struct, frozen=True):
    """One page; clients continue until a page is not full.

    `completeness` is `partial` if something is not indexed, and `issues` name it.
    """

    transactions: tuple[TransactionDocument, ...]
    completeness: Literal["complete", "partial"] = "complete"
    issues: tuple[IssueDocument, ...] = ()

    def to_polars(self) -> pl.DataFrame:
        """Return a frame with a row per asset that moved, or one row per transaction without any.

        The fee is in the first row of its transaction, so that it is summed once. `chainfolio.portfolio.frames`
        describes the format.
        """
        rows = (row for each in self.transactions for row in transaction_rows(each))
        numbers = ("amount", "price", "value", "fee")
        return frame(COLUMNS, rows, numbers=numbers, times=("time",), counts=("block",))


def transaction_rows(transaction: TransactionDocument) -> Iterator[list[str | int | None]]:
    """Yield the cells of `COLUMNS` for each asset that moved, with numbers as in the answer.

    There is one row, with None for the asset, if none moved. Only the first row has the fee, if the account paid it.
    """
    time = datetime.fromtimestamp(int(transaction.timestamp), UTC)
    shared_cells: list[str | int | None] = [
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
    fee: list[str | None] = (
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


def raw_balance(asset: AssetDocument | TransactionAssetDocument) -> int:
    """Return the balance in the smallest unit; 0 if it is not known."""
    if UNKNOWN in (asset.balance, asset.decimal):
        return 0
    return int(amounts.EXACT.scaleb(Decimal(asset.balance), int(asset.decimal)))
