"""The stake accounts that an account has, and those that it had: found by what it signed, and read to their ends.

The chain lists stake accounts of now by who may withdraw from them. One that somebody had and has no more ended by an
instruction that took the withdrawer, so it is named in transactions of that account; or it was merged into another one
of theirs, whose transactions name it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from adapters.solana.history import FULL, TOGETHER, Listed, signatures
from adapters.solana.node import first_block
from adapters.solana.stake_calls import NOT_KEPT, OF_TWO, StakeCall, Staked, named_by, staked
from adapters.solana.stake_lives import Life, Step, lives
from adapters.solana.state import lamports_of, stakes_of
from chainfolio.blocks import Span, Spans
from chainfolio.errors import BadAnswer, ChainfolioError, HistoryUnavailable
from transport.endpoint import Endpoint
from transport.wire import Request

if TYPE_CHECKING:
    from adapters.solana.chain import SolanaChain

SEEN, HALF = "seen", 31  # where transactions of an account were looked at, as one number: both ends, of so many bits
MOST_STAKES: Final = 1_000  # stake accounts of one account
MOST_STEPS: Final = 2_000  # transactions of one of them: anybody may name any account
KEPT: Final = 20_000  # transactions that are remembered


class TooMany(ChainfolioError):
    """More would have to be read than a question is worth."""


@dataclass(frozen=True, slots=True)
class Known:
    """The stake accounts that some accounts had at any slot of `span`, and some that they never had; of what was before
    `begun`, nodes have no transactions. `idle` are those of now that were never delegated."""

    span: Span
    lives: Mapping[str, Life]
    idle: frozenset[str] = frozenset()
    begun: int = 0

    def earning(self, first: int, last: int) -> list[str]:
        """Which of them may have been paid rewards in some slots."""
        each = sorted(self.lives.items())
        return [s for s, life in each if life.may_have_earned(first, last, otherwise=s not in self.idle)]


@dataclass(slots=True)
class StakeHistories:
    """Reads the stake accounts of accounts of one chain. What was read is kept."""

    chain: SolanaChain
    _seen: dict[str, Spans] = field(default_factory=dict)  # of each account, where its transactions were looked at
    _named: dict[str, set[str]] = field(default_factory=dict)
    _known: dict[str, Known] = field(default_factory=dict)
    _parts: dict[str, Staked] = field(default_factory=dict)  # by signature
    _gate: asyncio.Lock = field(default_factory=asyncio.Lock)  # days that are asked for together read once

    def saw(self, account: str, span: Span, calls: Iterable[StakeCall]) -> None:
        """What all transactions of an account in a span had the stake program do. It is kept over a restart: they are
        not read again."""
        self._recall(account)
        self._seen[account] |= Spans([span])
        new = named_by(calls, account) - self._named[account]
        self._named[account] |= new
        whole = next(each for each in self._seen[account] if span.first in each)
        for stake in sorted(new):
            self.chain.memory.on_capability(self._name(account), stake, span.first)
        if whole.last < 1 << HALF:
            self.chain.memory.on_capability(self._name(account), SEEN, whole.first << HALF | whole.last)

    def _recall(self, account: str) -> None:
        """What is kept of an account."""
        if account not in self._seen:
            kept = dict(self.chain.memory.capabilities(self._name(account)))
            seen = kept.pop(SEEN, None)
            self._seen[account] = Spans([] if seen is None else [Span(seen >> HALF, seen & (1 << HALF) - 1)])
            self._named[account] = set(kept)

    def _name(self, account: str) -> str:
        return f"stake accounts of {account} on {self.chain.key}"

    async def of(self, account: str, slot: int, most: int) -> Known:
        """The stake accounts that an account had since a slot. Unless they were seen, at most so many of its
        transactions are looked at: TooMany where there are more. HistoryUnavailable where nodes keep none so old."""
        async with self._gate:
            known = self._known.get(account)
            if known is None or slot not in known.span:
                read = partial(self._read, [account], slot, most)
                known = self._known[account] = await self.chain.node.with_any(read, kind="history")
            return known

    async def since(self, accounts: Collection[str], slot: int) -> Known:
        """Those of some accounts, as far back as nodes have transactions, however many."""
        return await self.chain.node.with_any(partial(self._read, sorted(accounts), slot, None), kind="history")

    async def _read(self, accounts: Sequence[str], slot: int, most: int | None, endpoint: Endpoint) -> Known:
        node = self.chain.node
        served = await first_block(endpoint)
        if most is not None and served > slot + 1:
            raise HistoryUnavailable(endpoint.name, slot, "the node has no transactions that are so old")
        span, owners, idle = Span(slot, max(slot, node.finalized)), dict[str, str](), set[str]()
        begun = slot
        for account in accounts:
            self._recall(account)
            if served <= span.last:  # of what was before, it lists nothing
                await self._look(endpoint, account, Span(max(slot, served), span.last), most)
            whole = (each.first for each in self._seen[account] if span.last in each)
            begun = max(begun, next(whole, span.last + 1))
            present = await stakes_of(node, account, endpoint)
            owners |= dict.fromkeys(present, account)
            idle |= {stake for stake, each in present.items() if not each.voter}
        named = {stake for account in accounts for stake in self._named[account]}
        found = await self._follow(endpoint, named | owners.keys())
        return Known(span, lives(list(found.values()), owners), frozenset(idle), begun)

    async def _look(self, endpoint: Endpoint, account: str, span: Span, most: int | None) -> None:
        """Look at those transactions of an account that were not looked at yet."""
        left = list(Spans([span]) - self._seen[account])
        if not left:
            return
        listed = [each for each in await signatures(endpoint, account, left[0].first) if each.slot <= span.last]
        listed = [each for each in listed if any(each.slot in part for part in left)]
        if most is not None and len(listed) > most:
            raise TooMany(f"{len(listed)} transactions since would have to be looked at")
        calls = [call for part in await self._transactions(endpoint, listed) for call in part.calls or ()]
        self.saw(account, span, calls)

    async def _follow(self, endpoint: Endpoint, stakes: Collection[str]) -> dict[str, Life]:
        """What became of some stake accounts, and of those that were split from them or merged into them."""
        found: dict[str, Life] = {}
        left = sorted(stakes)
        while left:
            if len(found) + len(left) > MOST_STAKES:
                raise TooMany(f"more than {MOST_STAKES} stake accounts would have to be looked at")
            lamports = await lamports_of(endpoint, left)
            gate = asyncio.Semaphore(TOGETHER)
            read = [self._life(endpoint, each, *lamports[each], gate) for each in left]
            found |= zip(left, await asyncio.gather(*read), strict=True)
            kin = {
                call.stakes[1]
                for each in left
                for step in found[each].steps
                for call in step.calls
                if call.kind in OF_TWO and len(call.stakes) > 1 and call.stakes[0] == each
            }
            left = sorted(kin - found.keys())
        return found

    async def _life(self, endpoint: Endpoint, stake: str, lamports: int, top: int, gate: asyncio.Semaphore) -> Life:
        async with gate:
            listed = [each for each in await signatures(endpoint, stake, 0) if each.slot <= top]
        if len(listed) > MOST_STEPS:
            raise TooMany(f"{len(listed)} transactions name the stake account {stake}")
        steps = []
        for part in await self._transactions(endpoint, list(reversed(listed))):
            if stake not in part.lamports:
                raise BadAnswer(endpoint.name, f"lists a transaction for {stake} that does not name it")
            own = tuple(call for call in part.calls or () if stake in call.stakes)
            steps.append(Step(part.slot, *part.lamports[stake], own))
        return Life(stake, tuple(steps), lamports, top)

    async def _transactions(self, endpoint: Endpoint, listed: Sequence[Listed]) -> list[Staked]:
        """The parts of some transactions that are about stake, in their order."""
        if len(self._parts) > KEPT:
            self._parts.clear()
        gate = asyncio.Semaphore(TOGETHER)

        async def one(each: Listed) -> Staked:
            if each.signature not in self._parts:
                async with gate:
                    request = Request("getTransaction", (each.signature, FULL))
                    self._parts[each.signature] = await endpoint.big(request, partial(_part, each))
            return self._parts[each.signature]

        return list(await asyncio.gather(*map(one, listed)))


def _part(listed: Listed, source: str, content: bytes | memoryview) -> Staked:
    found = None if bytes(content) == b"null" else staked(source, bytes(content))
    if found is None:
        raise HistoryUnavailable(source, listed.slot, "the node lists a transaction that it does not have")
    if found.slot != listed.slot:
        raise BadAnswer(source, f"a transaction of slot {found.slot} that is listed in slot {listed.slot}")
    if found.signature != listed.signature:
        raise BadAnswer(source, f"another transaction than the one that it lists in slot {found.slot}")
    if found.calls is None:
        raise HistoryUnavailable(source, listed.slot, NOT_KEPT)
    return found
