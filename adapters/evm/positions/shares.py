"""Which tokens are shares of a protocol, and which collections positions in one, by what they answer to its rules'
questions at one block.

A contract may answer otherwise at another block, as a proxy that was upgraded does, so answers are kept for the block
that is read and for nothing else. What is remembered is only which tokens to ask: those that lay in an account's shares
the last time are asked in the first round.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from adapters.evm.positions.interactions import ContractInteractions
from adapters.evm.positions.leads import Led, follow
from adapters.evm.positions.matching import Decoder, Protocols, RuleMatch, Sent, family_of, match_of
from adapters.evm.positions.rules import ProtocolMatch, Token
from adapters.evm.reads import Call, Read
from chainfolio.assets import ZERO_ADDRESS
from chainfolio.contracts import Issue
from chainfolio.plans import Plan, Unknown
from chainfolio.protocols import InstalledProtocol


@dataclass(slots=True)
class Shares:
    """What tokens answered at one block, which any number of accounts may share."""

    protocols: Protocols
    asked: set[str] = field(default_factory=set)
    _answers: dict[tuple[str, str], str] = field(default_factory=dict)
    _collections: dict[Call, Any] = field(default_factory=dict)
    _led: Led | None = None
    _rules: dict[str, list[int]] = field(default_factory=dict)  # of tokens, as `_rules_of` found them

    def ask(self, tokens: Iterable[str]) -> Plan[Read, Any, None]:
        """Put the rules' questions to those tokens that were not asked yet."""
        reads = self.questions(tokens)
        if reads:
            self.learn(reads, (yield reads))

    def questions(self, tokens: Iterable[str]) -> list[Call]:
        """What to ask tokens that were not asked yet."""
        open_ = [token for token in tokens if token not in self.asked and token not in self.protocols.plain]
        return [Call(token, question) for token in open_ for question in self.protocols.questions]

    def learn(self, reads: Sequence[Call], answers: Sequence[Any]) -> None:
        """Keep what tokens answered. One of which a read failed was not asked."""
        failed = {ask.to for ask, answer in zip(reads, answers, strict=True) if _failed(answer)}
        self.asked |= {ask.to for ask in reads} - failed
        for ask, answer in zip(reads, answers, strict=True):
            self._rules.pop(ask.to, None)
            if isinstance(answer, str) and answer != ZERO_ADDRESS:
                self._answers[ask.to, ask.signature] = answer

    def silent(self, account: str, tokens: Iterable[str]) -> Iterator[Issue]:
        """An issue for each of some tokens that could not be asked."""
        for call in self.questions(tokens)[:: len(self.protocols.questions) or 1]:
            reason = f"whether what {account} has of it is a share of something is unknown: the read failed"
            yield Issue("protocols", call.to, reason, account=account)

    def ask_collections(self, contracts: Iterable[str]) -> Plan[Read, Any, None]:
        """Put the rules' questions to ERC-721 collections that no file names."""
        others = sorted(set(contracts) - self.protocols.collections.keys() - self.protocols.plain)
        questions = sorted({question for question, _ in self.protocols.by_collection})
        reads = [Call(contract, question) for contract in others for question in questions]
        if reads:
            self._collections |= zip(reads, (yield reads), strict=True)

    def by_collection(self, account: str, match: ContractInteractions) -> Iterator[RuleMatch]:
        """Meetings by tokens of collections that no file names, once these were asked: one a collection."""
        for call, answer in self._collections.items():
            row = self.protocols.by_collection.get((call.signature, answer)) if isinstance(answer, str) else None
            if row is not None and call.to in match.ids:
                ids = tuple(sorted(match.ids[call.to]))
                found = match_of(row, account, call.to, answer=answer, ids=ids, sent=match.sent)
                yield RuleMatch(row, found, sure=_is_sure(found))

    def silent_collections(self, account: str, match: ContractInteractions) -> Iterator[Issue]:
        """An issue for each collection of an account's that could not be asked."""
        for call, answer in self._collections.items():
            if call.to in match.ids and _failed(answer):
                reason = f"whether what {account} has of it are positions is unknown: the read failed"
                yield Issue("protocols", call.to, reason, account=account)

    def by_token(self, account: str, tokens: Iterable[str], sent: Sent) -> Iterator[RuleMatch]:
        """Meetings by tokens, once those were asked, of families that read more than what a share is worth."""
        told: dict[int, dict[str, str]] = {}
        rules, seen = self.protocols.rules(Token), set[tuple[str, Decoder, str]]()
        for token in sorted(tokens):
            for at in self._rules_of(token):
                row, rule = rules[at]
                if family_of(row).position is not None and (answer := self._matches(row, rule, token)) is not None:
                    told.setdefault(at, {})[token] = answer
        for at, answers in sorted(told.items()):
            row, rule = rules[at]
            groups: dict[str, list[str]] = {}
            for token, answer in answers.items():
                groups.setdefault(answer if rule.together else token, []).append(token)
            for contract, several in groups.items():
                meeting = row.protocol, family_of(row).position, contract
                if meeting in seen:
                    continue  # another rule found it, of the family or of one with the same decoder
                seen.add(meeting)
                match = match_of(row, account, contract, answer=answers[several[0]], tokens=tuple(several), sent=sent)
                yield RuleMatch(row, match, sure=_is_sure(match), vouches=rule.together and not row.is_fork)

    def third_parties(self, account: str, tokens: Iterable[str], sent: Sent) -> Iterator[RuleMatch]:
        """Matches by tokens that gave an answer to which contracts of files may lead, each as if one of each
        decoder did: `whose` says which does."""
        for question, row in self.protocols.led_kinds:
            groups: dict[str, list[str]] = {}
            for token in sorted(tokens):
                answer = self._answers.get((token, question))
                if answer is not None and (question, answer) not in self.protocols.by_answer:
                    groups.setdefault(answer, []).append(token)
            for answer, several in groups.items():
                match = ProtocolMatch(account, answer, answer=answer, tokens=tuple(several), sent=sent, is_fork=True)
                yield RuleMatch(row, match, sure=any(token in sent for token in several))

    def whose(self, matched: RuleMatch) -> Plan[Read, Any, InstalledProtocol | None]:
        """Whose a third-party contract is; None where those of files lead to others. Unread where that is unknown."""
        if self._led is None:
            self._led = yield from follow(self.protocols.leads)
        family = matched.family
        questions = [rule.question for rule in family.rules if isinstance(rule, Token) and rule.through]
        return self._led.whose(family.position, questions, matched.match.answer)

    def share(self, account: str, token: str, sent: Sent) -> RuleMatch | None:
        """The family that can say what lies behind a token, once it was asked; `sent`: what was sent to whom."""
        rules = self.protocols.rules(Token)
        for at in self._rules_of(token):
            row, rule = rules[at]
            if family_of(row).unwrap is None:
                continue
            answer = self._matches(row, rule, token)
            if answer is not None:
                facts = self._facts(rule, token)
                match = match_of(row, account, token, answer=answer, facts=facts, tokens=(token,), sent=sent)
                return RuleMatch(row, match, sure=_is_sure(match))
        return None

    def _rules_of(self, token: str) -> list[int]:
        """Where the rules stand by which a token may be met, in their order."""
        if (known := self._rules.get(token)) is not None:
            return known
        by_answer = self.protocols.by_answer
        found = {*self.protocols.roleless, *by_answer.get(("", token), ())}
        for question in self.protocols.questions:
            if answer := self._answers.get((token, question)):
                found.update(by_answer.get((question, answer), ()))
        self._rules[token] = sorted(found)
        return self._rules[token]

    def _matches(self, row: InstalledProtocol, rule: Token, token: str) -> str | None:
        """What the token answers, or is, where the rule takes it; None where it does not."""
        answer = self._answers.get((token, rule.question)) if rule.question else token
        if answer is None or (rule.role and answer not in row.contracts.get(rule.role, ())):
            return None
        return answer if len(self._facts(rule, token)) == len(rule.facts) else None

    def _facts(self, rule: Token, token: str) -> tuple[str, ...]:
        return tuple(self._answers[token, fact] for fact in rule.facts if (token, fact) in self._answers)


def _failed(answer: Any) -> bool:
    return isinstance(answer, Unknown) and answer.cause == "read"


def _is_sure(match: ProtocolMatch) -> bool:
    """Whether a contract that a token rule found is more than somebody's claim to belong to the protocol."""
    return match.contract in match.sent or any(match.contract in of_role for of_role in match.contracts.values())
