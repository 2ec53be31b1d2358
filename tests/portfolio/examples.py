"""Accounts, chains and holdings that the tests of this folder speak of."""

from __future__ import annotations

from decimal import Decimal

from chainfolio.adapters.evm.tokens import wallet_reads
from chainfolio.assets import Asset
from chainfolio.blocks import Block
from chainfolio.contracts import Holding, Issue, Price, Snapshot, Token
from chainfolio.portfolio.facts import ChainFacts

ALICE = "0x1111111111111111111111111111111111111111"
BOB = "0x2222222222222222222222222222222222222222"
USDC = "0xa0b86991c6218b36c1d19d4a2e9eb0ce3606eb48"
BLOCK = Block(19_000_000, "0x" + "ab" * 32, "0x" + "cd" * 32, 1_760_000_000_000_000)
CHAINS = {
    "ethereum": ChainFacts(
        "ethereum",
        "Ethereum",
        1,
        {"token": "https://etherscan.io/token/{address}", "address": "https://etherscan.io/address/{address}"},
        {"small": "https://images.example/ethereum.svg"},
        wallet_reads=wallet_reads,
    ),
    "base": ChainFacts("base", "Base", 8453),
}
IDS = {"ethereum": "eip155:1", "base": "eip155:8453"}


def native(chain: str = "ethereum") -> Token:
    return Token(Asset(IDS[chain], "slip44", "60"), "ETH", "Ethereum", 18)


def erc20(address: str = USDC, decimals: int | None = 6, symbol: str = "USDC", chain: str = "ethereum") -> Token:
    return Token(Asset(IDS[chain], "erc20", address), symbol, "USD Coin", decimals)


def price(token: Token, usd: str, source: str = "example", confidence: str = "1") -> Price:
    return Price(
        token.asset, Decimal(usd), source, BLOCK.time_us - 5_000_000, Decimal(confidence), "feed 0xfeed round 7"
    )


def snapshot(
    *holdings: Holding,
    prices: tuple[Price, ...] = (),
    issues: tuple[Issue, ...] = (),
    chain: str = "ethereum",
    accounts: tuple[str, ...] = (ALICE,),
) -> Snapshot:
    return Snapshot(chain, BLOCK, accounts, holdings, prices, issues)
