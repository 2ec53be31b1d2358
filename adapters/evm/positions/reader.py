"""Read one account on one chain: balances, and positions unfolded to the tokens that shares stand for.

All of it is one plan, and each step starts as soon as its input is known: while one decoder is in its third round,
another share is being unfolded, so that the whole takes as many rounds as its longest path. A share that cannot be read
stays the token that it is, with an issue; so does a share that contains itself, or is nested too deeply.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, cast

from chainfolio.abi import AssetNames
from chainfolio.adapters.evm.positions.interactions import ContractInteractions
from chainfolio.adapters.evm.positions.matching import Protocols, RuleMatch
from chainfolio.adapters.evm.positions.outcomes import calls_of, makes_partial, outcome_of, read_underlying
from chainfolio.adapters.evm.positions.shares import Shares
from chainfolio.adapters.evm.positions.unfolded import AccountContents, Underlying, UnfoldedPosition, asset_of
from chainfolio.adapters.evm.reads import AbiValue, NativeBalance, Read, balance_of
from chainfolio.adapters.evm.words import ADDRESS
from chainfolio.assets import Asset
from chainfolio.blocks import Block
from chainfolio.contracts import Issue
from chainfolio.decoded import problem_of_parts
from chainfolio.interactions import Interactions
from chainfolio.plans import Output, Plan, PlanGroup, all_of, batched, read_all
from chainfolio.positions import MAX_READS, MAX_ROUNDS, AccountState, Describe
from chainfolio.protocols import (
    AnnotatedShare,
    DecodedPosition,
    InstalledProtocol,
    TokenAmount,
    UnlistedShare,
    UnverifiedShare,
)

MAX_DEPTH = 8  # of shares in shares
SECOND_US = 1_000_000
DescribeTokens = Callable[[Iterable[str]], Plan[None]]
Trail = tuple[str, ...]  # the shares that contain a token, from the outermost


class PositionsRead(NamedTuple):
    """Unfolded positions, and the issues of reading them."""

    positions: list[UnfoldedPosition]
    issues: list[Issue]


class TokensRead(NamedTuple):
    """Balances of an account, positions of decoders that tokens matched, and shares that were unwrapped."""

    native: AbiValue
    balances: dict[str, AbiValue]
    decoded: PositionsRead
    unwrapped: PositionsRead


@dataclass(slots=True)
class SingleAccountReader:
    """Reads one account at one block.

    Args:
        shares: The answers of tokens at the block.
        account: Its address.
        interactions: Its interactions up to the block.
        time_s: Time of the block, in Unix seconds.
        describe: Reads names and prices of tokens, while positions are still being read: of tokens that are held, or
            whose balance is unknown.
        expected: Reads names in the first round, as far as the tokens can be predicted.
    """

    shares: Shares
    account: str
    interactions: ContractInteractions
    time_s: int = 0
    describe: DescribeTokens | None = None
    expected: Plan[None] | None = None
    _inner: set[str] = field(default_factory=set)  # tokens inside positions and shares

    def read_all(self, tokens: Sequence[str]) -> Plan[AccountContents]:
        """Read the balances of `tokens` and every position that the account's interactions lead to.

        Empty positions are left out. Shares of the wallet that a decoded position replaces are not unwrapped again.
        Failures of decoders are issues. The tokens inside positions and shares are remembered for the next reading.
        """
        matches = self.shares.protocols.by_contract(self.account, self.interactions)
        group = _group()
        tokens_read = group.add(self._tokens(tokens))
        collections = group.add(self._collections())
        by_contract = [group.add(plan) for plan in self._position_plans(matches).values()]
        if self.expected is not None:
            group.add(self.expected)
        yield from group.run()
        native, balances, decoded, unwrapped = tokens_read.value
        positions, issues = _join_reads([collections.value, *(result.value for result in by_contract), decoded])
        issues += unwrapped.issues
        replaced = {token for position in positions for token in position.decoded.replaces}
        positions += [position for position in unwrapped.positions if position.decoded.pool not in replaced]
        held_tokens = {token for token, raw in balances.items() if isinstance(raw, int) and raw}
        issues += self.shares.unread_tokens(self.account, sorted(held_tokens | self._inner | self.interactions.tokens))
        self.shares.protocols.remember_tokens(self.account, self._inner - held_tokens)
        nonempty = tuple(position for position in positions if not position.is_empty)
        return AccountContents(native, balances, nonempty, tuple(issues))

    def _tokens(self, tokens: Sequence[str]) -> Plan[TokensRead]:
        """Read balances of `tokens`, then the positions and shares that the account's tokens matched.

        Positions may come from tokens with a balance of 0 now; shares are unwrapped only if there is a balance. Names
        and prices of tokens are read meanwhile (`describe`).
        """
        reads: list[Read] = [NativeBalance(self.account), *(balance_of(token, self.account) for token in tokens)]
        expected = self.shares.protocols.expected_tokens(self.account)
        questions = self.shares.questions(sorted(self.interactions.tokens | expected))
        native, *results = yield from read_all([*reads, *questions])
        self.shares.store_answers(questions, results[len(tokens) :])
        balances = dict(zip(tokens, results, strict=False))
        held_amounts = {token: raw for token, raw in balances.items() if isinstance(raw, int) and raw}
        yield from self.shares.read_answers(held_amounts)
        touched, sent_tokens = {*self.interactions.tokens, *held_amounts}, self.interactions.sent
        decoders = self._position_plans(self.shares.by_token(self.account, touched, sent_tokens))
        for index, match in enumerate(self.shares.third_parties(self.account, touched, sent_tokens)):
            decoders[f"led {index}"] = self._position(match, self.shares.protocol_of(match))
        shares = {token: self._share(token, raw) for token, raw in held_amounts.items()}
        unreadable = {token for token in self.interactions.tokens if not isinstance(balances.get(token, 0), int)}
        group = _group()
        decoded = [group.add(plan) for plan in decoders.values()]
        unwrapped = [group.add(plan) for plan in shares.values()]
        if self.describe is not None:
            group.add(self.describe({*held_amounts, *unreadable}))
        yield from group.run()
        joined = (_join_reads(result.value for result in results) for results in (decoded, unwrapped))
        return TokensRead(native, balances, *joined)

    def _collections(self) -> Plan[PositionsRead]:
        """Read the positions that are tokens of collections which no file names."""
        yield from self.shares.read_collections(self.interactions.ids)
        matches = self.shares.by_collection(self.account, self.interactions)
        results = yield from _run_all(self._position_plans(matches))
        positions, issues = _join_reads(results.values())
        return PositionsRead(positions, [*issues, *self.shares.unread_collections(self.account, self.interactions)])

    def _position_plans(self, matches: Iterable[RuleMatch]) -> dict[str, Plan[PositionsRead]]:
        return {str(index): self._position(match) for index, match in enumerate(matches)}

    def _position(
        self, matched: RuleMatch, protocol: Plan[InstalledProtocol | None] | None = None
    ) -> Plan[PositionsRead]:
        """Decode one match, unfold supplied tokens, and describe tokens that are borrowed or earned.

        Failures of the decoder are issues. `protocol` is as for `outcome_of`.
        """
        outcome = yield from outcome_of(self._in_this_block(matched), protocol)
        matched = outcome.matched
        group = _group()
        supplied = [
            group.add(
                self._underlying(
                    position.supplied, is_inner=bool(position.replaces), is_own_action=matched.is_own_action
                )
            )
            for position in outcome.positions
        ]
        other_parts = (part for position in outcome.positions for part in (*position.borrowed, *position.rewards))
        other_tokens = {part.token for part in other_parts if part.raw}
        if other_tokens and self.describe is not None:  # in the rounds that unfold what was supplied, not a round later
            group.add(self.describe(other_tokens))
        yield from group.run()
        unfolded, issues = [], list(outcome.issues)
        for position, result in zip(outcome.positions, supplied, strict=True):
            underlying = result.value
            underlying.calls[:0] = outcome.calls
            if position.is_unlisted:
                underlying.unlisted.add(matched.match.contract)
            protocol_key, curates_tokens = matched.row.protocol, matched.curates_tokens
            unfolded.append(UnfoldedPosition(self.account, protocol_key, position, underlying, curates_tokens))
            issues += underlying.issues
        return PositionsRead(unfolded, issues)

    def _share(self, token: str, raw: int) -> Plan[PositionsRead]:
        """Unwrap a token of the wallet; no position if it is no share, or its family decodes positions.

        A share that cannot be unwrapped has an issue and no position.
        """
        matched = self.shares.share(self.account, token, self.interactions.sent)
        if matched is None or matched.family.position is not None:
            return PositionsRead([], [])
        underlying = yield from self._unfold(TokenAmount(token, raw), (), is_inner=False)
        if token in underlying.parts:  # it is no share after all, or could not be read
            return PositionsRead([], underlying.issues)
        position = DecodedPosition(matched.family.position_type, pool=token, replaces=(token,))
        unfolded = UnfoldedPosition(self.account, matched.row.protocol, position, underlying)
        return PositionsRead([unfolded], underlying.issues)

    def _in_this_block(self, matched: RuleMatch, is_inner: bool = False, is_own_action: bool = False) -> RuleMatch:
        """Return a match with this block's time, marked as inner and as the account's own action.

        Args:
            matched: The match of a rule with a contract or a share.
            is_inner: True if the account holds the share only inside another share.
            is_own_action: True if the account itself used the contract in which this one lies. Otherwise it is
                derived from the interactions of the account.
        """
        is_own = is_own_action or self.shares.protocols.is_own_action(matched.match, self.interactions)
        return replace(matched.at(self.time_s, is_inner), is_own_action=is_own)

    def _underlying(
        self, parts: Sequence[TokenAmount], trail: Trail = (), is_inner: bool = True, is_own_action: bool = False
    ) -> Plan[Underlying]:
        """Unfold several parts together and return the sum."""
        plans = {str(index): self._unfold(part, trail, is_inner, is_own_action) for index, part in enumerate(parts)}
        results = yield from _run_all(plans)
        total = Underlying()
        for underlying in results.values():
            total.merge(underlying)
        return total

    def _unfold(self, part: TokenAmount, trail: Trail, is_inner: bool, is_own_action: bool = False) -> Plan[Underlying]:
        """Return the tokens that a part stands for: itself if it is no share or cannot be unwrapped.

        What cannot be unwrapped, leads back to itself, or lies in more than MAX_DEPTH shares is also an issue.

        Args:
            trail: The shares in which the part lies.
            is_inner: True if it lies in another share.
            is_own_action: True if it lies in a contract that the account itself used.
        """
        itself = Underlying({part.token: part.raw})
        if not part.raw:
            return itself
        self._inner.add(part.token)
        yield from self.shares.read_answers([part.token])
        share = self.shares.share(self.account, part.token, self.interactions.sent)
        if share is None:
            return itself
        if part.token in trail:
            itself.issues.append(self._unknown(share, "it leads back to itself", share.is_trusted))
            return itself
        if len(trail) >= MAX_DEPTH:
            reason = f"more than {MAX_DEPTH} shares lie in each other"
            itself.issues.append(self._unknown(share, reason, share.is_trusted))
            return itself
        share = self._in_this_block(share, is_inner, is_own_action)
        plan = read_underlying(share, part.raw)
        reports = yield from batched({"": plan}, record=True)
        report = reports[""]
        result = report.result
        if report.status == "ok" and result is None:
            return itself  # it does not belong to the family
        if isinstance(result, UnverifiedShare):
            itself.issues.append(share.unverified(result.reason))
            return itself
        remark = result.remark if isinstance(result, AnnotatedShare) else ""
        unwrapped = result.parts if isinstance(result, AnnotatedShare) else result
        parts = unwrapped.parts if isinstance(unwrapped, UnlistedShare) else unwrapped
        problem = report.reason or problem_of_parts(parts, ADDRESS.match)
        if problem:
            itself.issues.append(self._unknown(share, problem, makes_partial(share, report)))
            return itself
        underlying = yield from self._underlying(
            cast(Sequence[TokenAmount], parts), (*trail, part.token), is_own_action=share.is_own_action
        )
        underlying.calls[:0] = calls_of(report)
        if remark:
            underlying.issues.append(share.remarked(remark))
        if isinstance(unwrapped, UnlistedShare):
            underlying.unlisted.add(part.token)
        return underlying

    def _unknown(self, share: RuleMatch, problem: str, makes_partial: bool) -> Issue:
        return share.issue(f"what lies behind this share of {self.account} is unknown: {problem}", makes_partial)


@dataclass(frozen=True, slots=True)
class EvmBlockReader:
    """Reads accounts at one block, as `chainfolio.positions.BlockReader`; they share `shares`."""

    shares: Shares
    names: AssetNames
    time_s: int

    def read(
        self,
        account: str,
        interactions: Interactions,
        assets: Sequence[Asset],
        describe: Describe | None = None,
        prefetch: Plan[None] | None = None,
    ) -> Plan[AccountState]:
        """Read an account as `chainfolio.positions.BlockReader.read` describes."""
        describe_contracts = (
            None if describe is None else lambda tokens: describe(asset_of(token, self.names) for token in tokens)
        )
        by_contract = ContractInteractions.of(interactions)
        reader = SingleAccountReader(self.shares, account, by_contract, self.time_s, describe_contracts, prefetch)
        contents = yield from reader.read_all([asset.reference for asset in assets])
        return contents.by_asset(assets, self.names)


@dataclass(frozen=True, slots=True)
class EvmAccountReader:
    """Reads accounts of an EVM chain, as `chainfolio.positions.AccountReader`."""

    protocols: Protocols
    names: AssetNames
    finds_tokens: bool = False  # contracts know their holders, but holders do not know their contracts

    @property
    def events(self) -> Sequence[str]:
        """The events of all rules, as filters of the dataset `events`."""
        return self.protocols.events

    @property
    def issues(self) -> Sequence[Issue]:
        """The installed protocols that cannot be read for any account."""
        return self.protocols.issues

    def unread_protocols(self, account: str, interactions: Interactions) -> Iterator[Issue]:
        """Yield an issue for each protocol that no installed family reads and the account interacted with."""
        return self.protocols.unread_protocols(account, ContractInteractions.of(interactions))

    def at(self, block: Block) -> EvmBlockReader:
        """Return a reader of accounts at one block."""
        return EvmBlockReader(Shares(self.protocols), self.names, block.time_us // SECOND_US)


def _join_reads(reads: Iterable[PositionsRead]) -> PositionsRead:
    """Return the positions and the issues of several reads, in order."""
    joined = PositionsRead([], [])
    for positions, issues in reads:
        joined.positions.extend(positions)
        joined.issues.extend(issues)
    return joined


def _run_all(plans: Mapping[str, Plan[Output]]) -> Plan[dict[str, Output]]:
    """Run plans together and return their results; an error of one is raised.

    Decoders inside the plans have bounds of their own, and their errors are issues already.
    """
    return all_of(plans, source="positions", max_rounds=MAX_ROUNDS, max_reads=MAX_READS)


def _group() -> PlanGroup:
    """Return a group of plans with the bounds of `_run_all`."""
    return PlanGroup("positions", MAX_ROUNDS, MAX_READS)
