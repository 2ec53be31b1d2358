"""Fields of a decoder's result are checked one by one: third-party code may return anything."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from chainfolio.contracts import Issue
from chainfolio.decoded import as_positions, notes
from chainfolio.protocols import DecodedPosition, TokenAmount

POSITION = DecodedPosition("LENDING", supplied=(TokenAmount("0xa", 0),), replaces=("0xa",), health=Decimal(2))
BEGINNING = "the decoder returned what is no position: "


def is_address(text: str) -> bool:
    return text.startswith("0x")


def test_a_position_some_positions_and_none_are_results() -> None:
    assert as_positions(None, is_address) == as_positions([], is_address) == ()
    assert as_positions(POSITION, is_address) == as_positions([POSITION], is_address) == (POSITION,)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (
            {"supplied": TokenAmount("0xa", 1)},
            "`supplied` is one TokenAmount, not a tuple of them (is a comma missing?)",
        ),
        ({"borrowed": 7}, "`borrowed` is a int, not a tuple of TokenAmounts"),
        ({"rewards": (7,)}, "`rewards` has a int in it, not a TokenAmount"),
        ({"rewards": (TokenAmount("usd", 1),)}, "`rewards` names 'usd', which is no address as the chain has it"),
        ({"supplied": (TokenAmount("0xa", -1),)}, "`supplied` has -1 units, which is no number of them"),
        ({"supplied": (TokenAmount("0xa", True),)}, "`supplied` has True units, which is no number of them"),
        ({"rewards": (TokenAmount("0xa", 2**256),)}, "`rewards` has 257 bits of units, and no token has more than 256"),
        ({"name": None}, "`name` is a NoneType, not a text"),
        ({"pool": 1}, "`pool` is a int, not a text"),
        ({"remark": 1}, "`remark` is a int, not a text"),
        ({"unlock_s": -1}, "`unlock_s` is -1, not a time in Unix seconds"),
        ({"unlock_s": 1.5}, "`unlock_s` is 1.5, not a time in Unix seconds"),
        ({"health": 1.5}, "`health` is 1.5, not a Decimal"),
        ({"health": Decimal("NaN")}, "`health` is Decimal('NaN'), not a Decimal"),
        ({"replaces": "0xa"}, "`replaces` is no tuple of addresses as the chain has them"),
        ({"replaces": ("0xa", "usd")}, "`replaces` is no tuple of addresses as the chain has them"),
        ({"debts": ("0xa", "usd")}, "`debts` is no tuple of addresses as the chain has them"),
    ],
)
def test_a_field_that_no_position_can_have_is_named(change: dict[str, Any], fault: str) -> None:
    assert as_positions([POSITION, replace(POSITION, **change)], is_address) == BEGINNING + fault


def test_what_is_no_position_is_named_by_its_type() -> None:
    assert as_positions(7, is_address) == BEGINNING + "a int, not a DecodedPosition"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, []),
        ({"unverified": "forged"}, [("not counted for me, since it cannot be verified: forged", False)]),
        ({"unknown": "its votes"}, [("not known of me: its votes", True)]),
        ({"unknown": "its votes", "is_unlisted": True}, [("not known of me: its votes", False)]),
        ({"remark": "in a queue"}, [("of me: in a queue", False)]),
    ],
    ids=["nothing", "unverified", "unknown", "unlisted", "remark"],
)
def test_only_what_a_listed_position_does_not_know_makes_an_answer_partial(
    change: dict[str, Any], expected: list[tuple[str, bool]]
) -> None:
    issues = notes(
        replace(POSITION, **change), "me", lambda text, partial: Issue("aave3", "me", text, makes_partial=partial)
    )
    assert [(each.reason, each.makes_partial) for each in issues] == expected
