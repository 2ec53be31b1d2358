"""Every call of the API through the Python client, against a server with a real store that listens."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import chainfolio
from chainfolio.api.routes import ROUTES
from clients.build import build_python, describe_api
from clients.python_source import operations
from tests.api.fakes import ALICE, BOB, POOL
from tests.api.furnished import GRANTS, furnish, request_of
from tests.api.tenants import Tenant, World, a_world
from tests.clients.calling import KINDS, Caller, arguments_of, raises

BY_NAME = {route.name: route for route in ROUTES}


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with a_world(tmp_path) as world:
        yield world


@pytest.fixture
def tenant(world: World) -> Tenant:
    return world.tenant("ann", grants=GRANTS)


@pytest.fixture(params=KINDS)
async def caller(package: Any, request: pytest.FixtureRequest, world: World, tenant: Tenant) -> AsyncIterator[Caller]:
    async with Caller(package, request.param, world.base, tenant.key) as caller:
        yield caller


async def test_every_operation_of_the_description_is_called(
    package: Any, caller: Caller, world: World, tenant: Tenant
) -> None:
    described = {(method, path, operation["operationId"]) for method, path, operation in operations(describe_api())}
    for _, _, name in described:
        furnish(world, tenant.account)
        route = BY_NAME[name]
        _, target, body = request_of(route, tenant.account)
        path, _, query = target.partition("?")
        await caller.call(name, **arguments_of(route, path, query, body))
    called = {(request.method, request.url.path) for request in caller.recorder.requests}
    missed = [
        (method, path)
        for method, path, _ in described
        if not any(
            verb == method and re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", path), path_sent) for verb, path_sent in called
        )
    ]
    assert missed == []
    assert len(described) == len(ROUTES)
    assert caller.waits == []


async def test_changes_carry_an_idempotency_key_of_their_own_or_the_given_one(caller: Caller) -> None:
    await caller.call("add_entries", entries=[{"address": ALICE}])
    await caller.call("rename_entry", address=ALICE, label="Cold")
    await caller.call("rename_entry", address=ALICE, label="Warm", idempotency_key="monday-1")
    book = await caller.call("addressbook")
    assert [entry.label for entry in book] == ["Warm"]
    first, second, third, read = (each.headers.get("Idempotency-Key") for each in caller.recorder.requests)
    assert (third, read) == ("monday-1", None)
    assert len({first, second}) == 2
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", first or "")


async def test_pages_by_offset_are_one_list(caller: Caller) -> None:
    wallets = [f"0x{number:040x}" for number in range(1, 6)]
    await caller.call("add_entries", entries=[{"address": wallet, "label": wallet[-1]} for wallet in wallets])
    assert [entry.address for entry in await caller.call("addressbook", limit=2)] == wallets
    offsets = [request.url.params["offset"] for request in caller.recorder.requests[1:]]
    assert offsets == ["0", "2", "4"]
    assert [entry.label for entry in await caller.call("addressbook", limit=2, offset=3)] == ["4", "5"]


async def test_numbered_pages_are_one_list(caller: Caller) -> None:
    protocols = await caller.call("chain_protocols", key="optimism", limit=100)
    assert len(protocols) > 40
    assert await caller.call("chain_protocols", key="optimism", limit=20) == protocols
    assert [each.url.params["page"] for each in caller.recorder.requests] == ["1", "1", "2", "3"]


async def test_bodies_take_models_and_one_address_as_text(package: Any, caller: Caller) -> None:
    entry = package.models.NewEntry(address=ALICE, label='ä, & "b"')
    book = await caller.call("add_entries", entries=[entry, package.models.NewEntry(address=BOB)])
    assert [(each.address, each.label) for each in book.data] == [(ALICE, 'ä, & "b"'), (BOB, "")]
    bundle = (await caller.call("create_bundle", name="One", addresses=ALICE)).data
    assert (await caller.call("bundle", bundle_id=bundle.id)).data.addresses == [ALICE]
    assert [each.address for each in await caller.call("portfolio", addresses=ALICE)] == [ALICE]
    assert [each.address for each in await caller.call("portfolio", addresses=[ALICE, POOL])] == [ALICE, POOL]
    assert await caller.call("delete_bundle", bundle_id=bundle.id) is None


async def test_refusals_are_typed_errors_with_codes(package: Any, caller: Caller, world: World) -> None:
    await caller.call("add_entries", entries=[{"address": ALICE}, {"address": BOB}])
    await caller.call("create_bundle", name="One", addresses=[ALICE])
    with raises(package.errors.Conflict) as conflicts:
        await caller.call("create_bundle", name="One", addresses=[BOB])
    (conflict,) = conflicts
    assert (conflict.status, conflict.code) == (409, "BUNDLE_NAME_TAKEN")
    assert conflict.message in str(conflict)
    assert re.fullmatch(r"[\w.-]+", conflict.request_id)
    with raises(package.errors.BadRequest) as invalid:
        await caller.call("portfolio", addresses=["0x12"])
    assert invalid[0].code == "Validation Failed"
    assert "query" in invalid[0].body["details"]
    with raises(package.errors.NotFound):
        await caller.call("bundle", bundle_id="../../readyz")


@pytest.mark.parametrize("part", ["", ".", "..", [".."]])
async def test_a_part_of_a_path_never_makes_it_that_of_another_call(caller: Caller, part: Any) -> None:
    await caller.call("add_entries", entries=[{"address": ALICE}])
    bundle = (await caller.call("create_bundle", name="One", addresses=[ALICE])).data
    with raises(ValueError):
        await caller.call("remove_member", bundle_id=bundle.id, address=part)
    assert (await caller.call("bundle", bundle_id=bundle.id)).data.addresses == [ALICE]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_key_is_needed_and_never_shown(package: Any, world: World, kind: str) -> None:
    async with Caller(package, kind, world.base, "cf_live_secret") as caller:
        with raises(package.errors.Unauthorized) as errors:
            await caller.call("credits")
        assert "secret" not in f"{errors[0]!r} {errors[0]} {errors[0].__dict__} {caller.client!r}"
    with pytest.raises(ValueError, match="printable") as error:
        Caller(package, kind, world.base, "cf_live_secret\n")
    assert "secret" not in str(error.value)
    for user in ("ann:secret@", ":secret@", "secret@"):
        with pytest.raises(ValueError, match="no password") as error:
            Caller(package, kind, world.base.replace("//", f"//{user}"), None)
        assert "secret" not in str(error.value)
    async with Caller(package, kind, world.base, None) as public:
        assert (await public.call("readyz")).ready


def test_the_wheel_is_reproducible_and_has_the_version_of_the_api(
    package: Any, wheel: Path, installed: Path, tmp_path: Path
) -> None:
    assert build_python(tmp_path).read_bytes() == wheel.read_bytes()
    assert package.__version__ == chainfolio.__version__ == describe_api()["info"]["version"]
    metadata = next(installed.glob("*.dist-info/METADATA")).read_text()
    assert f"\nVersion: {chainfolio.__version__}\n" in metadata
    needs = re.findall(r"^Requires-Dist: (\S+?)[>;]", metadata, re.M)
    assert needs == ["httpx2", "msgspec", "polars"]
    sources = "".join(path.read_text() for path in (installed / "chainfolio_client").glob("*.py"))
    assert not re.search(r"^\s*(?:import|from) chainfolio\b(?!_client)", sources, re.M)
