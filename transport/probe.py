"""A node of an unknown kind of chain, asked what it serves before any settings of its chain exist."""

from __future__ import annotations

from typing import Any

import msgspec

from chainfolio.chain_settings import masked
from chainfolio.errors import BadAnswer, SourceError, Unavailable
from chainfolio.transport.exchange import HttpResponse
from chainfolio.transport.http_endpoint import refusal_of
from chainfolio.transport.rest import RestEndpoint

_NO_SUCH_PATH = 501


class Probe(RestEndpoint):
    """One URL that may serve any kind of chain. A web page, a 4xx status or an error in words means another kind."""

    async def call(self, method: str) -> Any:
        """Return the result of a JSON-RPC call without parameters; None if the node does not serve the method."""
        answer = await self.read("", {"jsonrpc": "2.0", "id": 1, "method": method, "params": []})
        return answer.get("result") if isinstance(answer, dict) else None

    async def read(self, path: str, body: Any = None) -> Any:
        """Return the JSON that a path answers to a GET, or to a POST of `body`; None if the answer is not JSON.

        Raises:
            SourceError: the node cannot be reached, refuses access, or is overloaded.
        """
        return await self.put(path, _json, body)

    def refused(self, posted: HttpResponse) -> SourceError | None:
        """Return the error of a status that says nothing about the kind of the node."""
        return None if posted.status == _NO_SUCH_PATH else refusal_of(self.name, posted)


def unrecognised(url: str) -> BadAnswer:
    """The error for a node that serves no chain of any installed kind."""
    return BadAnswer(
        masked(url),
        "serves no kind of chain that is installed",
        remedy="check the address; it must be the one below which the node's API lies",
    )


def _json(source: str, content: bytes) -> Any:
    try:
        answer = msgspec.json.decode(content)
    except msgspec.DecodeError:
        return None
    if isinstance(answer, dict) and _is_limit(answer.get("error")):
        raise Unavailable(source, "too many requests")
    return answer


def _is_limit(error: Any) -> bool:
    """Whether an error object of JSON-RPC is the HTTP status 429 in its code."""
    return isinstance(error, dict) and error.get("code") in (429, -32005, -32029)
