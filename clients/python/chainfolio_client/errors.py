"""Errors of the client. None of them holds the API key."""

from __future__ import annotations

import email.utils
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, ClassVar


class ChainfolioError(Exception):
    """A call that failed."""


class ConnectionFailed(ChainfolioError):
    """The server was not reached, did not answer in time, or the connection broke."""


class InvalidAnswer(ChainfolioError):
    """The server's answer does not fit the description of the API of this version."""


class ApiError(ChainfolioError):
    """A refusal or failure that the server answered.

    Attributes:
        status: The HTTP status.
        code: A stable name for programs, such as `BUNDLE_NAME_TAKEN` or `Validation Failed`; may be empty.
        message: A sentence for people.
        body: The whole answer: an object of JSON, else empty.
        request_id: The id of the request in the server's log; may be empty.
        retry_after_s: Seconds after which a retry may succeed; None if the server does not say.
    """

    kinds: ClassVar[dict[int, type[ApiError]]] = {}

    def __init_subclass__(cls, status: int) -> None:
        """Register the class for a status."""
        cls.kinds[status] = cls

    def __init__(self, status: int, headers: Mapping[str, str], content: bytes) -> None:
        self.status = status
        self.body: dict[str, Any] = _object(content)
        error = self.body.get("error", "")
        detail = error if isinstance(error, dict) else {"code": error, **self.body}
        self.code = str(detail.get("code", ""))
        text = "" if self.body else content.decode(errors="replace")[:200]
        self.message = str(detail.get("message") or detail.get("code") or text)
        self.request_id = headers.get("X-Request-Id", "")
        self.retry_after_s = _seconds(headers.get("Retry-After", ""))
        super().__init__(f"{status} {self.code}: {self.message}" if self.code else f"{status}: {self.message}")


class BadRequest(ApiError, status=400):
    """The request is invalid; `body["details"]` names the fields."""


class Unauthorized(ApiError, status=401):
    """The key is not valid, or lacks a grant."""


class InsufficientCredits(ApiError, status=402):
    """The account has too few credits; none were taken."""


class Forbidden(ApiError, status=403):
    """The account lacks the grant, plan or subscription that the message names."""


class NotFound(ApiError, status=404):
    """The server has no such thing."""


class Conflict(ApiError, status=409):
    """The thing exists already, or must not be deleted."""


class Unprocessable(ApiError, status=422):
    """A quota or rule forbids it, or the idempotency key was used for another request."""


class RateLimited(ApiError, status=429):
    """The key made too many requests, and the retries did not help."""


class NotServed(ApiError, status=501):
    """This server is not set up to answer the call."""


class BadGateway(ApiError, status=502):
    """A node or price source gave the server no usable answer."""


class Unavailable(ApiError, status=503):
    """The server cannot answer at the moment, and the retries did not help."""


def api_error(status: int, headers: Mapping[str, str], content: bytes) -> ApiError:
    """Return the error of an answer with a status of 300 or more."""
    return ApiError.kinds.get(status, ApiError)(status, headers, content)


def _object(content: bytes) -> dict[str, Any]:
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _seconds(text: str) -> float | None:
    """Return the seconds of a `Retry-After`: a number, or a date; None if it is neither."""
    if text.isdecimal():
        return float(text)
    try:
        moment = email.utils.parsedate_to_datetime(text)
    except ValueError:
        return None
    return max(0.0, (moment.replace(tzinfo=moment.tzinfo or UTC) - datetime.now(UTC)).total_seconds())
