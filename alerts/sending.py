"""Sending one event to its target: a webhook, a command, or a file."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import aiohttp

from chainfolio.alerts.signing import headers
from chainfolio.transport.guarded import GuardedSessions
from chainfolio.transport.reachable import Forbidden, Reachable

if TYPE_CHECKING:
    from chainfolio.environment import Clock
    from chainfolio.storage.state.alerts import Target
    from chainfolio.storage.state.deliveries import Delivery

GONE: Final = 410  # the receiver wants no more: standardwebhooks.com
MAX_ANSWER: Final = 64 * 1024  # bytes that are read, so that a connection can be used again
MAX_WAIT_S: Final = 4 * 3600.0
AGENT: Final = "Chainfolio-Webhooks"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one attempt. `error` is empty if the event was delivered."""

    error: str = ""
    status: int | None = None
    retry_after_s: float = 0.0

    @property
    def is_final(self) -> bool:
        """True if the receiver said that it will never take the event."""
        return self.status == GONE


@dataclass(slots=True)
class Sender:
    """Sends events. Redirects are not followed, and no answer is awaited for longer than `timeout_s`."""

    reachable: Reachable
    clock: Clock
    timeout_s: float
    _sessions: GuardedSessions = field(init=False)

    def __post_init__(self) -> None:
        self._sessions = GuardedSessions(self.reachable)

    async def send(self, target: Target, event: Delivery, secrets: Sequence[bytes]) -> Outcome:
        """Send an event, and return the outcome; only cancellation is raised."""
        try:
            async with asyncio.timeout(self.timeout_s):
                if target.kind == "webhook":
                    return await self._post(target.address, event, secrets)
                if target.kind == "command":
                    return await _run(target.address, event.body)
                return await asyncio.to_thread(_append, Path(target.address), event.body)
        except TimeoutError:
            return Outcome(f"no answer within {self.timeout_s:g} s")

    async def close(self) -> None:
        """Close all connections."""
        await self._sessions.close()

    async def _post(self, url: str, event: Delivery, secrets: Sequence[bytes]) -> Outcome:
        """Post an event; the outcome has an error for a failed connection and any status but 2xx."""
        at_s = self.clock.now_us() // 1_000_000
        request_headers = {
            "Content-Type": "application/json",
            "User-Agent": AGENT,
            **headers(secrets, event.id, at_s, event.body),
        }
        try:
            async with self._sessions.of(url).post(
                url, data=event.body, headers=request_headers, allow_redirects=False
            ) as answer:
                with suppress(aiohttp.ClientError):  # the status counts, and not the rest
                    await answer.content.read(MAX_ANSWER)
                if 200 <= answer.status < 300:
                    return Outcome(status=answer.status)
                wait_s = _seconds(answer.headers.get("Retry-After", ""))
                return Outcome(f"answered {answer.status}", answer.status, wait_s)
        except aiohttp.ClientConnectorError as error:
            cause = error.os_error
            return Outcome(str(cause) if isinstance(cause, Forbidden) else f"not reachable ({type(cause).__name__})")
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return Outcome(str(error) if isinstance(error, Forbidden) else f"failed ({type(error).__name__})")


def _seconds(text: str) -> float:
    return min(float(text), MAX_WAIT_S) if text.isascii() and text.isdigit() and len(text) < 9 else 0.0


async def _run(command: str, body: bytes) -> Outcome:
    """Run a command without a shell, with the event on its standard input.

    If the call is cancelled, for example by a timeout, the command's process group is killed.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *shlex.split(command),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        return Outcome(f"the command cannot be run ({type(error).__name__})")
    try:
        await process.communicate(body + b"\n")
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    return Outcome() if process.returncode == 0 else Outcome(f"the command ended with {process.returncode}")


def _append(path: Path, body: bytes) -> Outcome:
    """Append an event as a line; it is on the disk when this returns."""
    try:
        with path.open("ab") as file:
            file.write(body + b"\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return Outcome(f"the file cannot be written ({type(error).__name__})")
    return Outcome()
