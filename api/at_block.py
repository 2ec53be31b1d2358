"""GET /v1/portfolio/at-block: holdings and prices of one wallet on one chain at one block."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from chainfolio.api.addresses import EvmAddress
from chainfolio.api.context import Context
from chainfolio.api.examples import AT_BLOCK
from chainfolio.api.fields import InvalidParameter, JsonObject, Reader, quoted
from chainfolio.api.portfolio import IncludeExplorerUrls, IncludeImages, IncludeSources, IncludeSpam
from chainfolio.api.router import get
from chainfolio.errors import BadRequest
from chainfolio.portfolio.document import Portfolio
from chainfolio.portfolio.facts import Options
from chainfolio.settings import Settings

BUILTIN_CHAINS: Final = ("ethereum", "monad")


def enabled_chains(settings: Settings) -> list[str]:
    """Return the keys of accepted chains: those of the interface and those turned on by settings."""
    return sorted({*BUILTIN_CHAINS, *(key for key, chain in settings.chains.items() if chain.at_block)})


def read_chain(values: list[str], settings: Settings) -> str:
    """Return the key of an enabled chain; case matters.

    Raises:
        InvalidParameter: The parameter is repeated, or the chain is not enabled.
    """
    if len(values) > 1:
        raise InvalidParameter("is given more than once")
    if values[0] not in enabled_chains(settings):
        raise InvalidParameter(f"cannot be {quoted(values[0])}: it is one of {', '.join(enabled_chains(settings))}")
    return values[0]


def check_chain(key: object, settings: Settings) -> None:
    """Raise BadRequest if a chain is not enabled for holdings at a block."""
    if key not in enabled_chains(settings):
        raise BadRequest("chain", f"holdings at a block are of one of {', '.join(enabled_chains(settings))}")


def _schema(settings: Settings) -> JsonObject:
    return {"type": "string", "enum": enabled_chains(settings)}


class AtBlockQuery(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Wallet, chain, block and optional parts of the answer."""

    addresses: EvmAddress
    chain_key: Annotated[
        str,
        Reader(read_chain, _schema),
        msgspec.Meta(description="Key of the chain; case matters.", examples=["ethereum"]),
    ]
    block_number: Annotated[
        int,
        msgspec.Meta(ge=1, description="Block number; 400 if it is above the chain's head.", examples=[19_000_000]),
    ]
    include_images: IncludeImages = False
    include_explorer_urls: IncludeExplorerUrls = False
    include_sources: IncludeSources = False
    include_spam: IncludeSpam = False


@get(
    "/v1/portfolio/at-block",
    tag="Portfolio",
    summary="Holdings of one wallet at one block",
    needs="at-block",
    bucket="at-block",
    envelope="at-block",
    fails={
        500: "A node or price source gave no usable answer, or the node has pruned the state of that block.",
        501: "The chain is not configured on this server.",
        503: "The server's store does not answer at the moment.",
    },
    example=AT_BLOCK,
)
async def portfolio_at_block(request: Context, query: AtBlockQuery) -> list[Portfolio]:
    """Returns a list of one portfolio, with only that chain in `chains`.

    Balances and prices are those of the block itself. `blockNumber` is returned as a string, and `priceAdapters` is
    empty.
    """
    options = Options(
        images=query.include_images,
        explorer_urls=query.include_explorer_urls,
        sources=query.include_sources,
        spam=query.include_spam,
        rates=True,
    )
    return await request.engine.at_block(query.addresses, query.chain_key, query.block_number, options)
