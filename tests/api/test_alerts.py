"""Rules over HTTP: separate for each account, webhooks only, with secrets that are never stored."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from chainfolio.alerts.kinds import KINDS
from chainfolio.api.alerts import OFFERED, Kind
from tests.api.fakes import ALICE
from tests.api.tenants import ApiResponse, Tenant, World, a_world

RULE = {"kind": "incoming", "subject": ALICE, "over": "1000.5", "url": "https://hooks.example/a"}


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with a_world(tmp_path) as running:
        yield running


async def added(tenant: Tenant, **more: object) -> ApiResponse:
    return await tenant.ask("POST", "/v1/alerts", RULE | more)


def test_every_kind_but_those_of_the_operator_is_offered() -> None:
    assert Kind.__args__ == OFFERED  # type: ignore[attr-defined]
    assert {*KINDS} - {*OFFERED} == {"job", "endpoint"}


async def test_a_rule_is_added_listed_tested_rotated_and_removed(world: World) -> None:
    ann = world.tenant("ann")
    response = await added(ann)
    assert response.status == 200, response.body
    rule = response.json
    assert (rule["kind"], rule["subject"], rule["bound"], rule["chains"]) == (
        "incoming",
        ALICE,
        "over 1000.5",
        ["ethereum"],
    )
    assert (await ann.ask("GET", "/v1/alerts")).json["data"] == [rule]
    (secret,) = (await ann.ask("GET", f"/v1/alerts/{rule['id']}/secrets")).json["data"]
    assert secret.startswith("whsec_")
    assert (await ann.ask("POST", f"/v1/alerts/{rule['id']}/rotate", {"overlapHours": 2})).status == 200
    secrets = (await ann.ask("GET", f"/v1/alerts/{rule['id']}/secrets")).json["data"]
    assert (len(secrets), secrets[1]) == (2, secret)
    test = (await ann.ask("POST", f"/v1/alerts/{rule['id']}/test")).json
    assert (test["type"], test["state"]) == ("event.test", "pending")
    deliveries = (await ann.ask("GET", "/v1/alert-deliveries?state=pending")).json["data"]
    assert [each["id"] for each in deliveries] == [test["id"]]
    assert (await ann.ask("POST", f"/v1/alert-deliveries/{test['id']}/replay")).json["id"] == test["id"]
    assert (await ann.ask("DELETE", f"/v1/alerts/{rule['id']}")).status == 204
    assert (await ann.ask("GET", "/v1/alerts")).json["data"] == []
    (ended,) = (await ann.ask("GET", "/v1/alert-deliveries?state=dead")).json["data"]
    assert ended["error"] == "the rule was removed"


async def test_rules_of_others_are_as_unknown_as_none(world: World) -> None:
    ann, eve = world.tenant("ann"), world.tenant("eve")
    rule = (await added(ann)).json["id"]
    event = (await ann.ask("POST", f"/v1/alerts/{rule}/test")).json["id"]
    for name in (rule, "alr_none"):
        for method, path, body in (
            ("DELETE", "", None),
            ("GET", "/secrets", None),
            ("POST", "/test", None),
            ("POST", "/rotate", {"overlapHours": 1}),
        ):
            assert (await eve.ask(method, f"/v1/alerts/{name}{path}", body)).status == 404, path
    assert (await eve.ask("POST", f"/v1/alert-deliveries/{event}/replay")).status == 404
    assert (await eve.ask("GET", "/v1/alert-deliveries")).json["data"] == []
    eves_rule = (await added(eve)).json["id"]
    secrets = [
        (await each.ask("GET", f"/v1/alerts/{id}/secrets")).json["data"] for each, id in ((ann, rule), (eve, eves_rule))
    ]
    assert secrets[0] != secrets[1]


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "job"},
        {"kind": "endpoint", "subject": ""},
        {"url": "file:/etc/passwd"},
        {"url": "http://user:pass@hooks.example/"},
        {"over": None},
        {"over": "1e5"},
        {"over": "1", "under": "2"},
        {"subject": "nobody"},
        {"kind": "credits"},
        {"kind": "validator", "subject": "x", "over": None},
        {"command": "rm"},
    ],
)
async def test_a_wrong_rule_is_refused_and_costs_nothing(world: World, wrong: dict[str, object]) -> None:
    ann = world.tenant("ann", credits=10)
    assert (await added(ann, **wrong)).status == 400
    assert (await world.settled_balance(ann)).available == 10
    assert (await ann.ask("GET", "/v1/alerts")).json["data"] == []


async def test_an_account_has_a_hundred_rules_at_most(world: World) -> None:
    ann = world.tenant("ann")
    for number in range(100):
        assert (await added(ann, over=str(number))).status == 200
    response = await added(ann)
    assert (response.status, "at most 100 rules" in response.json["message"]) == (400, True)
