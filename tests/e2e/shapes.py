"""What the service's description promises, as types: an answer that differs in a field or a type is not read.

Fields that nobody promised are let through, as additions are allowed inside /v1; a promised field may be neither
missing, nor null where null is not promised, nor a number where a decimal string is.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType, field

Exact = Annotated[str, Meta(pattern=r"^-?(0|[1-9][0-9]*)(\.[0-9]*[1-9])?$")]  # plain notation, no trailing zeros
Whole = Annotated[str, Meta(pattern=r"^(0|[1-9][0-9]*)$")]
Known = Annotated[str, Meta(pattern=r"^(N/A|-?(0|[1-9][0-9]*)(\.[0-9]*[1-9])?)$")]  # or said to be unknown
Pnl = Annotated[str, Meta(pattern=r"^(N/A|-?(0|[1-9][0-9]*)(\.[0-9]*[1-9])?)$")]
Address = Annotated[
    str, Meta(pattern=r"^(0x[0-9a-f]{40}|0x[0-9a-f]{64}|T[1-9A-HJ-NP-Za-km-z]{33}|[1-9A-HJ-NP-Za-km-z]{32,44})$")
]
Virtual = Annotated[str, Meta(pattern=r"^virtual:[0-9A-Za-z-]+$")]
Owner = Annotated[str, Meta(pattern=r"^(0x[0-9a-f]{40}|0x[0-9a-f]{64}|[1-9A-HJ-NP-Za-km-z]{32,44}|virtual:.+)$")]
EvmAddress = Annotated[str, Meta(pattern=r"^0x[0-9a-f]{40}$")]
Hash = Annotated[str, Meta(pattern=r"^0x[0-9a-f]{64}$")]
Url = Annotated[str, Meta(pattern=r"^(https?:|data:image/)")]
Time = Annotated[str, Meta(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$")]
Text = Annotated[str, Meta(min_length=1)]
Count = Annotated[int, Meta(ge=0)]
Plan = Literal["FREE", "LITE", "PRO"]
PositionType = Literal[
    "AIRDROP",
    "DEPOSIT",
    "FARMING",
    "GOVERNANCE",
    "INSURANCEBUYER",
    "INSURANCESELLER",
    "INVESTMENT",
    "LENDING",
    "LEVERAGE",
    "LEVERAGED FARMING",
    "LIQUIDITYPOOL",
    "LOCKED",
    "MARGIN",
    "MARGINPS",
    "NFTBORROWER",
    "NFTFRACTION",
    "NFTLENDER",
    "NFTLENDING",
    "NFTLIQUIDITYPOOL",
    "NFTSTAKED",
    "OPTIONSBUYER",
    "OPTIONSSELLER",
    "PERPETUALS",
    "REWARDS",
    "SPOT",
    "STAKED",
    "VAULT",
    "VAULTPS",
    "VESTING",
    "WALLET",
    "YIELD",
]


class Shape(Struct, frozen=True, kw_only=True, rename="camel"):
    """An object of an answer."""


class Pictured(Shape, frozen=True, kw_only=True):
    """Token with pictures, if they were requested."""

    img_small: Url | UnsetType = UNSET
    img_large: Url | UnsetType = UNSET
    explorer_url: Url | UnsetType = UNSET


class Sources(Shape, frozen=True, kw_only=True):
    """Sources of the numbers of an asset."""

    block_number: Whole
    block_hash: Hash
    price_source: str | None
    price_time: Time | None
    confidence: Exact | None


class Asset(Pictured, frozen=True, kw_only=True):
    """An amount of one thing, and its worth in USD."""

    symbol: Text
    name: Text
    contract: Text
    chain_key: Text
    chain_contract: Text
    balance: Known
    price: Known
    value: Known
    decimal: Annotated[str, Meta(pattern=r"^(N/A|0|[1-9][0-9]*)$")]
    open_pnl: Pnl
    total_cost_basis: Pnl
    price_source: Text
    address: Text
    percentage: Known
    sources: Sources | UnsetType = UNSET


class Nested(Pictured, frozen=True, kw_only=True):
    """One position of several in a protocol, by name."""

    name: Text
    value: Exact
    assets: list[Asset]
    total_cost_basis: Pnl
    total_open_pnl: Pnl
    total_closed_pnl: Pnl
    unlock_at: Whole
    health_rate: Exact | UnsetType = UNSET
    supply_assets: list[Asset] | UnsetType = UNSET
    borrow_assets: list[Asset] | UnsetType = UNSET
    reward_assets: list[Asset] | UnsetType = UNSET
    dex_assets: list[Asset] | UnsetType = UNSET
    margin_assets: list[Asset]
    base_assets: list[Asset]
    quote_assets: list[Asset]
    collateralize_nft_assets: list[Asset] = field(name="collateralizeNFTAssets")

    def sides(self) -> list[list[Asset]]:
        """Return its lists of assets, without those that are unset."""
        sides = (self.assets, self.supply_assets, self.borrow_assets, self.reward_assets, self.dex_assets)
        return [side for side in sides if side is not UNSET]


class Position(Pictured, frozen=True, kw_only=True):
    """Positions of one type; both lists are always there."""

    name: Text
    total_value: Exact
    assets: list[Asset]
    protocol_positions: list[Nested]
    total_cost_basis: Pnl
    total_open_pnl: Pnl
    unlock_at: Whole

    def sides(self) -> list[list[Asset]]:
        """Return its one list of loose assets."""
        return [self.assets]


class Totals(Pictured, frozen=True, kw_only=True):
    """A name, a key and what it is worth."""

    name: Text
    key: Text
    value: Exact
    total_cost_basis: Pnl
    total_closed_pnl: Pnl
    total_open_pnl: Pnl


class ChainOfProtocol(Totals, frozen=True, kw_only=True):
    """A protocol's holdings on one chain."""

    protocol_positions: dict[PositionType, Position]


class Protocol(Totals, frozen=True, kw_only=True):
    """A protocol's holdings."""

    chains: dict[str, ChainOfProtocol]


class ChainTotal(Totals, frozen=True, kw_only=True):
    """Value on a chain, and its share of the net worth in percent."""

    chain_id: int
    value_percentile: Exact


class Portfolio(Shape, frozen=True, kw_only=True):
    """Portfolio of an address."""

    address: Owner
    networth: Exact
    cash_balance: Exact
    daily_income: Known
    daily_expense: Known
    fees: Known
    fees_fiat: Known
    last_updated: Whole
    open_pnl: Pnl
    closed_pnl: Pnl
    total_cost_basis: Pnl
    manual_balance_networth: Exact
    price_adapters: list[str]
    conversion_rates: dict[Text, Exact]
    asset_by_protocols: dict[str, Protocol]
    chains: dict[str, ChainTotal]
    completeness: Literal["complete", "partial"]
    issues: list[Raw]
    block_number: Whole | UnsetType = UNSET

    def assets(self) -> list[Asset]:
        """Every asset of every position, those of nested ones too."""
        positions = [
            position
            for protocol in self.asset_by_protocols.values()
            for chain in protocol.chains.values()
            for position in chain.protocol_positions.values()
        ]
        nested: list[Position | Nested] = [each for position in positions for each in position.protocol_positions]
        return [asset for each in (*positions, *nested) for side in each.sides() for asset in side]


class Nav(Shape, frozen=True, kw_only=True):
    """Net asset value; both numbers are JSON numbers, read without loss."""

    nav: Raw
    currency: Literal["USD", "EUR", "CAD", "AED", "CHF", "SGD", "ETH", "SOL", "cbBTC", "EURC", "BNB"]
    conversion_price: Raw

    def __post_init__(self) -> None:
        for raw in (self.nav, self.conversion_price):
            Decimal(bytes(raw).decode())  # a string would have its quotation marks


class ApprovedAsset(Shape, frozen=True, kw_only=True):
    """The token of an approval, where it is tracked."""

    name: str
    symbol: str
    balance: Exact
    price: Exact
    value: Exact
    decimal: Whole
    chain: Text
    contract: EvmAddress
    img_small: Url | UnsetType = UNSET
    img_large: Url | UnsetType = UNSET


class Allowance(Shape, frozen=True, kw_only=True):
    """Rest of an approval at one block."""

    amount: Known
    unlimited: bool
    balance: Known
    value_at_risk: Known
    block_number: Whole
    block_hash: Hash


class Operator(Shape, frozen=True, kw_only=True):
    """Operator that may move collectibles."""

    block: Whole
    timestamp: Time
    hash: Hash
    contract: EvmAddress
    granted_by: EvmAddress = field(name="from")
    to: EvmAddress
    spender_label: str | None
    standard: Literal["erc721", "erc1155", "N/A"]
    token_id: Whole | UnsetType = UNSET
    held: Known
    block_number: Whole
    block_hash: Hash


class Approval(Shape, frozen=True, kw_only=True):
    """One Approval event."""

    block: Whole
    timestamp: Time
    hash: Hash
    contract: EvmAddress
    granted_by: EvmAddress = field(name="from")
    to: EvmAddress
    amount: Whole
    asset: ApprovedAsset | UnsetType = UNSET
    spender_label: str | UnsetType | None = UNSET
    allowance: Allowance | UnsetType = UNSET


class Permit2Allowance(Shape, frozen=True, kw_only=True):
    """Whom Permit2 lets take a token."""

    block: Whole
    timestamp: Time
    hash: Hash
    contract: EvmAddress
    permit2: EvmAddress
    granted_by: EvmAddress = field(name="from")
    to: EvmAddress
    spender_label: str | None
    amount: Known
    unlimited: bool
    expiration: Known
    balance: Known
    takeable: Known
    value_at_risk: Known
    block_number: Whole
    block_hash: Hash


class Approvals(Shape, frozen=True, kw_only=True):
    """A page of approvals."""

    page_size: Count
    items: list[Approval]
    unpriced_allowances: Count | UnsetType = UNSET
    operators: list[Operator] | UnsetType = UNSET
    permit2: list[Permit2Allowance] | UnsetType = UNSET
    cursor: str | UnsetType | None = UNSET


class Entry(Shape, frozen=True, kw_only=True):
    """An address book entry."""

    address: Address
    label: str
    plan: Plan
    expires_at: Time | None
    is_paid: bool


class Bundle(Shape, frozen=True, kw_only=True):
    """A named group of entries."""

    id: Text
    name: Annotated[str, Meta(min_length=1, max_length=255)]
    addresses: Annotated[list[Address], Meta(min_length=1)]


class VirtualUser(Shape, frozen=True, kw_only=True):
    """A portfolio that the account defined."""

    address: Virtual
    type: Literal["BALANCE", "CEX", "GROUP"]
    label: str


class Status(Shape, frozen=True, kw_only=True):
    """Time at which an address was read."""

    address: Address
    portfolio_last_sync: Time | None
    transactions_last_sync: Time | None
    sync_in_progress: bool


class Chain(Shape, frozen=True, kw_only=True):
    """A configured chain."""

    chain_id: int
    key: Text
    name: Text
    symbol: Text
    color: Text
    img_small: Url
    img_large: Url
    explorer_token_url: str | None
    explorer_transaction_url: str | None
    explorer_address_url: str | None
    blockscout_explorer_address_url: str | None
    is_portfolio_supported: bool
    is_transactions_supported: bool


class KnownProtocol(Shape, frozen=True, kw_only=True):
    """A protocol of a chain."""

    uuid: Text
    name: Text
    key: Text
    img_small: Url
    img_large: Url
    is_user_protocol: bool


class Pagination(Shape, frozen=True, kw_only=True):
    """Position of a page of protocols."""

    page: int
    limit: int
    has_more: bool


class KnownProtocols(Shape, frozen=True, kw_only=True):
    """A page of a chain's protocols."""

    data: list[KnownProtocol]
    pagination: Pagination


class ProtocolPart(Shape, frozen=True, kw_only=True):
    """Part of a token that is in one protocol."""

    key: Text
    name: Text
    value: Known
    balance: Known
    image: Url


class TokenTotal(Shape, frozen=True, kw_only=True):
    """One token over all protocols."""

    image: Url
    symbol: Text
    name: Text
    price: Known
    balance: Known
    value: Known
    percentage: Known
    protocols_detailed: list[ProtocolPart]


class ChainNamed(Pictured, frozen=True, kw_only=True):
    """The chain or the protocol of a transaction."""

    key: str
    name: str


class Movement(Pictured, frozen=True, kw_only=True):
    """An asset that a transaction moved; a collectible may call itself nothing."""

    symbol: str
    balance: Known
    contract: str
    address: str
    price_source: Text
    chain_key: Text


class Transaction(Shape, frozen=True, kw_only=True):
    """A transaction of a wallet: the fields that known clients read."""

    hash: Hash
    timestamp: Whole
    chain: ChainNamed
    sender: str = field(name="from")
    to: str
    type: Text
    protocol: ChainNamed
    assets_in: list[Movement]
    assets_out: list[Movement]
    value_fiat: Known
    fees: Exact
    fees_fiat: Known


class Transactions(Shape, frozen=True, kw_only=True):
    """A page of transactions."""

    transactions: list[Transaction]


class SubscriptionResult(Shape, frozen=True, kw_only=True):
    """Outcome of a subscription."""

    message: Text


# --- errors ---


class Refusal(Shape, frozen=True, kw_only=True):
    """`{error, message}` and the `{message}` of which it is an extension."""

    message: Text
    error: Text | UnsetType = UNSET


class Detail(Shape, frozen=True, kw_only=True):
    """One thing that is wrong with a request."""

    message: Text


class Invalid(Shape, frozen=True, kw_only=True):
    """A request that does not fit the schema; details by segment of the request."""

    error: Literal["Validation Failed"]
    details: Annotated[dict[Literal["query", "path", "body", "headers"], list[Detail]], Meta(min_length=1)]


class Unpaid(Shape, frozen=True, kw_only=True):
    """Too few credits."""

    error: Text
    message: Text
    credits_required: int
    credits_available: int
    credits_needed: int


class Limited(Shape, frozen=True, kw_only=True):
    """Too many requests; the wait in seconds, twice."""

    error: Text
    message: Text
    retry_after: int = field(name="retryAfter")
    retry_after_too: int = field(name="retry_after")


class BeaconRefusal(Shape, frozen=True, kw_only=True):
    """Refusal of validator routes."""

    error: Text


class ErrorDetail(Shape, frozen=True, kw_only=True):
    """The inside of an address book's or bundle's error, with the extra fields of all codes."""

    code: Literal[
        "VALIDATION_ERROR",
        "ADDRESSBOOK_ENTRY_NOT_FOUND",
        "BUNDLE_NOT_FOUND",
        "DELEGATE_NOT_FOUND",
        "ADDRESSBOOK_ENTRY_NOT_DELETABLE",
        "BUNDLE_NAME_TAKEN",
        "BUNDLE_MEMBERS_ALREADY_BUNDLED",
        "ADDRESSBOOK_QUOTA_REACHED",
        "BUNDLE_QUOTA_REACHED",
        "BUNDLE_SIZE_LIMIT_EXCEEDED",
        "BUNDLE_EMPTY",
        "BUNDLE_ADDRESS_NOT_IN_ADDRESS_BOOK",
        "IDEMPOTENCY_KEY_REUSED",
    ]
    message: Text
    name: str | UnsetType = UNSET
    bundle_id: str | UnsetType = UNSET
    quota: int | UnsetType = UNSET
    current: int | UnsetType = UNSET
    limit: int | UnsetType = UNSET
    addresses: list[str] | UnsetType = UNSET


class Enveloped(Shape, frozen=True, kw_only=True):
    """Envelope of the address book and of bundles."""

    error: ErrorDetail
