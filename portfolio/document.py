"""The answer of /portfolio, field by field. Amounts are decimal strings in plain notation; ids and counts are numbers.

The order of everything is stated, so that equal inputs give equal bytes: chains, protocols and position types by their
key; assets by value, the largest first, then the unpriced, spam last, then by contract; nested positions by value, then
by name.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from chainfolio import amounts
from chainfolio.portfolio.frames import frame
from chainfolio.portfolio.numbers import UNKNOWN as UNKNOWN
from chainfolio.portfolio.numbers import rounded as rounded

if TYPE_CHECKING:
    import polars as pl

WALLET: Final = "wallet"
ASSETS: Final = (
    "address",
    "chain",
    "block",
    "protocol",
    "position",
    "name",
    "side",
    "symbol",
    "contract",
    "balance",
    "price",
    "value",
    "spam",
)


class CallDocument(msgspec.Struct, rename="camel", frozen=True):
    """A read of the chain behind one number (`balance`, `decimal`, `price`, or a whole `position`): made again at the
    block, it gives the same. `contract` and `signature` are null for `eth_getBalance`. Numbers are decimal, bytes are
    hex."""

    number: str
    method: str
    contract: str | None
    signature: str | None
    arguments: tuple[str, ...]
    result: tuple[str, ...]


class Sources(msgspec.Struct, rename="camel", frozen=True):
    """Where an asset's numbers come from: the block at which all was read; the price's source, time (ISO 8601) and
    confidence; the calls."""

    block_number: str
    block_hash: str
    raw: str
    price_source: str | None
    price_time: str | None
    confidence: str | None
    detail: str | None
    calls: tuple[CallDocument, ...] = ()


class PositionSources(msgspec.Struct, rename="camel", frozen=True):
    """Where a position's amounts come from: the block and every call that was made of the protocol's contracts."""

    block_number: str
    block_hash: str
    calls: tuple[CallDocument, ...]


class SpamDocument(msgspec.Struct, frozen=True):
    """Why an asset is taken for spam: a score up to 100, and the codes of the reasons, the heaviest first."""

    score: int
    reasons: tuple[str, ...]


class AssetDocument(msgspec.Struct, rename="camel", frozen=True):
    """One asset. `price`, `value` and `priceSource` are `N/A` where nobody priced it, `balance` and `decimal` without
    decimals. One with `spam` is in no sum unless that was asked for. `address` is its `contract` under the name that
    older clients read; `percentage` is its value as a percentage of the net worth, positive for what is owed."""

    symbol: str
    name: str
    contract: str
    chain_key: str
    chain_contract: str
    balance: str
    price: str
    value: str
    decimal: str
    open_pnl: str = UNKNOWN
    total_cost_basis: str = UNKNOWN
    price_source: str = UNKNOWN
    address: str | UnsetType = UNSET
    percentage: str | UnsetType = UNSET
    img_small: str | UnsetType = UNSET
    img_large: str | UnsetType = UNSET
    explorer_url: str | UnsetType = UNSET
    sources: Sources | UnsetType = UNSET
    spam: SpamDocument | UnsetType = UNSET


class EarningDocument(msgspec.Struct, rename="camel", frozen=True):
    """What a position earned in one epoch, which is in its assets already: how much of its coin, in which block and
    when it was paid, and the validator's commission in per cent. `N/A` is what the node does not know (any more)."""

    epoch: str
    amount: str
    block_number: str = UNKNOWN
    time: str = UNKNOWN
    commission: str = UNKNOWN


class PositionDocument(msgspec.Struct, rename="camel", frozen=True):
    """One position with parts. Borrowed assets have positive values; `value` is net. It links to its vault or pool.
    Clients read the lists from `marginAssets` on as well; they are empty: no position here has such parts.
    `earned`: rewards of stake, the newest epoch first; absent where a position has none."""

    name: str
    value: str
    total_cost_basis: str = UNKNOWN
    total_open_pnl: str = UNKNOWN
    total_closed_pnl: str = UNKNOWN
    unlock_at: str = "0"
    health_rate: str | UnsetType = UNSET
    vault_address: str = ""
    pool_address: str = ""
    assets: tuple[AssetDocument, ...] = ()
    supply_assets: tuple[AssetDocument, ...] = ()
    borrow_assets: tuple[AssetDocument, ...] = ()
    reward_assets: tuple[AssetDocument, ...] = ()
    dex_assets: tuple[AssetDocument, ...] = ()
    margin_assets: tuple[AssetDocument, ...] = ()
    base_assets: tuple[AssetDocument, ...] = ()
    quote_assets: tuple[AssetDocument, ...] = ()
    collateralize_nft_assets: tuple[AssetDocument, ...] = msgspec.field(default=(), name="collateralizeNFTAssets")
    sources: PositionSources | UnsetType = UNSET
    earned: tuple[EarningDocument, ...] | UnsetType = UNSET
    img_small: str | UnsetType = UNSET
    img_large: str | UnsetType = UNSET
    explorer_url: str | UnsetType = UNSET


class PositionsDocument(msgspec.Struct, rename="camel", frozen=True):
    """All positions of one type: loose `assets` and nested `protocolPositions`, both always there. The link is the
    account's."""

    name: str
    total_value: str
    total_cost_basis: str = UNKNOWN
    total_open_pnl: str = UNKNOWN
    total_closed_pnl: str = UNKNOWN
    unlock_at: str = "0"
    assets: tuple[AssetDocument, ...] = ()
    protocol_positions: tuple[PositionDocument, ...] = ()
    img_small: str | UnsetType = UNSET
    img_large: str | UnsetType = UNSET
    explorer_url: str | UnsetType = UNSET


class ProtocolChainDocument(msgspec.Struct, rename="camel", frozen=True):
    """What one protocol holds on one chain, by position type."""

    name: str
    key: str
    value: str
    protocol_positions: dict[str, PositionsDocument]
    total_cost_basis: str = UNKNOWN
    total_closed_pnl: str = UNKNOWN
    total_open_pnl: str = UNKNOWN
    img_small: str | UnsetType = UNSET
    img_large: str | UnsetType = UNSET


class ProtocolDocument(msgspec.Struct, rename="camel", frozen=True):
    """One protocol; `wallet` is the bucket of loose tokens and always there."""

    name: str
    key: str
    value: str
    chains: dict[str, ProtocolChainDocument]
    total_cost_basis: str = UNKNOWN
    total_closed_pnl: str = UNKNOWN
    total_open_pnl: str = UNKNOWN
    img_small: str | UnsetType = UNSET
    img_large: str | UnsetType = UNSET


class ChainDocument(msgspec.Struct, rename="camel", frozen=True):
    """One chain that was read, also where nothing was found on it. `valuePercentile` is its percentage of net worth.

    `blockNumber` is the block at which it was read, absent where it could not be read; `blocksBehind` how many blocks
    the chain's head was above that one, in an answer about now."""

    name: str
    key: str
    chain_id: int
    value: str
    value_percentile: str
    block_number: str | UnsetType = UNSET
    blocks_behind: int | UnsetType = UNSET
    total_cost_basis: str = UNKNOWN
    total_closed_pnl: str = UNKNOWN
    total_open_pnl: str = UNKNOWN
    img_small: str | UnsetType = UNSET
    img_large: str | UnsetType = UNSET


class NftDocument(msgspec.Struct, rename="camel", frozen=True):
    """One collectible that is held, and how many of it: 1 in a collection in which each number has one owner."""

    token_id: str
    balance: str


class CollectionDocument(msgspec.Struct, rename="camel", frozen=True):
    """What is held of one collection, by number. Collectibles are not valued: `value` is `N/A`. One with `spam` lures
    with its name. The link is that of the contract."""

    name: str
    symbol: str
    contract_address: str
    chain_key: str
    chain_id: int
    count: str
    items: tuple[NftDocument, ...]
    value: str = UNKNOWN
    spam: bool = False
    img_small: str | UnsetType = UNSET
    img_large: str | UnsetType = UNSET
    explorer_url: str | UnsetType = UNSET


class NftChainDocument(msgspec.Struct, rename="camel", frozen=True):
    """How many collectibles are held on one chain."""

    name: str
    key: str
    chain_id: int
    count: str
    value: str = UNKNOWN


class IssueDocument(msgspec.Struct, frozen=True):
    """Something the answer does not know: which part failed, about what, and why. If more than five untrusted assets
    share a reason, one issue stands for all of them: `count` is their number and `subject` names none."""

    adapter: str
    subject: str
    reason: str
    count: int | UnsetType = UNSET


class Portfolio(msgspec.Struct, rename="camel", frozen=True):
    """One address. `completeness` is `partial` where a read failed; `unpricedAssets` counts what has no price
    and `spamAssets` what is taken for spam: neither is in a sum. `nftsChains` and `nftsByCollection` (by
    `chain:contract`) are the collectibles that it holds of those that the index saw come to it; they are absent
    unless `includeNFTs` asks for them, and in no sum.

    `dailyIncome` is the worth in USD, at the prices of this answer, of all coins and fungible tokens that others sent
    to the address since 00:00 UTC of the day of the block that was read, over all chains; `dailyExpense` that of what
    it sent to others since then, and of the fees it paid. Both are `N/A` where not all of that is indexed; then an
    issue of the adapter `daily` names the dataset that is lacking and the block from which on, and `completeness`
    stays as it is.
    `conversionRates` has what `/nav` would convert this address by: units per USD of fiat money, USD per unit of a
    coin. It has the currencies of which a rate is known; in an answer about the past these are fiat money, what the
    settings fix and the coins that were held.
    `cashBalance` is the worth of what lies loose in the wallet and that the operator says is meant to be worth a fixed
    sum of fiat money (a peg). `fees` are all fees paid so far, in the native coin's smallest unit, `feesFiat` in USD.
    """

    address: str
    networth: str
    last_updated: str
    asset_by_protocols: dict[str, ProtocolDocument]
    chains: dict[str, ChainDocument]
    completeness: str
    issues: tuple[IssueDocument, ...]
    unpriced_assets: int
    price_adapters: tuple[str, ...]
    conversion_rates: dict[str, str] = {}
    cash_balance: str = "0"
    daily_income: str = UNKNOWN
    daily_expense: str = UNKNOWN
    fees: str = UNKNOWN
    fees_fiat: str = UNKNOWN
    open_pnl: str = UNKNOWN
    closed_pnl: str = UNKNOWN
    total_cost_basis: str = UNKNOWN
    manual_balance_networth: str = "0"
    block_number: str | UnsetType = UNSET
    spam_assets: int = 0
    nfts_chains: dict[str, NftChainDocument] | UnsetType = UNSET
    nfts_by_collection: dict[str, CollectionDocument] | UnsetType = UNSET

    def to_polars(self) -> pl.DataFrame:
        """A row for each asset, as `chainfolio.portfolio.frames` says. `side` is `owned`, `owed` or `claimable`; what
        is owed is positive."""
        return frame(ASSETS, asset_rows(self), numbers=("balance", "price", "value"), counts=("block",))


_ENCODER: Final = msgspec.json.Encoder(order="deterministic")


def encode_one(portfolio: Portfolio) -> bytes:
    """One element of the body, which is an array with one portfolio an address: UTF-8 JSON."""
    return _ENCODER.encode(portfolio)


def wallet_only(portfolio: Portfolio) -> Portfolio:
    """The same portfolio with nothing but loose tokens in it and in its sums, as /wallet answers."""
    wallet = portfolio.asset_by_protocols[WALLET]
    values = {key: chain.value for key, chain in wallet.chains.items()}
    shares = percentages({key: Decimal(values.get(key, "0")) for key in portfolio.chains})
    chains = {
        key: msgspec.structs.replace(chain, value=values.get(key, "0"), value_percentile=shares[key])
        for key, chain in portfolio.chains.items()
    }
    assets = [asset for chain in wallet.chains.values() for asset in every_asset(chain)]
    sources = {asset.price_source for asset in assets}
    return msgspec.structs.replace(
        portfolio,
        networth=wallet.value,
        asset_by_protocols={WALLET: wallet},
        chains=chains,
        unpriced_assets=sum(asset.value == UNKNOWN for asset in assets),
        spam_assets=sum(asset.spam is not UNSET for asset in assets),
        price_adapters=tuple(adapter for adapter in portfolio.price_adapters if adapter in sources),
    )


def asset_rows(document: Portfolio) -> Iterator[list[Any]]:
    """The cells of `ASSETS` for each asset, numbers as they are in the answer."""
    for protocol in document.asset_by_protocols.values():
        for chain in protocol.chains.values():
            block = document.chains[chain.key].block_number
            for kind, position in chain.protocol_positions.items():
                for nested, side, asset in sided_assets(position):
                    yield [
                        document.address,
                        chain.key,
                        None if block is UNSET else block,
                        protocol.key,
                        kind,
                        nested,
                        side or "owned",
                        asset.symbol,
                        asset.contract,
                        asset.balance,
                        asset.price,
                        asset.value,
                        None if asset.spam is UNSET else "spam",
                    ]


def sided_assets(position: PositionsDocument) -> list[tuple[str, str, AssetDocument]]:
    """Each asset with the name of its position, where it has one, and the side of it that is not simply owned."""
    rows = [("", "", asset) for asset in position.assets]
    for nested in position.protocol_positions:
        sides = (("", nested.supply_assets), ("owed", nested.borrow_assets), ("claimable", nested.reward_assets))
        rows += [(nested.name, side, asset) for side, assets in sides for asset in assets]
    return rows


def every_asset(chain: ProtocolChainDocument) -> Iterable[AssetDocument]:
    """All assets of a protocol on a chain, those inside nested positions too."""
    for positions in chain.protocol_positions.values():
        yield from positions.assets
        for nested in positions.protocol_positions:
            for part in (nested.assets, nested.supply_assets, nested.borrow_assets, nested.reward_assets):
                yield from part
            yield from nested.dex_assets


def percentages(values: dict[str, Decimal]) -> dict[str, str]:
    """Each value as a percentage of their sum, to four places, half to even; "0" where the sum is not above zero."""
    total = Fraction(amounts.total(list(values.values())))
    shares: defaultdict[str, str] = defaultdict(lambda: "0")
    if total > 0:
        for key, value in values.items():
            shares[key] = amounts.text(rounded(Fraction(value) * 100 / total, 4))
    return shares
