"""Errors of the API: HTTP status and body of each error, by family of routes.

This is the only module that knows both `chainfolio.errors` and HTTP. It has three tables: REMEDIES maps our errors to
answers, CODES describes refusals about address book and bundles, and SHAPES gives the body of a status by family of
routes, because the interface specifies different bodies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from chainfolio import errors
from chainfolio.api.context import Answer
from chainfolio.messages import public
from chainfolio.storage.state.refusals import Code, Refusal

TITLES: Final[Mapping[int, str]] = {
    400: "Bad Request",
    401: "Unauthorized",
    402: "Insufficient credits",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    409: "Conflict",
    413: "Payload Too Large",
    414: "URI Too Long",
    415: "Unsupported Media Type",
    417: "Expectation Failed",
    422: "Unprocessable",
    429: "Rate limit exceeded",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    501: "Not Served",
    502: "Bad Gateway",
    503: "Service Unavailable",
}


class FieldError(msgspec.Struct, frozen=True):
    """One error of a request and the path of its field."""

    message: str
    path: list[str]


class Failure(msgspec.Struct, frozen=True, omit_defaults=True):
    """A refused or failed request: `error` is a stable name for programs, `message` a sentence for people."""

    error: str
    message: str
    incident: str | msgspec.UnsetType = msgspec.UNSET


class ErrorDetail(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A refusal: `code` is for programs, `message` for people; other fields depend on the code."""

    code: str
    message: str
    name: str | msgspec.UnsetType = msgspec.UNSET
    bundle_id: str | msgspec.UnsetType = msgspec.UNSET
    quota: int | msgspec.UnsetType = msgspec.UNSET
    current: int | msgspec.UnsetType = msgspec.UNSET
    limit: int | msgspec.UnsetType = msgspec.UNSET
    addresses: list[str] | msgspec.UnsetType = msgspec.UNSET
    incident: str | msgspec.UnsetType = msgspec.UNSET


class CodedFailure(msgspec.Struct, frozen=True):
    """A refused request about the address book or bundles."""

    error: ErrorDetail


class ValidationFailure(msgspec.Struct, frozen=True):
    """An invalid request: `details` lists all errors by the part of the request (`path`, `query`, `body`)."""

    error: str
    message: str
    details: dict[str, list[FieldError]]


@dataclass(eq=False)
class Problem(Exception):
    """A refusal that is raised as an exception; `code` is used by routes whose error bodies have one."""

    status: int
    message: str
    error: str = ""
    code: str = ""
    extras: Mapping[str, object] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        Exception.__init__(self, self.message)
        self.error = self.error or TITLES[self.status]


def invalid(segment: str, field_errors: list[FieldError]) -> Problem:
    """Return the 400 for an invalid request; `segment` is `path`, `query`, `body` or `headers`."""
    return Problem(
        400,
        "; ".join(field_error.message for field_error in field_errors),
        "Validation Failed",
        "VALIDATION_ERROR",
        extras={"details": {segment: field_errors}},
    )


def insufficient_credits(cost: int, available: int) -> Problem:
    """Return the 402 for too few credits."""
    return Problem(
        402,
        f"this call costs {cost} and the account has {available} credits that no running call holds",
        extras={"creditsRequired": cost, "creditsAvailable": available, "creditsNeeded": cost},
    )


@dataclass(frozen=True, slots=True)
class Remedy:
    """Answer to one kind of error.

    Without `message` the error's own message is shown, which must hold no secret.
    """

    kind: type[errors.ChainfolioError]
    status: int
    error: str = ""
    message: str = ""
    retry_after_s: int | None = None


# The first match counts. Messages of sources stay in the log, because they may name hosts, paths or keys; so do hints
# for the operator.
# NotIndexed is 503: the request is valid and a retry helps once it is indexed; 404 would read as "empty".
REMEDIES: Final = (
    Remedy(errors.BadSettings, 503, message="the server is not set up for this"),
    Remedy(errors.NotIndexed, 503, "Not Indexed", retry_after_s=60),
    Remedy(errors.NothingIndexed, 503, "Not Indexed", retry_after_s=60),
    Remedy(errors.HistoryUnavailable, 502, "History Unavailable", "the node keeps no state for that block"),
    Remedy(errors.Reorged, 503, message="the chain has just reorganised; ask again", retry_after_s=1),
    Remedy(errors.NodeBehind, 503, message="the chain has not come that far yet", retry_after_s=5),
    Remedy(errors.Unavailable, 503, message="a node or price source does not answer at the moment", retry_after_s=5),
    Remedy(errors.SourceError, 502, message="a node or price source gave an answer that cannot be used"),
    Remedy(errors.Locked, 503, message="the store is busy", retry_after_s=1),
    Remedy(errors.StorageFull, 503, message="the server has run out of space", retry_after_s=60),
    Remedy(errors.StoreError, 503, message="the store cannot answer at the moment", retry_after_s=30),
    Remedy(errors.DeepReorg, 503, "Chain Halted", retry_after_s=60),
    Remedy(errors.OverBudget, 503, "Service Unavailable", "what may be asked of the chain's nodes is used up"),
    Remedy(errors.MissingDependency, 503),
    Remedy(errors.NotSupported, 501),
    Remedy(errors.NotFound, 404),
)


# Answers of a family of routes that differ from REMEDIES, because its clients expect them.
FAMILY_REMEDIES: Final[Mapping[str, Sequence[Remedy]]] = {
    "approvals": (Remedy(errors.SourceError, 502, message="the node does not answer at the moment", retry_after_s=5),),
    "at-block": (
        Remedy(
            errors.HistoryUnavailable,
            500,
            message="the portfolio at that block could not be fetched: the node keeps no state of it",
        ),
        Remedy(
            errors.SourceError,
            500,
            message="the portfolio at that block could not be fetched: a node or price source gave no usable answer",
        ),
    ),
    "historical": (
        Remedy(
            errors.HistoryUnavailable,
            404,
            message="no snapshot can be built for that date: the nodes keep no state of that time",
        ),
    ),
    "beacon": (
        Remedy(
            errors.SourceError, 500, message="the validator could not be read: the beacon node gave no usable answer"
        ),
    ),
    "transactions": (Remedy(errors.NotFound, 404, "Address not indexed"),),
}


# Status and description of each refusal code.
CODES: Final[Mapping[Code, tuple[int, str]]] = {
    "VALIDATION_ERROR": (400, "An address is malformed or unsupported, or the request repeats an address."),
    "FORBIDDEN": (403, "A requested object does not belong to the account."),
    "ADDRESSBOOK_ENTRY_NOT_FOUND": (404, "The address is not in the address book, or not in the bundle."),
    "BUNDLE_NOT_FOUND": (404, "The account has no such bundle."),
    "DELEGATE_NOT_FOUND": (404, "The account in `X-Delegate-For` has not delegated to the caller's."),
    "ADDRESSBOOK_ENTRY_NOT_DELETABLE": (
        409,
        "The entry is on a paid plan or authorized by the wallet's owner, or a bundle would be left empty or equal to "
        "another.",
    ),
    "BUNDLE_NAME_TAKEN": (409, "Another bundle has this `name`."),
    "BUNDLE_MEMBERS_ALREADY_BUNDLED": (409, "The bundle `bundleId` holds exactly these addresses."),
    "ALREADY_SUBSCRIBED": (409, "These `addresses` are subscribed to already."),
    "ADDRESSBOOK_QUOTA_REACHED": (422, "The address book would hold more than `quota` entries; it has `current`."),
    "BUNDLE_QUOTA_REACHED": (422, "The account has `quota` bundles."),
    "BUNDLE_SIZE_LIMIT_EXCEEDED": (422, "A bundle holds at most `limit` addresses."),
    "BUNDLE_EMPTY": (422, "The bundle would be left empty."),
    "BUNDLE_ADDRESS_NOT_IN_ADDRESS_BOOK": (422, "These `addresses` are not in the address book."),
}


def problem_of(error: Exception, request_id: str, envelope: str = "whole") -> Problem:
    """Return the refusal for an exception; unknown exceptions become a 500 with only the incident's id.

    A BadRequest of the engine is a 400 of the query. `envelope` names the family of routes, which may have own
    remedies.
    """
    if isinstance(error, Problem):
        return error
    if isinstance(error, Refusal):
        return Problem(CODES[error.code][0], str(error), code=error.code, extras=error.extras)
    if isinstance(error, errors.BadRequest) and not isinstance(error, errors.BadSettings):
        # The request is invalid, although only the engine could find out.
        return invalid("query", [FieldError(error.message, [error.field])])
    remedies = (*FAMILY_REMEDIES.get(envelope, ()), *REMEDIES)
    remedy = next((remedy for remedy in remedies if isinstance(error, remedy.kind)), None)
    if remedy and isinstance(error, errors.ChainfolioError):
        return _remedied(error, remedy)
    message = f"something went wrong on our side; the server's log has it as incident {request_id}"
    return Problem(500, message, code="INTERNAL_ERROR", extras={"incident": request_id})


def _remedied(error: errors.ChainfolioError, remedy: Remedy) -> Problem:
    """Return the Problem for a known error, with `Retry-After` (at least 1 s) if a wait helps."""
    problem = Problem(remedy.status, remedy.message or public(error.message), remedy.error)
    wait_s = getattr(error, "retry_after_s", None) or remedy.retry_after_s
    if wait_s is not None:
        problem.headers["Retry-After"] = str(max(1, round(wait_s)))
    return problem


# --- bodies by family of routes --------------------------------------------------------------------------------------

WHOLE, MESSAGE, ERROR, CODED, TEXT = "{error,message}", "{message}", "{error}", "{error:{code,message}}", "text"

# Statuses that are not in the table are WHOLE, a superset of the fields that clients read.
SHAPES: Final[Mapping[str, Mapping[int, str]]] = {
    "whole": {},
    "coded": {401: MESSAGE, 400: CODED, 404: CODED, 409: CODED, 422: CODED, 500: CODED},
    "approvals": {400: MESSAGE, 502: MESSAGE},
    "beacon": {400: ERROR, 401: MESSAGE, 403: ERROR, 404: ERROR, 500: TEXT},
    "at-block": {401: MESSAGE, 500: TEXT},
    "historical": {},
    "transactions": {},
    "contract-protocol": {404: MESSAGE, 500: MESSAGE},
}


def shape_of(envelope: str, problem: Problem) -> str:
    """Return the body shape of a problem in a family; invalid requests are WHOLE, except approvals."""
    if "details" in problem.extras and envelope != "approvals":
        return WHOLE
    return SHAPES[envelope].get(problem.status, WHOLE)


def refusal(envelope: str, problem: Problem) -> Answer:
    """Return the answer for a problem in the body shape of a family of routes."""
    shape = shape_of(envelope, problem)
    if shape == TEXT:
        return Answer(problem.message.encode(), problem.status, "text/plain", problem.headers)
    bodies: dict[str, dict[str, object]] = {
        WHOLE: {"error": problem.error, "message": problem.message, **problem.extras},
        MESSAGE: {"message": problem.message},
        ERROR: {"error": problem.message},
        CODED: {"error": {"code": problem.code, "message": problem.message, **problem.extras}},
    }
    return Answer(msgspec.json.encode(bodies[shape]), problem.status, headers=problem.headers)
