"""GET /v1/wallet: token balances of wallets outside of protocols, always read live."""

from __future__ import annotations

import msgspec

from chainfolio.api.addresses import Addresses
from chainfolio.api.context import Context
from chainfolio.api.examples import EXAMPLE
from chainfolio.api.failures import READING
from chainfolio.api.portfolio import IncludeExplorerUrls, IncludeImages
from chainfolio.api.router import get
from chainfolio.portfolio.document import Portfolio
from chainfolio.portfolio.facts import Options


class WalletQuery(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Wallets and optional parts of the answer."""

    addresses: Addresses
    include_images: IncludeImages = False
    include_explorer_urls: IncludeExplorerUrls = False


@get(
    "/v1/wallet",
    tag="Portfolio",
    summary="Wallet balances, read live",
    needs="portfolio",
    fails=READING,
    example=EXAMPLE,
)
async def wallet(request: Context, query: WalletQuery) -> list[Portfolio]:
    """Returns one portfolio per address with only the `wallet` protocol; `networth` is its sum.

    Balances are read at the newest block of each chain, which `chains` names, and never from a cache.
    """
    options = Options(images=query.include_images, explorer_urls=query.include_explorer_urls, rates=True)
    return await request.engine.portfolios(query.addresses, options, wait=True, wallet_only=True)
