"""Probe of a node of unknown kind: which chain it serves, before settings of that chain exist."""

from __future__ import annotations

from typing import Any

import msgspec

from chainfolio.chain_settings import masked
from chainfolio.errors import BadAnswer, SourceError, Unavailable
from chainfolio.transport.exchange import HttpResponse
from chainfolio.transport.http_endpoint import status_error
from chainfolio.transport.rest import RestEndpoint

_NO_SUCH_PATH = 501


class Probe(RestEndpoint):
    """One URL that may serve any kind of chain.

    A web page, a 4xx status or an error object means another kind.
    """

    async def call(self, method: str) -> Any:
        """Return the result of a JSON-RPC call without parameters; None if the node does not serve the method."""
        answer = await self.read("", {"jsonrpc": "2.0", "id": 1, "method": method, "params": []})
        return answer.get("result") if isinstance(answer, dict) else None

    async def read(self, path: str, body: object = None) -> Any:
        """Return the JSON response to a GET, or to a POST of `body`; None if it is not JSON.

        Raises:
            SourceError: The node cannot be reached, refuses access, or is overloaded.
        """
        return await self.ask_unchecked(path, _json, body)

    def response_error(self, response: HttpResponse) -> SourceError | None:
        """Return the error of a status that says nothing about the kind of the node; None for other statuses."""
        return None if response.status == _NO_SUCH_PATH else status_error(self.name, response)


def unrecognised(url: str) -> BadAnswer:
    """Return the error for a node that serves no chain of any installed kind."""
    return BadAnswer(
        masked(url),
        "serves no kind of chain that is installed",
        remedy="check the address; it must be the one below which the node's API lies",
    )


def _json(source: str, content: bytes) -> Any:
    """Return a response's JSON, None if it is none; raise Unavailable if it reports a limit."""
    try:
        answer = msgspec.json.decode(content)
    except msgspec.DecodeError:
        return None
    if isinstance(answer, dict) and _is_limit(answer.get("error")):
        raise Unavailable(source, "too many requests")
    return answer


def _is_limit(error: object) -> bool:
    """Return True if an error object of JSON-RPC has a code that means too many requests."""
    return isinstance(error, dict) and error.get("code") in (429, -32005, -32029)
