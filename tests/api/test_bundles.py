"""Bundles over HTTP: never empty, no two alike, names that are free, within the limits."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator

import pytest
import sqlalchemy as sa

from chainfolio.api.changes import MAX_STORED_BYTES
from chainfolio.api.texts import MAX_CHARS
from chainfolio.storage.state import quotas
from chainfolio.storage.state.database import Statement
from tests.api.fakes import SOL
from tests.api.tenants import Tenant, World, a_world, wallet

A, B, C, D = (wallet(number) for number in range(1, 5))


@pytest.fixture
async def world(state_url: str) -> AsyncIterator[World]:
    async with a_world(state_url) as world:
        yield world


@pytest.fixture
async def ann(world: World) -> Tenant:
    tenant = world.tenant("ann")
    await tenant.book(A, B, C, D, SOL)
    return tenant


async def test_a_bundle_is_made_read_renamed_and_deleted(ann: Tenant) -> None:
    response = await ann.ask(
        "POST", "/v1/bundles", {"name": "  Träsury\u2003", "addresses": [B.upper().replace("X", "x"), A]}
    )
    assert response.status == 200
    bundle = response.json["data"]
    assert bundle == {"id": bundle["id"], "name": "Träsury", "addresses": [B, A]}
    assert uuid.UUID(bundle["id"]).version == 4
    path = f"/v1/bundles/{bundle['id']}"
    assert (await ann.ask("GET", path)).json == {"data": bundle}
    assert (await ann.ask("GET", "/v1/bundles")).json == {"data": [bundle]}
    for name in ("Träsury", "Tra\u0308sury ", "Other"):
        response = await ann.ask("PATCH", path, {"name": name})
        assert (response.status, response.json["data"]["name"]) == (200, "Other" if name == "Other" else "Träsury")
    response = await ann.ask("DELETE", path)
    assert (response.status, response.body) == (204, b"")
    assert (await ann.ask("GET", "/v1/bundles")).json == {"data": []}
    assert (await ann.ask("GET", path)).code == "BUNDLE_NOT_FOUND"
    assert len((await ann.ask("GET", "/v1/addressbook")).json["data"]) == 5


async def test_members_come_and_go(ann: Tenant) -> None:
    id = await ann.bundle("x", A)
    path = f"/v1/bundles/{id}/addresses"
    for address, members in ((B, [A, B]), (SOL, [A, B, SOL]), (B, [A, B, SOL])):
        response = await ann.ask("POST", path, {"address": address})
        assert (response.status, response.json["data"]["addresses"]) == (200, members)
    response = await ann.ask("DELETE", f"{path}/{A}")
    assert (response.status, response.json) == (200, {"data": {"id": id, "name": "x", "addresses": [B, SOL]}})
    response = await ann.ask("DELETE", f"{path}/{A}")
    assert (response.status, response.code) == (404, "ADDRESSBOOK_ENTRY_NOT_FOUND")
    assert (await ann.ask("DELETE", f"{path}/{SOL}")).json["data"]["addresses"] == [B]
    response = await ann.ask("DELETE", f"{path}/{B}")
    assert (response.status, response.code, sorted(response.json["error"])) == (
        422,
        "BUNDLE_EMPTY",
        ["code", "message"],
    )
    assert (await ann.ask("POST", path, {"address": A})).json["data"]["addresses"] == [B, A]


async def test_names_are_free_or_refused(ann: Tenant) -> None:
    await ann.bundle("Main", A)
    second = await ann.bundle("main", B)  # case matters
    for response in (
        await ann.ask("POST", "/v1/bundles", {"name": "Main ", "addresses": [C]}),
        await ann.ask("PATCH", f"/v1/bundles/{second}", {"name": " Main"}),
    ):
        assert (response.status, response.code, response.json["error"]["name"]) == (409, "BUNDLE_NAME_TAKEN", "Main")


async def test_no_two_bundles_hold_the_same(ann: Tenant) -> None:
    both, three = await ann.bundle("both", A, B), await ann.bundle("three", A, B, C)
    only_b = await ann.bundle("one", B)
    for response, twin in (
        (await ann.ask("POST", "/v1/bundles", {"name": "again", "addresses": [B, A]}), both),
        (await ann.ask("POST", f"/v1/bundles/{only_b}/addresses", {"address": A}), both),
        (await ann.ask("DELETE", f"/v1/bundles/{three}/addresses/{C}"), both),
    ):
        assert (response.status, response.code) == (409, "BUNDLE_MEMBERS_ALREADY_BUNDLED")
        assert response.json["error"]["bundleId"] == twin


async def test_members_are_in_the_address_book(ann: Tenant) -> None:
    id = await ann.bundle("x", A)
    strangers = [wallet(90), wallet(91)]
    response = await ann.ask("POST", "/v1/bundles", {"name": "y", "addresses": [strangers[1], B, strangers[0]]})
    assert (response.status, response.code) == (422, "BUNDLE_ADDRESS_NOT_IN_ADDRESS_BOOK")
    assert response.json["error"]["addresses"] == [strangers[1], strangers[0]]
    response = await ann.ask("POST", f"/v1/bundles/{id}/addresses", {"address": strangers[0]})
    assert response.json["error"]["addresses"] == [strangers[0]]


async def test_addresses_are_addresses_each_once(ann: Tenant) -> None:
    id = await ann.bundle("x", A)
    for addresses in (["0x12"], [B, B], [C, C.upper().replace("X", "x")], [""]):
        response = await ann.ask("POST", "/v1/bundles", {"name": "y", "addresses": addresses})
        assert (response.status, response.code) == (400, "VALIDATION_ERROR")
    for method, path, body in (("POST", "", {"address": "0x12"}), ("DELETE", "/0x12", None)):
        response = await ann.ask(method, f"/v1/bundles/{id}/addresses{path}", body)
        assert (response.status, response.code) == (400, "VALIDATION_ERROR")


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"name": "x"},
        {"addresses": [A]},
        {"name": "x", "addresses": []},
        {"name": "", "addresses": [A]},
        {"name": " \u2003\u00a0\t", "addresses": [A]},
        {"name": "x" * 256, "addresses": [A]},
        {"name": None, "addresses": [A]},
        {"name": "x", "addresses": A},
        {"name": "x", "addresses": [1]},
        {"name": "x", "addresses": [A], "id": "mine"},
        {"name": "x", "addresses": [A], "isPublic": True},
        {"name": "x", "addresses": [wallet(number) for number in range(1, 102)]},
        [],
    ],
)
async def test_a_body_that_does_not_fit_is_told_so(ann: Tenant, body: object) -> None:
    response = await ann.ask("POST", "/v1/bundles", body)
    assert (response.status, response.json["error"], list(response.json["details"])) == (
        400,
        "Validation Failed",
        ["body"],
    )
    assert (await ann.ask("GET", "/v1/bundles")).json == {"data": []}


async def test_bundles_and_their_sizes_have_limits(world: World) -> None:
    tenant = world.tenant("t")
    wallets = [wallet(number) for number in range(1, 13)]
    await tenant.book(*wallets)
    response = await tenant.ask("POST", "/v1/bundles", {"name": "x", "addresses": wallets[:11]})
    assert (response.status, response.code, response.json["error"]["limit"]) == (422, "BUNDLE_SIZE_LIMIT_EXCEEDED", 10)
    id = await tenant.bundle("x", *wallets[:10])
    path = f"/v1/bundles/{id}/addresses"
    assert (await tenant.ask("POST", path, {"address": wallets[0]})).status == 200  # is in it already
    assert (await tenant.ask("POST", path, {"address": wallets[10]})).code == "BUNDLE_SIZE_LIMIT_EXCEEDED"
    for number in range(4):
        await tenant.bundle(f"{number}", wallets[number])
    response = await tenant.ask("POST", "/v1/bundles", {"name": "sixth", "addresses": [wallets[9]]})
    assert (response.status, response.code, response.json["error"]["quota"]) == (422, "BUNDLE_QUOTA_REACHED", 5)
    world.state.database.write(lambda tx: quotas.override(tx, tenant.account, "bundles", 6, 1))
    world.state.database.write(lambda tx: quotas.override(tx, tenant.account, "bundle-size", 11, 1))
    await tenant.bundle("sixth", wallets[9])
    assert (await tenant.ask("POST", path, {"address": wallets[10]})).status == 200
    assert (await tenant.ask("POST", path, {"address": wallets[11]})).json["error"]["limit"] == 11


async def test_an_entry_that_leaves_the_book_leaves_its_bundles(ann: Tenant) -> None:
    ids = [await ann.bundle("x", A, B), await ann.bundle("y", C, A, D)]
    assert (await ann.ask("DELETE", f"/v1/addressbook/{A}")).status == 204
    members = {each["id"]: each["addresses"] for each in (await ann.ask("GET", "/v1/bundles")).json["data"]}
    assert members == {ids[0]: [B], ids[1]: [C, D]}


async def test_an_entry_stays_where_a_bundle_would_be_empty_or_like_another(ann: Tenant) -> None:
    await ann.bundle("Only B", B)
    await ann.bundle("C and D", C, D)
    await ann.bundle("A and C and D", A, C, D)
    await ann.bundle("A and SOL", A, SOL)
    before = await ann.read_all()
    for address, name in ((B, "Only B"), (A, "A and C and D")):
        response = await ann.ask("DELETE", f"/v1/addressbook/{address}")
        assert (response.status, response.code) == (409, "ADDRESSBOOK_ENTRY_NOT_DELETABLE")
        assert name in response.json["error"]["message"]
    assert await ann.read_all() == before


KEPT_BODIES = Statement(sa.text("SELECT count(*), max(length(body)) FROM idempotency"))


async def test_an_answer_kept_for_its_key_is_no_longer_than_the_largest_bundle(world: World) -> None:
    """The answer is stored in full: the bundle may have changed when a retry asks for it."""
    ann = world.tenant("ann")
    longest = ["0x" + f"{number:064x}" for number in range(2**200, 2**200 + 11)]
    await ann.book(*longest)
    body = {"name": "\U0001f4b0" * MAX_CHARS, "addresses": longest[:9]}
    created = await ann.ask("POST", "/v1/bundles", body, Idempotency_Key="made")
    path = f"/v1/bundles/{created.json['data']['id']}"
    assert (await ann.ask("POST", f"{path}/addresses", {"address": longest[9]}, Idempotency_Key="full")).status == 200
    for number in range(5):
        response = await ann.ask(
            "PATCH", path, {"name": f"{number}".rjust(MAX_CHARS, "x")}, Idempotency_Key=f"k{number}"
        )
        assert response.status == 200
    ((count, largest),) = world.state.database.read(lambda tx: tx.rows(KEPT_BODIES))
    assert count == 7
    assert largest <= MAX_STORED_BYTES // 2
    repeated = await ann.ask("POST", "/v1/bundles", body, Idempotency_Key="made")
    assert repeated.body == created.body, "and not the bundle as it is now"
