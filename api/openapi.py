"""The OpenAPI 3.1 description, generated from the routes that are served."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from chainfolio import __version__
from chainfolio.api.context import Answer
from chainfolio.api.decimal_fields import mark_decimals
from chainfolio.api.errors import (
    CODED,
    CODES,
    ERROR,
    MESSAGE,
    TEXT,
    TITLES,
    WHOLE,
    CodedFailure,
    Failure,
    Problem,
    ValidationFailure,
    refusal,
    shape_of,
)
from chainfolio.api.fields import Field, JsonObject, fields_of
from chainfolio.api.idempotency import HEADER, REPLAYED
from chainfolio.api.pipeline import KEYED, PUBLIC
from chainfolio.api.router import Route, single_cost
from chainfolio.settings import Settings
from chainfolio.storage.state.refusals import Code

UNIDENTIFIED_STATUSES: Final = (401, 413, 414, 431, 503)  # may be returned before the caller, and so the rate, is known
DESCRIPTION: Final = (
    "Holdings of wallets, their values and their transactions. Amounts and values are exact decimal strings in plain "
    "notation; `nav` and `conversionPrice` are JSON numbers. Unknown query parameters are refused."
)
TAGS: Final = {
    "Portfolio": "Holdings of wallets, their values and their history.",
    "Validators": "Validators of the Ethereum beacon chain: details, rewards, withdrawals and deposits.",
    "Virtual users": "Portfolios that an account defined itself.",
    "Address book": "The wallets that an account has saved.",
    "Bundles": "Named groups of wallets from the address book.",
    "Alerts": "Rules about wallets, prices and credits, and the deliveries of their events to webhooks.",
    "SQL": "Queries over the tables of the index.",
    "Service": "Chains and protocols of this server, credits, and freshness of data.",
    "Health": "For operators of the server; no key needed.",
    "Documentation": "This description; no key needed.",
}
BEARER: Final = {"type": "http", "scheme": "bearer", "description": "An API key: `Authorization: Bearer <key>`."}


class Message(msgspec.Struct, frozen=True):
    """A refused request, with a sentence for people."""

    message: str


class InsufficientCredits(Failure, frozen=True, kw_only=True, rename="camel"):
    """The account has too few credits; none were taken."""

    credits_required: int
    credits_available: int
    credits_needed: int


class RateLimited(Failure, frozen=True, kw_only=True, rename={"again_s": "retryAfter", "wait_s": "retry_after"}):
    """Too many requests; `retryAfter` and `retry_after` are the seconds to wait."""

    again_s: int
    wait_s: int


class Reason(msgspec.Struct, frozen=True):
    """A refused request; `error` is a sentence for people."""

    error: str


def describe(routes: Sequence[Route], settings: Settings) -> JsonObject:
    """Return the OpenAPI 3.1 document of `routes`, with the examples of the settings in place of ours."""
    schemas = _Schemas(routes)
    paths: dict[str, JsonObject] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schemas, settings)
    used = list(dict.fromkeys(route.tag for route in routes))
    document = {
        "openapi": "3.1.0",
        "info": {
            "title": "Chainfolio",
            "version": __version__,
            "description": DESCRIPTION,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/", "description": "This server"}],
        "security": [{"apiKey": []}],
        "tags": [{"name": tag, "description": TAGS.get(tag, tag)} for tag in used],
        "paths": paths,
        "components": {
            "securitySchemes": {"apiKey": BEARER},
            "schemas": schemas.components,
            "headers": {name: header["definition"] for name, header in HEADERS.items()},
        },
    }
    return _exemplified(document, settings.examples) if settings.examples else document


def _exemplified(node: object, examples: Mapping[str, str], in_example: bool = False) -> Any:
    """Return a copy of a document in which the operator's values replace ours, inside of examples only."""
    if isinstance(node, dict):
        return {
            name: _exemplified(each, examples, in_example or name in ("example", "examples"))
            for name, each in node.items()
        }
    if isinstance(node, list):
        return [_exemplified(each, examples, in_example) for each in node]
    return (
        type(node)(examples[str(node)])
        if in_example and isinstance(node, (str, int)) and str(node) in examples
        else node
    )


def _header(description: str, kind: str = "string", **more: object) -> JsonObject:
    return {"definition": {"description": description, "schema": {"type": kind, **more}}}


HEADERS: Final = {
    "X-Request-Id": _header(
        "Id of this request in the server's log. If you send one of up to 64 letters, digits and `._-`, it is used."
    ),
    "Retry-After": _header("Seconds after which a retry may succeed.", "integer", minimum=1),
    "WWW-Authenticate": _header("How to authenticate: `Bearer`."),
    "Cache-Control": _header("`no-store` on everything that needs a key."),
    REPLAYED: _header(
        "`true` if this is the answer of the first request with the same Idempotency-Key; `changed` if that answer "
        "was too long to be stored and this one, made again, differs."
    ),
    **{name: _header(text) for step in KEYED for name, text in step.headers.items()},
}


class _Schemas:
    """JSON schemas of all types in answers, bodies and errors of routes; `components` has them by name."""

    def __init__(self, routes: Iterable[Route]) -> None:
        """Make the schemas of all types; fields that every answer has are required in them."""
        answered: list[object] = [
            Failure,
            ValidationFailure,
            CodedFailure,
            Message,
            Reason,
            InsufficientCredits,
            RateLimited,
        ]
        bodies: list[object] = []
        for route in routes:
            answered += [kind for kind in route.replies.values() if kind is not Answer]
            bodies += [kind for segment, kind in route.arguments.items() if segment == "body"]
        kinds = self._kinds = [*answered, *bodies]
        schemas, self.components = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
        self._found = schemas
        for struct in _structs(msgspec.inspect.multi_type_info(answered)):
            self.components[struct.cls.__name__]["required"] = _present(struct)
        mark_decimals(self.components)

    def of(self, kind: object) -> JsonObject:
        """Return the schema of a type, usually a reference to a component."""
        return self._found[self._kinds.index(kind)]


def _structs(kinds: Iterable[msgspec.inspect.Type]) -> Iterator[msgspec.inspect.StructType]:
    """Yield each Struct in these types once, at any depth."""
    waiting, structs = list(kinds), set()
    while waiting:
        kind = waiting.pop()
        if isinstance(kind, msgspec.inspect.StructType):
            if kind.cls in structs:
                continue
            structs.add(kind.cls)
            yield kind
            waiting += [field.type for field in kind.fields]
        for name in ("type", "item_type", "key_type", "value_type"):
            waiting += [inner] if isinstance(inner := getattr(kind, name, None), msgspec.inspect.Type) else []
        for name in ("types", "item_types"):
            waiting += getattr(kind, name, ())


def _present(struct: msgspec.inspect.StructType) -> list[str]:
    """Return the fields that answers always have: all but UNSET, and defaults with `omit_defaults`."""
    leaves_out = struct.cls.__struct_config__.omit_defaults
    return [
        field.encode_name
        for field in msgspec.structs.fields(struct.cls)
        if field.required or not (leaves_out or field.default is msgspec.UNSET)
    ]


def _operation(route: Route, schemas: _Schemas, settings: Settings) -> JsonObject:
    """Return the description of a route with its price, parameters, body, answers and errors."""
    operation: JsonObject = {
        "operationId": route.name,
        "tags": [route.tag],
        "summary": route.summary,
        "description": f"{route.description} {_price(route)}".strip(),
        "parameters": _parameters(route, settings),
        "responses": _responses(route, schemas),
    }
    if "body" in route.arguments:
        content = {"application/json": {"schema": schemas.of(route.arguments["body"])}}
        operation["requestBody"] = {"required": True, "content": content}
    if route.public:
        operation["security"] = []
    return operation


def _price(route: Route) -> str:
    """Return what a route costs, as a sentence; empty if it is public."""
    if route.public:
        return ""
    if not route.cost:
        return "Free of charge."
    each = "" if route.units is single_cost else " for each address"
    return f"Costs {route.cost} credit{'s' if route.cost > 1 else ''}{each}."


# --- parameters ------------------------------------------------------------------------------------------------------


KEY_PARAMETER: Final = {
    "name": HEADER,
    "in": "header",
    "required": False,
    "description": "If a change is sent twice with the same key, it is made and paid once and gets the same answer.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
}


def _parameters(route: Route, settings: Settings) -> list[JsonObject]:
    """Return the parameters of a route: path, query and headers; the idempotency key if it changes data."""
    parameters = [KEY_PARAMETER] if route.changes else []
    return (
        parameters
        + [
            _parameter(segment, field, settings)
            for segment in ("path", "query")
            if segment in route.arguments
            for field in fields_of(route.arguments[segment]).values()
        ]
        + [
            {"name": name, "in": "header", "required": False, "description": description, "schema": {"type": "string"}}
            for name, description in route.takes.items()
        ]
    )


def _parameter(segment: str, field: Field, settings: Settings) -> JsonObject:
    """Return the description of a parameter, with one example and its default, if it has them."""
    schema = _schema(field, settings)
    parameter: JsonObject = {
        "name": field.name,
        "in": segment,
        "required": field.required,
        "description": schema.pop("description", ""),
        "schema": schema,
    }
    for example in schema.pop("examples", [])[:1]:
        parameter["example"] = example
    if schema.get("type") == "array":
        parameter |= {"style": "form", "explode": False}
    if not field.required and field.default not in (None, "", ()):
        schema["default"] = field.default
    return parameter


def _schema(field: Field, settings: Settings) -> JsonObject:
    if not field.reader:
        return msgspec.json.schema(field.type)
    *_, meta = (extra for extra in field.type.__metadata__ if isinstance(extra, msgspec.Meta))
    return {**field.reader.schema(settings), "description": meta.description or "", "examples": meta.examples or []}


# --- answers ---------------------------------------------------------------------------------------------------------


def _responses(route: Route, schemas: _Schemas) -> JsonObject:
    """Return the answers of a route by status: its replies, and errors that are none of them."""
    return {
        **{str(status): _success(route, status, kind, schemas) for status, kind in route.replies.items()},
        **{
            str(status): _failure(route, status, description, schemas)
            for status, description in sorted(failures(route).items())
            if status not in route.replies
        },
    }


def failures(route: Route) -> Mapping[int, str]:
    """Return the error statuses of a route with descriptions: of any route, of its pipeline and its own."""
    descriptions = {500: "An internal error; the server's log has it under the id in `incident`."}
    descriptions |= {414: "The URL is longer than 8 KiB.", 431: "The headers are longer than 16 KiB."}
    if "body" in route.arguments:
        descriptions |= {
            408: "The body took too long to arrive.",
            413: "The body is longer than 1 MiB.",
            415: "The body is not JSON.",
        }
    for step in PUBLIC if route.public else KEYED:
        descriptions |= step.refuses
    if route.needs:
        descriptions[401 if route.needs == "at-block" else 403] = f"The account lacks the entitlement {route.needs}."
    if route.cost == 0:
        descriptions.pop(402, None)
    if route.changes:
        descriptions[422] = "This Idempotency-Key was used for another request."
    for status in {CODES[code][0] for code in route.codes}:
        parts = [descriptions[status]] if status in descriptions else []
        descriptions[status] = " ".join([*parts, *(f"`{code}`: {CODES[code][1]}" for code in _codes(route, status))])
    return {**descriptions, **route.fails}


def _codes(route: Route, status: int) -> list[Code]:
    return [code for code in route.codes if CODES[code][0] == status]


def _success(route: Route, status: int, kind: object, schemas: _Schemas) -> JsonObject:
    """Return the description of a successful answer, with the route's example for 200."""
    if status == 204:
        return {"description": "Done; there is no body.", "headers": _headers(route, status)}
    content: JsonObject = {} if kind is Answer else {"schema": schemas.of(kind)}
    if route.example is not None and status == 200:
        content["example"] = route.example
    description = "The answer." if status == 200 else TITLES.get(status, "Elsewhere") + "."
    return {
        "description": description,
        "headers": _headers(route, status),
        "content": {
            media: {"schema": {"type": "object" if media == "application/json" else "string"}} | content
            for media in route.media.split(", ")
        },
    }


KINDS: Final[Mapping[str, object]] = {MESSAGE: Message, ERROR: Reason, CODED: CodedFailure}
_BODIES: Final[Mapping[int, object]] = {402: InsufficientCredits, 429: RateLimited}


def _failure(route: Route, status: int, description: str, schemas: _Schemas) -> JsonObject:
    """Return the description of an error's answer in the route's envelope, with an example."""
    problem = _specimen(route, status)
    shape = shape_of(route.envelope, problem)
    answer = {"description": description, "headers": _headers(route, status)}
    if shape == TEXT:
        return {**answer, "content": {"text/plain": {"schema": {"type": "string"}}}}
    kinds: list[object] = [KINDS.get(shape) or _BODIES.get(status, Failure)]
    if status == 400 and shape == WHOLE:
        # The family's own 400 is for valid requests that cannot be answered; invalid ones are ValidationFailure.
        family = KINDS.get(shape_of(route.envelope, Problem(400, "")))
        if family is CodedFailure and not _codes(route, 400):
            family = None
        kinds = [ValidationFailure, *([family] if family else [])]
    schema = schemas.of(kinds[0]) if len(kinds) == 1 else {"anyOf": [schemas.of(kind) for kind in kinds]}
    example = msgspec.json.decode(refusal(route.envelope, problem).body)
    return {**answer, "content": {"application/json": {"schema": schema, "example": example}}}


def _specimen(route: Route, status: int) -> Problem:
    """Return a realistic problem of a status, for the examples."""
    if status == 400:
        query = fields_of(route.arguments["query"]) if "query" in route.arguments else {}
        name = next((field.name for field in query.values() if field.required), "")
        reason = f"`{name}` is required" if name else "unknown parameter 'x'"
        details = {"query": [{"message": reason, "path": [name or "x"]}]}
        return Problem(400, reason, "Validation Failed", extras={"details": details})
    reasons = {
        401: "this API key is not valid",
        500: "something went wrong on our side; the server's log has it as incident 1f0c",
        503: "a node or price source does not answer at the moment",
    }
    extras: JsonObject = {"incident": "1f0c"} if status == 500 else {}
    if status == 402:
        extras = {"creditsRequired": 1, "creditsAvailable": 0, "creditsNeeded": 1}
    if status == 429:
        extras = {"retryAfter": 12, "retry_after": 12}
    for code in _codes(route, status):
        return Problem(status, CODES[code][1], code=code)
    return Problem(status, reasons.get(status, TITLES[status].lower()), code="INTERNAL_ERROR", extras=extras)


def _headers(route: Route, status: int) -> JsonObject:
    """Return references to the headers of a route's answers with a status."""
    names = ["X-Request-Id", "Cache-Control"]
    names += ["WWW-Authenticate"] if status == 401 else []
    names += ["Retry-After"] if status in (429, 503) else []
    if not route.public and status not in UNIDENTIFIED_STATUSES:
        names += [name for step in KEYED for name in step.headers]
    names += [REPLAYED] if route.changes and status < 500 else []
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}
