"""Read metadata of collectibles through the gateways of the settings.

The URIs are those of contracts of anybody: hosts are checked when they are connected to, redirects are not followed,
and size, time, type and number of files are bounded.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote, urlsplit

from chainfolio.errors import BadRequest, SourceError
from chainfolio.portfolio.nft_metadata import (
    MAX_JSON,
    MetadataError,
    NftMetadata,
    is_json_type,
    parse,
    shown_uri,
)
from chainfolio.transport.guarded import GuardedSessions
from chainfolio.transport.reachable import Reachable, check_url

if TYPE_CHECKING:
    from chainfolio.environment import Clock
    from chainfolio.settings import Nfts

MAX_FILES: Final = 32  # of one account and chain in one answer
MAX_PARALLEL: Final = 8  # of all answers
MAX_CACHED: Final = 2_000
KEEP_S: Final = 3600  # of problems, and of files at hosts, which may change; those of IPFS and Arweave cannot
DIRECT: Final = "{url}"
NO_GATEWAY: Final = "its metadata are not on the chain, and no gateway is configured for them"
TOO_MANY: Final = f"not read: only {MAX_FILES} files are read for one answer"


@dataclass(slots=True)
class Gateways:
    """Reads files of metadata, and caches what they say."""

    settings: Nfts
    clock: Clock
    _slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_PARALLEL))
    _cache: OrderedDict[str, tuple[int, NftMetadata]] = field(default_factory=OrderedDict)

    async def read(self, uris: Iterable[str]) -> dict[str, NftMetadata]:
        """Return the metadata at each URI, cached or fetched; those that are not known have a `problem`.

        At most MAX_FILES files are fetched; URIs beyond them have a problem. Nothing is raised.
        """
        metadata, urls = dict[str, NftMetadata](), dict[str, str]()
        for uri in dict.fromkeys(uris):
            cached = self._cached(uri)
            try:
                url = "" if cached else gateway_url(uri, self.settings.gateways)
            except MetadataError as error:
                cached = NftMetadata(shown_uri(uri), problem=str(error))
            if cached is None and len(urls) == MAX_FILES:
                cached = NftMetadata(shown_uri(uri), problem=TOO_MANY)
            if cached is not None:
                metadata[uri] = cached
            else:
                urls[uri] = url
        if urls:
            metadata |= await self._fetch_all(urls)
        return metadata

    async def _fetch_all(self, urls: Mapping[str, str]) -> dict[str, NftMetadata]:
        """Fetch the files at URLs, by URI, and cache their metadata, except those that could not be read.

        Each file has at most half of `timeout_s`, and all of them `timeout_s`. A file that takes longer has a problem.
        """
        timeout_s = self.settings.timeout_s
        named = {host: GuardedSessions(Reachable([host] if host else [])) for host in map(self._gateway_host, urls)}

        async def fetch(uri: str) -> NftMetadata:
            try:
                async with asyncio.timeout(timeout_s), self._slots, asyncio.timeout(timeout_s / 2):
                    return await _fetch(named[self._gateway_host(uri)], uri, urls[uri])
            except TimeoutError:
                return _unread(uri, f"no answer within {timeout_s} s")

        try:
            results = await asyncio.gather(*map(fetch, urls))
        finally:
            for sessions in named.values():
                await sessions.close()
        for uri, result in zip(urls, results, strict=True):
            if not result.is_unread:
                self._store(uri, result)
        return dict(zip(urls, results, strict=True))

    def _gateway_host(self, uri: str) -> str:
        """Return the host of the gateway for a URI; empty if the URI names the host itself."""
        template = self.settings.gateways[scheme_of(uri)]
        return "" if template == DIRECT else urlsplit(template).hostname or ""

    def _cached(self, uri: str) -> NftMetadata | None:
        time_us, metadata = self._cache.get(uri, (0, None))
        may_change = scheme_of(uri) == "https" or (metadata is not None and metadata.problem)
        is_old = may_change and self.clock.now_us() - time_us > KEEP_S * 1_000_000
        return None if is_old else metadata

    def _store(self, uri: str, metadata: NftMetadata) -> None:
        self._cache[uri] = self.clock.now_us(), metadata
        self._cache.move_to_end(uri)
        if len(self._cache) > MAX_CACHED:
            self._cache.popitem(last=False)


def scheme_of(uri: str) -> str:
    """Return the scheme of a URI in lower case; empty if it has none."""
    scheme, mark, _ = uri.partition("://")
    return scheme.lower() if mark else ""


def gateway_url(uri: str, gateways: Mapping[str, str]) -> str:
    """Return the URL at which a gateway has the file of a URI.

    Raises:
        MetadataError: No gateway is configured for its scheme, its path could leave the gateway's folder, or it is no
            valid URL.
    """
    scheme = scheme_of(uri)
    template = gateways.get(scheme)
    if template is None:
        raise MetadataError(NO_GATEWAY)
    if scheme != "https":
        # Gateways decode percent signs: `%2e%2e` would leave their folder, and `%252e` might.
        path = unquote(uri.partition("://")[2].removeprefix("ipfs/")).lstrip("/")
        if not path or ".." in path or "%" in path or "\\" in path or not path.isprintable():
            raise MetadataError("its URI has no path that a gateway may be asked for")
        return template.replace("{path}", quote(path))
    try:
        check_url(uri)
    except BadRequest:
        raise MetadataError("its URI is no URL that may be asked for") from None
    return uri if template == DIRECT else template.replace("{url}", quote(uri, safe=""))


async def _fetch(sessions: GuardedSessions, uri: str, url: str) -> NftMetadata:
    """Return the metadata in the file at a URL; those that are not known have a problem."""
    try:
        media_type, content = await sessions.get(url, "the gateway", MAX_JSON)
    except SourceError as error:
        return _unread(uri, error.reason)
    try:
        if not is_json_type(media_type):
            raise MetadataError("its file is not JSON")
        return parse(content, uri)
    except MetadataError as error:
        return NftMetadata(shown_uri(uri), problem=str(error))


def _unread(uri: str, reason: str) -> NftMetadata:
    return NftMetadata(shown_uri(uri), problem=f"the gateway could not be read: {reason}", is_unread=True)
