"""Real Ethereum addresses for the examples of the interface description."""

from __future__ import annotations

from typing import Final

WALLET: Final = "0xd8da6bf26964af9d7eed9e03e53415d37aa96045"
ANOTHER: Final = "0x00000000219ab540356cbb839cbe05303d7705fa"
PERMIT2: Final = "0x000000000022d473030f116ddee9f6b43ac78ba3"
USDC: Final = "0xa0b86991c6218b36c1d19d4a2e9eb0ce3606eb48"
AAVE_POOL: Final = "0x87870bca3f3fd6335c3f4ce8392d69350b4fa4e2"
