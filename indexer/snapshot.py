"""What some accounts hold on one chain at one block: everything read at that block's hash, prices too.

The first rounds ask for every balance, and for the positions in protocols that were met; the next for what held tokens
are, what they are worth and what lies behind them. So a snapshot of loose tokens is about three requests, and one of
positions about six, however many tokens, positions and accounts there are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from adapters.evm.tokens import describe
from chainfolio.asking import Asking, Report, Reverted, drive
from chainfolio.assets import ZERO_ADDRESS, Asset
from chainfolio.blocks import Block
from chainfolio.calls import Call, NativeBalance, Read
from chainfolio.contracts import Holding, Issue, Position, Price, Quoted, Snapshot, Token
from chainfolio.errors import BadAnswer, Reorged
from indexer import candidates
from indexer.candidates import Encounters
from indexer.protocols import Outcome, Protocols
from indexer.tokens import TokenBook
from indexer.unfold import SIDES, Open, Unfolding
from pricing.ladder import ladder
from pricing.quotes import PriceSource, Quotes, Refusal

if TYPE_CHECKING:
    from adapters.evm.chain import EvmChain
    from storage.lake import Lake
    from storage.tail import Tail

LIVE_LAG = 64  # blocks: an index that is this close to the head is live
BALANCE_OF = "balanceOf(address)(uint256)"
MOST_ASKS = 10_000_000
SECOND_US = 1_000_000
NOTHING: Final[Mapping[str, Asking[Read, Any, Any]]] = {}


@dataclass(slots=True)
class Snapshotter:
    """Takes snapshots of one chain."""

    chain: EvmChain
    lake: Lake
    tail: Tail
    book: TokenBook
    sources: Sequence[PriceSource]
    protocols: Protocols = field(default_factory=lambda: Protocols(()))

    async def take(self, accounts: Sequence[str], block: Block | None = None, extra: Sequence[str] = ()) -> Snapshot:
        """A snapshot at a block (none: now). `extra` are contracts to look at beside those the accounts have met."""
        before = self.chain.requests
        try:
            return await self._at(accounts, block or await self.now(), extra, before)
        except Reorged:
            if block is not None:
                raise
            # Our top has just left the chain, and the follower does not know yet: the head is the other "now".
            return await self._at(accounts, (await self.chain.heads()).latest, extra, before)

    async def quote(self, contracts: Sequence[str]) -> Quoted:
        """What some tokens and the native coin are and what they are worth, all at the head of the chain."""
        try:
            return await self._quoted(contracts)
        except Reorged:
            return await self._quoted(contracts)

    async def _quoted(self, contracts: Sequence[str]) -> Quoted:
        block = (await self.chain.heads()).latest
        tokens, quotes, failed, _ = await self._known(sorted(set(contracts)), block)
        native = {ZERO_ADDRESS: self.native}
        prices = {price.asset: price for price in quotes.prices}
        return Quoted(block, tokens | native, prices, (*failed, *_refusals(quotes)))

    @property
    def native(self) -> Token:
        """The native coin as a token."""
        native = self.chain.facts.native
        return Token(self.chain.facts.native_asset, native.symbol, native.name, native.decimals)

    async def _at(self, accounts: Sequence[str], block: Block, extra: Sequence[str], before: int) -> Snapshot:
        met = await asyncio.to_thread(self._met, accounts, block.height)
        wanted = {account: self._wanted(met[account].tokens | set(extra)) for account in accounts}
        raws, outcomes = await self._read(accounts, wanted, met, block)
        holdings, issues = self._natives(accounts, raws[: len(accounts)])
        held, unknown = self._held(accounts, wanted, raws[len(accounts) :])
        unfolding = Unfolding(self.protocols, met, block.time_us // SECOND_US)
        unfolding.add(outcomes)
        tokens, quotes, failed = await self._unfold(unfolding, held, block)
        holdings += [Holding(account, tokens[contract], raw) for account, contract, raw in held]
        issues += [*unknown, *unfolding.issues, *failed, *_refusals(quotes)]
        gap = candidates.gaps(self.tail, self.chain.key, block.height)
        positions = [closed(each, tokens) for each in unfolding.opened if not each.dropped]
        return Snapshot(
            self.chain.key, block, tuple(accounts), tuple(holdings), quotes.prices,
            tuple([*issues, gap] if gap else issues), self.chain.requests - before, tuple(positions),
        )  # fmt: skip

    def _met(self, accounts: Sequence[str], height: int) -> dict[str, Encounters]:
        return {account: candidates.met(self.lake, self.tail, self.chain.key, account, height) for account in accounts}

    async def _read(
        self,
        accounts: Sequence[str],
        wanted: Mapping[str, Mapping[str, bool]],
        met: Mapping[str, Encounters],
        block: Block,
    ) -> tuple[list[Any], list[Outcome]]:
        """Balances as the contracts tell them, and the positions of the protocols that were met: read together."""
        asks = [NativeBalance(account) for account in accounts] + [
            Call(contract, BALANCE_OF, (account,)) for account in accounts for contract in wanted[account]
        ]
        askings: dict[str, Asking[Read, Any, Any]] = {"balances": _all(asks)}
        askings |= {
            account: self.protocols.read(account, met[account], block.time_us // SECOND_US) for account in accounts
        }
        reports = await self._drive(askings, block)
        outcomes = [each for account in accounts for each in reports[account].result or ()]
        return list(reports["balances"].result or ()), outcomes

    async def _drive(self, askings: Mapping[str, Asking[Read, Any, Any]], block: Block) -> dict[str, Report[Any]]:
        """Askings of our own, whose faults are ours; the decoders inside them are bounded one by one."""
        reports = await drive(askings, lambda asks: self.chain.answer(asks, block), max_rounds=64, max_asks=MOST_ASKS)
        for report in reports.values():
            if report.status != "ok":
                raise report.error or BadAnswer(self.chain.key, report.reason)
        return reports

    async def _unfold(
        self, unfolding: Unfolding, held: Sequence[tuple[str, str, int]], block: Block
    ) -> tuple[dict[str, Token], Quotes, list[Issue]]:
        """What is held and what lies behind it, level by level: names and prices of each level come with the next."""
        tokens: dict[str, Token] = {ZERO_ADDRESS: self.native}
        prices: dict[Asset, Price] = {}
        refused, issues = list[Refusal](), list[Issue]()
        pending = {contract for _, contract, _ in held} | unfolding.tokens
        loose = list(held)
        while True:
            asked = {token for token in pending if self.protocols.asked(token)}
            for account, contract, raw in [each for each in loose if each[1] in asked]:
                unfolding.add_loose(account, contract, raw)
            loose = [each for each in loose if each[1] not in asked]
            behind = unfolding.askings()
            fresh = sorted(pending - tokens.keys())
            if not (fresh or behind or loose):
                break
            beside = behind | {"identity": self.protocols.ask(sorted(pending - asked))}
            known, quotes, failed, reports = await self._known(fresh, block, beside)
            tokens |= known
            prices |= {price.asset: price for price in quotes.prices}
            refused += quotes.refused
            issues += failed
            unfolding.take(reports)
            pending |= unfolding.tokens
        return tokens, Quotes(tuple(prices.values()), tuple(refused)), issues

    async def now(self) -> Block:
        """The newest block that is indexed, where indexing keeps up with the head; else the head itself."""
        head, top = (await self.chain.heads()).latest, self.tail.top(self.chain.key)
        return top if top is not None and head.height - LIVE_LAG <= top.height <= head.height else head

    def _wanted(self, met: Set[str]) -> dict[str, bool]:
        """The contracts to ask for an account, and whether there is reason to think that it holds some."""
        facts = self.chain.facts
        listed = {*self.book.listed, *([facts.wrapped.address] if facts.wrapped else [])}
        double = {facts.native.also_at} if facts.native.also_at else set()
        return {contract: contract in met for contract in sorted((met | listed) - double)}

    def _held(
        self, accounts: Sequence[str], wanted: Mapping[str, Mapping[str, bool]], answers: Sequence[Any]
    ) -> tuple[list[tuple[str, str, int]], list[Issue]]:
        """What is held, and an issue for each balance that its contract does not tell.

        A token that is only on a list, and answers nothing, is no news: at most blocks it was not there yet.
        """
        held, issues = [], []
        places = [(account, contract, met) for account in accounts for contract, met in wanted[account].items()]
        for (account, contract, met), raw in zip(places, answers, strict=True):
            if isinstance(raw, int):
                if raw:
                    held.append((account, contract, raw))
            elif met:
                why = "the contract refuses" if isinstance(raw, Reverted) else raw.reason
                reason = f"the balance of {account} is unknown: {why}"
                issues.append(Issue("balance", contract, reason, spoils=False))
        return held, issues

    def _natives(self, accounts: Sequence[str], raws: Sequence[Any]) -> tuple[list[Holding], list[Issue]]:
        """The native coins of each account, zero included, and an issue where they are not known."""
        token = self.native
        known = [
            Holding(account, token, raw) for account, raw in zip(accounts, raws, strict=True) if isinstance(raw, int)
        ]
        unknown = [
            Issue("balance", account, f"the native balance could not be read: {raw.reason}")
            for account, raw in zip(accounts, raws, strict=True)
            if not isinstance(raw, int)
        ]
        return known, unknown

    async def _known(
        self, contracts: Sequence[str], block: Block, beside: Mapping[str, Asking[Read, Any, Any]] = NOTHING
    ) -> tuple[dict[str, Token], Quotes, list[Issue], dict[str, Report[Any]]]:
        """The tokens behind some contracts and what can be said of their prices, at the block; `beside`: what else is
        asked in the same rounds, and the reports of that."""
        known = self.book.known(contracts)
        unknown = [contract for contract in contracts if contract not in known]
        assets = [self.chain.facts.native_asset, *(self.chain.facts.token_asset(contract) for contract in contracts)]
        askings: dict[str, Asking[Read, Any, Any]] = {"prices": ladder(self.sources, assets, block)}
        if unknown:
            askings["tokens"] = describe(self.chain.facts, unknown)
        reports = await drive(askings | dict(beside), lambda asks: self.chain.answer(asks, block))
        failed = [(name, reports[name].reason) for name in askings if reports[name].status == "failed"]
        issues = [Issue(name, self.chain.key, reason) for name, reason in failed]
        if unknown and (fresh := reports["tokens"].result) is not None:
            await asyncio.to_thread(self.book.learn, fresh, block.height)
            known |= fresh
        for contract in contracts:
            known.setdefault(contract, Token(self.chain.facts.token_asset(contract), "", "", None))
        return known, reports["prices"].result or Quotes(), issues, reports


def _all(asks: Sequence[Read]) -> Asking[Read, Any, Sequence[Any]]:
    """One round of asks, and their answers."""
    return (yield asks)


def closed(each: Open, tokens: Mapping[str, Token]) -> Position:
    """A position once everything in it is known, named after what was supplied where it has no name."""
    found = each.found
    supplied, borrowed, rewards = (
        tuple(
            Holding(each.account, tokens[token], raw, each.protocol, found.kind)
            for token, raw in each.merged(side).items()
            if raw
        )
        for side in SIDES
    )
    name = found.name or " / ".join(tokens[token].symbol.upper() or token for token in each.merged("supplied"))
    return Position(
        each.account, each.protocol, found.kind, name, supplied, borrowed, rewards, found.health, found.unlock_s,
        found.vault, found.pool, found.instead, tuple(each.reads),
    )  # fmt: skip


def _refusals(quotes: Quotes) -> list[Issue]:
    """Why assets that a source has facts about have no price: said, but no reason to call the holdings partial."""
    priced: set[Asset] = {price.asset for price in quotes.prices}
    return [
        Issue(refusal.source, str(refusal.asset), refusal.reason, spoils=False)
        for refusal in quotes.refused
        if refusal.asset not in priced
    ]
