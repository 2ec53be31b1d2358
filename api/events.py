"""GET /v1/events: the freshness of addresses as server-sent events."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from chainfolio.api.context import ENCODER, Answer, Context
from chainfolio.api.event_streams import HEADERS
from chainfolio.api.failures import NO_CHAIN
from chainfolio.api.router import get
from chainfolio.api.status import StatusQuery, statuses


class Event(msgspec.Struct, frozen=True):
    """One event of the stream, by its fields."""

    id: Annotated[str, msgspec.Meta(description="Digest of `data`; equal states have equal ids on every server.")]
    event: Literal["status"]
    data: Annotated[
        str,
        msgspec.Meta(
            description="The body of `/v1/status`, on one line.",
            extra_json_schema={
                "contentMediaType": "application/json",
                "contentSchema": {"type": "array", "items": {"$ref": "#/components/schemas/AddressStatus"}},
            },
        ),
    ]


@get(
    "/v1/events",
    tag="Service",
    summary="Changes of the data of addresses, as they happen",
    cost=0,
    media="text/event-stream",
    answers={200: Event},
    takes={"Last-Event-ID": "The id of the last event that the client has; browsers send it when they connect again."},
    fails={501: NO_CHAIN},
)
async def events(request: Context, query: StatusQuery) -> Answer:
    """Sends the answer of `/v1/status` as the event `status`, at once and whenever it changes.

    It changes when a read of an address begins or ends, and when a new block is indexed. An event holds
    the whole state, so none is missed by a client that connects again, also to another server: with the id of its last
    event it gets the next one only if the state differs. A quiet stream sends a comment every 15 seconds. It ends after
    15 minutes, or when the server stops.
    """

    async def state() -> bytes:
        return ENCODER.encode(await statuses(request.engine, query.addresses))

    first = await state()  # an error becomes an answer before the stream begins
    last_id = request.http.headers.get("Last-Event-ID", "")
    stream = request.parts.streams.open(request.principal.account_id, state, first, last_id)
    return Answer(b"", content_type="text/event-stream", headers=HEADERS, stream=stream)
