"""Recent answers of an endpoint, shared between commands so that they are not requested again.

Only two kinds of answers are stored, and used for RECENT_US: those to reads at the hash of a block, which never change,
and those of the handshake, which say where the chain stands. A refusal drops them all: the block may have left the
chain, and the next request is for a new head.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from chainfolio.errors import SourceError
from chainfolio.kinds import AnswerStore
from chainfolio.transport.wire import Request, encode

RECENT_US: Final = 60 * 1_000_000
Answer = bytes | SourceError


@dataclass(slots=True)
class RecentAnswers:
    """The stored answers of one endpoint. `now_us` is the wall clock: they outlive the process."""

    endpoint: str
    store: AnswerStore
    now_us: Callable[[], int]

    def stored(self, requests: Sequence[Request], *, is_handshake: bool) -> dict[str, bytes]:
        """Return the usable answers, by the digests of requests."""
        digests = [digest(each) for each in requests if is_handshake or is_at_hash(each)]
        if not digests:
            return {}
        now_us = self.now_us()
        return dict(self.store.read(self.endpoint, digests, now_us - RECENT_US, now_us))

    async def through(
        self,
        requests: Sequence[Request],
        ask: Callable[[Sequence[Request]], Awaitable[list[Answer]]],
        *,
        is_handshake: bool = False,
    ) -> list[Answer]:
        """Return an answer for each request: stored ones, and of `ask` those that are not stored.

        A handshake is read as a whole: its answers belong together. New answers of a handshake and about a block hash
        are stored; after an error among them, all of the endpoint are dropped.
        """
        answers: dict[str, Answer] = dict(self.stored(requests, is_handshake=is_handshake))
        if is_handshake and not all(digest(each) in answers for each in requests):
            answers = {}
        missing = [each for each in requests if digest(each) not in answers]
        if not missing:
            return [answers[digest(each)] for each in requests]
        fresh = dict(zip(map(digest, missing), await ask(missing), strict=True))
        if any(isinstance(answer, SourceError) for answer in fresh.values()):
            self.store.drop(self.endpoint)
        else:
            keys = {digest(each) for each in missing if is_handshake or is_at_hash(each)}
            stored = {key: answer for key, answer in fresh.items() if key in keys and isinstance(answer, bytes)}
            if stored:
                self.store.write(self.endpoint, stored, self.now_us())
        answers |= fresh
        return [answers[digest(each)] for each in requests]


def digest(request: Request) -> str:
    """Return the name under which the answer to a request is stored."""
    return hashlib.sha256(encode([request])).hexdigest()


def is_at_hash(request: Request) -> bool:
    """Return True if a request names the hash of the block that it reads at."""
    return any(isinstance(each, Mapping) and _has_hash(each) for each in request.params)


def _has_hash(param: Mapping[str, object]) -> bool:
    return any(name in param for name in ("blockHash", "block_hash"))
