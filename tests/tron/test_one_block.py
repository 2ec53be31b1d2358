"""Accounts that take several rounds are read again at one block; reads of names alone are not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from chainfolio.adapters.tron.one_block import OneBlock
from chainfolio.adapters.tron.reads import Call
from chainfolio.plans import Plan

BALANCE, NAME, FOLLOW_UP = (Call(f"T{name}", f"{name}()(uint256)", ()) for name in ("balance", "name", "behind"))


def rounds(plan: Plan[Any]) -> Iterator[list[Any]]:
    """Yield the reads of a plan round by round; each answer is 7."""
    answers: Any = None
    while True:
        try:
            reads = next(plan) if answers is None else plan.send(answers)
        except StopIteration:
            return
        if reads:
            yield list(reads)
        answers = [7] * len(reads)


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
        follow_up = yield [FOLLOW_UP, *([NAME] if first else [])]
        return balance, follow_up[0]

    assert list(rounds(OneBlock("tron").read(reading))) == [[BALANCE], [FOLLOW_UP, NAME], [BALANCE, FOLLOW_UP]]
