"""Bounds of the state store, and of the streams that are open to customers."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from chainfolio.api.event_streams import MAX_STREAMS
from chainfolio.engine.bounds import MAX_JOURNAL_BYTES, Bound
from chainfolio.errors import StoreError
from chainfolio.indexer.disk_trend import free_bytes_at
from chainfolio.storage.sqlite import journal_bytes
from chainfolio.storage.state import deliveries, idempotency
from chainfolio.storage.state.sqlite import SqliteDatabase

if TYPE_CHECKING:
    from chainfolio.storage.state import State

log = logging.getLogger("chainfolio.api")
DAY_S: Final = 86_400
SLACK_S: Final = 7_200  # rows are deleted some time after their end


def state_bounds(state: State, streams: int, keep_days: int) -> list[Bound]:
    """Return the bounds of a state store: ages of rows to delete, sizes of SQLite's files, and streams.

    If the store does not answer, only the bound of the streams is returned.

    Args:
        state: The state store.
        streams: Number of open streams of events.
        keep_days: Days for which deliveries of alerts are listed.
    """
    database, of_streams = state.database, Bound("event_streams", streams, MAX_STREAMS)
    try:
        answer_us = database.read(idempotency.oldest_age_us)
        delivery_us = database.read(lambda tx: deliveries.oldest_age_us(tx, state.clock.now_us()))
    except StoreError as error:
        log.warning("the bounds of the state store are not known: %s", error)
        return [of_streams]
    bounds = [
        Bound("idempotent_answer_s", answer_us // 1_000_000, DAY_S + SLACK_S),
        Bound("delivery_s", delivery_us // 1_000_000, keep_days * DAY_S + SLACK_S),
        of_streams,
    ]
    if isinstance(database, SqliteDatabase):
        size = database.path.stat().st_size
        bounds.append(Bound("state_journal_bytes", journal_bytes(database.path), MAX_JOURNAL_BYTES))
        bounds.append(Bound("state_bytes", size, size + free_bytes_at(database.path.parent)))
    return bounds
