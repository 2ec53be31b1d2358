"""Refusals name the field, the expected value and the likely intention."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.fakes import ALICE

BODIES = [
    (
        f'{{"addresses": ["{ALICE}"]}}',
        "`addresses[0]` is malformed: expected an object, got a string",
        ["addresses", "0"],
    ),
    ('{"addresses": 5}', "`addresses` is malformed: expected a list, got a whole number", ["addresses"]),
    ('{"addresses": []}', "`addresses` is malformed: expected a list of at least 1 item", ["addresses"]),
    (f'{{"address": "{ALICE}"}}', "unknown field 'address'; did you mean `addresses`?", ["address"]),
    (
        f'{{"addresses": [{{"addressed": "{ALICE}"}}]}}',
        "unknown field 'addressed' in `addresses[0]`; did you mean `address`?",
        ["addresses", "0", "addressed"],
    ),
    ('{"addresses": [{}]}', "`addresses[0].address` is required", ["addresses", "0", "address"]),
    ("{}", "`addresses` is required", ["addresses"]),
    ("[]", "the body is malformed: expected an object, got a list", []),
    ("null", "the body is malformed: expected an object, got null", []),
    ("true", "the body is malformed: expected an object, got a boolean", []),
    ("", "the body is malformed: its JSON ends too early", []),
    ('{"addresses":', "the body is malformed: its JSON ends too early", []),
    ("{addresses}", "the body is malformed: it is no JSON: ", []),
]


@pytest.mark.parametrize(("body", "message", "path"), BODIES)
async def test_a_body_is_refused_with_the_place_and_what_was_meant(
    ask: Any, body: str, message: str, path: list[str]
) -> None:
    headers = {"Content-Type": "application/json"}
    answer = await ask("/v1/subscribe-snapshot", "POST", data=body, headers=headers)
    assert answer.status == 400
    document = await answer.json()
    (field_error,) = document["details"]["body"]
    assert document["message"] == field_error["message"]
    assert document["message"].startswith(message)
    assert field_error["path"] == path


async def test_a_field_of_a_stranger_is_repeated_short_and_printable(ask: Any) -> None:
    name = "\\u202e`<b>\\n" + "x" * 5_000
    headers = {"Content-Type": "application/json"}
    answer = await ask("/v1/subscribe-snapshot", "POST", data=f'{{"{name}": 1}}', headers=headers)
    message = (await answer.json())["message"]
    assert answer.status == 400
    assert message.isascii()
    assert message.isprintable()
    assert len(message) < 200


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (
            "/v1/transactions?addresses={}&limit=0&offset=0",
            "`limit` cannot be '0': expected a whole number of at least 1",
        ),
        (
            "/v1/approvals/ethereum?addresses={}&limit=5000",
            "`limit` cannot be '5000': expected a whole number of at most ",
        ),
        ("/v1/contract-protocol?contract=x", "`contract` cannot be 'x': expected a string of the form ^0[xX]"),
        (
            "/v1/portfolio?addresses=vitalik.eth",
            "`addresses` is malformed: 'vitalik.eth' is a name: only commands look",
        ),
    ],
)
async def test_a_parameter_is_refused_in_words(ask: Any, path: str, message: str) -> None:
    answer = await ask(path.format(ALICE))
    assert answer.status == 400
    assert (await answer.json())["message"].startswith(message)
