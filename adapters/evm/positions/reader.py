"""What one account has on one chain: balances, and its positions unfolded to what lies behind shares.

All of it is one plan. What is known leads on at once: while one decoder is in its third round, another share is being
unfolded, so the whole takes as many rounds as its longest path. A share that cannot be read stays what it is and is
said; so does one that leads back to itself, or deeper than anybody builds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from adapters.evm.positions.found import Found, FoundPosition, Underlying, asset_of
from adapters.evm.positions.interactions import ContractInteractions
from adapters.evm.positions.matching import Protocols, RuleMatch
from adapters.evm.positions.outcomes import Outcome, answered, makes_partial, outcome_of, unwrapping
from adapters.evm.positions.shares import Shares
from adapters.evm.reads import NativeBalance, Read, Reads, balance_of
from adapters.evm.words import ADDRESS
from chainfolio.abi import NamesAssets
from chainfolio.assets import Asset
from chainfolio.blocks import Block
from chainfolio.contracts import Issue
from chainfolio.decoded import problem_of_parts
from chainfolio.errors import BadAnswer
from chainfolio.interactions import Interactions
from chainfolio.plans import Plan, Report, batched
from chainfolio.positions import MAX_READS, MAX_ROUNDS, AccountState, Describe
from chainfolio.protocols import DecodedPosition, Remarked, TokenAmount, Unlisted, Unverified

MAX_DEPTH = 8
SECOND_US = 1_000_000
Named = Callable[[Iterable[str]], Plan[Read, Any, None]]
Trail = tuple[str, ...]  # the shares that led to a part


Several = tuple[list[FoundPosition], list[Issue]]


@dataclass(slots=True)
class OneAccount:
    """Reads one account. `interactions` is what it met by the block that is read, `time_s` when that was made.

    `named` asks for names and prices of tokens: of those that are held, or do not say whether they are, while positions
    are still being read; `expected` asks for names in the first round, where they can be foretold.
    """

    shares: Shares
    account: str
    interactions: ContractInteractions
    time_s: int = 0
    named: Named | None = None
    expected: Plan[Read, Any, None] | None = None
    _inner: set[str] = field(default_factory=set)

    def read_all(self, wanted: Sequence[str]) -> Plan[Read, Any, Found]:
        """The balances of the wanted tokens, and every position by what the account met."""
        results = yield from _ours(
            {
                "tokens": self._tokens(wanted),
                "collections": self._collections(),
                **{
                    str(at): self._position(each)
                    for at, each in enumerate(self.shares.protocols.by_contract(self.account, self.interactions))
                },
                **({"expected": self.expected} if self.expected is not None else {}),
            }
        )
        results.pop("expected", None)
        native, balances, by_token, loose = results.pop("tokens")
        found = [each for positions, _ in (*results.values(), by_token) for each in positions]
        issues = [issue for _, said in (*results.values(), by_token, loose) for issue in said]
        replaces = {token for each in found for token in each.found.replaces}
        found += [each for each in loose[0] if each.found.pool not in replaces]
        held = {token for token, raw in balances.items() if isinstance(raw, int) and raw}
        issues += self.shares.silent(self.account, sorted(held | self._inner | self.interactions.tokens))
        self.shares.protocols.remember(self.account, self._inner - held)
        return Found(native, balances, tuple(each for each in found if not each.empty), tuple(issues))

    def _tokens(self, wanted: Sequence[str]) -> Plan[Read, Any, tuple[Any, dict[str, Any], Several, Several]]:
        """Balances; the positions that go by tokens; and what lies behind the shares among them."""
        reads: list[Read] = [NativeBalance(self.account), *(balance_of(each, self.account) for each in wanted)]
        expected = self.shares.protocols.expected(self.account)
        questions = self.shares.questions(sorted(self.interactions.tokens | expected))
        native, *answers = yield [*reads, *questions]
        self.shares.learn(questions, answers[len(wanted) :])
        balances = dict(zip(wanted, answers, strict=False))
        held = {token: raw for token, raw in balances.items() if isinstance(raw, int) and raw}
        yield from self.shares.ask(held)
        matches = self.shares.by_token(self.account, {*self.interactions.tokens, *held}, self.interactions.sent)
        by_token = {str(at): self._position(each) for at, each in enumerate(matches)}
        known = {*self.interactions.tokens, *held}
        others = self.shares.third_parties(self.account, known, self.interactions.sent)
        by_token |= {f"led {at}": self._position(each, self.shares.whose(each)) for at, each in enumerate(others)}
        shares = {token: self._share(token, raw) for token, raw in held.items()}
        silent = {token for token in self.interactions.tokens if not isinstance(balances.get(token, 0), int)}
        named = {"": self.named({*held, *silent})} if self.named is not None else {}
        results = yield from _ours(by_token | shares | named)
        return native, balances, _joined(results[key] for key in by_token), _joined(results[key] for key in shares)

    def _collections(self) -> Plan[Read, Any, Several]:
        """The positions that are tokens of collections which no file names."""
        yield from self.shares.ask_collections(self.interactions.ids)
        matches = self.shares.by_collection(self.account, self.interactions)
        results = yield from _ours({str(at): self._position(each) for at, each in enumerate(matches)})
        positions, issues = _joined(results.values())
        return positions, [*issues, *self.shares.silent_collections(self.account, self.interactions)]

    def _position(self, matched: RuleMatch, whose: Reads | None = None) -> Plan[Read, Any, Several]:
        """What one decoder finds, unfolded."""
        outcome: Outcome = yield from outcome_of(matched.at(self.time_s), whose)
        matched = outcome.matched
        plans: dict[str, Plan[Read, Any, Any]] = {
            str(at): self._underlying(each.supplied, is_inner=bool(each.replaces))
            for at, each in enumerate(outcome.found)
        }
        others = {part.token for each in outcome.found for part in (*each.borrowed, *each.rewards) if part.raw}
        if others and self.named is not None:  # while what was supplied is unfolded, and not a round later
            plans["named"] = self.named(others)
        behind = yield from _ours(plans)
        behind.pop("named", None)
        opened, issues = [], list(outcome.issues)
        for found, each in zip(outcome.found, behind.values(), strict=True):
            each.calls[:0] = outcome.calls
            each.unlisted |= {matched.match.contract} if found.unlisted else set()
            opened.append(FoundPosition(self.account, matched.row.protocol, found, each, matched.vouches))
            issues += each.issues
        return opened, issues

    def _share(self, token: str, raw: int) -> Plan[Read, Any, Several]:
        """A loose token as a position, where it is a share of something."""
        matched = self.shares.share(self.account, token, self.interactions.sent)
        if matched is None or matched.family.position is not None:
            return [], []
        behind = yield from self._unfold(TokenAmount(token, raw), (), is_inner=False)
        if token in behind.parts:  # it is none after all, or nobody knows: it stays loose
            return [], behind.issues
        found = DecodedPosition(matched.family.position_type, pool=token, replaces=(token,))
        return [FoundPosition(self.account, matched.row.protocol, found, behind)], behind.issues

    def _underlying(
        self, parts: Sequence[TokenAmount], trail: Trail = (), is_inner: bool = True
    ) -> Plan[Read, Any, Underlying]:
        results = yield from _ours({str(at): self._unfold(part, trail, is_inner) for at, part in enumerate(parts)})
        whole = Underlying()
        for each in results.values():
            whole.merge(each)
        return whole

    def _unfold(self, part: TokenAmount, trail: Trail, is_inner: bool) -> Plan[Read, Any, Underlying]:
        """What lies behind a part in the end: itself, where it is no share. `is_inner`: it lies in another share."""
        itself = Underlying({part.token: part.raw})
        if not part.raw:
            return itself
        self._inner.add(part.token)
        yield from self.shares.ask([part.token])
        share = self.shares.share(self.account, part.token, self.interactions.sent)
        if share is None:
            return itself
        if part.token in trail or len(trail) >= MAX_DEPTH:
            why = (
                "it leads back to itself" if part.token in trail else f"more than {MAX_DEPTH} shares lie in each other"
            )
            itself.issues.append(self._unknown(share, why, share.sure))
            return itself
        reports: dict[str, Report[Any]] = yield from batched(
            {"": unwrapping(share.at(self.time_s, is_inner), part.raw)}, record=True
        )
        report = reports[""]
        result: Any = report.result
        if report.status == "ok" and result is None:
            return itself  # it only says that it is one
        if isinstance(result, Unverified):
            itself.issues.append(share.unverified(result.reason))
            return itself
        remark = result.remark if isinstance(result, Remarked) else ""
        given: Any = result.given if isinstance(result, Remarked) else result
        parts = given.parts if isinstance(given, Unlisted) else given
        why = report.reason or problem_of_parts(parts, ADDRESS.match)
        if why:
            itself.issues.append(self._unknown(share, why, makes_partial(share, report)))
            return itself
        behind: Underlying = yield from self._underlying(parts, (*trail, part.token))
        behind.calls[:0] = answered(report)
        if remark:
            behind.issues.append(share.remarked(remark))
        if isinstance(given, Unlisted):
            behind.unlisted.add(part.token)
        return behind

    def _unknown(self, share: RuleMatch, why: str, makes_partial: bool) -> Issue:
        return share.issue(f"what lies behind this share of {self.account} is unknown: {why}", makes_partial)


@dataclass(frozen=True, slots=True)
class AtBlock:
    """Reads accounts at one block; what tokens answered there serves all of them."""

    shares: Shares
    names: NamesAssets
    time_s: int

    def read(
        self,
        account: str,
        interactions: Interactions,
        wanted: Sequence[Asset],
        named: Describe | None = None,
        expected: Plan[Read, Any, None] | None = None,
    ) -> Plan[Read, Any, AccountState]:
        """As `chainfolio.positions.BlockReader` has it."""
        by_contract = None if named is None else lambda held: named(asset_of(each, self.names) for each in held)
        one = OneAccount(
            self.shares, account, ContractInteractions.of(interactions), self.time_s, by_contract, expected
        )
        found = yield from one.read_all([asset.reference for asset in wanted])
        return found.by_asset(wanted, self.names)


@dataclass(frozen=True, slots=True)
class Accounts:
    """What an EVM chain reads of accounts, as `chainfolio.positions.AccountReader` has it."""

    protocols: Protocols
    names: NamesAssets
    finds_tokens: bool = False  # contracts know their holders, and holders not their contracts

    @property
    def events(self) -> Sequence[str]:
        """The filters of the dataset `events` that rules ask for."""
        return self.protocols.events

    @property
    def issues(self) -> Sequence[Issue]:
        """What it cannot read of anybody."""
        return self.protocols.issues

    def unknown(self, account: str, interactions: Interactions) -> Iterator[Issue]:
        """What an account had to do with contracts that nobody reads, an issue a protocol."""
        return self.protocols.unknown(account, ContractInteractions.of(interactions))

    def at(self, block: Block) -> AtBlock:
        """The same at one block."""
        return AtBlock(Shares(self.protocols), self.names, block.time_us // SECOND_US)


def _joined(results: Iterable[Several]) -> Several:
    several = list(results)
    return [each for opened, _ in several for each in opened], [each for _, issues in several for each in issues]


def _ours(plans: Mapping[str, Plan[Read, Any, Any]]) -> Plan[Read, Any, dict[str, Any]]:
    """Plans of our own together, and their results: decoders inside them are bounded one by one, and what those
    raise has become an issue before it gets here."""
    reports: dict[str, Report[Any]] = yield from batched(plans, max_rounds=MAX_ROUNDS, max_reads=MAX_READS)
    for report in reports.values():
        if report.status != "ok":
            raise report.error or BadAnswer("positions", report.reason)
    return {name: report.result for name, report in reports.items()}
