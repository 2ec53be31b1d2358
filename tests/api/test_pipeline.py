"""The order of the steps, and what the router makes of annotations: with routes that only exist here."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest
from structlog.testing import capture_logs

from chainfolio.api.app import App, make_app
from chainfolio.api.changes import change
from chainfolio.api.context import Answer, Context, Parts, Proceed, Step
from chainfolio.api.keys import Keys
from chainfolio.api.openapi import describe
from chainfolio.api.pipeline import KEYED, PUBLIC, chain_steps
from chainfolio.api.router import Route, get, write
from chainfolio.api.serve import listening
from chainfolio.environment import Environment, SystemClock
from chainfolio.settings import Settings
from chainfolio.storage.state import State
from tests.api.fakes import ALICE, KEY, FakeEngine, FakeKeys, an_app
from tests.api.sessions import client_session


class Place(msgspec.Struct, frozen=True, rename="camel"):
    """A path."""

    chain_key: Annotated[str, msgspec.Meta(description="A chain.", pattern="^[a-z]+$")]


class Page(msgspec.Struct, frozen=True):
    """A query."""

    limit: Annotated[int, msgspec.Meta(description="How many.", ge=1, le=250)] = 25


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A part of a body."""

    address: str
    label: Annotated[str, msgspec.Meta(max_length=5)] = ""


class Entries(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A body."""

    entries: Annotated[list[Entry], msgspec.Meta(min_length=1, max_length=2)]


@write("POST", "/v1/made/{chainKey}", tag="Test", summary="Echo", envelope="coded")
async def made(request: Context, path: Place, query: Page, body: Entries) -> list[str | int]:
    """Says what it was given."""
    values = [path.chain_key, query.limit, *(entry.address for entry in body.entries)]
    return await change(request, lambda _: values)  # type: ignore[return-value]


@write("POST", "/v1/given", tag="Test", summary="A change that nobody pays for")
async def given(request: Context) -> str:
    """Forgets that a change is paid in its transaction."""
    return "for nothing"


@get("/v1/odd", tag="Test", summary="Not JSON")
async def odd(request: Context) -> float:
    """Cannot be encoded."""
    return object()  # type: ignore[return-value]


@pytest.fixture
async def base() -> AsyncIterator[str]:
    parts = Parts(FakeEngine(), FakeKeys(), Settings(), Environment())
    async with listening(App(parts, (made, given, odd), max_body=1000), "127.0.0.1", 0, drain_s=0.1) as port:
        yield f"http://127.0.0.1:{port}"


async def post(base: str, path: str, body: bytes, kind: str = "application/json") -> tuple[int, Any]:
    headers = {"Authorization": f"Bearer {KEY}", "Content-Type": kind}
    async with client_session() as session, session.post(base + path, data=body, headers=headers) as answer:
        return answer.status, await answer.json()


GOOD = b'{"entries":[{"address":"a"}]}'


async def test_path_query_and_body_are_read_into_their_types(base: str) -> None:
    assert await post(base, "/v1/made/ethereum?limit=250", GOOD) == (200, ["ethereum", 250, "a"])
    assert await post(base, "/v1/made/ethereum", GOOD, "Application/JSON; charset=UTF-8") == (
        200,
        ["ethereum", 25, "a"],
    )


@pytest.mark.parametrize(
    "limit", ["0", "-1", "251", "1e2", "01", "%2B5", "%205", "5.0", "2147483648", "9" * 400, "", "５", "0x5", "1_0"]
)
async def test_a_number_is_written_in_one_way_and_in_its_range(base: str, limit: str) -> None:
    status, body = await post(base, f"/v1/made/ethereum?limit={limit}", GOOD)
    assert (status, list(body["details"])) == (400, ["query"])
    assert body["message"].startswith("`limit` ")


@pytest.mark.parametrize(
    ("body", "path"),
    [
        (b"", []),
        (b"{", []),
        (b"[]", []),
        (b"null", []),
        (b'{"entries":[]}', ["entries"]),
        (b'{"entries":[{"address":1}]}', ["entries", "0", "address"]),
        (b'{"entries":[{"address":"a","label":"123456"}]}', ["entries", "0", "label"]),
        (b'{"entries":[{"address":"a","isPaid":true}]}', ["entries", "0", "isPaid"]),
        (b'{"entries":[{"address":"a"}],"plan":"PRO"}', ["plan"]),
        (b'\xef\xbb\xbf{"entries":[{"address":"a"}]}', []),
        (b'{"entries":[{"address":"\xff"}]}', []),
        (b'{"entries":[{"address":"\\ud800"}]}', []),
        (b"[" * 900, []),
    ],
)
async def test_a_body_that_does_not_fit_is_refused_with_its_place(base: str, body: bytes, path: list[str]) -> None:
    status, refusal = await post(base, "/v1/made/ethereum", body)
    assert status == 400
    assert refusal["error"] == "Validation Failed"
    assert [field_error["path"] for field_error in refusal["details"]["body"]] == [path]


async def test_the_other_ways_a_body_can_be_wrong(base: str) -> None:
    for kind in ("text/plain", "application/json; charset=utf-7", "application/x-www-form-urlencoded", ""):
        assert (await post(base, "/v1/made/ethereum", GOOD, kind))[0] == 415
    assert (await post(base, "/v1/made/ethereum", b" " * 2000))[0] == 413
    status, refusal = await post(base, "/v1/made/ETHEREUM", GOOD)
    assert (status, list(refusal["details"])) == (400, ["path"])


async def test_a_route_that_forgets_to_charge_for_its_change_answers_nobody(base: str) -> None:
    with capture_logs() as lines:
        assert (await post(base, "/v1/given", b""))[0] == 500
    assert "it is not paid for" in str(next(line["exc_info"] for line in lines if line["event"] == "failed"))


async def test_an_answer_that_cannot_be_encoded_is_a_failure(base: str) -> None:
    async with client_session() as session:
        answer = await session.get(f"{base}/v1/odd", headers={"Authorization": f"Bearer {KEY}"})
        assert answer.status == 500


def test_such_routes_are_described_too() -> None:
    described = describe((made, odd), Settings())
    from openapi_spec_validator import validate  # here: importing it takes three seconds

    validate(described)
    operation = described["paths"]["/v1/made/{chainKey}"]["post"]
    assert {"400", "401", "413", "415", "500"} <= set(operation["responses"])
    assert [parameter["in"] for parameter in operation["parameters"]] == ["header", "path", "query"]


def test_a_handler_says_where_its_arguments_come_from() -> None:
    with pytest.raises(AssertionError, match="arguments are request, path, query and body"):

        @get("/", tag="Test", summary="")
        async def wrong(request: Context, addresses: str) -> None: ...


def test_the_order_of_checks() -> None:
    assert [step.name for step in KEYED] == ["authenticate", "admit", "work"]
    assert [step.name for step in PUBLIC] == ["schema", "work"]


async def test_a_step_is_around_the_steps_after_it() -> None:
    steps: list[str] = []

    def step(name: str) -> Step:
        async def run(context: Context, proceed: Proceed) -> Answer:
            steps.append(f"{name} begins")
            try:
                return await proceed(context)
            finally:
                steps.append(f"{name} ends")

        return Step(name, run)

    async def answer(context: Context, proceed: Proceed) -> Answer:
        raise RuntimeError("work failed")

    with pytest.raises(RuntimeError, match="work failed"):
        await chain_steps([step("reserve"), step("inner"), Step("work", answer)])(a_context(made))
    assert steps == ["reserve begins", "inner begins", "inner ends", "reserve ends"]


def a_context(route: Route) -> Context:
    parts = Parts(FakeEngine(), FakeKeys(), Settings(), Environment())
    return Context(None, route, parts)  # type: ignore[arg-type]


async def test_work_stops_when_its_client_has_gone() -> None:
    engine = FakeEngine(delay_s=60)
    with capture_logs() as lines:
        async with listening(an_app(engine), "127.0.0.1", 0, drain_s=5) as port:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            request = f"GET /v1/wallet?addresses={ALICE} HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {KEY}\r\n\r\n"
            writer.write(request.encode())
            await asyncio.wait_for(engine.called.wait(), 5)
            writer.close()
            await asyncio.wait_for(engine.finished.wait(), 5)
    assert [line["event"] for line in lines] == ["left"]


async def test_keys_of_the_real_store_open_the_door(tmp_path: Path) -> None:
    state = State.open(f"sqlite:///{tmp_path / 'state.db'}", b"p" * 32, SystemClock(), random.Random(1))
    keys: Keys = state
    account, token = state.create_account("alice", grants=["portfolio"])
    app = make_app(FakeEngine(), keys, Settings(), Environment())
    async with listening(app, "127.0.0.1", 0, drain_s=0.1) as port, client_session() as session:

        async def status() -> int:
            url, headers = f"http://127.0.0.1:{port}/v1/chains", {"Authorization": f"Bearer {token}"}
            return (await session.get(url, headers=headers)).status

        assert await status() == 200
        assert state.revoke_key(state.keys(account.id)[0].id)
        assert await status() == 401
    state.close()
