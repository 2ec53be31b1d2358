"""Decoders that are answered from a dictionary: what contracts say, as nobody could make them say it on a chain."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from chainfolio.asking import Asking, Report, Unknown, answered, lockstep
from chainfolio.calls import Call, Read
from chainfolio.protocols import Decoding, reading
from indexer.candidates import Encounters
from indexer.outcomes import Outcome, outcome_of
from indexer.protocols import Protocols
from indexer.shares import Shares

# A key is a contract and a function's name, and may go on with arguments.
Says = Mapping[tuple[Any, ...], Any]
NO_CODE = Unknown("there is no contract", "absent")


def read(decoder: Callable[..., Decoding], *given: Any, says: Says) -> Report[Any]:
    """What comes of a `position` or `unwrap`; what no key says is a contract that is not there."""
    reports: dict[str, Report[Any]] = answered(lockstep({"": reading(decoder, *given)}), lambda ask: _answer(ask, says))
    return reports[""]


def told(decoder: Callable[..., Decoding], *given: Any, says: Says) -> Any:
    """What a decoder finds, or the error that it ends with."""
    report = read(decoder, *given, says=says)
    if report.error is not None:
        raise report.error
    return report.result


def outcomes(protocols: Protocols, account: str, met: Encounters) -> Asking[Read, Any, list[Outcome]]:
    """What the decoders of all that an account met find, not unfolded."""
    shares = Shares(protocols)
    yield from shares.ask(sorted(met.tokens))
    meetings = [*protocols.by_contract(account, met), *shares.by_token(account, met.tokens, met.sent)]
    reports: dict[str, Report[Outcome]] = yield from lockstep(
        {str(at): outcome_of(each) for at, each in enumerate(meetings)}
    )
    return [report.result for report in reports.values() if report.result is not None]


def _answer(ask: Read, says: Says) -> Any:
    assert isinstance(ask, Call)
    key = (ask.to, ask.signature.partition("(")[0])
    return says.get((*key, *ask.args), says.get(key, NO_CODE))
