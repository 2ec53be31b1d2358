"""Which protocols an account has met on one chain, and what their decoders read of it.

Nothing here knows a protocol: rules say whom a decoder concerns, and what it needs is read for all of them together,
so that a hundred positions take as many rounds as the longest of them, and protocols that nobody met take none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from chainfolio.asking import Asking, Report, lockstep
from chainfolio.assets import ZERO_ADDRESS
from chainfolio.calls import Call, Read, Reads
from chainfolio.contracts import Issue
from chainfolio.protocols import (
    Always,
    Collection,
    Counterparty,
    Decoding,
    Family,
    Found,
    Met,
    Part,
    Token,
    reading,
)  # fmt: skip

if TYPE_CHECKING:
    from indexer.candidates import Encounters
    from indexer.registry import Registry


@dataclass(frozen=True, slots=True)
class Row:
    """One protocol on one chain, as one family of decoders sees it."""

    protocol: str
    family: Family
    contracts: Mapping[str, tuple[str, ...]]
    options: Mapping[str, str]

    def met(self, account: str, contract: str, **more: Any) -> Met:
        """A meeting with it."""
        return Met(account, contract, contracts=self.contracts, options=self.options, **more)


@dataclass(frozen=True, slots=True)
class Meeting:
    """An account and a protocol that its rule brought together. `sure`: the protocol's file names the contract."""

    row: Row
    met: Met
    sure: bool

    def at(self, time_s: int) -> Meeting:
        """The same in a block of that time."""
        return replace(self, met=replace(self.met, time_s=time_s))


@dataclass(slots=True)
class Outcome:
    """What one decoder read of one meeting: positions, or an issue that says why they are not known."""

    meeting: Meeting
    found: tuple[Found, ...] = ()
    issue: Issue | None = None
    reads: tuple[tuple[Read, Any], ...] = ()


@dataclass
class Protocols:
    """The protocols of one chain. What tokens answer to the rules' questions is asked once and remembered."""

    rows: Sequence[Row]
    _answers: dict[tuple[str, str], str] = field(default_factory=dict)
    _asked: set[str] = field(default_factory=set)

    @cached_property
    def _questions(self) -> tuple[str, ...]:
        asked = {rule.question for _, rule in self._rules(Token) if rule.question}
        return tuple(sorted(asked))

    def _rules(self, kind: type[Any]) -> Iterator[tuple[Row, Any]]:
        """Rules of a kind; those that name contracts come first. A rule that names none is for protocols without any:
        a file that names its vaults does not mean everybody's."""
        pairs = [
            (row, rule)
            for row in self.rows
            for rule in row.family.rules
            if isinstance(rule, kind) and (rule.role or not row.contracts)
        ]
        yield from sorted(pairs, key=lambda pair: (not pair[1].role, pair[0].protocol))

    def read(self, account: str, encounters: Encounters, time_s: int) -> Asking[Read, Any, list[Outcome]]:
        """Every position that the account may have by what it met, unfolded no further than its decoder does."""
        meetings = [each.at(time_s) for each in self._by_contract(account, encounters)]
        reports: dict[str, Report[Any]] = yield from lockstep(
            {
                "tokens": self._by_token(account, encounters, time_s),
                **{str(at): _guarded(_position(each), each.met) for at, each in enumerate(meetings)},
            }
        )
        by_token: Report[list[Outcome]] = reports["tokens"]
        if by_token.error is not None:
            raise by_token.error
        return [*(outcome(each, reports[str(at)]) for at, each in enumerate(meetings)), *(by_token.result or ())]

    def _by_contract(self, account: str, encounters: Encounters) -> Iterator[Meeting]:
        for row, rule in self._rules(Counterparty):
            for contract in row.contracts.get(rule.role, ()):
                if contract in encounters.exchanged:
                    moved = sorted(token for token in encounters.exchanged[contract] if token)
                    yield Meeting(row, row.met(account, contract, tokens=tuple(moved)), sure=True)
        for row, rule in self._rules(Collection):
            for contract in row.contracts.get(rule.role, ()):
                for number in sorted(encounters.ids.get(contract, ())):
                    yield Meeting(row, row.met(account, contract, id=number), sure=True)
        for row, rule in self._rules(Always):
            for contract in row.contracts.get(rule.role, ()):
                yield Meeting(row, row.met(account, contract), sure=True)

    def _by_token(self, account: str, encounters: Encounters, time_s: int) -> Asking[Read, Any, list[Outcome]]:
        yield from self.ask(sorted(encounters.tokens))
        meetings = [each.at(time_s) for each in self._of_tokens(account, encounters)]
        askings = {str(at): _guarded(_position(each), each.met) for at, each in enumerate(meetings)}
        reports: dict[str, Report[Any]] = yield from lockstep(askings)
        return [outcome(each, reports[str(at)]) for at, each in enumerate(meetings)]

    def _of_tokens(self, account: str, encounters: Encounters) -> Iterator[Meeting]:
        """Meetings by tokens, of families that read more of them than what a share is worth."""
        for row, rule in self._rules(Token):
            if row.family.position is None:
                continue
            told = {token: self._matches(row, rule, token, encounters.sent) for token in sorted(encounters.tokens)}
            groups: dict[str, list[str]] = {}
            for token, answer in told.items():
                if answer is not None:
                    groups.setdefault(answer if rule.together else token, []).append(token)
            for contract, tokens in groups.items():
                more = {"answer": told[tokens[0]], "tokens": tuple(tokens)}
                yield Meeting(row, row.met(account, contract, **more), sure=bool(rule.role))

    def _matches(self, row: Row, rule: Token, token: str, sent: frozenset[str | None]) -> str | None:
        """What the token answers, or is, where the rule takes it; None where it does not."""
        answer = self._answers.get((token, rule.question)) if rule.question else token
        if answer is None or (rule.role and answer not in row.contracts.get(rule.role, ())):
            return None
        return None if rule.deposited and answer not in sent else answer

    def ask(self, tokens: Sequence[str]) -> Asking[Read, Any, None]:
        """Put the rules' questions to tokens that have not answered yet; what does not answer is asked again, for it
        may not have been there at that block."""
        asks = [
            Call(token, question)
            for token in tokens
            for question in self._questions
            if (token, question) not in self._answers
        ]
        answers = (yield asks) if asks else []
        for ask, answer in zip(asks, answers, strict=True):
            if isinstance(answer, str) and answer != ZERO_ADDRESS:
                self._answers[ask.to, ask.signature] = answer
        self._asked.update(tokens)

    def asked(self, token: str) -> bool:
        """Whether a token was asked by now, in this snapshot or before."""
        return not self._questions or token in self._asked

    def share(self, account: str, token: str, sent: frozenset[str | None]) -> Meeting | None:
        """The family that can say what lies behind a token, once it was asked. `sent`: all that the account sent."""
        for row, rule in self._rules(Token):
            if row.family.unwrap is None:
                continue
            answer = self._matches(row, rule, token, sent)
            if answer is not None:
                return Meeting(row, row.met(account, token, answer=answer, tokens=(token,)), sure=bool(rule.role))
        return None


def rows(chain: str, registry: Registry, families: Mapping[str, Family]) -> list[Row]:
    """The protocols of a chain whose families are installed. A protocol without contracts is one of every chain."""
    return [
        Row(
            protocol.key,
            families[name],
            {role: tuple(addresses) for role, addresses in protocol.contracts.get(chain, {}).items()},
            protocol.options,
        )
        for protocol in registry.protocols
        if chain in protocol.contracts or not protocol.contracts
        for name in protocol.families
        if name in families
    ]


def unwrapping(meeting: Meeting, raw: int) -> Reads:
    """What an amount of a share is worth, whatever its family's code does."""
    return _guarded(meeting.row.family.unwrap, meeting.met, raw)


def _position(meeting: Meeting) -> Callable[..., Decoding] | None:
    return meeting.row.family.position


def _guarded(decoder: Callable[..., Decoding] | None, *given: Any) -> Reads:
    """A decoder's asking; one that raises before it asks fails like one that raises later."""
    return None if decoder is None else (yield from reading(decoder, *given))


def outcome(meeting: Meeting, report: Report[Any]) -> Outcome:
    """What a decoder's report comes to."""
    result, reason = report.result, report.reason
    found = () if result is None else (result,) if isinstance(result, Found) else tuple(result)
    if report.status != "ok":
        found = ()
    elif not all(isinstance(each, Found) and _sound(each) for each in found):
        found, reason = (), "the decoder found what is no position"
    if not reason:
        return Outcome(meeting, found, reads=tuple(report.reads))
    met = meeting.met
    subject = f"{met.contract}/{met.id}" if met.id else met.contract
    said = f"the position of {met.account} is unknown: {reason}"
    return Outcome(meeting, issue=Issue(meeting.row.protocol, subject, said, spoils=meeting.sure))


def _sound(found: Found) -> bool:
    return all(is_part(part) for part in (*found.supplied, *found.borrowed, *found.rewards))


def is_part(part: Any) -> bool:
    """Whether this is an amount of a token."""
    return (
        isinstance(part, Part) and isinstance(part.raw, int) and part.raw >= 0 and len(part.token) == len(ZERO_ADDRESS)
    )
