"""Read what the metadata of collectibles say, at the block at which the collectibles were read.

Metadata are read only if an answer shows them: collections on the chain may return long texts, and anybody may send
them. The number of reads is bounded, and untrusted contracts get little gas.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from chainfolio.contracts import Collectible
from chainfolio.engine.nft_gateways import Gateways
from chainfolio.engine.snapshots.trust import mark_untrusted
from chainfolio.errors import SourceError
from chainfolio.messages import public
from chainfolio.plans import Unknown, run_batched
from chainfolio.portfolio.nft_metadata import (
    NO_URI,
    MetadataError,
    NftMetadata,
    is_data,
    parse,
    read_data,
    resolved_uri,
)

if TYPE_CHECKING:
    from chainfolio.assets import Asset
    from chainfolio.chains import Chain
    from chainfolio.engine.snapshots.snapshotter import Snapshotter
    from chainfolio.positions import TokenUri

MAX_COLLECTIBLES: Final = 128  # of one account and chain whose metadata are read
TOO_MANY: Final = f"not read: only the metadata of {MAX_COLLECTIBLES} collectibles are read"


@dataclass(frozen=True, slots=True)
class MetadataReader:
    """Reads the metadata of collectibles.

    `chain` returns a chain by its key; `budget` limits the time for one.
    """

    chain: Callable[[str], Chain]
    snapshotter: Callable[[Chain], Snapshotter]
    budget: Callable[[Chain], AbstractAsyncContextManager[None]]
    gateways: Gateways

    async def read(self, collectibles: Sequence[Collectible]) -> dict[Asset, NftMetadata]:
        """Return the metadata of the collectibles of one account; those that are not known have a `problem`."""
        keys = sorted({each.chain for each in collectibles})
        chains = [self._of_chain(key, [each for each in collectibles if each.chain == key]) for key in keys]
        results = await asyncio.gather(*chains)
        return {asset: metadata for each in results for asset, metadata in each.items()}

    async def _of_chain(self, key: str, collectibles: Sequence[Collectible]) -> dict[Asset, NftMetadata]:
        """Return the metadata of collectibles of one chain and block, by asset; each asset has an entry.

        Only MAX_COLLECTIBLES are read, untrusted ones last. The others, and those that could not be read, have a
        `problem`.
        """
        assets = list(dict.fromkeys(each.holding.token.asset for each in collectibles))
        omitted: Sequence[Asset] = ()
        chain, block = self.chain(key), collectibles[0].block
        collections = {each.holding.account: {asset.collection for asset in assets} for each in collectibles}
        try:
            async with self.budget(chain):
                trust = await self.snapshotter(chain).trust(collections, block.height)
                untrusted = trust.untrusted_contracts({asset.collection for asset in assets})
                assets, omitted = selected(assets, untrusted)
                reports = await run_batched(
                    {"": chain.token_uris(assets)},
                    lambda reads: chain.answer(mark_untrusted(reads, untrusted), block),
                )
            report = reports[""]
            uris: Sequence[TokenUri] = report.result or [Unknown(report.reason)] * len(assets)
        except SourceError as error:
            uris = [Unknown(error.reason)] * len(assets)
        metadata = dict.fromkeys(omitted, NftMetadata(problem=TOO_MANY))
        remote: dict[Asset, str] = {}
        for asset, uri in zip(assets, uris, strict=True):
            if text := _file_uri(asset, uri):
                remote[asset] = text
            else:
                metadata[asset] = _decoded(asset, uri)
        files = await self.gateways.read(remote.values())
        return metadata | {asset: files[uri] for asset, uri in remote.items()}


def selected(assets: Sequence[Asset], untrusted: Collection[str]) -> tuple[list[Asset], list[Asset]]:
    """Return the collectibles whose metadata are read, and the others; those of untrusted contracts come last."""
    ordered = sorted(assets, key=lambda asset: asset.reference in untrusted)
    return ordered[:MAX_COLLECTIBLES], ordered[MAX_COLLECTIBLES:]


def _file_uri(asset: Asset, uri: TokenUri) -> str:
    """Return the URI of a metadata file; empty for a `data:` URI, and if it is missing or too long."""
    try:
        text = resolved_uri(uri, asset.token_id) if isinstance(uri, str) else ""
    except MetadataError:
        return ""
    return "" if is_data(text) else text


def _decoded(asset: Asset, uri: TokenUri) -> NftMetadata:
    """Return the metadata inside a `data:` URI; if there are none, only the `problem`."""
    if isinstance(uri, Unknown):
        problem = public(f"its contract could not be read: {uri.reason}")
        return NftMetadata(problem=problem, is_unread=uri.cause == "read")
    if not isinstance(uri, str):
        return NftMetadata(problem="its contract refuses to name its metadata")
    try:
        uri = resolved_uri(uri, asset.token_id)
        return parse(read_data(uri)) if uri else NftMetadata(problem=NO_URI)
    except MetadataError as error:
        return NftMetadata(problem=str(error))
