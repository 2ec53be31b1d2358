"""What lies behind shares: a share of a pair of shares of a vault is what one could take out at the end.

Levels are unfolded together. A share that cannot be read stays what it is and is said; so does one that leads back to
itself, or deeper than anybody builds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from chainfolio.asking import Report
from chainfolio.calls import Read, Reads
from chainfolio.contracts import Issue
from chainfolio.protocols import Found, Part
from indexer.candidates import Encounters
from indexer.protocols import Meeting, Outcome, Protocols, is_part, unwrapping

DEEPEST = 8
SIDES = ("supplied", "borrowed", "rewards")


@dataclass(slots=True)
class Open:
    """A position while it is unfolded: the parts of each side, with the shares that led to them."""

    account: str
    protocol: str
    found: Found
    reads: list[tuple[Read, Any]]
    parts: dict[str, list[tuple[Part, tuple[str, ...]]]] = field(default_factory=dict)
    share: str = ""  # the loose token that this is what lies behind of

    def __post_init__(self) -> None:
        self.parts = {side: [(part, ()) for part in getattr(self.found, side)] for side in SIDES}

    @property
    def dropped(self) -> bool:
        """Whether it came to nothing: a share that turned out to be none, or a position without parts."""
        parts = [part for side in SIDES for part, _ in self.parts[side]]
        return not any(part.raw for part in parts) or self.share in [part.token for part in parts]

    def merged(self, side: str) -> dict[str, int]:
        """The raw amount of each token of a side, by contract; zero where a part is empty."""
        total: dict[str, int] = {}
        for part, _ in self.parts[side]:
            total[part.token] = total.get(part.token, 0) + part.raw
        return dict(sorted(total.items()))


@dataclass(slots=True)
class Unfolding:
    """All positions of a snapshot while they are unfolded."""

    protocols: Protocols
    met: Mapping[str, Encounters]
    time_s: int
    opened: list[Open] = field(default_factory=list)
    issues: list[Issue] = field(default_factory=list)
    _ends: set[tuple[str, str]] = field(default_factory=set)  # account and token that go no further

    def add(self, outcomes: Sequence[Outcome]) -> None:
        """Positions as decoders found them."""
        for each in outcomes:
            self.issues += [each.issue] if each.issue else []
            self.issues += [
                Issue(each.meeting.row.protocol, each.meeting.met.contract, f"not known: {found.unknown}")
                for found in each.found
                if found.unknown
            ]
            self.opened += [
                Open(each.meeting.met.account, each.meeting.row.protocol, found, list(each.reads))
                for found in each.found
            ]

    def add_loose(self, account: str, token: str, raw: int) -> None:
        """A token that an account holds: a position where it is a share of something."""
        instead = {token for each in self.opened if each.account == account for token in each.found.instead}
        meeting = self.protocols.share(account, token, self.met[account].sent)
        if meeting and token not in instead and meeting.row.family.position is None:
            kind = meeting.row.family.kind
            found = Found(kind, supplied=(Part(token, raw),), pool=token, instead=(token,))
            self.opened.append(Open(account, meeting.row.protocol, found, [], share=token))

    @property
    def tokens(self) -> set[str]:
        """Every token in them so far."""
        return {part.token for each in self.opened for side in SIDES for part, _ in each.parts[side]}

    def askings(self) -> dict[str, Reads]:
        """What to ask for the next level."""
        return {
            f"{token} {raw}": unwrapping(share.at(self.time_s), raw) for (token, raw), share in self._shares().items()
        }

    def _shares(self) -> dict[tuple[str, int], Meeting]:
        found = {}
        for each in self.opened:
            for part, trail in each.parts["supplied"]:
                share = self._share(each, part, trail)
                if share:
                    found[part.token, part.raw] = share
        return found

    def _share(self, each: Open, part: Part, trail: tuple[str, ...]) -> Meeting | None:
        if (each.account, part.token) in self._ends:
            return None
        share = self.protocols.share(each.account, part.token, self.met[each.account].sent)
        if share and (part.token in trail or len(trail) >= DEEPEST):
            why = "it leads back to itself" if part.token in trail else f"more than {DEEPEST} shares lie in each other"
            self._end(each, share, why)
            return None
        return share

    def _end(self, each: Open, share: Meeting, why: str) -> None:
        self._ends.add((each.account, share.met.contract))
        reason = f"what lies behind this share of {each.account} is unknown: {why}"
        self.issues.append(Issue(share.row.protocol, share.met.contract, reason, spoils=share.sure))

    def take(self, reports: Mapping[str, Report[Any]]) -> None:
        """Put what lies behind shares in their place."""
        for each in self.opened:
            level, each.parts["supplied"] = each.parts["supplied"], []
            for part, trail in level:
                report = reports.get(f"{part.token} {part.raw}")
                share = self._share(each, part, trail) if report else None
                behind = self._behind(each, share, report) if share and report else None
                if behind is None:
                    each.parts["supplied"].append((part, trail))
                else:
                    each.parts["supplied"] += [(inner, (*trail, part.token)) for inner in behind]

    def _behind(self, each: Open, share: Meeting, report: Report[Any]) -> tuple[Part, ...] | None:
        if report.status == "ok" and report.result is None:  # it is none of this family after all
            self._ends.add((each.account, share.met.contract))
            return None
        parts = tuple(report.result or ())
        if report.status != "ok" or not all(map(is_part, parts)):
            self._end(each, share, report.reason or "the decoder found what is no amount of a token")
            return None
        each.reads += report.reads
        return parts
