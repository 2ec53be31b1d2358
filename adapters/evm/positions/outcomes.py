"""Run decoders on matches: positions, underlying tokens of shares, and issues if a decoder fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from chainfolio.adapters.evm.positions.matching import RuleMatch
from chainfolio.adapters.evm.positions.rules import DecoderPlan, ReadError, run_decoder
from chainfolio.adapters.evm.reads import PlanReport, ReadPlan, Reads, Reports
from chainfolio.adapters.evm.words import ADDRESS
from chainfolio.contracts import Issue
from chainfolio.decoded import as_positions, notes
from chainfolio.plans import batched
from chainfolio.protocols import DecodedPosition, UnverifiedShare
from chainfolio.reads import AtParent, ReadResult


@dataclass(slots=True)
class Outcome:
    """The result of one decoder for one match: positions, and issues for what is unknown or unverified."""

    matched: RuleMatch
    positions: tuple[DecodedPosition, ...] = ()
    issues: tuple[Issue, ...] = ()
    calls: tuple[ReadResult, ...] = ()


def unwrapping(matched: RuleMatch, raw: int) -> Reads:
    """Return the plan that reads what `raw` units of a matched share stand for."""
    return _decoder_plan(matched.family.unwrap, matched.match, raw)


def outcome_of(matched: RuleMatch, protocol: Reads | None = None) -> ReadPlan[Outcome]:
    """Run the decoder of one match; whatever it raises or returns wrongly becomes an issue.

    `protocol` reads meanwhile to which protocol a third-party contract belongs; the outcome is empty if that
    read returns None.
    """
    plans = {"": _decoder_plan(matched.family.position, matched.match)}
    if protocol is not None:
        plans["protocol"] = protocol
    reports: Reports = yield from batched(plans, record=True)
    report, account = reports[""], matched.match.account
    if (protocol_report := reports.get("protocol")) is not None:
        if protocol_report.status != "ok":
            reason = f"what {account} has there is unknown, and in which protocol: {protocol_report.reason}"
            return Outcome(matched, issues=(Issue("protocols", matched.match.contract, reason, account=account),))
        if protocol_report.result is None:
            return Outcome(matched)
        matched = replace(matched, row=protocol_report.result)
        report.recorded += protocol_report.recorded
    if report.status != "ok":
        reason = f"the position of {account} is unknown: {report.reason}"
        return Outcome(matched, issues=(matched.issue(reason, makes_partial(matched, report)),))
    calls = calls_of(report)
    if isinstance(report.result, UnverifiedShare):
        return Outcome(matched, issues=(matched.unverified(report.result.reason),), calls=calls)
    positions = as_positions(report.result, ADDRESS.match)
    if isinstance(positions, str):
        reason = f"the position of {account} is unknown: {positions}"
        return Outcome(matched, issues=(matched.issue(reason, True),), calls=calls)
    issues = (note for position in positions for note in notes(position, account, matched.issue))
    return Outcome(matched, positions, tuple(issues), calls)


def makes_partial(matched: RuleMatch, report: PlanReport) -> bool:
    """Return True if the failure of a decoder makes an answer partial.

    A failed read and a broken decoder do; a refusal of a contract that anybody could have deployed does not.
    """
    error = report.error
    return matched.is_trusted or not isinstance(error, ReadError) or error.failed


def calls_of(report: PlanReport) -> tuple[ReadResult, ...]:
    """Return the reads of a plan at the block itself, with their results, as sources of an answer."""
    return tuple(ReadResult(read, result) for read, result in report.recorded if not isinstance(read, AtParent))


def _decoder_plan(decoder: Callable[..., DecoderPlan] | None, *args: object) -> Reads:
    """Run a decoder inside a plan, so that errors of its first step are reported like later ones."""
    return None if decoder is None else (yield from run_decoder(decoder, *args))
