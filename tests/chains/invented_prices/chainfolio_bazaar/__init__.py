"""Two price sources of a package: the tokens of a treasury, and the prices of a web server."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from decimal import Decimal

from chainfolio_invented.accounts import Balance  # type: ignore[import-not-found]  # of another package

from chainfolio.plugins.price_source import (
    Asset,
    Block,
    HttpGet,
    Plan,
    Price,
    PriceSection,
    Quotes,
    Refusal,
    Unknown,
    amount,
    read,
    read_all,
)

SURE = Decimal(1)
COIN_DECIMALS = 9


class Treasury:
    """A token is worth as many dollars as its treasury has coins, at the block of the balances."""

    name = "treasury"

    def __init__(self, accounts: Mapping[str, str]) -> None:
        self.accounts = accounts  # by token

    def prices(self, assets: Sequence[Asset], block: Block) -> Plan[Quotes]:
        """One read a token."""
        priced = [asset for asset in assets if asset.reference in self.accounts]
        if not priced:
            return Quotes()
        coins = yield from read_all([Balance(self.accounts[asset.reference], None) for asset in priced])
        return Quotes(
            tuple(
                Price(asset, amount(raw, COIN_DECIMALS), self.name, block.time_us, SURE)
                for asset, raw in zip(priced, coins, strict=True)
                if isinstance(raw, int)
            )
        )


class Bazaar:
    """Prices of a web server: a JSON object of tokens and their prices as text."""

    name = "bazaar"

    def __init__(self, url: str, tokens: Sequence[str]) -> None:
        self.url, self.tokens = url, tokens

    def prices(self, assets: Sequence[Asset], block: Block) -> Plan[Quotes]:
        """One request for all."""
        priced = [asset for asset in assets if asset.reference in self.tokens]
        if not priced:
            return Quotes()
        body = yield from read(HttpGet(self.url))
        if isinstance(body, Unknown):
            return Quotes(refused=tuple(Refusal(asset, self.name, body.reason) for asset in priced))
        document = json.loads(body)
        return Quotes(
            tuple(Price(asset, Decimal(document[asset.reference]), self.name, block.time_us, SURE) for asset in priced)
        )


TREASURY = PriceSection(lambda section, chain, where: Treasury(section.get(chain, {})), kinds=("invented",))
BAZAAR = PriceSection(lambda section, chain, where: Bazaar(section["url"], section["tokens"]))
