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
from chainfolio.plans import Plan, Reverted, Unknown, run_batched
from chainfolio.positions import MAX_READS, MAX_ROUNDS, AccountReader, AccountState, OpenPosition
from chainfolio.protocols import InstalledProtocols
from engine import account_index
from engine.arrivals import arrivals
from engine.daily import Daily, daily
from engine.descriptions import About
from engine.past_prices import Past
from engine.sent import paid
from engine.tokens import TokenBook
from engine.trust import in_doubt, judged
from portfolio.spam import Originals, TokenFacts, judge
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

    def __post_init__(self) -> None:
        self.reader = self.chain.account_reader(self.installed, self.book.listed)
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
        # Before the rows are read: what is covered by now is there then.
        unindexed = account_index.unindexed(self.tail, self.chain.key, block.height, self.reader.events)
        index = self.lake, self.tail, self.chain.key, accounts
        recent = await self._recent(block)
        interactions, (moved, no_days) = await asyncio.gather(
            asyncio.to_thread(
                account_index.interactions_of,
                *index,
                block.height,
                unindexed,
                recent.tables["transfers"] if recent else None,
            ),
            asyncio.to_thread(daily, *index, block, self.chain.info.also_at, rules_of(self.chain.kind).nobody),
        )
        wanted = {account: self._wanted(interactions[account].tokens | set(extra)) for account in accounts}
        about, reader = self._about(block), self.reader.at(block)
        also = {contract for each in moved.values() for contract in each.contracts}
        expected = await asyncio.to_thread(
            lambda: {
                account: self.book.expected(account, interactions[account].tokens | set(extra)) for account in accounts
            }
        )
        plans = {
            account: reader.read(
                account, interactions[account], tuple(wanted[account]), lambda held: about.ask({*held, *also}),
                about.expect(expected[account]),
            )
            for account in accounts
        }  # fmt: skip
        read, fees = await asyncio.gather(
            self._read(plans, block),
            asyncio.to_thread(paid, *index, block),
        )
        opened = [each for read_all in read.values() for each in read_all.positions]
        held, unknown = self._held(read, wanted, about)
        await self._learn(about, {token for each in opened for token in each.tokens})
        tokens, quotes = about.tokens, about.quotes
        holdings, issues = self._natives(read)
        opened, doubts = await asyncio.to_thread(self._judged, opened, held, about, block.height)
        issues += doubts
        own = _own(accounts, held, opened)
        for account in accounts:
            self.book.named(account, own[account])
        spam = await asyncio.to_thread(self._all_spam, held, opened, own, moved, about, block.height)
        holdings += [Holding(account, tokens[contract], raw) for account, contract, raw in held]
        issues += [*unknown, *(issue for read_all in read.values() for issue in read_all.issues)]
        issues += [*about.issues, *_refusals(quotes, own), *self.reader.issues]
        issues += [issue for account in accounts for issue in self.reader.unknown(account, interactions[account])]
        issues += account_index.gaps(
            self.tail, self.chain.key, block.height, unindexed, recent.span if recent else None
        )
        return Snapshot(
            self.chain.key, block, tuple(accounts), tuple(holdings), quotes.prices,
            tuple(issues), self.chain.requests - before,
            tuple(each.named(tokens) for each in opened), spam,
            tuple(Holding(account, self.native, raw) for account, raw in fees.items()),
            tuple(_day(account, each, tokens) for account, each in moved.items()), pegged(self.sources),
            no_days=no_days,
        )  # fmt: skip

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

    async def _read(self, plans: Mapping[str, Plan[Read, Any, AccountState]], block: Block) -> dict[str, AccountState]:
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
        return {contract: contract in interactions for contract in sorted((interactions | self._listed) - {also_at})}

    def _held(
        self, read: Mapping[str, AccountState], wanted: Mapping[str, Mapping[str, bool]], about: About
    ) -> tuple[list[tuple[str, str, int]], list[Issue]]:
        """What is held, and an issue for each balance that its contract does not tell. The answer is partial where the
        token is listed or has a price: nobody can send one of those to spoil an answer.

        A token that is only on a list, and answers nothing, is no news: at most blocks it was not there yet.
        """
        known = self._listed | {price.asset.contract for price in about.quotes.prices}
        held, issues = [], []
        for account, read_all in read.items():
            for contract, raw in read_all.balances.items():
                if isinstance(raw, int):
                    if raw:
                        held.append((account, contract, raw))
                elif wanted[account][contract]:
                    reason = f"the balance of {account} is unknown: {_why(raw)}"
                    gone = isinstance(raw, Unknown) and raw.cause == "absent"
                    makes_partial = contract in known and not gone
                    issues.append(Issue("balance", contract, reason, makes_partial=makes_partial, account=account))
        return held, issues

    async def judge(
        self, pairs: Collection[tuple[str, str]], contracts: Collection[str], block: Block
    ) -> tuple[dict[str, Token], dict[tuple[str, str], Spam]]:
        """What some tokens are at a block, and what of those that moved, by account and token, is taken for spam: by
        the rules of a portfolio at that block, and in one round."""
        about, asked = self._about(block), sorted(pair for pair in pairs if pair[1] not in self._listed)
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
        return about.tokens, await asyncio.to_thread(self._spam, held, own, about, block.height)

    def _all_spam(
        self,
        held: Sequence[tuple[str, str, int | None]],
        opened: Sequence[OpenPosition],
        own: Mapping[str, Set[str]],
        moved: Mapping[str, Daily],
        about: About,
        height: int,
    ) -> dict[tuple[str, str], Spam]:
        """What is taken for spam of what is held, loose or in positions, and of what has a price and only moved today:
        that is judged by itself, so that it changes nothing of what is said of the holdings."""
        priced = {price.asset.contract for price in about.quotes.prices} - {ZERO_ADDRESS}
        there = {each[:2] for each in held}
        inside = {(each.account, token) for each in opened for token in each.owned - {ZERO_ADDRESS}}
        held = [*held, *((*pair, None) for pair in sorted(inside - there))]
        backed = {(each.account, share) for each in opened if each.owned & priced for share in each.found.replaces}
        found, judged = self._spam(held, own, about, height, backed), {each[:2] for each in held}
        gone = [
            (account, contract, None)
            for account, each in moved.items()
            for contract in sorted(each.contracts & priced)
            if (account, contract) not in judged
        ]
        both = {account: {*own[account], *each.contracts} for account, each in moved.items()}
        return found | (self._spam(gone, both, about, height) if gone else {})

    def _spam(
        self,
        held: Sequence[tuple[str, str, Any]],
        own: Mapping[str, Set[str]],
        about: About,
        height: int,
        backed: Set[tuple[str, str]] = frozenset(),
    ) -> dict[tuple[str, str], Spam]:
        """What of the held tokens (None: how much is not known) is taken for spam, by account and contract. An account
        is judged by its `own` tokens and the list, whoever else is in the snapshot. `backed`: shares of what has a
        price."""
        listed = self._listed
        suspects: dict[str, list[str]] = {}
        for account, contract, _ in held:
            if contract not in listed:
                suspects.setdefault(account, []).append(contract)
        if not suspects:
            return {}
        tokens, prices = about.tokens, {price.asset.contract for price in about.quotes.prices}
        priced = {account: frozenset(own[account] & prices) for account in suspects}
        came = arrivals(self.lake, self.tail, self.chain.key, suspects, priced, height, listed)
        everybodys = Originals.of((each, token.symbol, token.name) for each, token in self.book.listed.items())
        everybodys.add(ZERO_ADDRESS, self.native.symbol, self.native.name)
        originals = {
            several: everybodys.more((each, tokens[each].symbol, tokens[each].name) for each in several)
            for several in set(priced.values())
        }
        found = {}
        raws = {(account, contract): raw if isinstance(raw, int) else None for account, contract, raw in held}
        for account, contracts in suspects.items():
            for contract in contracts:
                token, arrival = tokens[contract], came[account].get(contract)
                has_price = contract in priced[account] or (account, contract) in backed
                facts = TokenFacts(
                    contract, token.symbol, token.name, False, has_price, arrival, raws[account, contract]
                )
                if (spam := judge(facts, originals[priced[account]])) is not None:
                    found[account, contract] = spam
        return found

    def _judged(
        self, opened: Sequence[OpenPosition], held: Sequence[tuple[str, str, int]], about: About, height: int
    ) -> tuple[list[OpenPosition], list[Issue]]:
        """The positions, with those marked that rest on shares which nobody vouches for."""
        suspects = in_doubt(opened)
        if not suspects:
            return list(opened), []
        prices = {price.asset.contract for price in about.quotes.prices}
        own = _own(suspects.keys(), held, opened)
        priced = {account: frozenset(own[account] & prices) for account in suspects}
        came = arrivals(self.lake, self.tail, self.chain.key, suspects, priced, height, self._listed)
        return judged(opened, came)

    @property
    def _listed(self) -> set[str]:
        """The tokens that are what they say, whoever sent them."""
        return {*self.book.listed, *([self.chain.info.wrapped] if self.chain.info.wrapped else [])}

    def _natives(self, read: Mapping[str, AccountState]) -> tuple[list[Holding], list[Issue]]:
        """The native coins of each account, zero included, and an issue where they are not known."""
        known = [
            Holding(account, self.native, each.native) for account, each in read.items() if isinstance(each.native, int)
        ]
        unknown = [
            Issue("balance", account, f"the native balance could not be read: {_why(each.native)}", account=account)
            for account, each in read.items()
            if not isinstance(each.native, int)
        ]
        return known, unknown

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


def _all(reads: Sequence[Read]) -> Plan[Read, Any, Sequence[Any]]:
    return (yield reads) if reads else ()


def _day(account: str, moved: Daily, tokens: Mapping[str, Token]) -> Day:
    came, left = (
        tuple(Holding(account, tokens[contract], raw) for contract, raw in sorted(side.items()) if raw)
        for side in (moved.came, moved.left)
    )
    return Day(account, came, left)


def _own(
    accounts: Iterable[str], held: Sequence[tuple[str, str, int]], opened: Sequence[OpenPosition]
) -> dict[str, set[str]]:
    """The tokens that each account holds or has in positions, and the native coin."""
    own = {account: {ZERO_ADDRESS} for account in accounts}
    for account, contract, _ in held:
        if account in own:
            own[account].add(contract)
    for each in opened:
        if each.account in own:
            own[each.account] |= each.tokens
    return own


def _why(answer: Reverted | Unknown) -> str:
    return "the contract refuses" if isinstance(answer, Reverted) else answer.reason


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
