"""Which protocols there are on one chain, and which of their contracts an account has met.

Nothing here knows a protocol: rules say whom a decoder concerns, and what it needs is read for all of them together,
so that a hundred positions take as many rounds as the longest of them, and protocols that nobody met take none. What
tokens have to be asked for it is in `shares.py`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from adapters.evm.positions.rules import (
    Always,
    Collection,
    Counterparty,
    DecoderPlan,
    Event,
    Family,
    ProtocolMatch,
    Token,
)
from chainfolio.contracts import Issue
from chainfolio.decoded import remarked, uncounted
from chainfolio.interactions import contract_of
from chainfolio.protocols import InstalledProtocol, UnreadProtocol

if TYPE_CHECKING:
    from adapters.evm.positions.interactions import ContractInteractions


# The rules that contracts are met by, which the protocol's file names.
AtContract = Counterparty | Event | Always
MAX_REMEMBERED: Final = 4096
Sent = Mapping[str, frozenset[str | None]]  # to whom an account sent which tokens
Decoder = Callable[[ProtocolMatch], DecoderPlan] | None  # what reads the positions of a family


def family_of(row: InstalledProtocol) -> Family:
    """The decoders of an installed protocol, which is one of an EVM chain."""
    assert isinstance(row.family, Family), f"{row.protocol} is of another kind of chain: {row.family.kind}"
    return row.family


def match_of(row: InstalledProtocol, account: str, contract: str, **more: Any) -> ProtocolMatch:
    """A meeting of an account with an installed protocol."""
    return ProtocolMatch(account, contract, contracts=row.contracts, options=row.options, is_fork=row.is_fork, **more)


@dataclass(frozen=True, slots=True)
class RuleMatch:
    """An account and a protocol that its rule brought together.

    `sure`: the protocol's file names the contract, or the account put something into it. `vouches`: the protocol chose
    which tokens lie in its positions, and not whoever made a pool or a market.
    """

    row: InstalledProtocol
    match: ProtocolMatch
    sure: bool
    vouches: bool = False

    @property
    def family(self) -> Family:
        """The decoders of the protocol."""
        return family_of(self.row)

    def at(self, time_s: int, is_inner: bool = False) -> RuleMatch:
        """The same in a block of that time."""
        return replace(self, match=replace(self.match, time_s=time_s, is_inner=is_inner))

    def issue(self, reason: str, makes_partial: bool) -> Issue:
        """Something about it that the answer does not know."""
        match = self.match
        subject = f"{match.contract}/{match.id}" if match.id else match.contract
        return Issue(self.row.protocol, subject, reason, makes_partial, match.account)

    def unverified(self, reason: str) -> Issue:
        """Why what it claims is in no sum."""
        return self.issue(uncounted(self.match.account, reason), makes_partial=False)

    def remarked(self, remark: str) -> Issue:
        """What its decoder has to say of what it found."""
        return self.issue(remarked(self.match.account, remark), makes_partial=False)


@dataclass
class Protocols:
    """The protocols of one chain, at every block.

    `plain` are tokens known to be no share of anything, which need not be asked: the wrapped native coin, of which
    everybody has some, takes any call it does not know for a deposit, and burns all the gas that it is given.
    `issues`: which installed protocols cannot be read at all. `unread`: contracts that no installed family reads.
    `listed`: tokens whose transfers nobody has to doubt.
    """

    rows: Sequence[InstalledProtocol]
    plain: frozenset[str] = frozenset()
    issues: tuple[Issue, ...] = ()
    unread: Mapping[str, UnreadProtocol] = field(default_factory=dict)
    listed: frozenset[str] = frozenset()
    _sorted: dict[type[Any], list[tuple[InstalledProtocol, Any]]] = field(default_factory=dict)
    _inner: OrderedDict[str, frozenset[str]] = field(default_factory=OrderedDict)

    def expected(self, account: str) -> frozenset[str]:
        """The tokens that lay in the account's shares the last time: to be asked in time."""
        return self._inner.get(account, frozenset())

    def remember(self, account: str, inner: Iterable[str]) -> None:
        """These tokens lie in the account's shares."""
        self._inner[account] = frozenset(inner)
        self._inner.move_to_end(account)
        if len(self._inner) > MAX_REMEMBERED:
            self._inner.popitem(last=False)

    @cached_property
    def questions(self) -> tuple[str, ...]:
        """The calls that every token is asked by which rules know it."""
        asked = {question for _, rule in self.rules(Token) for question in (rule.question, *rule.facts) if question}
        return tuple(sorted(asked))

    @cached_property
    def events(self) -> tuple[str, ...]:
        """The events that rules ask for, as filters of the dataset `events`."""
        return tuple(sorted({
            rule.declared.filter(contract)
            for row, rule in self.rules(Event)
            for contract in row.contracts.get(rule.role, ())
        }))  # fmt: skip

    @cached_property
    def _at_contracts(self) -> list[tuple[InstalledProtocol, str, list[AtContract]]]:
        """Each contract that a file names, once, with all rules by which an account may meet it."""
        found: list[tuple[InstalledProtocol, str, list[AtContract]]] = []
        for row in sorted(self.rows, key=lambda each: each.protocol):
            rules: dict[str, list[AtContract]] = {}
            for rule in family_of(row).rules:
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
    def by_answer(self) -> dict[tuple[str, str], tuple[int, ...]]:
        """Where the rules over tokens stand whose role holds an answer to their question."""
        found: dict[tuple[str, str], list[int]] = {}
        for at, (row, rule) in enumerate(self.rules(Token)):
            for contract in row.contracts.get(rule.role, ()) if not rule.through else ():
                found.setdefault((rule.question, contract), []).append(at)
        return {key: tuple(several) for key, several in found.items()}

    @cached_property
    def collections(self) -> dict[str, list[InstalledProtocol]]:
        """The collections that files name, each with whom its tokens concern."""
        found: dict[str, list[InstalledProtocol]] = {}
        for row, rule in self.rules(Collection):
            for contract in () if rule.question else row.contracts.get(rule.role, ()):
                found.setdefault(contract, []).append(row)
        return found

    @cached_property
    def by_collection(self) -> dict[tuple[str, str], InstalledProtocol]:
        """By question to a collection that no file names, and its answer: whom its tokens concern."""
        found: dict[tuple[str, str], InstalledProtocol] = {}
        for row, rule in self.rules(Collection):
            for contract in row.contracts.get(rule.role, ()) if rule.question else ():
                found.setdefault((rule.question, contract), row)
        return found

    @cached_property
    def leads(self) -> tuple[tuple[InstalledProtocol, Token, str], ...]:
        """The contracts that lead to those which tokens name: whom each concerns, and the rule that says how."""
        return tuple(
            (row, rule, contract)
            for row, rule in self.rules(Token)
            for contract in (row.contracts.get(rule.role, ()) if rule.through else ())
        )

    @cached_property
    def led_kinds(self) -> list[tuple[str, InstalledProtocol]]:
        """Of each decoder and question to which contracts of files may lead, the question and the first protocol."""
        kinds = {(family_of(row).position, rule.question): row for row, rule, _ in reversed(self.leads)}
        found = [(question, row) for (_, question), row in kinds.items()]
        return sorted(found, key=lambda each: (each[1].family.name, each[0]))

    @cached_property
    def roleless(self) -> frozenset[int]:
        """Where the rules stand that take any answer to their question."""
        return frozenset(at for at, (_, rule) in enumerate(self.rules(Token)) if not rule.role)

    def rules(self, kind: type[Any]) -> list[tuple[InstalledProtocol, Any]]:
        """Rules of a kind; those that name contracts come first, and `everywhere` ones last: these are for protocols
        without contracts, for a file that names its vaults does not mean everybody's."""
        if kind in self._sorted:
            return self._sorted[kind]
        pairs = [
            (row, rule)
            for row in self.rows
            for rule in family_of(row).rules
            if isinstance(rule, kind) and not (row.contracts and isinstance(rule, Token) and rule.everywhere)
        ]
        found = self._sorted[kind] = sorted(pairs, key=lambda pair: (*_trust(pair[1]), pair[0].protocol))
        return found

    def by_contract(self, account: str, interactions: ContractInteractions) -> Iterator[RuleMatch]:
        """Meetings by contracts with which the account had to do."""
        met_there = {*interactions.exchanged, *(contract_of(event) for event in interactions.events)}
        places = {at for contract in met_there for at in self._places.get(contract, ())}
        for at in sorted(places | self._everybodys):
            row, contract, rules = self._at_contracts[at]
            if (match := self._met(row, contract, rules, account, interactions)) is not None:
                vouches = any(isinstance(rule, Counterparty) for rule in rules) and not row.is_fork
                yield RuleMatch(row, match, sure=match.is_sure or not row.is_fork, vouches=vouches)
        for contract in sorted(interactions.ids.keys() & self.collections.keys()):
            for row in self.collections[contract]:
                for number in sorted(interactions.ids[contract]):
                    yield RuleMatch(row, match_of(row, account, contract, id=number, sent=interactions.sent), sure=True)

    def _met(
        self,
        row: InstalledProtocol,
        contract: str,
        rules: Sequence[AtContract],
        account: str,
        interactions: ContractInteractions,
    ) -> ProtocolMatch | None:
        """The one meeting of an account with a contract, by whichever of the rules; None where no rule knows of any."""
        is_party = any(isinstance(rule, Counterparty) for rule in rules)
        exchanged = interactions.exchanged.get(contract) if is_party else None
        events = [rule for rule in rules if isinstance(rule, Event)]
        said = [values for rule in events for values in _said(rule, contract, interactions)]
        if exchanged is None and not said and not any(isinstance(rule, Always) for rule in rules):
            return None
        return match_of(
            row,
            account,
            contract,
            tokens=tuple(sorted(token for token in exchanged or () if token)),
            values=tuple(dict.fromkeys(each for each in said if each is not None)),
            covered=bool(events)
            and all(rule.declared.filter(contract) in interactions.covered for rule in events)
            and None not in said,
            sent=interactions.sent,
            is_sure=bool(said) or self._are_credible(exchanged or ()),
        )

    def _are_credible(self, tokens: Iterable[str | None]) -> bool:
        """Whether one of these is the native coin or a listed token: others can log any transfer."""
        return any(token is None or token in self.listed for token in tokens)

    def unknown(self, account: str, interactions: ContractInteractions) -> Iterator[Issue]:
        """What the account had to do with contracts of protocols that cannot be read, an issue a protocol."""
        found: dict[str, bool] = {}
        said: dict[str, str] = {}
        for contract in self.unread.keys() & {*interactions.tokens, *interactions.ids, *interactions.exchanged}:
            each = self.unread[contract]
            own = contract in interactions.tokens or contract in interactions.ids  # a token of the protocol's moved
            is_sure = own or self._are_credible(interactions.exchanged[contract])
            found[each.key] = found.get(each.key, False) or is_sure
            said[each.key] = f"positions of {account} in {each.name} are unknown: {each.problem}"
        for key, is_sure in sorted(found.items()):
            yield Issue("protocols", key, said[key], makes_partial=is_sure, account=account)


def _trust(rule: Token | Collection | Event) -> tuple[bool, bool]:
    """What rules of one kind are sorted by: those that take whatever says so come last."""
    return not rule.role, isinstance(rule, Token) and rule.everywhere


def _said(rule: Event, contract: str, interactions: ContractInteractions) -> Iterator[tuple[Any, ...] | None]:
    """What a rule's event said of the account each time; None where a log is not as the event is declared."""
    event = rule.declared
    for named in interactions.events.get(event.filter(contract), ()):
        if named.place == event.place(rule.owner):
            yield event.values(rule.of, named.topics, named.data)
