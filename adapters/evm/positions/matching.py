"""The protocols of one chain, and the contracts of theirs that an account interacted with.

Nothing here knows a protocol: rules say which accounts a decoder concerns. All decoders are read together, so that a
hundred positions take as many rounds as the longest of them, and protocols without a match take none. `shares.py`
matches tokens.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

from chainfolio.adapters.evm.positions.interactions import ContractInteractions
from chainfolio.adapters.evm.positions.rules import (
    Collection,
    Counterparty,
    DecoderPlan,
    Event,
    EveryAccount,
    Family,
    ProtocolMatch,
    Rule,
    Token,
)
from chainfolio.adapters.evm.reads import AbiValue
from chainfolio.contracts import Issue
from chainfolio.decoded import remarked, uncounted
from chainfolio.interactions import contract_of
from chainfolio.protocols import InstalledProtocol, UnreadProtocol

ContractRule = Counterparty | Event | EveryAccount  # the rules that match contracts named in the protocol's file
MAX_CACHED_ACCOUNTS: Final = 4096
SentTokens = Mapping[str, frozenset[str | None]]  # as `ProtocolMatch.sent`
Decoder = Callable[[ProtocolMatch], DecoderPlan] | None  # `Family.position`


def family_of(row: InstalledProtocol) -> Family:
    """Return the decoders of an installed protocol of an EVM chain."""
    assert isinstance(row.family, Family), f"{row.protocol} is of another kind of chain: {row.family.kind}"
    return row.family


def match_of(row: InstalledProtocol, account: str, contract: str, **fields: Any) -> ProtocolMatch:
    """Return the match of an account with an installed protocol; `fields` are further fields of the match."""
    return ProtocolMatch(account, contract, contracts=row.contracts, options=row.options, is_fork=row.is_fork, **fields)


@dataclass(frozen=True, slots=True)
class RuleMatch:
    """A match of an account with an installed protocol.

    `is_trusted`: the protocol's file names the contract, or the account put something into it. `curates_tokens`: the
    protocol chose which tokens lie in its positions, not the creator of a pool or a market. `is_own_action`: the
    account itself used the contract (`Protocols.is_own_action`).
    """

    row: InstalledProtocol
    match: ProtocolMatch
    is_trusted: bool
    curates_tokens: bool = False
    is_own_action: bool = False

    @property
    def family(self) -> Family:
        """The decoders of the protocol."""
        return family_of(self.row)

    def at(self, time_s: int, is_inner: bool = False) -> RuleMatch:
        """Return the match for a block of that time, in Unix seconds; `is_inner` as in `ProtocolMatch`."""
        return replace(self, match=replace(self.match, time_s=time_s, is_inner=is_inner))

    def issue(self, reason: str, makes_partial: bool) -> Issue:
        """Return an issue about the position."""
        match = self.match
        subject = f"{match.contract}/{match.id}" if match.id else match.contract
        return Issue(self.row.protocol, subject, reason, makes_partial, match.account)

    @property
    def is_unproven_stake(self) -> bool:
        """Return True if the account itself used a trusted contract whose family is unproven."""
        return not self.family.is_proven and self.is_trusted and self.is_own_action

    def unverified(self, reason: str) -> Issue:
        """Return the issue of a claim that is in no sum; it is partial only for `is_unproven_stake`."""
        return self.issue(uncounted(self.match.account, reason), self.is_unproven_stake)

    def remarked(self, remark: str) -> Issue:
        """Return the issue that carries a decoder's remark."""
        return self.issue(remarked(self.match.account, remark), makes_partial=False)


@dataclass
class Protocols:
    """The protocols of one chain, for every block.

    `non_shares`: tokens known to be no shares, which are never asked. The wrapped native coin, which is common,
    takes any unknown call for a deposit and burns all the gas that it is given. `issues`: installed protocols that
    cannot be read at all. `unread`: contracts that no installed family reads. `listed`: tokens on a token list, whose
    transfers are trusted.
    """

    rows: Sequence[InstalledProtocol]
    non_shares: frozenset[str] = frozenset()
    issues: tuple[Issue, ...] = ()
    unread: Mapping[str, UnreadProtocol] = field(default_factory=dict)
    listed: frozenset[str] = frozenset()
    _sorted: dict[type[Rule], list[tuple[InstalledProtocol, Any]]] = field(default_factory=dict)
    _inner: OrderedDict[str, frozenset[str]] = field(default_factory=OrderedDict)

    def expected_tokens(self, account: str) -> frozenset[str]:
        """Return the tokens in the account's shares at the last reading; empty if there was none."""
        return self._inner.get(account, frozenset())

    def remember_tokens(self, account: str, inner: Iterable[str]) -> None:
        """Store the tokens in the account's shares, for the last MAX_CACHED_ACCOUNTS accounts."""
        self._inner[account] = frozenset(inner)
        self._inner.move_to_end(account)
        if len(self._inner) > MAX_CACHED_ACCOUNTS:
            self._inner.popitem(last=False)

    @cached_property
    def questions(self) -> tuple[str, ...]:
        """The calls that rules make to every token."""
        questions = {question for _, rule in self.rules(Token) for question in (rule.question, *rule.facts) if question}
        return tuple(sorted(questions))

    @cached_property
    def events(self) -> tuple[str, ...]:
        """The events of all rules, as sorted filters of the dataset `events`, one per contract and event."""
        return tuple(
            sorted(
                {
                    rule.parsed.filter(contract)
                    for row, rule in self.rules(Event)
                    for contract in row.contracts.get(rule.role, ())
                }
            )
        )

    @cached_property
    def _contract_rules(self) -> list[tuple[InstalledProtocol, str, list[ContractRule]]]:
        """Each contract of each protocol's file, once, with all rules that may match an account there."""
        entries: list[tuple[InstalledProtocol, str, list[ContractRule]]] = []
        for row in sorted(self.rows, key=lambda row: row.protocol):
            by_contract: dict[str, list[ContractRule]] = {}
            for rule in family_of(row).rules:
                if isinstance(rule, ContractRule):
                    for contract in row.contracts.get(rule.role, ()):
                        by_contract.setdefault(contract, []).append(rule)
            entries += [(row, contract, rules) for contract, rules in by_contract.items()]
        return entries

    @cached_property
    def _contract_indexes(self) -> dict[str, list[int]]:
        """The indexes of each contract in `_contract_rules`, so that matching takes no scan of all contracts."""
        indexes: dict[str, list[int]] = {}
        for index, (_, contract, _) in enumerate(self._contract_rules):
            indexes.setdefault(contract, []).append(index)
        return indexes

    @cached_property
    def _every_account_indexes(self) -> frozenset[int]:
        """The indexes in `_contract_rules` of contracts that match every account."""
        return frozenset(
            index
            for index, (*_, rules) in enumerate(self._contract_rules)
            if any(isinstance(rule, EveryAccount) for rule in rules)
        )

    @cached_property
    def by_answer(self) -> dict[tuple[str, str], tuple[int, ...]]:
        """Indexes of token rules without a path, by question and contract of the rule's role."""
        indexes: dict[tuple[str, str], list[int]] = {}
        for index, (row, rule) in enumerate(self.rules(Token)):
            for contract in row.contracts.get(rule.role, ()) if not rule.through else ():
                indexes.setdefault((rule.question, contract), []).append(index)
        return {key: tuple(rule_indexes) for key, rule_indexes in indexes.items()}

    @cached_property
    def collections(self) -> dict[str, list[InstalledProtocol]]:
        """Protocols by NFT collections that their files name, not those that a contract names."""
        protocols: dict[str, list[InstalledProtocol]] = {}
        for row, rule in self.rules(Collection):
            for contract in () if rule.question else row.contracts.get(rule.role, ()):
                protocols.setdefault(contract, []).append(row)
        return protocols

    @cached_property
    def by_collection(self) -> dict[tuple[str, str], InstalledProtocol]:
        """The protocol of collections that no file names, by question to the collection and its answer."""
        protocols: dict[tuple[str, str], InstalledProtocol] = {}
        for row, rule in self.rules(Collection):
            for contract in row.contracts.get(rule.role, ()) if rule.question else ():
                protocols.setdefault((rule.question, contract), row)
        return protocols

    @cached_property
    def leads(self) -> tuple[tuple[InstalledProtocol, Token, str], ...]:
        """The contracts that lead to tokens' answers, each with its protocol and rule."""
        return tuple(
            (row, rule, contract)
            for row, rule in self.rules(Token)
            for contract in (row.contracts.get(rule.role, ()) if rule.through else ())
        )

    @cached_property
    def lead_questions(self) -> list[tuple[str, InstalledProtocol]]:
        """The questions whose answers `leads` may lead to, with the first protocol of each decoder."""
        rows = {(family_of(row).position, rule.question): row for row, rule, _ in reversed(self.leads)}
        questions = [(question, row) for (_, question), row in rows.items()]
        return sorted(questions, key=lambda pair: (pair[1].family.name, pair[0]))

    @cached_property
    def roleless(self) -> frozenset[int]:
        """The indexes of token rules that accept any answer."""
        return frozenset(index for index, (_, rule) in enumerate(self.rules(Token)) if not rule.role)

    def rules(self, kind: type[Rule]) -> list[tuple[InstalledProtocol, Any]]:
        """Return the rules of one class with their protocols: rules with a role first, `everywhere` ones last.

        `everywhere` rules are left out for files that name contracts, which mean these contracts only.
        """
        if kind not in self._sorted:
            pairs = [
                (row, rule)
                for row in self.rows
                for rule in family_of(row).rules
                if isinstance(rule, kind) and not (row.contracts and isinstance(rule, Token) and rule.everywhere)
            ]
            self._sorted[kind] = sorted(pairs, key=lambda pair: (*_priority(pair[1]), pair[0].protocol))
        return self._sorted[kind]

    def by_contract(self, account: str, interactions: ContractInteractions) -> Iterator[RuleMatch]:
        """Yield the matches of an account with contracts and collections that files name.

        One match for a contract of a protocol, and one for each received token of a collection. Contracts of
        `EveryAccount` rules match without interactions.
        """
        contracts = {*interactions.exchanged, *(contract_of(event) for event in interactions.events)}
        indexes = {index for contract in contracts for index in self._contract_indexes.get(contract, ())}
        for index in sorted(indexes | self._every_account_indexes):
            row, contract, rules = self._contract_rules[index]
            if (match := self._match(row, contract, rules, account, interactions)) is not None:
                curates_tokens = any(isinstance(rule, Counterparty) for rule in rules) and not row.is_fork
                yield RuleMatch(row, match, match.is_confirmed or not row.is_fork, curates_tokens)
        for contract in sorted(interactions.ids.keys() & self.collections.keys()):
            for row in self.collections[contract]:
                for number in sorted(interactions.ids[contract]):
                    match = match_of(row, account, contract, id=number, sent=interactions.sent)
                    yield RuleMatch(row, match, is_trusted=True)

    def _match(
        self,
        row: InstalledProtocol,
        contract: str,
        rules: Sequence[ContractRule],
        account: str,
        interactions: ContractInteractions,
    ) -> ProtocolMatch | None:
        """Return the one match of an account with a contract by all its rules; None if no rule matches."""
        is_party = any(isinstance(rule, Counterparty) for rule in rules)
        exchanged = interactions.exchanged.get(contract) if is_party else None
        events = [rule for rule in rules if isinstance(rule, Event)]
        values = [row_values for rule in events for row_values in _event_values(rule, contract, interactions)]
        if exchanged is None and not values and not any(isinstance(rule, EveryAccount) for rule in rules):
            return None
        return match_of(
            row,
            account,
            contract,
            tokens=tuple(sorted(token for token in exchanged or () if token)),
            values=tuple(dict.fromkeys(row_values for row_values in values if row_values is not None)),
            has_all_events=bool(events)
            and all(rule.parsed.filter(contract) in interactions.covered for rule in events)
            and None not in values,
            sent=interactions.sent,
            is_confirmed=bool(values) or self._has_trusted_token(exchanged or ()),
        )

    def is_own_action(self, match: ProtocolMatch, interactions: ContractInteractions) -> bool:
        """Return True if the account itself used the contract of a match, or a token that led to it.

        An account uses a contract if it obtained the contract's token in its own transaction, or if it sent a native
        coin, a listed token, or a token from its own transaction to the contract. Transfers that strangers made, or
        that an untrusted token logged, do not count.
        """
        contracts = {match.contract, *(match.tokens if match.answer else ())}  # else `tokens` are what was exchanged
        sent_tokens = {token for contract in contracts for token in interactions.sent.get(contract, ())}
        own_tokens = interactions.self_acquired
        return bool(contracts & own_tokens or sent_tokens & own_tokens) or self._has_trusted_token(sent_tokens)

    def _has_trusted_token(self, tokens: Iterable[str | None]) -> bool:
        """Return True if one is the native coin or a listed token; an unlisted token can log any transfer."""
        return any(token is None or token in self.listed for token in tokens)

    def unread_protocols(self, account: str, interactions: ContractInteractions) -> Iterator[Issue]:
        """Yield an issue for each protocol that no installed family reads and the account interacted with.

        The issue makes an answer partial only if a token of the protocol or a trusted token was transferred.
        """
        partial: dict[str, bool] = {}
        protocols: dict[str, UnreadProtocol] = {}
        for contract in self.unread.keys() & {*interactions.tokens, *interactions.ids, *interactions.exchanged}:
            protocol = self.unread[contract]
            is_token = contract in interactions.tokens or contract in interactions.ids
            is_certain = is_token or self._has_trusted_token(interactions.exchanged[contract])
            partial[protocol.key] = partial.get(protocol.key, False) or is_certain
            protocols[protocol.key] = protocol
        for key, makes_partial in sorted(partial.items()):
            reason = f"positions of {account} in {protocols[key].name} are unknown: {protocols[key].problem}"
            yield Issue("protocols", key, reason, makes_partial=makes_partial, account=account)


def _priority(rule: Token | Collection | Event) -> tuple[bool, bool]:
    """Return the sort key of a rule: rules that accept any contract's claim come last."""
    return not rule.role, isinstance(rule, Token) and rule.everywhere


def _event_values(
    rule: Event, contract: str, interactions: ContractInteractions
) -> Iterator[tuple[AbiValue, ...] | None]:
    """Yield the values of each event that names the account as owner; None for a malformed log.

    Values are those that the rule names, in its order. Events that name the account in another role are left out.
    """
    event = rule.parsed
    for event_log in interactions.events.get(event.filter(contract), ()):
        if event_log.place == event.topic_number(rule.owner):
            yield event.values(rule.values, event_log.topics, event_log.data)
