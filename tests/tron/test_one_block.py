"""Accounts that take several rounds are asked once more for one block; those that only name something are not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from chainfolio.adapters.tron.one_block import OneBlock
from chainfolio.adapters.tron.reads import Call
from chainfolio.plans import Plan

BALANCE, NAME, BEHIND = (Call(f"T{name}", f"{name}()(uint256)", ()) for name in ("balance", "name", "behind"))


def rounds(plan: Plan[Any]) -> Iterator[list[Any]]:
    """What a plan asks, round by round; every answer is 7."""
    given: Any = None
    while True:
        try:
            reads = next(plan) if given is None else plan.send(given)
        except StopIteration:
            return
        if reads:
            yield list(reads)
        given = [7] * len(reads)


def test_a_round_of_names_alone_is_no_reason_to_ask_again() -> None:
    def reading(first: bool) -> Plan[Any]:
        (balance,) = yield [BALANCE]
        if first:
            yield [NAME]
        return balance

    assert list(rounds(OneBlock("tron").read(reading))) == [[BALANCE], [NAME]]


def test_what_an_answer_led_to_is_asked_again_with_it_and_without_names() -> None:
    def reading(first: bool) -> Plan[Any]:
        (balance,) = yield [BALANCE]
        behind = yield [BEHIND, *([NAME] if first else [])]
        return balance, behind[0]

    assert list(rounds(OneBlock("tron").read(reading))) == [[BALANCE], [BEHIND, NAME], [BALANCE, BEHIND]]
