"""Every kind of credential on every route that needs a key: status, cost and counted rate.

The state store is real.
"""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any, Final

import pytest
import pytest_asyncio

from chainfolio.api.router import Route
from chainfolio.api.subscriptions import PRICE
from chainfolio.settings import Limits, Settings
from chainfolio.storage.state import ledger, schema
from chainfolio.storage.state.credentials import make_key
from chainfolio.storage.state.database import Statement, argument
from chainfolio.storage.state.ledger import Balance
from tests.api.furnished import GRANTS, fields_of_refusal, furnish, request_of
from tests.api.targets import KEYED
from tests.api.tenants import Tenant, World, a_world
from tests.api.wire import raw

in_one_loop = pytest.mark.asyncio(loop_scope="module")

PER_MINUTE: Final = 400
PLENTY: Final = 10 * PRICE
UNKNOWN: Final = make_key(random.Random(99))
RATE: Final = ("x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset", "ratelimit-policy", "ratelimit")
PRO_ROUTES: Final = ("token_overview", "performance", "virtual_users", "virtual_users_portfolio")


def header_line(line: str) -> Callable[[str], list[str]]:
    """One line of the head; `{key}` in it is the key."""
    return lambda key: [line.replace("{key}", key)]


def flipped(key: str, at: int) -> str:
    """The key with one character changed."""
    letter = "A" if key[at] != "A" else "B"
    return key[:at] + letter + key[at + 1 :]


# How a good key may be sent, or sent wrongly: the lines of the head, and whether it is let in.
WORDINGS: Final[dict[str, tuple[Callable[[str], list[str]], bool]]] = {
    "valid": (header_line("Authorization: Bearer {key}"), True),
    "lower-case scheme": (header_line("Authorization: bearer {key}"), True),
    "upper-case scheme": (header_line("authorization: BEARER {key}"), True),
    "several spaces": (header_line("Authorization:   Bearer   {key}   "), True),
    "tab around": (header_line("Authorization:\tBearer {key}\t"), True),
    "none": (lambda key: [], False),
    "empty header": (header_line("Authorization:"), False),
    "only the scheme": (header_line("Authorization: Bearer"), False),
    "only the scheme and a space": (header_line("Authorization: Bearer "), False),
    "tab between": (header_line("Authorization: Bearer\t{key}"), False),
    "no scheme": (header_line("Authorization: {key}"), False),
    "Basic": (header_line("Authorization: Basic {key}"), False),
    "Token": (header_line("Authorization: Token {key}"), False),
    "scheme run together": (header_line("Authorization: Bearer{key}"), False),
    "in a cookie": (header_line("Cookie: key={key}; Authorization=Bearer {key}"), False),
    "in X-API-Key": (header_line("X-API-Key: {key}"), False),
    "in Proxy-Authorization": (header_line("Proxy-Authorization: Bearer {key}"), False),
    "good, then bad header": (lambda key: [f"Authorization: Bearer {each}" for each in (key, UNKNOWN)], False),
    "bad, then good header": (lambda key: [f"Authorization: Bearer {each}" for each in (UNKNOWN, key)], False),
    "good header twice": (lambda key: [f"Authorization: Bearer {key}"] * 2, False),
    "joined by comma": (header_line("Authorization: Bearer {key}, Bearer {key}"), False),
    "two tokens": (header_line("Authorization: Bearer {key} {key}"), False),
    "quoted": (header_line('Authorization: Bearer "{key}"'), False),
    "unknown but well-formed": (header_line(f"Authorization: Bearer {UNKNOWN}"), False),
    "bad checksum": (lambda key: [f"Authorization: Bearer {flipped(key, -1)}"], False),
    "one character flipped": (lambda key: [f"Authorization: Bearer {flipped(key, 20)}"], False),
    "truncated": (lambda key: [f"Authorization: Bearer {key[:-1]}"], False),
    "one more character": (header_line("Authorization: Bearer {key}A"), False),
    "other case": (lambda key: [f"Authorization: Bearer {key.swapcase()}"], False),
    "other environment": (lambda key: [f"Authorization: Bearer {key.replace('cf_live_', 'cf_test_')}"], False),
    "Unicode look-alike": (lambda key: [f"Authorization: Bearer {key.replace('c', 'с')}"], False),
    "percent-encoded": (lambda key: [f"Authorization: Bearer {key.replace('_', '%5F')}"], False),
    "8 KiB": (header_line(f"Authorization: Bearer {'A' * 8192}"), False),
    "in the query": (lambda key: [], False),
}
# What no HTTP parser lets pass at all.
BROKEN: Final[dict[str, Callable[[str], list[str]]]] = {
    "NUL inside": lambda key: [f"Authorization: Bearer {key[:9]}\0{key[9:]}"],
    "CR inside": lambda key: [f"Authorization: Bearer {key[:9]}\r{key[9:]}"],
    "header name with a space": header_line("Authorization : Bearer {key}"),
}
# What may be true of a key that is sent as it should be: the routes it does not open for what reason.
HOLDERS: Final = (
    "second key, both valid",
    "first key, both valid",
    "revoked",
    "rolled, after its grace",
    "rolled, the new key",
    "expired",
    "not yet expired",
    "lapsed plan",
    "FREE plan",
    "without portfolio",
    "without at-block",
    "without enterprise",
    "without sql",
    "without credits",
    "over the limit",
)


@dataclass
class Cast:
    """The tenants by kind of credential, and the ids of their keys."""

    world: World
    tenants: dict[str, Tenant] = field(default_factory=dict)
    key_ids: dict[str, str] = field(default_factory=dict)

    def add(self, kind: str, plan: str = "PRO", expires: int | None = None, **options: object) -> Tenant:
        """One more account for a kind, with its first key."""
        arguments: dict[str, Any] = {"grants": GRANTS, "credits": PLENTY, **options}
        tenant = self.world.tenant(kind, plan, expires, **arguments)
        self.play(kind, tenant, 0)
        return tenant

    def play(self, kind: str, tenant: Tenant, key: int) -> None:
        """Let a kind be this tenant with the key it has in that place."""
        self.tenants[kind] = tenant
        self.key_ids[kind] = self.world.state.keys(tenant.account)[key].id

    def rolled(self, tenant: Tenant, expires: int | None = None) -> Tenant:
        """Create another key and return the tenant with it."""
        _, token = self.world.state.create_key(tenant.account, "next", expires)
        return Tenant(tenant.session, tenant.base, tenant.account, token)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cast(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cast]:
    limits = Limits(per_minute=PER_MINUTE, at_block_per_minute=PER_MINUTE)
    async with a_world(tmp_path_factory.mktemp("matrix"), Settings(limits=limits)) as world:
        cast, state, now_us = Cast(world), world.state, world.state.clock.now_us()
        valid = cast.add("valid")
        for kind in (*WORDINGS, *BROKEN):
            cast.play(kind, valid, 0)
        first = cast.add("first key, both valid")
        cast.play("second key, both valid", cast.rolled(first), 1)
        old = cast.add("rolled, after its grace")
        cast.play("rolled, the new key", cast.rolled(old), 1)
        cast.add("revoked")
        for kind in ("revoked", "rolled, after its grace"):
            assert state.revoke_key(cast.key_ids[kind])
        for kind, expires in (("expired", now_us - 1), ("not yet expired", now_us + 3_600_000_000)):
            cast.play(kind, cast.rolled(cast.add(kind), expires), 1)
        cast.add("lapsed plan", expires=now_us - 1)
        cast.add("FREE plan", "FREE")
        for grant in GRANTS:
            cast.add(f"without {grant}", grants=[each for each in GRANTS if each != grant])
        cast.add("without credits", credits=0)
        cast.add("over the limit")
        assert set(cast.tenants) == {*WORDINGS, *BROKEN, *HOLDERS}
        yield cast


def expected(kind: str, route: Route) -> int:
    """The status of a request that nothing else is wrong with."""
    if kind in BROKEN:
        return 400
    unknown = kind in ("revoked", "rolled, after its grace", "expired")
    if unknown or not WORDINGS.get(kind, (None, True))[1]:
        return 401
    if kind == "over the limit":
        return 429
    grant = {"lapsed plan": "pro", "FREE plan": "pro"}.get(kind, kind.removeprefix("without "))
    if kind != "without credits" and route.needs == grant:
        return 401 if grant == "at-block" else 403
    if kind == "without credits" and route.cost:
        return 402
    return min(route.replies)


def lines_of(kind: str, key: str) -> list[str]:
    wording = BROKEN.get(kind) or WORDINGS.get(kind, WORDINGS["valid"])[0]
    return wording(key)


BUCKETS: Final = schema.buckets
_FORGET: Final = Statement(BUCKETS.delete())
_FILL: Final = Statement(
    BUCKETS.insert().values(key_id=argument("key"), name=argument("bucket"), moments=argument("moments"))
)


def counted_before(cast: Cast, kind: str, route: Route) -> dict[tuple[str, str], int]:
    """Forget all rates, but for who is over the limit: that bucket is full."""
    state = cast.world.state
    state.database.write(lambda tx: tx.run(_FORGET))
    if kind == "over the limit":
        moments = state.clock.now_us().to_bytes(8, "little") * PER_MINUTE
        key = cast.key_ids[kind]
        state.database.write(lambda tx: tx.run(_FILL, key=key, bucket=route.bucket, moments=moments))
    return cast.world.request_counts()


def check_body(route: Route, status: int, body: bytes, media: str) -> None:
    """Check the fields of a refusal; of a success the media type alone (see `test_schemathesis.py`)."""
    if status == 204:
        assert body == b""
        return
    if status == 200 and route.media != "application/json":  # a file
        assert media.partition(";")[0] in route.media.split(", ")
        return
    assert media == "application/json"
    fields = json.loads(body)
    if status == 400:
        assert sorted(fields) == ["error", "message"]
    elif status >= 400:
        assert sorted(fields) == fields_of_refusal(route.envelope, status)


@pytest.mark.slow(
    "routes share the check of keys: each kind has two routes, each route the usual kinds",
    fast=[
        "portfolio-*",
        "addressbook-*",
        "*-valid",
        "*-none",
        "*-revoked",
        "*-FREE plan",
        "*-without credits",
        "*-over the limit",
        "*-without portfolio",
        "*-without at-block",
        "*-without enterprise",
        "*-without sql",
    ],
)
@in_one_loop
@pytest.mark.parametrize("kind", [*WORDINGS, *BROKEN, *HOLDERS])
@pytest.mark.parametrize("route", KEYED, ids=lambda route: route.name)
async def test_every_key_on_every_route(cast: Cast, route: Route, kind: str) -> None:
    world, tenant = cast.world, cast.tenants[kind]
    furnish(world, tenant.account)
    request_counts, purse, calls_before = (
        counted_before(cast, kind, route),
        await world.settled_balance(tenant),
        len(world.engine.calls),
    )
    method, target, body = request_of(route, tenant.account)
    if kind == "in the query":
        target += f"{'&' if '?' in target else '?'}key={tenant.key}&api_key={tenant.key}"
    status = expected(kind, route)
    port = int(world.base.rpartition(":")[2])
    response = await raw(port, target, lines_of(kind, tenant.key), method, body)
    assert response.status == status, response.body
    check_body(route, status, response.body, response.headers.get("content-type", ""))
    let_in = status in route.replies
    is_counted = (
        (kind in HOLDERS and status != 401) or let_in or (route.needs == "at-block" and kind == "without at-block")
    )
    assert response.headers.get("www-authenticate") == ("Bearer" if status == 401 else None)
    assert [name in response.headers for name in RATE] == [is_counted] * len(RATE)
    assert ("retry-after" in response.headers) is (status == 429)
    assert (response.headers["cache-control"], response.headers["server"]) == ("no-store", "chainfolio")
    assert tenant.key[:9].encode() not in response.body
    assert let_in or len(world.engine.calls) == calls_before, "a refusal reached the engine"
    cost = route.cost if let_in else 0
    assert await world.settled_balance(tenant) == Balance(purse.available - cost, 0, purse.earned + cost)
    if is_counted and status != 429:
        request_counts = {(cast.key_ids[kind], route.bucket): 1}
    assert world.request_counts() == request_counts
    if let_in and cost:
        refill(cast, tenant, cost)


def refill(cast: Cast, tenant: Tenant, cost: int) -> None:
    """Give back what it cost, for the next route."""
    cast.world.state.database.write(lambda tx: ledger.credit(tx, tenant.account, cost, 1, "again"))


@in_one_loop
async def test_a_refusal_for_want_of_credits_says_how_many(cast: Cast) -> None:
    tenant = cast.tenants["without credits"]
    for route in (each for each in KEYED if each.cost):
        furnish(cast.world, tenant.account)
        method, target, body = request_of(route, tenant.account)
        refusal = (await tenant.ask(method, target, body)).json
        numbers = (refusal["creditsRequired"], refusal["creditsAvailable"], refusal["creditsNeeded"])
        assert numbers == (route.cost, 0, route.cost)


def test_the_kinds_are_those_of_the_plan() -> None:
    assert len({*WORDINGS, *BROKEN, *HOLDERS}) >= 30
    assert [route.name for route in KEYED if route.needs == "pro"] == list(PRO_ROUTES)
    assert {route.needs for route in KEYED} == {"", "pro", *GRANTS}
