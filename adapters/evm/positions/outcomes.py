"""What decoders make of meetings: positions, what lies behind shares, and issues where they do not know."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from adapters.evm.positions.matching import RuleMatch
from adapters.evm.positions.rules import DecoderPlan, Unread, reading
from adapters.evm.reads import Read, Reads
from adapters.evm.words import ADDRESS
from chainfolio.contracts import Issue
from chainfolio.decoded import founds, notes
from chainfolio.plans import Plan, Report, batched
from chainfolio.protocols import DecodedPosition, Unverified
from chainfolio.reads import AtParent, ReadResult


@dataclass(slots=True)
class Outcome:
    """What one decoder read of one meeting: positions, and issues that say what is not known or not relied on."""

    matched: RuleMatch
    found: tuple[DecodedPosition, ...] = ()
    issues: tuple[Issue, ...] = ()
    calls: tuple[ReadResult, ...] = ()


def unwrapping(matched: RuleMatch, raw: int) -> Reads:
    """What an amount of a share is worth, whatever its family's code does."""
    return _guarded(matched.family.unwrap, matched.match, raw)


def outcome_of(matched: RuleMatch, whose: Reads | None = None) -> Plan[Read, Any, Outcome]:
    """What the decoder of one meeting reads, whatever its code does. `whose` finds out meanwhile which protocol's it
    is: nothing is found where it is nobody's."""
    decoder = _guarded(matched.family.position, matched.match)
    plans = {"": decoder, **({"whose": whose} if whose is not None else {})}
    reports: dict[str, Report[Any]] = yield from batched(plans, record=True)
    report = reports[""]
    if (asked := reports.get("whose")) is not None:
        if asked.status != "ok":
            account = matched.match.account
            reason = f"what {account} has there is unknown, and in which protocol: {asked.reason}"
            return Outcome(matched, issues=(Issue("protocols", matched.match.contract, reason, account=account),))
        if asked.result is None:
            return Outcome(matched)
        matched = replace(matched, row=asked.result)
        report.recorded += asked.recorded
    if report.status != "ok":
        said = f"the position of {matched.match.account} is unknown: {report.reason}"
        return Outcome(matched, issues=(matched.issue(said, makes_partial(matched, report)),))
    if isinstance(report.result, Unverified):
        return Outcome(matched, issues=(matched.unverified(report.result.reason),), calls=answered(report))
    found = founds(report.result, ADDRESS.match)
    if isinstance(found, str):
        said = f"the position of {matched.match.account} is unknown: {found}"
        return Outcome(matched, issues=(matched.issue(said, True),), calls=answered(report))
    issues = (note for each in found for note in notes(each, matched.match.account, matched.issue))
    return Outcome(matched, found, tuple(issues), answered(report))


def makes_partial(matched: RuleMatch, report: Report[Any]) -> bool:
    """Whether an answer is partial for a decoder that failed: not where a contract that anybody could have made does
    not answer, but always where the read failed or the decoder is broken."""
    error = report.error
    return matched.sure or not isinstance(error, Unread) or error.failed


def answered(report: Report[Any]) -> tuple[ReadResult, ...]:
    """What a plan read at the block, with the results, as sources name it."""
    return tuple(ReadResult(ask, result) for ask, result in report.recorded if not isinstance(ask, AtParent))


def _guarded(decoder: Callable[..., DecoderPlan] | None, *given: Any) -> Reads:
    """A decoder's plan; one that raises before it asks fails like one that raises later."""
    return None if decoder is None else (yield from reading(decoder, *given))
