"""One request as the steps and the edge see it: what the client sent, and what has become of it so far."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from aiohttp import web
from aiohttp.http_parser import RawRequestMessage
from aiohttp.streams import StreamReader

if TYPE_CHECKING:
    from api.charge import Charge
    from api.connection import Connection
    from api.keys import Principal

MAX_BODY: Final = 1024 * 1024


class Request(web.BaseRequest):
    """What a client asks. `id` is what log, ledger and answer call it, `match` the path's parameters.

    `operation` is the route that answers, `principal` who asks, `charge` what is reserved for it: each once known.
    `extras` are headers that the answer has, whatever it becomes.
    """

    def __init__(
        self, message: RawRequestMessage, payload: StreamReader, connection: Connection, max_body: int = MAX_BODY
    ) -> None:
        super().__init__(
            message, payload, connection, connection.no_writer, connection.task, connection.loop,
            client_max_size=max_body,
        )  # fmt: skip
        self.connection = connection
        self.id = ""
        self.operation = "none"
        self.match: Mapping[str, str] = {}
        self.extras: dict[str, str] = {}
        self.principal: Principal | None = None
        self.charge: Charge | None = None

    @property
    def keep_alive(self) -> bool:
        """Whether another request may follow this one on its connection."""
        return not self._message.should_close and not self.connection.ending
