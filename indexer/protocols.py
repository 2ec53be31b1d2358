"""Which protocols an account has met on one chain, and what their decoders read of it.

Nothing here knows a protocol: rules say whom a decoder concerns, and what it needs is read for all of them together,
so that a hundred positions take as many rounds as the longest of them, and protocols that nobody met take none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from chainfolio.asking import Asking, Unknown
from chainfolio.assets import ZERO_ADDRESS
from chainfolio.calls import Call, Read
from chainfolio.contracts import Issue
from chainfolio.events import contract_of
from chainfolio.protocols import (
    Always,
    Collection,
    Counterparty,
    Event,
    Family,
    Met,
    Token,
)  # fmt: skip

if TYPE_CHECKING:
    from indexer.candidates import Encounters
    from indexer.registry import Registry, Undecoded
    from indexer.registry import Unread as UnreadProtocol


# The rules that contracts are met by, which the protocol's file names.
AtContract = Counterparty | Event | Always
Sent = Mapping[str, frozenset[str | None]]  # to whom an account sent which tokens


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
    """An account and a protocol that its rule brought together.

    `sure`: the protocol's file names the contract, or the account put something into it. `vouches`: the protocol chose
    which tokens lie in its positions, and not whoever made a pool or a market.
    """

    row: Row
    met: Met
    sure: bool
    vouches: bool = False

    def at(self, time_s: int, is_inner: bool = False) -> Meeting:
        """The same in a block of that time."""
        return replace(self, met=replace(self.met, time_s=time_s, is_inner=is_inner))

    def issue(self, reason: str, spoils: bool) -> Issue:
        """Something about it that the answer does not know."""
        met = self.met
        subject = f"{met.contract}/{met.id}" if met.id else met.contract
        return Issue(self.row.protocol, subject, reason, spoils, met.account)

    def unverified(self, reason: str) -> Issue:
        """Why what it claims is in no sum. Anybody can send such a claim to anybody, so it makes no answer partial."""
        return self.issue(f"not counted for {self.met.account}, since nobody can verify it: {reason}", spoils=False)


@dataclass
class Protocols:
    """The protocols of one chain. What tokens answer to the rules' questions is asked once and remembered.

    `plain` are tokens known to be no share of anything, which need not be asked: the wrapped native coin, of which
    everybody has some, takes any call it does not know for a deposit, and burns all the gas that it is given.
    `issues`: which installed protocols cannot be read at all. `unread`: contracts that no installed family reads.
    `listed`: tokens whose transfers nobody has to doubt.
    """

    rows: Sequence[Row]
    plain: frozenset[str] = frozenset()
    issues: tuple[Issue, ...] = ()
    unread: Mapping[str, UnreadProtocol | Undecoded] = field(default_factory=dict)
    listed: frozenset[str] = frozenset()
    _answers: dict[tuple[str, str], str] = field(default_factory=dict)
    _asked: set[str] = field(default_factory=set)
    _open: dict[str, list[Call]] = field(default_factory=dict)
    _sorted: dict[type[Any], list[tuple[Row, Any]]] = field(default_factory=dict)

    @cached_property
    def _questions(self) -> tuple[str, ...]:
        asked = {question for _, rule in self._rules(Token) for question in (rule.question, *rule.facts) if question}
        return tuple(sorted(asked))

    @cached_property
    def events(self) -> tuple[str, ...]:
        """The events that rules ask for, as filters of the dataset `events`."""
        return tuple(sorted({
            rule.declared.filter(contract)
            for row, rule in self._rules(Event)
            for contract in row.contracts.get(rule.role, ())
        }))  # fmt: skip

    @cached_property
    def _at_contracts(self) -> list[tuple[Row, str, list[AtContract]]]:
        """Each contract that a file names, once, with all rules by which an account may meet it."""
        found: list[tuple[Row, str, list[AtContract]]] = []
        for row in sorted(self.rows, key=lambda each: each.protocol):
            rules: dict[str, list[AtContract]] = {}
            for rule in row.family.rules:
                if isinstance(rule, AtContract):
                    for contract in row.contracts.get(rule.role, ()):
                        rules.setdefault(contract, []).append(rule)
            found += [(row, contract, several) for contract, several in rules.items()]
        return found

    @cached_property
    def _places(self) -> dict[str, list[int]]:
        """Where each contract stands in that list; what an account met is looked up, however many there are."""
        found: dict[str, list[int]] = {}
        for at, (_, contract, _) in enumerate(self._at_contracts):
            found.setdefault(contract, []).append(at)
        return found

    @cached_property
    def _everybodys(self) -> frozenset[int]:
        """Where the contracts stand that concern every account."""
        return frozenset(
            at for at, (*_, rules) in enumerate(self._at_contracts) if any(isinstance(each, Always) for each in rules)
        )

    @cached_property
    def _by_answer(self) -> dict[tuple[str, str], tuple[int, ...]]:
        """Where the rules over tokens stand whose role holds an answer to their question."""
        found: dict[tuple[str, str], list[int]] = {}
        for at, (row, rule) in enumerate(self._rules(Token)):
            for contract in row.contracts.get(rule.role, ()):
                found.setdefault((rule.question, contract), []).append(at)
        return {key: tuple(several) for key, several in found.items()}

    @cached_property
    def _roleless(self) -> frozenset[int]:
        """Where the rules stand that take any answer to their question."""
        return frozenset(at for at, (_, rule) in enumerate(self._rules(Token)) if not rule.role)

    def _rules_of(self, token: str) -> list[int]:
        """Where the rules stand by which a token may be met, in their order."""
        found = {*self._roleless, *self._by_answer.get(("", token), ())}
        for question in self._questions:
            if answer := self._answers.get((token, question)):
                found.update(self._by_answer.get((question, answer), ()))
        return sorted(found)

    def _rules(self, kind: type[Any]) -> list[tuple[Row, Any]]:
        """Rules of a kind; those that name contracts come first, and `everywhere` ones last: these are for protocols
        without contracts, for a file that names its vaults does not mean everybody's."""
        if kind in self._sorted:
            return self._sorted[kind]
        pairs = [
            (row, rule)
            for row in self.rows
            for rule in row.family.rules
            if isinstance(rule, kind) and not (row.contracts and isinstance(rule, Token) and rule.everywhere)
        ]
        found = self._sorted[kind] = sorted(pairs, key=lambda pair: (*_trust(pair[1]), pair[0].protocol))
        return found

    def by_contract(self, account: str, encounters: Encounters) -> Iterator[Meeting]:
        """Meetings by contracts with which the account had to do."""
        met_there = {*encounters.exchanged, *(contract_of(event) for event in encounters.events)}
        places = {at for contract in met_there for at in self._places.get(contract, ())}
        for at in sorted(places | self._everybodys):
            row, contract, rules = self._at_contracts[at]
            if (met := self._met(row, contract, rules, account, encounters)) is not None:
                vouches = any(isinstance(rule, Counterparty) for rule in rules)
                yield Meeting(row, met, sure=True, vouches=vouches)
        for row, rule in self._rules(Collection):
            for contract in row.contracts.get(rule.role, ()):
                for number in sorted(encounters.ids.get(contract, ())):
                    yield Meeting(row, row.met(account, contract, id=number, sent=encounters.sent), sure=True)

    def _met(
        self, row: Row, contract: str, rules: Sequence[AtContract], account: str, encounters: Encounters
    ) -> Met | None:
        """The one meeting of an account with a contract, by whichever of the rules; None where no rule knows of any."""
        is_party = any(isinstance(rule, Counterparty) for rule in rules)
        exchanged = encounters.exchanged.get(contract) if is_party else None
        events = [rule for rule in rules if isinstance(rule, Event)]
        said = [values for rule in events for values in _said(rule, contract, encounters)]
        if exchanged is None and not said and not any(isinstance(rule, Always) for rule in rules):
            return None
        return row.met(
            account,
            contract,
            tokens=tuple(sorted(token for token in exchanged or () if token)),
            values=tuple(dict.fromkeys(each for each in said if each is not None)),
            covered=bool(events)
            and all(rule.declared.filter(contract) in encounters.covered for rule in events)
            and None not in said,
            sent=encounters.sent,
            is_sure=bool(said) or self._are_credible(exchanged or ()),
        )

    def _are_credible(self, tokens: Iterable[str | None]) -> bool:
        """Whether one of these is the native coin or a listed token: others can log any transfer."""
        return any(token is None or token in self.listed for token in tokens)

    def unknown(self, account: str, encounters: Encounters) -> Iterator[Issue]:
        """What the account had to do with contracts of protocols that cannot be read, an issue a protocol."""
        found: dict[str, bool] = {}
        said: dict[str, str] = {}
        for contract in self.unread.keys() & {*encounters.tokens, *encounters.ids, *encounters.exchanged}:
            each = self.unread[contract]
            own = contract in encounters.tokens or contract in encounters.ids  # a token of the protocol's moved
            is_sure = own or self._are_credible(encounters.exchanged[contract])
            found[each.protocol.key] = found.get(each.protocol.key, False) or is_sure
            said[each.protocol.key] = f"positions of {account} in {each.protocol.name} are unknown: {each.problem}"
        for key, is_sure in sorted(found.items()):
            yield Issue("protocols", key, said[key], spoils=is_sure, account=account)

    def by_token(self, account: str, tokens: Iterable[str], sent: Sent) -> Iterator[Meeting]:
        """Meetings by tokens, once those were asked, of families that read more than what a share is worth."""
        told: dict[int, dict[str, str]] = {}
        rules, seen = self._rules(Token), set[tuple[str, str, str]]()
        for token in sorted(tokens):
            for at in self._rules_of(token):
                row, rule = rules[at]
                if row.family.position is not None and (answer := self._matches(row, rule, token)) is not None:
                    told.setdefault(at, {})[token] = answer
        for at, answers in sorted(told.items()):
            row, rule = rules[at]
            groups: dict[str, list[str]] = {}
            for token, answer in answers.items():
                groups.setdefault(answer if rule.together else token, []).append(token)
            for contract, several in groups.items():
                if (row.protocol, row.family.name, contract) in seen:
                    continue  # another rule of the family found it
                seen.add((row.protocol, row.family.name, contract))
                met = row.met(account, contract, answer=answers[several[0]], tokens=tuple(several), sent=sent)
                yield Meeting(row, met, sure=_is_sure(met), vouches=rule.together)

    def _matches(self, row: Row, rule: Token, token: str) -> str | None:
        """What the token answers, or is, where the rule takes it; None where it does not."""
        answer = self._answers.get((token, rule.question)) if rule.question else token
        if answer is None or (rule.role and answer not in row.contracts.get(rule.role, ())):
            return None
        return answer if len(self._facts(rule, token)) == len(rule.facts) else None

    def _facts(self, rule: Token, token: str) -> tuple[str, ...]:
        return tuple(self._answers[token, fact] for fact in rule.facts if (token, fact) in self._answers)

    def ask(self, tokens: Sequence[str]) -> Asking[Read, Any, None]:
        """Put the rules' questions to tokens."""
        asks = self.questions(tokens)
        if asks:
            self.learn(asks, (yield asks))

    def questions(self, tokens: Sequence[str]) -> list[Call]:
        """What to ask tokens that have not answered yet: a proxy may answer later what it refuses now."""
        return [call for token in tokens for call in self._open_to(token)]

    def _open_to(self, token: str) -> list[Call]:
        if token in self.plain:
            return []
        if token not in self._open:
            asked = (question for question in self._questions if (token, question) not in self._answers)
            self._open[token] = [Call(token, question) for question in asked]
        return self._open[token]

    def learn(self, asks: Sequence[Call], answers: Sequence[Any]) -> None:
        """Keep what tokens answered. One that says nothing at all is not there at that block, and was not asked."""
        for ask, answer in zip(asks, answers, strict=True):
            if not isinstance(answer, Unknown) or answer.cause == "contract":
                self._asked.add(ask.to)
            if isinstance(answer, str) and answer != ZERO_ADDRESS:
                self._answers[ask.to, ask.signature] = answer
                self._open.pop(ask.to, None)

    def asked(self, token: str) -> bool:
        """Whether a token was asked by now, for this block or another: what it is does not change."""
        return not self._questions or token in self.plain or token in self._asked

    def share(self, account: str, token: str, sent: Sent) -> Meeting | None:
        """The family that can say what lies behind a token, once it was asked; `sent`: what was sent to whom."""
        for at in self._rules_of(token):
            row, rule = self._rules(Token)[at]
            if row.family.unwrap is None:
                continue
            answer = self._matches(row, rule, token)
            if answer is not None:
                facts = self._facts(rule, token)
                met = row.met(account, token, answer=answer, facts=facts, tokens=(token,), sent=sent)
                return Meeting(row, met, sure=_is_sure(met))
        return None


def _trust(rule: Token | Collection | Event) -> tuple[bool, bool]:
    """What rules of one kind are sorted by: those that take whatever says so come last."""
    return not rule.role, isinstance(rule, Token) and rule.everywhere


def _is_sure(met: Met) -> bool:
    """Whether a contract that a token rule found is more than somebody's claim to belong to the protocol."""
    return met.contract in met.sent or any(met.contract in of_role for of_role in met.contracts.values())


def _said(rule: Event, contract: str, encounters: Encounters) -> Iterator[tuple[Any, ...] | None]:
    """What a rule's event said of the account each time; None where a log is not as the event is declared."""
    event = rule.declared
    for named in encounters.events.get(event.filter(contract), ()):
        if named.place == event.place(rule.owner):
            yield event.values(rule.of, named.topics, named.data)


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
