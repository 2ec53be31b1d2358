"""Records of transactions as gains read them: amounts in smallest units, values as numbers."""

from __future__ import annotations

from decimal import Decimal
from typing import Final

import msgspec
from msgspec import UNSET

from chainfolio import amounts
from chainfolio.portfolio.document import UNKNOWN
from chainfolio.portfolio.transactions import TransactionAssetDocument, TransactionDocument, TransactionType

DIGITS: Final = amounts.MAX_DECIMALS + 80


class MovedAsset(msgspec.Struct, frozen=True, kw_only=True):
    """One asset that moved from `sender` to `recipient`.

    Attributes:
        key: `chain:contract`, and the number of a collectible after another colon.
        chain_contract: `chain:contract`.
        decimals: None if they are not known.
        raw: The amount in smallest units; None if it is not known.
        value: The value in USD at the block; None without a price.
        stays_staked: A reward that stays in the stake that earned it.
    """

    key: str
    symbol: str
    contract: str
    chain_contract: str
    sender: str
    recipient: str
    decimals: int | None
    raw: int | None
    value: Decimal | None
    is_collectible: bool = False
    stays_staked: bool = False


class TransactionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One transaction of one wallet, with the assets that it moved and the fee that its sender paid.

    `protocol` is the key of the protocol that was used, `unknown` for other contracts.
    """

    hash: str
    chain: str
    height: int
    time_us: int
    sender: str
    recipient: str
    wallet: str
    protocol: str
    type: TransactionType
    fee: MovedAsset
    assets_in: tuple[MovedAsset, ...] = ()
    assets_out: tuple[MovedAsset, ...] = ()

    @property
    def key(self) -> tuple[str, str]:
        """Chain and hash of the transaction."""
        return self.chain, self.hash


def record_of(document: TransactionDocument) -> TransactionRecord:
    """Return the record of a transaction that was read with the prices of its block."""
    return TransactionRecord(
        hash=document.hash,
        chain=document.chain.key,
        height=document.block_number,
        time_us=int(document.timestamp) * 1_000_000,
        sender=document.sender,
        recipient=document.recipient,
        wallet=document.user.address,
        protocol=document.protocol.key,
        type=document.type,
        fee=moved_asset(document.native_asset_fees),
        assets_in=tuple(map(moved_asset, document.assets_in)),
        assets_out=tuple(map(moved_asset, document.assets_out)),
    )


def moved_asset(document: TransactionAssetDocument) -> MovedAsset:
    """Return a moved asset; its amount is None if the decimals are not known."""
    decimals, raw = None if document.decimal == UNKNOWN else int(document.decimal), None
    if document.balance != UNKNOWN and decimals is not None:
        raw = int(amounts.EXACT.scaleb(amounts.parse(document.balance, max_digits=DIGITS), decimals))
    return MovedAsset(
        key=asset_key(document),
        symbol=document.symbol,
        contract=document.contract,
        chain_contract=document.chain_contract,
        sender=document.sender,
        recipient=document.recipient,
        decimals=decimals,
        raw=raw,
        value=None if document.value == UNKNOWN else Decimal(document.value),
        is_collectible=document.nft is not UNSET,
        stays_staked=document.stays_staked is True,
    )


def asset_key(asset: TransactionAssetDocument) -> str:
    """Return the key of an asset: `chain:contract`, and the number of a collectible after another colon."""
    return asset.chain_contract if asset.nft is UNSET else f"{asset.chain_contract}:{asset.nft.token_id}"
