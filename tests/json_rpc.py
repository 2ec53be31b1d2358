"""A JSON-RPC node in memory, as a transport: it decodes requests and encodes replies."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from chainfolio.localchain.errors import RpcError
from chainfolio.transport.exchange import HttpResponse


class Refuse(Exception):
    """The node answers with an error object."""

    def __init__(self, code: int, message: str = "no", data: Any = None) -> None:
        self.code, self.message, self.data = code, message, data


class JsonRpcNode:
    """Base class of nodes in memory. `answer` returns a result, or raises `Refuse` or `RpcError`."""

    def answer(self, method: str, params: Any) -> Any:
        """Return the result of a request."""
        raise NotImplementedError

    def note_methods(self, methods: list[str]) -> None:
        """Do something before the requests of one exchange are answered."""

    async def post(self, source: str, url: str, body: bytes, timeout_s: float) -> HttpResponse:
        """Answer one request, or several at once."""
        requests = json.loads(body)
        self.note_methods([each["method"] for each in (requests if isinstance(requests, list) else [requests])])
        return HttpResponse(200, None, self.replies(requests))

    def replies(self, requests: Any) -> bytes:
        """Return the replies to a request, or to a list of requests."""
        is_batch = isinstance(requests, list)
        return msgspec.json.encode([self._reply(each) for each in requests] if is_batch else self._reply(requests))

    def _reply(self, request: dict[str, Any]) -> dict[str, Any]:
        reply = {"jsonrpc": "2.0", "id": request["id"]}
        try:
            return {**reply, "result": self.answer(request["method"], request["params"])}
        except (Refuse, RpcError) as error:
            data = {} if error.data is None else {"data": error.data}
            return {**reply, "error": {"code": error.code, "message": error.message, **data}}

    async def close(self) -> None:
        """Do nothing: the node is used again."""
