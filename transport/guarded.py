"""Send HTTP requests to hosts of others, at public or allowed addresses, without redirects."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

import aiohttp

from chainfolio.errors import BadAnswer, SourceError, Unavailable
from chainfolio.transport.reachable import Forbidden, Reachable


@dataclass(slots=True)
class GuardedSessions:
    """HTTP sessions that check each address when they connect to it."""

    reachable: Reachable
    _sessions: dict[bool, aiohttp.ClientSession] = field(default_factory=dict)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        for session in self._sessions.values():
            await session.close()

    def of(self, url: str) -> aiohttp.ClientSession:
        """Return the session for a URL: one checks every address, one is for hosts that the operator names."""
        is_named = self.reachable.names(urlsplit(url).hostname or "")
        if is_named not in self._sessions:
            connector = aiohttp.TCPConnector(
                limit=0, use_dns_cache=False, socket_factory=None if is_named else self.reachable.new_socket
            )
            self._sessions[is_named] = aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None),
                trust_env=False,  # a proxy would resolve the name by itself
                auto_decompress=False,
            )
        return self._sessions[is_named]

    async def get(self, url: str, source: str, max_bytes: int) -> tuple[str, bytes]:
        """Return the media type and the content of a file; compressed ones are refused, for they may grow.

        Raises:
            BadAnswer: It is larger than `max_bytes` or compressed, or the status is no success, as that of a redirect.
            Unavailable: The host cannot be reached, may not be reached, or breaks off.
        """
        headers = {"Accept-Encoding": "identity", "User-Agent": "Chainfolio"}
        try:
            async with self.of(url).get(url, headers=headers, allow_redirects=False) as answer:
                if answer.status != 200:
                    raise BadAnswer(source, f"answered {answer.status}")
                if answer.headers.get("Content-Encoding", "identity") != "identity":
                    raise BadAnswer(source, "its file is compressed")
                if (answer.content_length or 0) > max_bytes:
                    raise BadAnswer(source, f"its file has more than {max_bytes:,} bytes")
                content = b""
                async for chunk in answer.content.iter_any():
                    content += chunk
                    if len(content) > max_bytes:
                        raise BadAnswer(source, f"its file has more than {max_bytes:,} bytes")
                return answer.headers.get("Content-Type", "").partition(";")[0].strip().lower(), content
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise failure(source, error) from None


def failure(source: str, error: Exception) -> SourceError:
    """Return the typed error of a failed connection, without the address that was tried."""
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    reason = str(cause) if isinstance(cause, Forbidden) else f"not reachable ({type(cause).__name__})"
    return Unavailable(source, reason)
