"""A portfolio as it is answered, for the interface description; its numbers are invented, its shape is the real one."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from chainfolio.assets import ZERO_ADDRESS
from portfolio.document import (
    AssetDocument,
    ChainDocument,
    Portfolio,
    PositionsDocument,
    ProtocolChainDocument,
    ProtocolDocument,
)

_ETHER = AssetDocument(
    symbol="eth",
    name="ether",
    contract=ZERO_ADDRESS,
    chain_key="ethereum",
    chain_contract=f"ethereum:{ZERO_ADDRESS}",
    balance="0.5",
    price="2000",
    value="1000",
    decimal="18",
    price_source="chainlink",
)
_WALLET = PositionsDocument(name="wallet", total_value="1000", assets=(_ETHER,))
_ON_ETHEREUM = ProtocolChainDocument(
    name="Ethereum", key="ethereum", value="1000", protocol_positions={"WALLET": _WALLET}
)
_PORTFOLIO = Portfolio(
    address="0xd8da6bf26964af9d7eed9e03e53415d37aa96045",
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
EXAMPLE: Final[Any] = msgspec.to_builtins([_PORTFOLIO])
