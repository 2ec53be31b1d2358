"""Tables of the tail about endpoints: limits, evidence of wrong responses, and recent responses."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final

from chainfolio.storage.tail_database import VALUES_OF_LIST

if TYPE_CHECKING:
    from chainfolio.storage.tail_database import Rows, Transaction

RESPONSE_TTL_US: Final = 600 * 1_000_000  # readers may accept only younger ones


class EndpointTables(ABC):
    """The tables about endpoints. An endpoint is named by its identity, which contains no secret."""

    @abstractmethod
    def _read(self, sql: str, *arguments: object) -> Rows: ...

    @abstractmethod
    def _write(self, chain: str = "") -> AbstractContextManager[Transaction]: ...

    def capabilities(self, endpoint: str) -> dict[str, int]:
        """Return all stored limits and features of an endpoint by name; empty for an unknown endpoint."""
        return dict(self._read("SELECT name, value FROM learnt WHERE endpoint = ?", endpoint))

    def learn(self, endpoint: str, name: str, value: int) -> None:
        """Store one limit or feature of an endpoint, such as the largest span that it accepts."""
        with self._write() as tx:
            tx.run(
                "INSERT INTO learnt (endpoint, name, value) VALUES (?, ?, ?) "
                "ON CONFLICT (endpoint, name) DO UPDATE SET value = excluded.value",
                *(endpoint, name, value),
            )

    def quarantined(self, endpoint: str) -> bytes | None:
        """Return the evidence (JSON) for which an endpoint is quarantined; None if it is not."""
        rows = self._read("SELECT evidence FROM cordons WHERE endpoint = ?", endpoint)
        return rows[0][0] if rows else None

    def quarantine(self, endpoint: str, evidence: bytes) -> None:
        """Store the evidence against an endpoint, which quarantines it. Evidence from before is kept."""
        with self._write() as tx:
            tx.run("INSERT INTO cordons (endpoint, evidence) VALUES (?, ?) ON CONFLICT DO NOTHING", endpoint, evidence)

    def reinstate(self, endpoint: str) -> bool:
        """Delete the evidence against an endpoint. Return False if there was none."""
        with self._write() as tx:
            return tx.run("DELETE FROM cordons WHERE endpoint = ?", endpoint) > 0

    # --- answers of the last minutes ---------------------------------------------------------------------------------

    def recent_answers(self, endpoint: str, requests: Iterable[str], since_us: int, until_us: int) -> dict[str, bytes]:
        """Return the responses that an endpoint gave between two times, both included, by request digest.

        Missing ones are left out.
        """
        sql = (
            "SELECT request, answer FROM answers WHERE endpoint = ? AND read_us BETWEEN ? AND ? "
            f"AND request IN ({VALUES_OF_LIST})"
        )
        return dict(self._read(sql, endpoint, since_us, until_us, json.dumps(list(requests))))

    def add_answers(self, endpoint: str, answers: Mapping[str, bytes], now_us: int) -> None:
        """Store or replace responses of an endpoint by request digest.

        Responses of all endpoints are deleted if they are older than `RESPONSE_TTL_US` or later than `now_us`.
        """
        with self._write() as tx:
            tx.run_many(
                "INSERT INTO answers (endpoint, request, read_us, answer) VALUES (?, ?, ?, ?) "
                "ON CONFLICT (endpoint, request) DO UPDATE SET read_us = excluded.read_us, answer = excluded.answer",
                [(endpoint, request, now_us, answer) for request, answer in answers.items()],
            )
            tx.run("DELETE FROM answers WHERE read_us < ? OR read_us > ?", now_us - RESPONSE_TTL_US, now_us)

    def drop_answers(self, endpoint: str) -> None:
        """Delete all stored responses of an endpoint."""
        with self._write() as tx:
            tx.run(
                "DELETE FROM answers WHERE endpoint = ?",
                endpoint,
            )
