"""Decoders tested with a dictionary: what each call is answered with, by contract and name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from chainfolio.asking import Report, Unknown, lockstep
from chainfolio.calls import Call, Read
from chainfolio.protocols import reading

NO_CODE = Unknown("there is no contract", by_contract=True)


def read(decoder: Any, *given: Any, answers: Mapping[tuple[str, str], Any]) -> Report[Any]:
    """What comes of a `position` or `unwrap`; what the dictionary does not know is a contract that is not there."""
    running = lockstep({"it": reading(decoder, *given)})
    asks = next(running)
    while True:
        told = [_said(ask, answers) for ask in asks]
        try:
            asks = running.send(told)
        except StopIteration as stop:
            report: Report[Any] = stop.value["it"]
            return report


def _said(ask: Read, answers: Mapping[tuple[str, str], Any]) -> Any:
    assert isinstance(ask, Call)
    return answers.get((ask.to, ask.signature.partition("(")[0]), NO_CODE)


def found(decoder: Any, *given: Any, answers: Mapping[tuple[str, str], Any]) -> Any:
    """The same where it has to come to something."""
    report = read(decoder, *given, answers=answers)
    assert report.status == "ok", report.reason
    return report.result
