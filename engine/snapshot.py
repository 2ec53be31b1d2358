"""What some accounts hold on one chain at one block: everything read at that block's hash, prices too.

The first rounds ask for every balance, and for the positions in protocols that were met; the next for what held tokens
are, what they are worth and what lies behind them. So a snapshot of loose tokens is about three requests, and one of
positions about six, however many tokens, positions and accounts there are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from chainfolio.addresses import rules_of
from chainfolio.assets import ZERO_ADDRESS, Asset
from chainfolio.blocks import Block, Span
from chainfolio.calls import Read, balance_of
from chainfolio.contracts import Day, Holding, Issue, Quoted, Snapshot, Spam, Token
from chainfolio.errors import BadAnswer, Reorged, SourceError
from chainfolio.interactions import Interactions
from chainfolio.plans import Plan, run_batched
from chainfolio.positions import MAX_READS, MAX_ROUNDS, AccountReader, AccountState
from chainfolio.protocols import InstalledProtocols
from engine import account_index
from engine.daily import Daily, daily
from engine.descriptions import About
from engine.judging import Judge, Judgement
from engine.past_prices import Past
from engine.reading import Reading, holdings_of, natives_of
from engine.sent import paid
from engine.tokens import TokenBook
from pricing.fixed import pegged
from pricing.quotes import PriceSource, Quotes

if TYPE_CHECKING:
    from chainfolio.chains import Chain, Collected
    from storage.lake import Lake
    from storage.tail import Tail

LIVE_LAG = 64  # blocks: an index that is this close to the head is live


@dataclass(slots=True)
class Snapshotter:
    """Takes snapshots of one chain."""

    chain: Chain
    lake: Lake
    tail: Tail
    book: TokenBook
    sources: Sequence[PriceSource]
    installed: InstalledProtocols = field(default_factory=InstalledProtocols)
    reader: AccountReader = field(init=False)
    past: Past = field(init=False)
    _judge: Judge = field(init=False)

    def __post_init__(self) -> None:
        self.reader = self.chain.account_reader(self.installed, self.book.listed)
        self._judge = Judge(self.chain, self.lake, self.tail, self.book)
        self.past = Past(self.chain, self.sources)

    async def take(
        self, accounts: Sequence[str], block: Block | None = None, extra: Sequence[str] = (), *, live: bool = False
    ) -> Snapshot:
        """A snapshot at a block; without one at the newest that is indexed, or, `live`, at the newest of the chain.
        `extra` are contracts to look at beside those the accounts have met."""
        before = self.chain.requests
        if block is not None:
            return await self._at(accounts, block, extra, before)
        head = (await self.chain.heads()).latest
        try:
            taken = await self._at(accounts, head if live else self._indexed(head), extra, before)
        except Reorged:
            # The block has just left the chain, and the follower does not know yet: the head is the other "now".
            head = (await self.chain.heads()).latest
            taken = await self._at(accounts, head, extra, before)
        return replace(taken, head=max(head.height, taken.block.height))

    async def quote(self, contracts: Sequence[str]) -> Quoted:
        """What some tokens and the native coin are and what they are worth, all at the head of the chain."""
        try:
            return await self._quoted(contracts)
        except Reorged:
            return await self._quoted(contracts)

    async def _quoted(self, contracts: Sequence[str]) -> Quoted:
        block = (await self.chain.heads()).latest
        about = await self.known(contracts, block)
        prices = {price.asset: price for price in about.quotes.prices}
        refused = _refusals(about.quotes, {"": {*contracts, ZERO_ADDRESS}})
        return Quoted(block, about.tokens, prices, (*about.issues, *refused), pegged(self.sources))

    @property
    def native(self) -> Token:
        """The native coin as a token."""
        return self.chain.info.native

    async def _at(self, accounts: Sequence[str], block: Block, extra: Sequence[str], before: int) -> Snapshot:
        reading = await self._read(accounts, block, extra)
        judgement = await asyncio.to_thread(self._judge.of, reading)
        return replace(assembled(self.chain, reading, judgement, self.sources), requests=self.chain.requests - before)

    async def _read(self, accounts: Sequence[str], block: Block, extra: Sequence[str]) -> Reading:
        # Before the rows are read: what is covered by now is there then.
        unindexed = account_index.unindexed(self.tail, self.chain.key, block.height, self.reader.events)
        recent = await self._recent(block)
        index = self.lake, self.tail, self.chain.key, accounts
        loose = recent.tables["transfers"] if recent else None
        nobody = rules_of(self.chain.kind).nobody
        interactions, (moved, no_days) = await asyncio.gather(
            asyncio.to_thread(account_index.interactions_of, *index, block.height, unindexed, loose),
            asyncio.to_thread(daily, *index, block, self.chain.info.also_at, nobody),
        )
        wanted = {account: self._wanted(interactions[account].tokens | set(extra)) for account in accounts}
        about = self._about(block)
        plans = await asyncio.to_thread(self._plans, interactions, wanted, moved, about, extra)
        states, fees = await asyncio.gather(self._answered(plans, block), asyncio.to_thread(paid, *index, block))
        known = self._judge.listed | {price.asset.contract for price in about.quotes.prices}
        held, unknown = holdings_of(states, wanted, known)
        await self._learn(about, {token for each in states.values() for one in each.positions for token in one.tokens})
        issues = [*self.reader.issues]
        issues += [issue for account in accounts for issue in self.reader.unknown(account, interactions[account])]
        span = recent.span if recent else None
        issues += account_index.gaps(self.tail, self.chain.key, block.height, unindexed, span)
        reading = Reading(
            block=block, states=states, held=tuple(held), about=about, unknown=tuple(unknown), issues=tuple(issues),
            moved=moved, no_days=no_days, fees=fees,
        )  # fmt: skip
        for account in accounts:
            self.book.named(account, reading.own[account])
        return reading

    def _plans(
        self,
        interactions: Mapping[str, Interactions],
        wanted: Mapping[str, Mapping[str, bool]],
        moved: Mapping[str, Daily],
        about: About,
        extra: Sequence[str],
    ) -> dict[str, Plan[Read, Any, AccountState]]:
        """What to read of each account."""
        reader = self.reader.at(about.block)
        also = {contract for each in moved.values() for contract in each.contracts}
        plans = {}
        for account, own in interactions.items():
            expected = self.book.expected(account, own.tokens | set(extra))
            plans[account] = reader.read(
                account, own, tuple(wanted[account]), lambda held: about.ask({*held, *also}), about.expect(expected)
            )
        return plans

    async def _recent(self, block: Block) -> Collected | None:
        """The transfers of the newest blocks where the index does not have them yet: read from the node, so that what
        has just come is not missed. None where there are none, or the node does not give them."""
        top = self.tail.top(self.chain.key)
        if top is None or not top.height < block.height <= top.height + LIVE_LAG:
            return None
        try:
            found = await self.chain.collect(Span(top.height + 1, block.height), ("transfers",), before=top)
        except SourceError:
            return None
        return found if found.last is None or found.last.hash == block.hash else None

    async def _answered(
        self, plans: Mapping[str, Plan[Read, Any, AccountState]], block: Block
    ) -> dict[str, AccountState]:
        """All accounts together; the decoders inside are bounded one by one."""
        reports = await run_batched(
            plans, lambda reads: self.chain.answer(reads, block), max_rounds=MAX_ROUNDS, max_reads=MAX_READS
        )
        for report in reports.values():
            if report.result is None:
                raise report.error or BadAnswer(self.chain.key, report.reason)
        return {account: report.result for account, report in reports.items() if report.result is not None}

    async def now(self) -> Block:
        """The newest block that is indexed, where indexing keeps up with the head; else the head itself."""
        return self._indexed((await self.chain.heads()).latest)

    def _indexed(self, head: Block) -> Block:
        top = self.tail.top(self.chain.key)
        return top if top is not None and head.height - LIVE_LAG <= top.height <= head.height else head

    def _wanted(self, interactions: Set[str]) -> dict[str, bool]:
        """The contracts to ask for an account, and whether there is reason to think that it holds some."""
        also_at = self.chain.info.also_at
        return {
            contract: contract in interactions for contract in sorted((interactions | self._judge.listed) - {also_at})
        }

    async def judge(
        self, pairs: Collection[tuple[str, str]], contracts: Collection[str], block: Block
    ) -> tuple[dict[str, Token], dict[tuple[str, str], Spam]]:
        """What some tokens are at a block, and what of those that moved, by account and token, is taken for spam: by
        the rules of a portfolio at that block, and in one round."""
        about, asked = self._about(block), sorted(pair for pair in pairs if pair[1] not in self._judge.listed)
        plans: dict[str, Plan[Read, Any, Any]] = {
            "about": about.ask(contracts),
            "held": _all([balance_of(token, account) for account, token in asked]),
        }
        reports = await run_batched(plans, lambda reads: self.chain.answer(reads, block))
        for report in reports.values():
            if report.error is not None:
                raise report.error
        await asyncio.to_thread(about.keep)
        held = [(*pair, raw) for pair, raw in zip(asked, reports["held"].result or (), strict=True)]
        own: dict[str, set[str]] = {account: {ZERO_ADDRESS} for account, _ in asked}
        for account, token in asked:
            own[account].add(token)
        return about.tokens, await asyncio.to_thread(self._judge.spam, held, own, about, block.height)

    async def known(self, contracts: Iterable[str], block: Block) -> About:
        """What some tokens and the native coin are and what can be said of their prices, at a block."""
        about = self._about(block)
        await self._learn(about, contracts)
        return about

    def _about(self, block: Block) -> About:
        return About(self.chain, self.book, self.sources, block)

    async def _learn(self, about: About, contracts: Iterable[str]) -> None:
        """Ask for what is still to be asked, and keep what contracts said of themselves."""
        reports = await run_batched(
            {"about": about.ask(contracts)}, lambda reads: self.chain.answer(reads, about.block)
        )
        if (error := reports["about"].error) is not None:
            raise error
        await asyncio.to_thread(about.keep)


def assembled(chain: Chain, reading: Reading, judgement: Judgement, sources: Sequence[PriceSource]) -> Snapshot:
    """A reading and what is thought of it, as one snapshot. What could not be read comes in the order of its cause:
    balances, positions, prices, the index."""
    about, native = reading.about, chain.info.native
    tokens, quotes = about.tokens, about.quotes
    natives, unread = natives_of(reading.states, native)
    states = [issue for state in reading.states.values() for issue in state.issues]
    return Snapshot(
        chain=chain.key,
        block=reading.block,
        accounts=tuple(reading.states),
        holdings=(*natives, *(Holding(account, tokens[contract], raw) for account, contract, raw in reading.held)),
        prices=quotes.prices,
        issues=(
            *unread, *judgement.issues, *reading.unknown, *states, *about.issues, *_refusals(quotes, reading.own),
            *reading.issues,
        ),
        positions=tuple(each.named(tokens) for each in judgement.positions),
        spam=judgement.spam,
        fees=tuple(Holding(account, native, raw) for account, raw in reading.fees.items()),
        days=tuple(_day(account, each, tokens) for account, each in reading.moved.items()),
        pegged=pegged(sources),
        no_days=reading.no_days,
    )  # fmt: skip


def _all(reads: Sequence[Read]) -> Plan[Read, Any, Sequence[Any]]:
    return (yield reads) if reads else ()


def _day(account: str, moved: Daily, tokens: Mapping[str, Token]) -> Day:
    came, left = (
        tuple(Holding(account, tokens[contract], raw) for contract, raw in sorted(side.items()) if raw)
        for side in (moved.came, moved.left)
    )
    return Day(account, came, left)


def _refusals(quotes: Quotes, own: Mapping[str, Set[str]]) -> list[Issue]:
    """Why assets that a source has facts about have no price, to each account that has some of them: said, but no
    reason to call the holdings partial."""
    priced: set[Asset] = {price.asset for price in quotes.prices}
    return [
        Issue(refusal.source, str(refusal.asset), refusal.reason, makes_partial=False, account=account)
        for refusal in quotes.refused
        if refusal.asset not in priced
        for account, tokens in own.items()
        if refusal.asset.contract in tokens
    ]
