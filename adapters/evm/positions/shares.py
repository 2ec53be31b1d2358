"""Find tokens that are shares, and collections that are positions, by their answers to rules.

A contract may answer differently at another block, for example after an upgrade of its proxy, so answers are valid for
one block only. `Protocols` remembers which tokens to ask: those that lay in an account's shares at the last reading are
asked in the first round.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from chainfolio.adapters.evm.positions.interactions import ContractInteractions
from chainfolio.adapters.evm.positions.leads import ContractProtocols, follow_leads
from chainfolio.adapters.evm.positions.matching import (
    Decoder,
    Protocols,
    RuleMatch,
    SentTokens,
    family_of,
    match_of,
)
from chainfolio.adapters.evm.positions.rules import ProtocolMatch, Token
from chainfolio.adapters.evm.reads import AbiValue, Call
from chainfolio.assets import ZERO_ADDRESS
from chainfolio.contracts import Issue
from chainfolio.plans import Plan, Unknown, read_all
from chainfolio.protocols import InstalledProtocol


@dataclass(slots=True)
class Shares:
    """The answers of tokens at one block, shared by all accounts that are read there.

    `answered`: the tokens whose questions were read.
    """

    protocols: Protocols
    answered: set[str] = field(default_factory=set)
    _answers: dict[tuple[str, str], str] = field(default_factory=dict)  # by token and question
    _collections: dict[Call, AbiValue] = field(default_factory=dict)
    _contract_protocols: ContractProtocols | None = None
    _rules: dict[str, list[int]] = field(default_factory=dict)  # by token: cache of `_rules_of`

    def read_answers(self, tokens: Iterable[str]) -> Plan[None]:
        """Read and store the answers of those tokens that have not answered yet."""
        reads = self.questions(tokens)
        if reads:
            self.store_answers(reads, (yield from read_all(reads)))

    def questions(self, tokens: Iterable[str]) -> list[Call]:
        """Return the calls to ask of those tokens that have not answered yet."""
        pending = [token for token in tokens if token not in self.answered and token not in self.protocols.non_shares]
        return [Call(token, question) for token in pending for question in self.protocols.questions]

    def store_answers(self, reads: Sequence[Call], results: Sequence[AbiValue]) -> None:
        """Store the answers of tokens; a token with a failed read still counts as not answered."""
        failed = {read.to for read, result in zip(reads, results, strict=True) if _is_failed(result)}
        self.answered |= {read.to for read in reads} - failed
        for read, result in zip(reads, results, strict=True):
            self._rules.pop(read.to, None)
            if isinstance(result, str) and result != ZERO_ADDRESS:
                self._answers[read.to, read.signature] = result

    def unread_tokens(self, account: str, tokens: Iterable[str]) -> Iterator[Issue]:
        """Yield an issue for each token whose questions have no answers yet, because the reads failed."""
        for call in self.questions(tokens)[:: len(self.protocols.questions) or 1]:
            reason = f"whether what {account} has of it is a share of something is unknown: the read failed"
            yield Issue("protocols", call.to, reason, account=account)

    def read_collections(self, contracts: Iterable[str]) -> Plan[None]:
        """Read and store the answers of ERC-721 collections that no file names."""
        unlisted = sorted(set(contracts) - self.protocols.collections.keys() - self.protocols.non_shares)
        questions = sorted({question for question, _ in self.protocols.by_collection})
        reads = [Call(contract, question) for contract in unlisted for question in questions]
        if reads:
            self._collections |= zip(reads, (yield from read_all(reads)), strict=True)

    def by_collection(self, account: str, interactions: ContractInteractions) -> Iterator[RuleMatch]:
        """Yield a match for each unlisted collection that answers with a listed contract.

        Call `read_collections` first.
        """
        for call, result in self._collections.items():
            row = self.protocols.by_collection.get((call.signature, result)) if isinstance(result, str) else None
            if row is not None and call.to in interactions.ids:
                ids = tuple(sorted(interactions.ids[call.to]))
                match = match_of(row, account, call.to, answer=result, ids=ids, sent=interactions.sent)
                yield RuleMatch(row, match, is_trusted=_is_trusted(match))

    def unread_collections(self, account: str, interactions: ContractInteractions) -> Iterator[Issue]:
        """Yield an issue for each collection of an account whose read failed."""
        for call, result in self._collections.items():
            if call.to in interactions.ids and _is_failed(result):
                reason = f"whether what {account} has of it are positions is unknown: the read failed"
                yield Issue("protocols", call.to, reason, account=account)

    def by_token(self, account: str, tokens: Iterable[str], sent_tokens: SentTokens) -> Iterator[RuleMatch]:
        """Yield the matches of tokens with families that decode positions, after `read_answers`.

        There is one match per token, or per answer if the rule takes tokens together; a decoder gets a contract once.
        """
        answers_by_rule: dict[int, dict[str, str]] = {}
        rules, matched = self.protocols.rules(Token), set[tuple[str, Decoder, str]]()
        for token in sorted(tokens):
            for index in self._rules_of(token):
                row, rule = rules[index]
                if family_of(row).position is not None and (answer := self._answer(row, rule, token)) is not None:
                    answers_by_rule.setdefault(index, {})[token] = answer
        for index, answers in sorted(answers_by_rule.items()):
            row, rule = rules[index]
            groups: dict[str, list[str]] = {}
            for token, answer in answers.items():
                groups.setdefault(answer if rule.together else token, []).append(token)
            for contract, group in groups.items():
                key = row.protocol, family_of(row).position, contract
                if key in matched:
                    continue  # matched by another rule of the family, or of a family with the same decoder
                matched.add(key)
                match = match_of(
                    row, account, contract, answer=answers[group[0]], tokens=tuple(group), sent=sent_tokens
                )
                curates_tokens = rule.together and not row.is_fork
                yield RuleMatch(row, match, is_trusted=_is_trusted(match), curates_tokens=curates_tokens)

    def third_parties(self, account: str, tokens: Iterable[str], sent_tokens: SentTokens) -> Iterator[RuleMatch]:
        """Yield matches of tokens whose answer no file names, but contracts of files may lead to.

        There is one match for each decoder and answer, under the decoder's first protocol; `protocol_of` reads the real
        one.
        """
        for question, row in self.protocols.lead_questions:
            groups: dict[str, list[str]] = {}
            for token in sorted(tokens):
                answer = self._answers.get((token, question))
                if answer is not None and (question, answer) not in self.protocols.by_answer:
                    groups.setdefault(answer, []).append(token)
            for answer, group in groups.items():
                match = ProtocolMatch(
                    account, answer, answer=answer, tokens=tuple(group), sent=sent_tokens, is_fork=True
                )
                yield RuleMatch(row, match, is_trusted=any(token in sent_tokens for token in group))

    def protocol_of(self, matched: RuleMatch) -> Plan[InstalledProtocol | None]:
        """Read the protocol of a third-party contract; None if contracts of files do not lead to it.

        Raises:
            ReadError: It is unknown, because a read failed.
        """
        if self._contract_protocols is None:
            self._contract_protocols = yield from follow_leads(self.protocols.leads)
        family = matched.family
        questions = [rule.question for rule in family.rules if isinstance(rule, Token) and rule.through]
        return self._contract_protocols.protocol_of(family.position, questions, matched.match.answer)

    def share(self, account: str, token: str, sent_tokens: SentTokens) -> RuleMatch | None:
        """Return the match of a token with a family that unwraps it; None if it is no share.

        Call `read_answers` first.
        """
        rules = self.protocols.rules(Token)
        for index in self._rules_of(token):
            row, rule = rules[index]
            if family_of(row).unwrap is None:
                continue
            answer = self._answer(row, rule, token)
            if answer is not None:
                facts = self._facts(rule, token)
                match = match_of(row, account, token, answer=answer, facts=facts, tokens=(token,), sent=sent_tokens)
                return RuleMatch(row, match, is_trusted=_is_trusted(match))
        return None

    def _rules_of(self, token: str) -> list[int]:
        """Return the indexes of the rules that may match a token, in their order."""
        if (cached := self._rules.get(token)) is not None:
            return cached
        by_answer = self.protocols.by_answer
        indexes = {*self.protocols.roleless, *by_answer.get(("", token), ())}
        for question in self.protocols.questions:
            if answer := self._answers.get((token, question)):
                indexes.update(by_answer.get((question, answer), ()))
        self._rules[token] = sorted(indexes)
        return self._rules[token]

    def _answer(self, row: InstalledProtocol, rule: Token, token: str) -> str | None:
        """Return the answer by which a rule matches a token (itself without a question), or None."""
        answer = self._answers.get((token, rule.question)) if rule.question else token
        if answer is None or (rule.role and answer not in row.contracts.get(rule.role, ())):
            return None
        return answer if len(self._facts(rule, token)) == len(rule.facts) else None

    def _facts(self, rule: Token, token: str) -> tuple[str, ...]:
        return tuple(self._answers[token, fact] for fact in rule.facts if (token, fact) in self._answers)


def _is_failed(result: AbiValue) -> bool:
    return isinstance(result, Unknown) and result.cause == "read"


def _is_trusted(match: ProtocolMatch) -> bool:
    """Return True if a contract's link to the protocol is more than its own claim."""
    return match.contract in match.sent or any(match.contract in contracts for contracts in match.contracts.values())
