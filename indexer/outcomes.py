"""What decoders make of meetings: positions, what lies behind shares, and issues where they do not know."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from chainfolio.asking import Asking, Report, lockstep
from chainfolio.calls import Answered, Read, Reads
from chainfolio.contracts import Issue
from chainfolio.protocols import Decoding, Found, Unread, Unverified, reading
from indexer.protocols import Meeting
from indexer.returned import founds


@dataclass(slots=True)
class Outcome:
    """What one decoder read of one meeting: positions, and issues that say what is not known or not relied on."""

    meeting: Meeting
    found: tuple[Found, ...] = ()
    issues: tuple[Issue, ...] = ()
    calls: tuple[Answered, ...] = ()


def unwrapping(meeting: Meeting, raw: int) -> Reads:
    """What an amount of a share is worth, whatever its family's code does."""
    return _guarded(meeting.row.family.unwrap, meeting.met, raw)


def outcome_of(meeting: Meeting, whose: Reads | None = None) -> Asking[Read, Any, Outcome]:
    """What the decoder of one meeting reads, whatever its code does. `whose` finds out meanwhile which protocol's it
    is: nothing is found where it is nobody's."""
    decoder = _guarded(meeting.row.family.position, meeting.met)
    askings = {"": decoder, **({"whose": whose} if whose is not None else {})}
    reports: dict[str, Report[Any]] = yield from lockstep(askings, record=True)
    report = reports[""]
    if (asked := reports.get("whose")) is not None:
        if asked.status != "ok":
            account = meeting.met.account
            reason = f"what {account} has there is unknown, and in which protocol: {asked.reason}"
            return Outcome(meeting, issues=(Issue("protocols", meeting.met.contract, reason, account=account),))
        if asked.result is None:
            return Outcome(meeting)
        meeting = replace(meeting, row=asked.result)
        report.reads += asked.reads
    if report.status != "ok":
        said = f"the position of {meeting.met.account} is unknown: {report.reason}"
        return Outcome(meeting, issues=(meeting.issue(said, makes_partial(meeting, report)),))
    if isinstance(report.result, Unverified):
        return Outcome(meeting, issues=(meeting.unverified(report.result.reason),), calls=answered(report))
    found = founds(report.result)
    if isinstance(found, str):
        said = f"the position of {meeting.met.account} is unknown: {found}"
        return Outcome(meeting, issues=(meeting.issue(said, True),), calls=answered(report))
    return Outcome(meeting, found, tuple(_notes(meeting, found)), answered(report))


def _notes(meeting: Meeting, found: Iterable[Found]) -> Iterator[Issue]:
    """What positions themselves say is not known of them, or not to be relied on."""
    for each in found:
        if each.unverified:
            yield meeting.unverified(each.unverified)
        if each.unknown:
            said = f"not known of {meeting.met.account}: {each.unknown}"
            yield meeting.issue(said, spoils=not each.unverified and not each.unlisted)


def makes_partial(meeting: Meeting, report: Report[Any]) -> bool:
    """Whether an answer is partial for a decoder that failed: not where a contract that anybody could have made does
    not answer, but always where the read failed or the decoder is broken."""
    error = report.error
    return meeting.sure or not isinstance(error, Unread) or error.failed


def answered(report: Report[Any]) -> tuple[Answered, ...]:
    """What an asking asked, with the answers, as sources name it."""
    return tuple(Answered(ask, result) for ask, result in report.reads)


def _guarded(decoder: Callable[..., Decoding] | None, *given: Any) -> Reads:
    """A decoder's asking; one that raises before it asks fails like one that raises later."""
    return None if decoder is None else (yield from reading(decoder, *given))
