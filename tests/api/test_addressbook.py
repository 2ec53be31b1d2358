"""The address book over HTTP: what is kept, in which form, and what is refused in which words."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
import sqlalchemy as sa

from chainfolio.settings import Quotas, Settings
from chainfolio.storage.state import accounts, address_book, quotas
from chainfolio.storage.state.database import Statement
from tests.api.fakes import SOL, STARKNET, TRON
from tests.api.tenants import Tenant, World, a_world, encoded, wallet

MIXED = "0xD8dA6BF26964aF9D7eEd9e03E53415D37aA96045"
EVM = MIXED.lower()


@pytest.fixture
async def world(state_url: str) -> AsyncIterator[World]:
    async with a_world(state_url, Settings(quotas=Quotas(addressbook=4))) as world:
        yield world


@pytest.fixture
def ann(world: World) -> Tenant:
    return world.tenant("ann", "FREE")


def entry(address: str, label: str = "") -> dict[str, Any]:
    return {"address": address, "label": label, "plan": "FREE", "expiresAt": None, "isPaid": False}


async def post(tenant: Tenant, *entries: dict[str, Any]) -> Any:
    return await tenant.ask("POST", "/v1/addressbook", {"entries": entries})


async def test_every_kind_of_address_is_kept_in_its_one_form(ann: Tenant) -> None:
    response = await post(ann, {"address": MIXED, "label": " Main\u2003"}, {"address": SOL}, {"address": TRON})
    assert response.status == 200
    assert response.json == {"data": [entry(EVM, "Main"), entry(SOL), entry(TRON)]}
    response = await post(ann, {"address": STARKNET.upper().replace("0X", "0x")})
    assert response.json["data"][-1] == entry(STARKNET)
    assert (await ann.ask("GET", "/v1/addressbook")).json == response.json


async def test_an_empty_book_is_an_empty_list(ann: Tenant) -> None:
    assert (await ann.ask("GET", "/v1/addressbook")).json == {"data": []}


async def test_adding_again_is_no_error_and_keeps_the_label(ann: Tenant) -> None:
    await post(ann, {"address": EVM, "label": "first"})
    response = await post(ann, {"address": MIXED, "label": "second"}, {"address": SOL, "label": "new"})
    assert response.json == {"data": [entry(EVM, "first"), entry(SOL, "new")]}


@pytest.mark.parametrize(
    "address",
    [
        "",
        "0x12",
        EVM[:-1],
        "vitalik.eth",
        "0X" + "g" * 40,
        TRON[:-1] + "a",
        SOL + "1",
        " " + EVM,
        "0x" + "0" * 64,
        "bc1qar0srrr7xfkvy5l643lydnw9re59gtzzwf5mdq",
        "virtual:1",
        "😀",
        "a" * 5000,
    ],
)
async def test_what_is_no_address_is_refused_with_its_code(ann: Tenant, address: str) -> None:
    response = await post(ann, {"address": EVM}, {"address": address})
    assert (response.status, response.code, sorted(response.json["error"])) == (
        400,
        "VALIDATION_ERROR",
        ["code", "message"],
    )
    if address and "/" not in address:
        for method, body in (("PATCH", {"label": ""}), ("DELETE", None)):
            response = await ann.ask(method, f"/v1/addressbook/{encoded(address)}", body)
            assert (response.status, response.code) == (400, "VALIDATION_ERROR")
    assert (await ann.ask("GET", "/v1/addressbook")).json == {"data": []}


async def test_an_address_is_given_once_in_whatever_spelling(ann: Tenant) -> None:
    response = await post(ann, {"address": EVM}, {"address": MIXED})
    assert (response.status, response.code) == (400, "VALIDATION_ERROR")


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b"[]",
        b'{"entries":[]}',
        b'{"entries":null}',
        b'{"entries":[{"label":"a"}]}',
        b'{"entries":["a"]}',
        b'{"entries":[{"address":1}]}',
        b'{"entries":[{"address":"%s","label":null}]}',
        b'{"entries":[],"entries":[]}',
        b'{"entries":[{"address":"%s","plan":"PRO"}]}',
        b'{"entries":[{"address":"%s","isPaid":true}]}',
        b'{"entries":[{"address":"%s","expiresAt":"2030-01-01T00:00:00Z"}]}',
        b'{"entries":[{"address":"%s","ownerAuthorized":true}]}',
        b'{"entries":[{"address":"%s"}],"account":"x"}',
        b'{"entries":[{"address":"%s","address":"%s"}]}',
        b'{"entries":[{"address":"%s","l\\u0061bel":"","label":""}]}',
        b'{"entries":[{"address":"%s","label":"a\\u0000b"}]}',
        b'{"entries":[{"address":"%s","label":"\\ud800"}]}',
        b'{"entries":[{"address":"%s\\u0000"}]}',
        b'{"entries":' + b"[" * 100_000,
        b'{"entries":[{"address":' + b'{"a":' * 10_000,
    ],
)
async def test_a_body_that_does_not_fit_is_told_so(ann: Tenant, body: bytes) -> None:
    response = await ann.ask("POST", "/v1/addressbook", body.replace(b"%s", EVM.encode()))
    assert (response.status, response.json["error"], list(response.json["details"])) == (
        400,
        "Validation Failed",
        ["body"],
    )
    assert (await ann.ask("GET", "/v1/addressbook")).json == {"data": []}


async def test_a_hundred_entries_are_taken_and_one_more_is_not(world: World) -> None:
    rich = world.tenant("rich", "LITE")
    hundred = [{"address": wallet(number)} for number in range(1, 101)]
    assert (await post(rich, *hundred, {"address": wallet(101)})).json["error"] == "Validation Failed"
    assert len((await post(rich, *hundred)).json["data"]) == 100


@pytest.mark.parametrize("label", ["a" * 255, "😀" * 255, " \u2003" * 200 + "a" * 255 + "\u3000", "é" * 255])
async def test_a_label_has_255_code_points_after_trimming(ann: Tenant, label: str) -> None:
    response = await post(ann, {"address": EVM, "label": label})
    assert response.json["data"][0]["label"] == label.strip()
    response = await ann.ask(
        "PATCH", f"/v1/addressbook/{EVM}", {"label": label + "x" if label[-1] != "\u3000" else "y" * 256}
    )
    assert (response.status, response.json["error"]) == (400, "Validation Failed")


async def test_labels_are_composed_before_they_are_counted(ann: Tenant) -> None:
    response = await post(ann, {"address": EVM, "label": "e\u0301" * 255})
    assert response.json["data"][0]["label"] == "é" * 255
    response = await ann.ask("PATCH", f"/v1/addressbook/{EVM}", {"label": "e" + "\u0301" * 100_000})
    assert response.status == 400


async def test_renaming_and_clearing(ann: Tenant) -> None:
    await ann.book(EVM, SOL)
    response = await ann.ask("PATCH", f"/v1/addressbook/{MIXED}", {"label": " Ann's "})
    assert (response.status, response.json) == (200, {"data": entry(EVM, "Ann's")})
    assert (await ann.ask("PATCH", f"/v1/addressbook/{SOL}", {"label": ""})).json == {"data": entry(SOL)}
    for body in ({}, {"label": None}, {"label": "a", "plan": "PRO"}, {"label": 1}, "a"):
        assert (await ann.ask("PATCH", f"/v1/addressbook/{EVM}", body)).json["error"] == "Validation Failed"
    assert (await ann.ask("GET", "/v1/addressbook")).json == {"data": [entry(EVM, "Ann's"), entry(SOL)]}


async def test_addresses_match_as_their_kind_does(ann: Tenant) -> None:
    await ann.book(EVM, SOL)
    for address in (SOL.replace("So", "sO"), TRON, wallet(7)):
        for method, body in (("PATCH", {"label": "x"}), ("DELETE", None)):
            response = await ann.ask(method, f"/v1/addressbook/{address}", body)
            assert (response.status, response.code) in ((404, "ADDRESSBOOK_ENTRY_NOT_FOUND"), (400, "VALIDATION_ERROR"))
    assert (await ann.ask("DELETE", f"/v1/addressbook/{MIXED}")).status == 204
    assert (await ann.ask("GET", "/v1/addressbook")).json == {"data": [entry(SOL)]}


async def test_a_path_is_decoded_once(ann: Tenant) -> None:
    await ann.book(EVM)
    encoded_once = "".join(f"%{ord(letter):02X}" for letter in EVM)
    assert (await ann.ask("PATCH", f"/v1/addressbook/{encoded_once}", {"label": "a"})).status == 200
    encoded_twice = encoded_once.replace("%", "%25")
    assert (await ann.ask("PATCH", f"/v1/addressbook/{encoded_twice}", {"label": "a"})).code == "VALIDATION_ERROR"


async def test_deleting_answers_no_body(ann: Tenant) -> None:
    await ann.book(EVM)
    response = await ann.ask("DELETE", f"/v1/addressbook/{EVM}")
    assert (response.status, response.body) == (204, b"")
    response = await ann.ask("DELETE", f"/v1/addressbook/{EVM}")
    assert (response.status, response.code) == (404, "ADDRESSBOOK_ENTRY_NOT_FOUND")


async def test_the_quota_counts_what_is_new_and_takes_all_or_nothing(ann: Tenant) -> None:
    await ann.book(*(wallet(number) for number in (1, 2, 3)))
    response = await post(ann, {"address": wallet(4)}, {"address": wallet(5)})
    assert (response.status, response.code) == (422, "ADDRESSBOOK_QUOTA_REACHED")
    assert (response.json["error"]["quota"], response.json["error"]["current"]) == (4, 3)
    await ann.book(wallet(1), wallet(2), wallet(3), wallet(4))
    await ann.book(wallet(4))
    assert (await post(ann, {"address": wallet(5)})).json["error"]["current"] == 4
    assert len((await ann.ask("GET", "/v1/addressbook")).json["data"]) == 4


async def test_a_book_has_fifty_entries_without_a_paid_plan(state_url: str) -> None:
    async with a_world(state_url) as usual:
        free, lite = usual.tenant("free", "FREE"), usual.tenant("paid", "LITE")
        fifty = [{"address": wallet(number)} for number in range(1, 51)]
        assert (await post(free, *fifty)).status == 200
        response = await post(free, {"address": wallet(51)})
        assert (response.status, response.code) == (422, "ADDRESSBOOK_QUOTA_REACHED")
        assert (response.json["error"]["quota"], response.json["error"]["current"]) == (50, 50)
        assert (await post(lite, *fifty, {"address": wallet(51)})).status == 200


async def test_a_paid_plan_has_no_quota_while_it_lasts_and_a_raised_one_holds(world: World) -> None:
    future, past = 2**60, 1
    for plan, expires, status in (("LITE", future, 200), ("PRO", None, 200), ("PRO", past, 422), ("FREE", None, 422)):
        tenant = world.tenant("t", plan, expires=expires)
        response = await post(tenant, *({"address": wallet(number)} for number in range(1, 6)))
        assert response.status == status, (plan, expires)
    world.state.database.write(lambda tx: quotas.override(tx, tenant.account, "addressbook", 5, 1))
    await tenant.book(*(wallet(number) for number in range(1, 6)))
    world.state.database.write(lambda tx: accounts.set_plan(tx, tenant.account, "LITE", past, 2))
    assert (await post(tenant, {"address": wallet(6)})).json["error"]["quota"] == 5


async def test_plans_of_entries(world: World, ann: Tenant) -> None:
    await ann.book(EVM, SOL, TRON)
    now_us = time.time_ns() // 1000
    hour = 3_600_000_000

    def plan(address: str, plan: str, expires_us: int | None, authorized: bool | None = None) -> address_book.Entry:
        return world.state.database.write(
            lambda tx: address_book.set_plan(tx, ann.account, address, plan, expires_us, 1, owner_authorized=authorized)
        )

    plan(EVM, "PRO", 2_000_000_000_123_456)
    plan(SOL, "LITE", now_us - hour)
    plan(TRON, "FREE", None, True)
    entries = {each["address"]: each for each in (await ann.ask("GET", "/v1/addressbook")).json["data"]}
    assert entries[EVM] | {"plan": "PRO", "expiresAt": "2033-05-18T03:33:20.123Z", "isPaid": True} == entries[EVM]
    assert (entries[SOL]["plan"], entries[SOL]["isPaid"], entries[SOL]["expiresAt"] is None) == ("LITE", False, False)
    assert entries[TRON] == entry(TRON)
    for address, status in ((EVM, 409), (TRON, 409), (SOL, 204)):
        response = await ann.ask("DELETE", f"/v1/addressbook/{address}")
        assert response.status == status
        assert status == 204 or response.code == "ADDRESSBOOK_ENTRY_NOT_DELETABLE"
    await ann.book(EVM)  # adding again changes no plan
    assert (await ann.ask("PATCH", f"/v1/addressbook/{EVM}", {"label": "x"})).json["data"]["isPaid"] is True
    plan(EVM, "FREE", None)
    plan(TRON, "FREE", None, False)
    for address in (EVM, TRON):
        assert (await ann.ask("DELETE", f"/v1/addressbook/{address}")).status == 204


KEPT_BODIES = Statement(sa.text("SELECT coalesce(sum(length(body)), 0), count(digest) FROM idempotency"))


async def test_a_long_book_is_kept_as_its_digest_and_told_again_as_it_is(world: World) -> None:
    rich = world.tenant("rich", "PRO")
    calls = []
    for number in range(3):
        entries = [{"address": wallet(100 * number + each), "label": "x" * 200} for each in range(100)]
        response = await rich.ask("POST", "/v1/addressbook", {"entries": entries}, Idempotency_Key=f"k{number}")
        calls.append((entries, response.body))
    ((stored_bodies, digests),) = world.state.database.read(lambda tx: tx.rows(KEPT_BODIES))
    assert (stored_bodies, digests) == (0, 3), "no answer is kept that can be made again"
    before = await world.settled_balance(rich)
    for number, replayed in ((2, "true"), (0, "changed")):
        entries, _ = calls[number]
        response = await rich.ask("POST", "/v1/addressbook", {"entries": entries}, Idempotency_Key=f"k{number}")
        assert (response.status, response.headers["Idempotency-Replayed"], response.body) == (
            200,
            replayed,
            calls[2][1],
        )
    assert await world.settled_balance(rich) == before, "to be told again costs nothing"


async def test_a_book_is_read_in_parts_by_limit_and_offset(world: World, ann: Tenant) -> None:
    await ann.book(*(wallet(number) for number in range(1, 5)))
    book = (await ann.ask("GET", "/v1/addressbook")).json["data"]
    parts = [(await ann.ask("GET", f"/v1/addressbook?limit=3&offset={at}")).json["data"] for at in (0, 3, 6)]
    assert parts == [book[:3], book[3:], []]
    for number in (1, 2, 3):
        await ann.bundle(f"b{number}", wallet(number))
    bundles = (await ann.ask("GET", "/v1/bundles")).json["data"]
    assert (await ann.ask("GET", "/v1/bundles?offset=1&limit=1")).json["data"] == bundles[1:2]
    for field_error in ("limit=0", "offset=-1", "limit=x"):
        assert (await ann.ask("GET", f"/v1/addressbook?{field_error}")).status == 400


async def test_a_paid_plan_has_a_bound_too(state_url: str) -> None:
    async with a_world(state_url, Settings(quotas=Quotas(addressbook=1, addressbook_paid=3))) as world:
        rich = world.tenant("rich", "PRO")
        await rich.book(wallet(1), wallet(2), wallet(3))
        response = await post(rich, {"address": wallet(4)})
        assert (response.status, response.code, response.json["error"]["quota"]) == (
            422,
            "ADDRESSBOOK_QUOTA_REACHED",
            3,
        )
