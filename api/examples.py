"""Example portfolio and transactions for the interface description, with invented numbers."""

from __future__ import annotations

from typing import Final

import msgspec

from chainfolio.api.example_addresses import PERMIT2, WALLET
from chainfolio.assets import SHOWN_NATIVE
from chainfolio.portfolio.document import (
    AssetDocument,
    ChainDocument,
    Portfolio,
    PositionsDocument,
    ProtocolChainDocument,
    ProtocolDocument,
)
from chainfolio.portfolio.transactions import (
    NamedEntity,
    TransactionAssetDocument,
    TransactionDocument,
    Transactions,
    TransactionUser,
)

_ETHER = AssetDocument(
    symbol="eth",
    name="ether",
    contract=SHOWN_NATIVE,
    chain_key="ethereum",
    chain_contract=f"ethereum:{SHOWN_NATIVE}",
    balance="0.5",
    price="2000",
    value="1000",
    decimal="18",
    price_source="chainlink",
    address=SHOWN_NATIVE,
    percentage="100",
)
_WALLET = PositionsDocument(name="wallet", total_value="1000", assets=(_ETHER,))
_ON_ETHEREUM = ProtocolChainDocument(
    name="Ethereum", key="ethereum", value="1000", protocol_positions={"WALLET": _WALLET}
)
_PORTFOLIO = Portfolio(
    address=WALLET,
    networth="1000",
    last_updated="1772366400000",
    asset_by_protocols={
        "wallet": ProtocolDocument(name="Wallet", key="wallet", value="1000", chains={"ethereum": _ON_ETHEREUM})
    },
    chains={
        "ethereum": ChainDocument(name="Ethereum", key="ethereum", chain_id=1, value="1000", value_percentile="100")
    },
    completeness="complete",
    issues=(),
    unpriced_assets=0,
    price_adapters=("chainlink",),
    conversion_rates={"ETH": "2000"},
)
EXAMPLE: Final[object] = msgspec.to_builtins([_PORTFOLIO])
AT_BLOCK: Final[object] = msgspec.to_builtins(
    [msgspec.structs.replace(_PORTFOLIO, block_number="17000000", price_adapters=())]
)

_SENT = TransactionAssetDocument(
    symbol="eth",
    name="ether",
    balance="0.5",
    price="1825.5",
    value="912.75",
    contract=SHOWN_NATIVE,
    chain_contract=f"ethereum:{SHOWN_NATIVE}",
    chain_key="ethereum",
    decimal="18",
    sender=WALLET,
    recipient=PERMIT2,
    is_asset_in=False,
    price_source="chainlink",
    address=SHOWN_NATIVE,
)
_PAYMENT = TransactionDocument(
    hash="0x" + "5c" * 32,
    timestamp="1772366400",
    block_number=17_000_000,
    chain=NamedEntity(key="ethereum", name="Ethereum"),
    sender=_SENT.sender,
    recipient=_SENT.recipient,
    type="TRANSFEROUT",
    value="0.5",
    value_fiat="912.75",
    fees="0.00042",
    fees_fiat="0.76671",
    native_asset_fees=msgspec.structs.replace(
        _SENT, balance="0.00042", value="0.76671", recipient="", is_native_asset_fees=True
    ),
    assets_in=(),
    assets_out=(_SENT,),
    user=TransactionUser(address=_SENT.sender),
)
TRANSACTIONS: Final[object] = msgspec.to_builtins(Transactions((_PAYMENT,)))
