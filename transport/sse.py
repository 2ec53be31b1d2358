"""Server-sent events (WHATWG HTML, chapter 9.2)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass
from typing import Final

from chainfolio.errors import BadAnswer, Unavailable, UnsupportedMethod
from chainfolio.transport.exchange import CONNECT_S

MAX_LINE: Final = 65_536
MAX_EVENT: Final = 262_144
OPEN: Final = "open"  # kind of an event of our own: the stream is open, later events are not missed


@dataclass(frozen=True, slots=True)
class Event:
    """One event: its type, and its data as text."""

    kind: str
    data: str


async def events(source: str, url: str, idle_s: float) -> AsyncGenerator[Event, None]:
    """Open a stream and yield its events, first OPEN. No error shows the URL.

    Args:
        source: The endpoint's name in errors.
        url: The stream.
        idle_s: Maximum time without any data.

    Raises:
        Unavailable: The stream breaks, ends, or sends nothing for `idle_s`.
        UnsupportedMethod: The server has no such stream.
        BadAnswer: The response is no stream, or an event is malformed or too large.
    """
    import aiohttp  # here: the import takes a fifth of a second

    timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=idle_s)
    headers = {"accept": "text/event-stream", "accept-encoding": "identity"}
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout, read_bufsize=MAX_LINE, trust_env=False) as session,
            session.get(url, headers=headers, allow_redirects=False) as response,
        ):
            if response.status != 200 or response.content_type != "text/event-stream":
                raise _status_error(source, response.status)
            yield Event(OPEN, "")
            lines, size = list[str](), 0
            async for encoded in response.content:
                line = encoded.decode("utf-8").rstrip("\r\n")
                lines.append(line)
                size += len(line)
                if size > MAX_EVENT:
                    raise BadAnswer(source, f"an event of more than {MAX_EVENT // 1024} KiB")
                if not line:
                    if (event := _event(lines)) is not None:
                        yield event
                    lines, size = [], 0
    except TimeoutError:
        raise Unavailable(source, f"its events were silent for {idle_s:g} s") from None
    except (aiohttp.ClientError, OSError) as error:
        raise Unavailable(source, f"its events broke off ({type(error).__name__})") from None
    except (aiohttp.http_exceptions.HttpProcessingError, ValueError):  # invalid UTF-8, or a line that is too long
        raise BadAnswer(source, "its events are none") from None
    raise Unavailable(source, "its events ended")


def _event(lines: Iterable[str]) -> Event | None:
    """Return the event of the lines before a blank one; None if they have no data."""
    kind, data = "", list[str]()
    for line in lines:
        name, _, value = line.partition(":")
        if name == "event":
            kind = value.removeprefix(" ")
        elif name == "data":
            data.append(value.removeprefix(" "))
    return Event(kind or "message", "\n".join(data)) if data else None


def _status_error(source: str, status: int) -> Unavailable | UnsupportedMethod | BadAnswer:
    """Return the error for a status: no such stream, a temporary refusal, or else a bad answer."""
    if status in (404, 405, 501):
        return UnsupportedMethod(source, f"it serves no events (HTTP {status})")
    if status == 429 or status >= 500:
        return Unavailable(source, f"it refuses to send events (HTTP {status})")
    return BadAnswer(source, f"no events (HTTP status {status})")
