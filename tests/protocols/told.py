"""A decoder that is answered from a dictionary: what contracts say, as nobody could make them say it on a chain."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from chainfolio.asking import Reverted
from chainfolio.calls import Call
from chainfolio.protocols import Decoding, reading

Says = Mapping[tuple[Any, ...], Any]


def told(decoder: Callable[..., Decoding], *given: Any, says: Says) -> Any:
    """What a decoder finds where contracts answer so. A key is a contract and a function's name, and may go on with
    arguments; what no key says is refused."""
    running = reading(decoder, *given)
    answers: list[Any] | None = None
    while True:
        try:
            asks = next(running) if answers is None else running.send(answers)
        except StopIteration as stop:
            return stop.value
        answers = [_answer(ask, says) for ask in asks]


def _answer(ask: Any, says: Says) -> Any:
    assert isinstance(ask, Call)
    key = (ask.to, ask.signature.partition("(")[0])
    return says.get((*key, *ask.args), says.get(key, Reverted(b"")))
