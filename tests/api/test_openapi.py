"""The OpenAPI description is valid and has every route; its page needs no other host."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
import subprocess
import sys
import time
from typing import Any

import msgspec
import pytest
from aiohttp import ClientSession

from chainfolio.api import dashboard
from chainfolio.api.decimal_fields import DECIMAL_FIELDS, TYPES
from chainfolio.api.openapi import describe
from chainfolio.api.router import Route
from chainfolio.api.routes import ROUTES
from tests.api.fakes import ALICE, an_app


@pytest.fixture
async def described(client: ClientSession) -> dict[str, Any]:
    document: dict[str, Any] = await (await client.get("/openapi.json")).json()
    return document


def test_the_description_is_valid(described: dict[str, Any]) -> None:
    from openapi_spec_validator import validate  # here: importing it takes three seconds

    validate(described)
    assert (described["openapi"], described["info"]["version"]) == ("3.1.0", "1.0.0")


def test_a_net_asset_value_that_cannot_be_had_is_described(described: dict[str, Any]) -> None:
    assert "rate" in described["paths"]["/v1/nav"]["get"]["responses"]["501"]["description"]


def test_what_is_served_is_what_is_described(described: dict[str, Any]) -> None:
    app = an_app()
    page = {(route.path, route.method) for route in dashboard.ROUTES}  # parts of the dashboard, which is a client
    served = app.paths.all() - page - {(path, "HEAD") for path, method in page if method == "GET"}
    documented = {(path, method.upper()) for path, methods in described["paths"].items() for method in methods}
    assert served == documented | {(path, "HEAD") for path, method in documented if method == "GET"}
    assert app.parts.settings.server.max_addresses == 10


def test_codes_are_described_with_their_form(described: dict[str, Any]) -> None:
    responses = described["paths"]["/v1/bundles"]["post"]["responses"]
    assert "`BUNDLE_NAME_TAKEN`" in responses["409"]["description"]
    assert responses["409"]["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/CodedFailure"}
    assert len(responses["400"]["content"]["application/json"]["schema"]["anyOf"]) == 2
    assert responses["401"]["content"]["application/json"]["example"] == {"message": "this API key is not valid"}
    assert described["paths"]["/v1/bundles/{bundleId}"]["delete"]["responses"]["204"].get("content") is None
    headers = [p for p in described["paths"]["/v1/bundles"]["get"]["parameters"] if p["in"] == "header"]
    assert [header["name"] for header in headers] == ["X-Delegate-For"]


def operations(described: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [(path, operation) for path, methods in described["paths"].items() for operation in methods.values()]


def test_every_operation_says_everything(described: dict[str, Any]) -> None:
    names = [operation["operationId"] for _, operation in operations(described)]
    assert len(names) == len(set(names))
    for path, operation in operations(described):
        assert operation["summary"], path
        assert operation["description"], path
        assert all(parameter["description"] for parameter in operation["parameters"]), path
        assert all(response["description"] for response in operation["responses"].values()), path
        assert all("X-Request-Id" in response["headers"] for response in operation["responses"].values()), path


@pytest.mark.parametrize(
    "route", [route for route in ROUTES if route.example is not None], ids=lambda route: route.name
)
def test_an_example_is_a_whole_answer(route: Route) -> None:
    encoded = re.sub(
        rb'"consensusEfficiency":[0-9.]+', b'"consensusEfficiency":null', msgspec.json.encode(route.example)
    )
    answer = msgspec.json.decode(encoded, type=route.replies[200])
    assert msgspec.json.decode(msgspec.json.encode(answer)) == msgspec.json.decode(encoded)


def test_what_needs_a_key_says_so(described: dict[str, Any]) -> None:
    for path, operation in operations(described):
        needs = path.startswith("/v1/")
        assert ("401" in operation["responses"]) is needs
        assert operation.get("security", described["security"]) == ([{"apiKey": []}] if needs else [])


def test_what_is_always_answered_is_required(described: dict[str, Any]) -> None:
    schemas = described["components"]["schemas"]
    assert set(schemas["ChainFact"]["required"]) == set(schemas["ChainFact"]["properties"])
    assert schemas["Failure"]["required"] == ["error", "message"]


def test_decimals_are_marked_in_the_types_that_are_listed_only(described: dict[str, Any]) -> None:
    schemas = described["components"]["schemas"]
    assert schemas["NftAttribute"]["properties"]["value"] == {"type": "string"}
    for name in TYPES:
        fields = DECIMAL_FIELDS & schemas[name]["properties"].keys()
        assert any("decimal" in str(schemas[name]["properties"][field]) for field in fields), name
    used = {field for name in TYPES for field in schemas[name]["properties"]}
    assert used >= DECIMAL_FIELDS


def test_parameters_are_those_that_are_read(described: dict[str, Any]) -> None:
    parameters = {p["name"]: p for p in described["paths"]["/v1/nav"]["get"]["parameters"]}
    assert list(parameters) == ["addresses", "waitForSync", "currency"]
    assert parameters["addresses"]["required"] is True
    assert (parameters["addresses"]["style"], parameters["addresses"]["explode"]) == ("form", False)
    assert parameters["waitForSync"]["schema"] == {"type": "boolean", "default": False}
    assert parameters["currency"]["schema"]["default"] == "USD"
    assert "cbBTC" in parameters["currency"]["schema"]["enum"]


async def test_requests_at_once_make_the_description_once(
    client: ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []

    def count_describe(*arguments: Any) -> Any:
        calls.append(arguments)
        time.sleep(0.05)  # the other requests arrive meanwhile
        return describe(*arguments)

    monkeypatch.setattr("chainfolio.api.docs.describe", count_describe)
    answers = await asyncio.gather(*(client.get("/openapi.json") for _ in range(10)))
    assert len({await answer.read() for answer in answers}) == 1
    assert len(calls) == 1


async def test_examples_are_what_is_answered(client: ClientSession, described: dict[str, Any]) -> None:
    example = described["paths"]["/v1/nav"]["get"]["responses"]["401"]["content"]["application/json"]["example"]
    answer = await client.get("/v1/nav", params={"addresses": ALICE}, headers={"Authorization": "Bearer x"})
    assert await answer.json() == example


async def test_the_page_needs_no_other_host(client: ClientSession) -> None:
    answer = await client.get("/docs")
    page = await answer.text()
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert re.findall(r"(?:https?:)?//[a-z0-9.-]+\.[a-z]{2,}", page) == []
    policy = answer.headers["Content-Security-Policy"]
    for tag in ("style", "script"):
        blocks = re.findall(f"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        assert blocks
        for block in blocks:
            assert f"'sha256-{base64.b64encode(hashlib.sha256(block.encode()).digest()).decode()}'" in policy
    assert "unsafe" not in policy
    assert not re.search(r"\son\w+=|\sstyle=", page)


def test_starting_imports_nothing_slow() -> None:
    slow = "polars", "duckdb", "deltalake", "web3", "pyarrow", "numpy"
    code = (
        f"import sys, chainfolio.api.app, chainfolio.api.serve; print([name for name in {slow} if name in sys.modules])"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert process.stdout.strip() == "[]"
