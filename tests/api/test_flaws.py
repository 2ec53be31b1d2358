"""Every route refuses every flawed request before its cost, also for an account without credits.

The flaws are derived from the types of the routes; flaws beyond a type are listed here.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import date
from typing import Any, Final

import pytest
import pytest_asyncio

from chainfolio.api.fields import fields_of
from chainfolio.api.router import Route
from chainfolio.settings import Limits, Settings
from chainfolio.storage.state.ledger import Balance
from tests.api.fakes import ALICE, BOB, POOL, SOL
from tests.api.furnished import GRANTS, bundle_of, furnish, request_of, virtual_user_of
from tests.api.targets import BODIES, KEYED, NOBODYS, path_of, target
from tests.api.tenants import Tenant, World, a_world, wallet

in_one_loop = pytest.mark.asyncio(loop_scope="module")
PLENTY: Final = Limits(per_minute=100_000, at_block_per_minute=100_000)
PRICED: Final = [route for route in KEYED if route.cost]


@dataclass(frozen=True)
class Case:
    """A request that has one flaw, and the status that says so."""

    route: Route
    field_error: str
    status: int
    query: str = ""
    body: bytes | None = None
    headers: tuple[tuple[str, str], ...] = ()
    path: str = ""

    def __str__(self) -> str:
        return f"{self.route.name}: {self.field_error}"


def valid_request(route: Route) -> tuple[str, bytes | None]:
    """The query and the body of a request that has no flaw."""
    return target(route, virtual_user=NOBODYS).partition("?")[2], BODIES.get(route.name, "").encode() or None


def replaced(query: str, name: str, *values: str) -> str:
    """The query with other values of a parameter; none leaves it out."""
    parts = [part for part in query.split("&") if part and part.partition("=")[0] != name]
    return "&".join([*parts, *(f"{name}={value}" for value in values)])


def of_queries(route: Route) -> Iterator[Case]:
    """Yield queries with an unknown, missing, repeated, empty or invalid parameter."""
    query, body = valid_request(route)
    yield Case(route, "unknown parameter", 400, replaced(query, "unknown", "1"), body)
    kind = route.arguments.get("query")
    if kind is None:
        return
    for name, field in fields_of(kind).items():
        if field.required:
            yield Case(route, f"no {name}", 400, replaced(query, name), body)
        free = field.type is str or name in ("initialSearchText", "chain", "cursor", "include")
        if not free:
            for wrong in ("", "~", "%00"):
                yield Case(route, f"{name} is {wrong!r}", 400, replaced(query, name, wrong), body)
        if name != "addresses" and not field.reader:
            yield Case(route, f"{name} twice", 400, replaced(query, name, "1", "1"), body)
    if "addresses" in fields_of(kind):
        each = [f"virtual:{NOBODYS[:-3]}{n:03}" if "virtual" in route.name else wallet(n) for n in range(1, 12)]
        yield Case(route, "eleven addresses", 400, replaced(query, "addresses", ",".join(each)), body)


def of_bodies(route: Route) -> Iterator[Case]:
    """A body that is none, is no JSON, lacks a field, has one that is unknown, or one that cannot be."""
    if "body" not in route.arguments:
        return
    query, body = valid_request(route)
    assert body is not None
    fields = json.loads(body)
    wrong: dict[str, Any] = {"an unknown field": {**fields, "unknown": 1}, "a list": [], "null": None}
    for name in fields:
        wrong[f"no {name}"] = {key: value for key, value in fields.items() if key != name}
        wrong |= {f"{name} is {text}": {**fields, name: json.loads(text)} for text in ("null", "-1", "{}")}
    for field_error, value in wrong.items():
        yield Case(route, field_error, 400, query, json.dumps(value).encode())
    yield Case(route, "no JSON", 400, query, b"{")
    yield Case(route, "no UTF-8", 400, query, body[:-1] + b"\xff")
    yield Case(route, "another type", 415, query, body, (("Content_Type", "text/plain"),))


def of_headers(route: Route) -> Iterator[Case]:
    """An Idempotency-Key that cannot be one."""
    if route.changes:
        query, body = valid_request(route)
        yield Case(route, "a key that cannot be one", 400, query, body, (("Idempotency_Key", "k" * 256),))


# What no type can say: by route, the flaw with its status, and what to put in the place of a query, a body or a path.
TOMORROWS: Final = str(date.max)
TWICE: Final = [{"address": BOB}, {"address": BOB.upper().replace("X", "x")}]
BEYOND: Final[dict[str, list[tuple[str, int, dict[str, Any]]]]] = {
    "historical": [
        ("a day to come", 400, {"date": TOMORROWS}),
        ("no subscription", 403, {"addresses": BOB}),
    ],
    "token_overview": [
        ("a day to come", 400, {"date": TOMORROWS}),
        ("no subscription", 403, {"addresses": BOB}),
    ],
    "performance": [
        ("a day to come", 400, {"endDate": TOMORROWS}),
        ("ends before it begins", 400, {"startDate": "2026-03-02", "endDate": "2026-03-01"}),
        ("more than a year and a day", 400, {"startDate": "2025-02-28", "endDate": "2026-03-01"}),
        ("no subscription", 403, {"addresses": BOB}),
    ],
    "gains": [("lots by wallet of a method that pools them", 400, {"method": "uk", "perWallet": "true"})],
    "transactions": [
        ("ends before it begins", 400, {"startDate": "2026-03-02", "endDate": "2026-03-01"}),
        ("a network that is none", 400, {"networks": "ethereum,nowhere"}),
    ],
    "export_file": [
        ("a method that no ledger has", 400, {"format": "beancount", "method": "uk"}),
        ("no subscription", 403, {"path": "/v1/export/history", "addresses": BOB}),
        ("a chain that is not enabled at a block", 400, {"path": "/v1/export/holdings", "chain": "base", "block": "5"}),
    ],
    "add_alert": [
        ("a private scheme", 400, {"body": {"kind": "transaction", "subject": ALICE, "url": "file:/etc/passwd"}}),
        ("a bound of no value", 400, {"body": {"kind": "price", "subject": "ETH", "url": "http://x/", "over": "-1"}}),
    ],
    "run_sql": [("more rows than the server gives", 400, {"body": {"query": "SELECT 1", "limit": 100_001}})],
    "contract_protocol": [("a chain that is none", 400, {"chain": "nowhere"})],
    "approvals": [("a cursor of nobody", 400, {"cursor": "AAAA"})],
    "rewards_by_index": [
        ("ends before it begins", 400, {"rangeFrom": "5", "rangeTo": "4"}),
        ("longer than a year", 400, {"rangeFrom": "0", "rangeTo": "82126"}),
    ],
    "rewards_by_pubkey": [
        ("ends before it begins", 400, {"rangeFrom": "5", "rangeTo": "4"}),
        ("longer than a year", 400, {"rangeType": "timestamp", "rangeFrom": "0", "rangeTo": "31536001"}),
    ],
    "virtual_users_portfolio": [("somebody else's", 403, {"addresses": f"virtual:{NOBODYS}"})],
    "sync_transactions": [
        ("eleven addresses", 400, {"body": {"addresses": [wallet(n) for n in range(1, 12)]}}),
        ("no address", 400, {"body": {"addresses": ["nonsense"]}}),
    ],
    "subscribe_snapshot": [
        ("an address twice", 400, {"body": {"addresses": TWICE}}),
        ("no address", 400, {"body": {"addresses": [{"address": "nonsense"}]}}),
        ("a kind of address without a chain", 501, {"body": {"addresses": [{"address": SOL}]}}),
    ],
    "add_entries": [
        ("an address twice", 400, {"body": {"entries": TWICE}}),
        ("no address", 400, {"body": {"entries": [{"address": "nonsense"}]}}),
    ],
    "rename_entry": [("no address", 400, {"path": "/v1/addressbook/nonsense"})],
    "remove_entry": [("no address", 400, {"path": "/v1/addressbook/nonsense"})],
    "create_bundle": [
        ("an address twice", 400, {"body": {"name": "Other", "addresses": [ALICE, ALICE]}}),
        ("no address", 400, {"body": {"name": "Other", "addresses": ["nonsense"]}}),
    ],
    "add_member": [("no address", 400, {"body": {"address": "nonsense"}})],
    "remove_member": [("no address", 400, {"path": "/v1/bundles/b/addresses/nonsense"})],
    "portfolio_at_block": [("two addresses", 400, {"addresses": f"{ALICE},{POOL}"})],
}


def of_meanings(route: Route) -> Iterator[Case]:
    """Yield the flaws of `BEYOND`."""
    for field_error, status, wrong in BEYOND.get(route.name, ()):
        query, body = valid_request(route)
        for name, value in wrong.items():
            if name not in ("body", "path"):
                query = replaced(query, name, value)
        if "body" in wrong:
            body = json.dumps(wrong["body"]).encode()
        yield Case(route, field_error, status, query, body, path=wrong.get("path", ""))


MAKERS: Final = (of_queries, of_bodies, of_headers, of_meanings)
CASES: Final = [case for route in PRICED for maker in MAKERS for case in maker(route)]


@dataclass(frozen=True)
class Cast:
    """Two accounts with the same of everything; only one has credits."""

    world: World
    poor: Tenant
    rich: Tenant


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cast(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cast]:
    async with a_world(tmp_path_factory.mktemp("flaws"), Settings(limits=PLENTY)) as world:
        world.engine.served = {"evm"}
        poor = world.tenant("poor", grants=GRANTS, credits=0)
        rich = world.tenant("rich", grants=GRANTS)
        for tenant in (poor, rich):
            furnish(world, tenant.account)
        yield Cast(world, poor, rich)


def line(case: Case, tenant: Tenant) -> str:
    path = case.path or path_of(case.route, bundle_of(tenant.account))
    query = (
        case.query
        if case.field_error == "somebody else's"
        else case.query.replace(NOBODYS, virtual_user_of(tenant.account))
    )
    return f"{path}?{query}" if query else path


@in_one_loop
@pytest.mark.parametrize("route", PRICED, ids=lambda route: route.name)
async def test_what_is_wrong_is_said_before_what_it_costs(cast: Cast, route: Route) -> None:
    for case in (each for each in CASES if each.route is route):
        responses = [
            await tenant.ask(route.method, line(case, tenant), case.body, **dict(case.headers))
            for tenant in (cast.poor, cast.rich)
        ]
        assert [each.status for each in responses] == [case.status] * 2, (str(case), responses[0].body)
        assert responses[0].body == responses[1].body, str(case)
    assert cast.world.engine.calls == []
    assert await cast.world.settled_balance(cast.poor) == Balance(0, 0, 0)
    assert await cast.world.settled_balance(cast.rich) == Balance(1_000_000, 0, 0)


@in_one_loop
@pytest.mark.parametrize("route", PRICED, ids=lambda route: route.name)
async def test_without_a_flaw_it_is_the_credits_that_are_missing(cast: Cast, route: Route) -> None:
    assert (await cast.poor.ask(*request_of(route, cast.poor.account))).status == 402


def test_every_route_that_looks_beyond_its_types_is_tried() -> None:
    judged = {route.name for route in PRICED if route.check or route.allow}
    assert judged <= BEYOND.keys()
    assert len(CASES) > 400
