"""GET /v1/portfolio: current balances of wallets and their positions in protocols."""

from __future__ import annotations

from functools import cache
from typing import Annotated

import msgspec

from chainfolio.api.addresses import Addresses
from chainfolio.api.context import Answer, Context
from chainfolio.api.examples import EXAMPLE
from chainfolio.api.failures import READING
from chainfolio.api.router import get
from chainfolio.portfolio.document import Portfolio
from chainfolio.portfolio.facts import Options

IncludeImages = Annotated[bool, msgspec.Meta(description="Image URLs for chains, assets and protocols.")]
IncludeExplorerUrls = Annotated[bool, msgspec.Meta(description="Links to the chain's block explorer.")]
IncludeSources = Annotated[
    bool,
    msgspec.Meta(
        description="The block of each balance; source, time and confidence of each price; the calls that returned "
        "them."
    ),
]
IncludeSpam = Annotated[bool, msgspec.Meta(description="Include spam tokens in sums. They are listed in both cases.")]
WaitForSync = Annotated[
    bool, msgspec.Meta(description="Wait for fresh data if the cached data is older than the cache time.")
]


class PortfolioQuery(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Wallets and optional parts of the answer."""

    addresses: Addresses
    include_images: IncludeImages = False
    include_explorer_urls: IncludeExplorerUrls = False
    include_sources: IncludeSources = False
    include_spam: IncludeSpam = False
    include_nfts: Annotated[
        bool,
        msgspec.Meta(
            description="Indexed collectibles (NFTs) of the wallets, with their metadata; they have no value."
        ),
    ] = msgspec.field(default=False, name="includeNFTs")
    wait_for_sync: WaitForSync = False


@get(
    "/v1/portfolio",
    tag="Portfolio",
    summary="Current holdings, positions and net worth",
    needs="portfolio",
    fails=READING,
    answers={200: list[Portfolio]},
    example=EXAMPLE,
)
async def portfolio(request: Context, query: PortfolioQuery) -> Answer:
    """Returns one portfolio per address: wallet tokens and DeFi positions with their values in USD.

    If a read failed, `completeness` is `partial` and `issues` list it; a failed read is never shown as zero.
    """
    options = _options(
        query.include_images,
        query.include_explorer_urls,
        query.include_sources,
        query.include_spam,
        request.parts.settings.server.unpriced == "zero",
        query.include_nfts,
    )
    documents = await request.engine.encoded_portfolios(query.addresses, options, wait=query.wait_for_sync)
    return Answer(b"".join((b"[", b",".join(documents), b"]")))


@cache
def _options(images: bool, explorer_urls: bool, sources: bool, spam: bool, zero: bool, nfts: bool) -> Options:
    return Options(images, explorer_urls, sources, spam, zero, nfts, nft_metadata=nfts, rates=True)
