"""Run decoders on matches: positions, underlying tokens of shares, and issues if a decoder fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from chainfolio.adapters.evm.positions.matching import RuleMatch
from chainfolio.adapters.evm.positions.rules import DecoderPlan, ReadError, run_decoder
from chainfolio.adapters.evm.reads import Read
from chainfolio.adapters.evm.words import ADDRESS
from chainfolio.contracts import Issue
from chainfolio.decoded import as_positions, notes
from chainfolio.plans import Plan, Report, batched
from chainfolio.protocols import DecodedPosition, InstalledProtocol, UnverifiedShare
from chainfolio.reads import ReadResult


@dataclass(slots=True)
class Outcome:
    """The result of one decoder for one match: positions, and issues for what is unknown or unverified."""

    matched: RuleMatch
    positions: tuple[DecodedPosition, ...] = ()
    issues: tuple[Issue, ...] = ()
    calls: tuple[ReadResult, ...] = ()


UNPROVEN = "no recording proves this decoder yet (chainfolio record, test-protocol, then the setting `proven`)"


def read_underlying(matched: RuleMatch, raw: int) -> Plan[object]:
    """Read the tokens that `raw` units of a matched share stand for, as its decoder returns them.

    None if the token does not belong to the family; an `UnverifiedShare` if its decoder is unproven.
    """
    result = yield from _decoder_plan(matched.family.unwrap, matched.match, raw)
    return result if matched.family.is_proven or result is None else UnverifiedShare(UNPROVEN)


def outcome_of(matched: RuleMatch, protocol: Plan[InstalledProtocol | None] | None = None) -> Plan[Outcome]:
    """Run the decoder of one match; whatever it raises or returns wrongly becomes an issue.

    `protocol` reads meanwhile to which protocol a third-party contract belongs; the outcome is empty if that
    read returns None.
    """
    plans: dict[str, Plan[object]] = {"": _decoder_plan(matched.family.position, matched.match)}
    if protocol is not None:
        plans["protocol"] = protocol
    reports = yield from batched(plans, record=True)
    report, account = reports[""], matched.match.account
    if (protocol_report := reports.get("protocol")) is not None:
        if protocol_report.status != "ok":
            reason = f"what {account} has there is unknown, and in which protocol: {protocol_report.reason}"
            return Outcome(matched, issues=(Issue("protocols", matched.match.contract, reason, account=account),))
        if not isinstance(protocol_report.result, InstalledProtocol):
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
    if not matched.family.is_proven:
        return _mark_unverified(matched, positions, calls)
    issues = [note for position in positions for note in notes(position, account, matched.issue)]
    return Outcome(matched, positions, tuple(issues), calls)


def _mark_unverified(
    matched: RuleMatch, positions: Sequence[DecodedPosition], calls: tuple[ReadResult, ...]
) -> Outcome:
    """Mark the positions of an unproven decoder as unverified, and return them with their issues.

    They replace no token of the wallet. The issues are partial only if the account itself used the contract: anybody
    can send it a stream or a plan.
    """
    account = matched.match.account

    def issue(reason: str, makes_partial: bool) -> Issue:
        return matched.issue(reason, makes_partial and matched.is_unproven_stake)

    issues = [note for position in positions for note in notes(position, account, issue)]
    sides = [side for each in positions for side in (each.supplied, each.borrowed, each.rewards)]
    if any(part.raw for side in sides for part in side):
        issues.append(matched.unverified(UNPROVEN))
    marked = tuple(replace(each, unverified=each.unverified or UNPROVEN, replaces=()) for each in positions)
    return Outcome(matched, marked, tuple(issues), calls)


def makes_partial(matched: RuleMatch, report: Report[object]) -> bool:
    """Return True if the failure of a decoder makes an answer partial.

    A failed read does. A broken decoder does, and a refusal unless anybody could have deployed the contract; of an
    unproven family only if the account itself used the contract.
    """
    error = report.error
    if isinstance(error, ReadError) and error.failed:
        return True
    if not matched.family.is_proven:
        return matched.is_unproven_stake
    return matched.is_trusted or not isinstance(error, ReadError)


def calls_of(report: Report[object]) -> tuple[ReadResult, ...]:
    """Return the reads of a plan at the block itself, with their results, as sources of an answer."""
    return tuple(ReadResult(read, result) for read, result in report.recorded if isinstance(read, Read))


def _decoder_plan(decoder: Callable[..., DecoderPlan] | None, *args: object) -> Plan[object]:
    """Run a decoder inside a plan, so that errors of its first step are reported like later ones."""
    return None if decoder is None else (yield from run_decoder(decoder, *args))
