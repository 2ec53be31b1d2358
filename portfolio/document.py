"""The answer of /portfolio, field by field.

Amounts are plain decimal strings; ids and counts are numbers. The order is fixed, so that equal inputs give equal
bytes: chains, protocols and position types by key; assets by value from the largest, then unpriced ones, then spam,
ties by contract; nested positions by value, then by name.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Final

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
    """One read of the chain, for a `balance`, `decimal`, `price`, `owner` or a whole `position`.

    The same call at the same block gives the same result. `contract` and `signature` are null for `eth_getBalance`.
    Numbers are decimal, bytes are hex.
    """

    number: str
    method: str
    contract: str | None
    signature: str | None
    arguments: tuple[str, ...]
    result: tuple[str, ...]


class Sources(msgspec.Struct, rename="camel", frozen=True):
    """Evidence of an asset's numbers: the block of all reads, the price's origin, and the calls.

    `priceTime` is ISO 8601.
    """

    block_number: str
    block_hash: str
    raw: str
    price_source: str | None
    price_time: str | None
    confidence: str | None
    detail: str | None
    calls: tuple[CallDocument, ...] = ()


class PositionSources(msgspec.Struct, rename="camel", frozen=True):
    """Evidence of a position's amounts: the block, and every call of the protocol's contracts."""

    block_number: str
    block_hash: str
    calls: tuple[CallDocument, ...]


class SpamDocument(msgspec.Struct, frozen=True):
    """Reasons why an asset is judged to be spam: a score up to 100, and reason codes, the heaviest first."""

    score: int
    reasons: tuple[str, ...]


class AssetDocument(msgspec.Struct, rename="camel", frozen=True):
    """One asset. `price`, `value` and `priceSource` are `N/A` if it has no price.

    `balance` and `decimal` are `N/A` if its decimals are not known. An asset with `spam` is in no sum unless the
    request includes spam. `address` equals `contract`; older clients read it. `percentage` is the value as a percentage
    of the net worth, positive for debt. `totalCostBasis` of a debt is its value when it was borrowed, which sums
    subtract, and `openPnl` is that less its value now, with interest.
    """

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
    """Rewards of a position in one epoch; they are already part of its assets.

    `amount` is in the position's coin; `blockNumber` and `time` say when it was paid; `commission` is the validator's,
    in per cent. A field is `N/A` if the node does not know it, or no longer.
    """

    epoch: str
    amount: str
    block_number: str = UNKNOWN
    time: str = UNKNOWN
    commission: str = UNKNOWN


class PositionDocument(msgspec.Struct, rename="camel", frozen=True):
    """One position with parts. Borrowed assets have positive values; `value` is net.

    The link leads to its vault or pool. The lists from `marginAssets` on exist for clients that read them, and are
    always empty. `earned`: rewards of stake, the newest epoch first. `shares`: raw amounts of the account's tokens that
    the position stands for, by `chainContract`. Both are absent if the position has none.
    """

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
    shares: dict[str, str] | UnsetType = UNSET
    img_small: str | UnsetType = UNSET
    img_large: str | UnsetType = UNSET
    explorer_url: str | UnsetType = UNSET


class PositionsDocument(msgspec.Struct, rename="camel", frozen=True):
    """Positions of one type: loose `assets` and nested `protocolPositions`. The link leads to the account."""

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
    """Holdings of one protocol on one chain, by position type."""

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
    """One chain that was read, even if it holds nothing. `valuePercentile` is its percentage of net worth.

    `blockNumber` is the block at which it was read, absent if it could not be read. `blocksBehind`: how many blocks the
    chain's head was above it; only in answers about now.
    """

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


class NftAttribute(msgspec.Struct, rename="camel", frozen=True):
    """A trait of a collectible; `name` is empty for a property without a name."""

    name: str
    value: str


class NftDocument(msgspec.Struct, rename="camel", frozen=True):
    """One collectible and its balance, which is 1 in collections where each number has one owner.

    `name` and `attributes` are what the metadata say, and absent if they are not known: `metadataProblem` says why.
    `omittedAttributes` counts those that are left out. `metadataUri` is where the metadata are, if not in the contract.
    Pictures are drawn from the contract and the number; those of the metadata are never loaded. `spam` is true if the
    name is a lure. `sources` have the call that names the owner or the balance.
    """

    token_id: str
    balance: str
    name: str | UnsetType = UNSET
    attributes: tuple[NftAttribute, ...] | UnsetType = UNSET
    omitted_attributes: int | UnsetType = UNSET
    metadata_uri: str | UnsetType = UNSET
    metadata_problem: str | UnsetType = UNSET
    spam: bool = False
    img_small: str | UnsetType = UNSET
    img_large: str | UnsetType = UNSET
    sources: PositionSources | UnsetType = UNSET


class CollectionDocument(msgspec.Struct, rename="camel", frozen=True):
    """Holdings of one collection, by number. Collectibles are not valued: `value` is `N/A`.

    `spam` is true if the name is a lure, or the collection is judged as tokens are; `spamReasons` are the codes then.
    The link leads to the contract.
    """

    name: str
    symbol: str
    contract_address: str
    chain_key: str
    chain_id: int
    count: str
    items: tuple[NftDocument, ...]
    value: str = UNKNOWN
    spam: bool = False
    spam_reasons: tuple[str, ...] | UnsetType = UNSET
    img_small: str | UnsetType = UNSET
    img_large: str | UnsetType = UNSET
    explorer_url: str | UnsetType = UNSET


class NftChainDocument(msgspec.Struct, rename="camel", frozen=True):
    """The number of collectibles held on one chain."""

    name: str
    key: str
    chain_id: int
    count: str
    value: str = UNKNOWN


class IssueDocument(msgspec.Struct, frozen=True):
    """A gap in the answer: the failed part (`adapter`), its subject, and the reason.

    If more than five untrusted assets share a reason, one issue stands for all of them: `count` is their number and
    `subject` names none.
    """

    adapter: str
    subject: str
    reason: str
    count: int | UnsetType = UNSET


class Portfolio(msgspec.Struct, rename="camel", frozen=True):
    """One address. `completeness` is `partial` if a read failed.

    `unpricedAssets` counts assets without a price and `spamAssets` those judged to be spam; sums exclude both.
    `nftsChains` and `nftsByCollection` (by `chain:contract`) are the collectibles that the index saw arrive and that
    are still held. They are absent unless `includeNFTs` asks for them, and are in no sum.

    `dailyIncome` is the value in USD, at the prices of this answer, of all coins and fungible tokens that others sent
    to the address since 00:00 UTC of the day of the block, over all chains. `dailyExpense` is the value of those that
    it sent to others since then, and of the fees that it paid. Both are `N/A` if that is not fully indexed: an issue of
    the adapter `daily` then names the missing dataset and its first missing block, and `completeness` does not change.

    `conversionRates` has the rates that `/nav` would use for this address: units of fiat money per USD, USD per unit of
    a coin. It lists the currencies with a known rate; in an answer about the past these are fiat money, the rates that
    the settings fix, and the coins held.

    `cashBalance` is the value of loose holdings that the operator has pegged to fiat money. `fees` are all fees paid so
    far, in the native coin's smallest unit; `feesFiat` are the same in USD.
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
        """Return a frame with a row per asset, in the format of `chainfolio.portfolio.frames`.

        `side` is `owned`, `owed` or `claimable`; amounts owed are positive.
        """
        return frame(ASSETS, asset_rows(self), numbers=("balance", "price", "value"), counts=("block",))


_ENCODER: Final = msgspec.json.Encoder(order="deterministic")


def encode_one(portfolio: Portfolio) -> bytes:
    """Return a portfolio as UTF-8 JSON: one element of the array that a response is."""
    return _ENCODER.encode(portfolio)


def wallet_only(portfolio: Portfolio) -> Portfolio:
    """Return the portfolio with loose tokens only, in its assets and its sums, as /wallet answers.

    Chains without loose tokens stay, with the value 0. Gains, fees and issues are unchanged.
    """
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


def asset_rows(document: Portfolio) -> Iterator[list[str | None]]:
    """Yield the cells of `ASSETS` for each asset, with numbers as in the answer; debts and rewards too."""
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
    """Return name of the position, side, and asset for each asset; both texts are empty for loose ones.

    The side is `owed`, `claimable`, or empty for owned assets.
    """
    rows = [("", "", asset) for asset in position.assets]
    for nested in position.protocol_positions:
        sides = (("", nested.supply_assets), ("owed", nested.borrow_assets), ("claimable", nested.reward_assets))
        rows += [(nested.name, side, asset) for side, assets in sides for asset in assets]
    return rows


def every_asset(chain: ProtocolChainDocument) -> Iterable[AssetDocument]:
    """Yield the assets of a protocol on a chain, including those of nested positions, debts and rewards."""
    for positions in chain.protocol_positions.values():
        yield from positions.assets
        for nested in positions.protocol_positions:
            for part in (nested.assets, nested.supply_assets, nested.borrow_assets, nested.reward_assets):
                yield from part
            yield from nested.dex_assets


def percentages(values: dict[str, Decimal]) -> dict[str, str]:
    """Return each value as a percentage of their sum, to four places, half to even.

    Every percentage is "0" if the sum is not above zero; so is that of a missing key.
    """
    total = Fraction(amounts.total(list(values.values())))
    shares: defaultdict[str, str] = defaultdict(lambda: "0")
    if total > 0:
        for key, value in values.items():
            shares[key] = amounts.text(rounded(Fraction(value) * 100 / total, 4))
    return shares
