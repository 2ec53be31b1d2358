"""Current and past stake accounts of an account, found by its transactions and read completely.

Nodes list current stake accounts by their withdrawer. If an account lost a stake account, an instruction took the
withdrawer's signature, so a transaction of the account names it. Or it was merged into another stake account of the
same withdrawer, whose transactions name it.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from chainfolio.adapters.solana.listed_transactions import FULL, MAX_PARALLEL, ListedTransaction, signatures
from chainfolio.adapters.solana.node import Node, first_block
from chainfolio.adapters.solana.stake_calls import (
    NOT_KEPT,
    TWO_STAKES,
    StakeCall,
    StakeTransaction,
    parse_stake_transaction,
    stakes_of_authority,
)
from chainfolio.adapters.solana.stake_lives import AccountStakeHistory, Step, add_owners
from chainfolio.adapters.solana.state import lamports_of, stakes_of
from chainfolio.blocks import Span, Spans
from chainfolio.errors import BadAnswer, ChainfolioError, HistoryUnavailable
from chainfolio.kinds import EndpointMemory
from chainfolio.transport.endpoint import Endpoint
from chainfolio.transport.wire import Request

SCANNED_SPAN: Final = "seen"  # the capability that stores a scanned span as one number
SLOT_BITS: Final = 31  # of each end of the span in that number
MAX_STAKES: Final = 1_000  # stake accounts of one account
MAX_STEPS: Final = 2_000  # transactions of one stake account: anybody can name any account
MAX_CACHED: Final = 20_000  # transactions
MAX_ACCOUNTS: Final = 1_000  # whose stake accounts are cached: those that were asked last


class TooManyReads(ChainfolioError):
    """A question about the past would take more reads than are allowed."""


@dataclass(frozen=True, slots=True)
class StakeAccounts:
    """Stake accounts that some accounts had at any slot of a span, and related stake accounts.

    Attributes:
        span: The span.
        histories: By stake account.
        undelegated: Current stake accounts without a delegation.
        first_slot: The oldest slot whose transactions the nodes have completely.
    """

    span: Span
    histories: Mapping[str, AccountStakeHistory]
    undelegated: frozenset[str] = frozenset()
    first_slot: int = 0

    def earning(self, first: int, last: int) -> list[str]:
        """Return the sorted stake accounts that may have been paid rewards in the slots `first` to `last`."""
        return [
            stake
            for stake, history in sorted(self.histories.items())
            if history.may_have_earned(first, last, default=stake not in self.undelegated)
        ]


@dataclass(slots=True)
class StakeHistories:
    """Reads and caches the stake accounts of accounts of one chain."""

    node: Node
    memory: EndpointMemory
    _scanned: OrderedDict[str, Spans] = field(default_factory=OrderedDict)  # fully read slots, by account
    _stakes: dict[str, set[str]] = field(default_factory=dict)  # stake accounts in these transactions, by account
    _cache: OrderedDict[str, StakeAccounts] = field(default_factory=OrderedDict)
    _transaction_cache: dict[str, StakeTransaction] = field(default_factory=dict)  # by signature
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)  # concurrent questions about days read once

    def add_scanned(self, account: str, span: Span, calls: Iterable[StakeCall]) -> None:
        """Store the stake instructions in all transactions of an account in a span.

        The stake accounts and the span are also stored in the endpoint memory, which survives a restart.
        """
        self._load(account)
        self._scanned[account] |= Spans([span])
        new_stakes = stakes_of_authority(calls, account) - self._stakes[account]
        self._stakes[account] |= new_stakes
        merged = next(each for each in self._scanned[account] if span.first in each)
        for stake in sorted(new_stakes):
            self.memory.on_capability(self._memory_key(account), stake, span.first)
        if merged.last < 1 << SLOT_BITS:
            self.memory.on_capability(self._memory_key(account), SCANNED_SPAN, merged.first << SLOT_BITS | merged.last)

    def _load(self, account: str) -> None:
        """Load the stored span and stake accounts of an account unless they are cached, and evict others.

        What is read of the account afterwards must be read before the next await.
        """
        if account not in self._scanned:
            stored = dict(self.memory.capabilities(self._memory_key(account)))
            span = stored.pop(SCANNED_SPAN, None)
            self._scanned[account] = Spans(
                [] if span is None else [Span(span >> SLOT_BITS, span & (1 << SLOT_BITS) - 1)]
            )
            self._stakes[account] = set(stored)
        self._scanned.move_to_end(account)
        while len(self._scanned) > MAX_ACCOUNTS:
            evicted, _ = self._scanned.popitem(last=False)
            del self._stakes[evicted]

    def _memory_key(self, account: str) -> str:
        return f"stake accounts of {account} on {self.node.key}"

    async def of(self, account: str, slot: int, max_transactions: int) -> StakeAccounts:
        """Return the stake accounts that an account had since a slot, from the cache if possible.

        Args:
            account: The withdrawer.
            slot: The oldest slot.
            max_transactions: Limit of transactions that were not scanned before.

        Raises:
            TooManyReads: There are more such transactions, or too many stake accounts.
            HistoryUnavailable: Nodes have no transactions that are so old.
        """
        async with self._lock:
            stake_accounts = self._cache.get(account)
            if stake_accounts is None or slot not in stake_accounts.span:
                read = partial(self._read, [account], slot, self.node.finalized, max_transactions)
                stake_accounts = self._cache[account] = await self.node.with_any(read, kind="history")
            self._cache.move_to_end(account)
            while len(self._cache) > MAX_ACCOUNTS:
                self._cache.popitem(last=False)
            return stake_accounts

    async def read_since(self, accounts: Collection[str], slot: int) -> StakeAccounts:
        """Read the stake accounts of accounts since a slot, as far back as nodes have transactions."""
        read = partial(self._read, sorted(accounts), slot, self.node.finalized, None)
        return await self.node.with_any(read, kind="history")

    async def _read(
        self, accounts: Sequence[str], slot: int, final: int, max_transactions: int | None, endpoint: Endpoint
    ) -> StakeAccounts:
        """Read the stake accounts from one endpoint up to the slot `final`, and store what was scanned.

        Args:
            accounts: The withdrawers.
            slot: The oldest slot.
            final: The newest final slot, which the endpoint must have reached.
            max_transactions: Limit per account; None for no limit.
            endpoint: The endpoint.

        Raises:
            TooManyReads: The limit is exceeded, or there are too many stake accounts.
            NodeBehind: `final` is not final yet at the endpoint.
            HistoryUnavailable: There is a limit, and the endpoint's first block is later than `slot`.
        """
        first_served = await first_block(endpoint)
        if max_transactions is not None and first_served > slot + 1:
            raise HistoryUnavailable(endpoint.name, slot, "the node has no transactions that are so old")
        span, owners, undelegated = Span(slot, max(slot, final)), dict[str, str](), set[str]()
        first_slot, stakes = slot, set[str]()
        for account in accounts:
            if max(slot, first_served) <= final:  # an endpoint lists no transactions before its first block
                await self._scan(endpoint, account, Span(max(slot, first_served), final), max_transactions)
            self._load(account)
            if slot <= final:
                scanned = (each.first for each in self._scanned[account] if final in each)
                first_slot = max(first_slot, next(scanned, final + 1))
            stakes |= self._stakes[account]
            current = await stakes_of(self.node, account, final, endpoint)
            owners |= dict.fromkeys(current, account)
            undelegated |= {address for address, stake in current.items() if not stake.voter}
        histories = await self._read_histories(endpoint, stakes | owners.keys(), final)
        return StakeAccounts(span, add_owners(list(histories.values()), owners), frozenset(undelegated), first_slot)

    async def _scan(self, endpoint: Endpoint, account: str, span: Span, max_transactions: int | None) -> None:
        """Read those transactions of an account in a span that were not scanned yet, and store their stakes.

        Raises TooManyReads if there are more than `max_transactions`, NodeBehind if the end of the span is not final
        yet at the endpoint.
        """
        self._load(account)
        unscanned = list(Spans([span]) - self._scanned[account])
        if not unscanned:
            return
        listings = await signatures(endpoint, account, unscanned[0].first, span.last)
        listings = [
            each for each in listings if each.slot <= span.last and any(each.slot in part for part in unscanned)
        ]
        if max_transactions is not None and len(listings) > max_transactions:
            raise TooManyReads(f"{len(listings)} transactions since would have to be looked at")
        transactions = await self._transactions(endpoint, listings)
        self.add_scanned(account, span, [call for each in transactions for call in each.calls or ()])

    async def _read_histories(
        self, endpoint: Endpoint, stakes: Collection[str], final: int
    ) -> dict[str, AccountStakeHistory]:
        """Read the histories of stake accounts, and of those that were split from them or merged into them.

        Raises TooManyReads for more than MAX_STAKES, NodeBehind if `final` is not final yet at the endpoint.
        """
        histories: dict[str, AccountStakeHistory] = {}
        pending = sorted(stakes)
        while pending:
            if len(histories) + len(pending) > MAX_STAKES:
                raise TooManyReads(f"more than {MAX_STAKES} stake accounts would have to be looked at")
            lamports = await lamports_of(endpoint, pending, final)
            gate = asyncio.Semaphore(MAX_PARALLEL)
            reads = [self._read_history(endpoint, stake, *lamports[stake], gate) for stake in pending]
            histories |= zip(pending, await asyncio.gather(*reads), strict=True)
            related = {
                call.stakes[1]
                for stake in pending
                for step in histories[stake].steps
                for call in step.calls
                if call.kind in TWO_STAKES and len(call.stakes) > 1 and call.stakes[0] == stake
            }
            pending = sorted(related - histories.keys())
        return histories

    async def _read_history(
        self, endpoint: Endpoint, stake: str, lamports: int, top: int, gate: asyncio.Semaphore
    ) -> AccountStakeHistory:
        """Read the history of one stake account up to the slot `top`, at which it has `lamports`.

        Raises TooManyReads for more than MAX_STEPS transactions, BadAnswer for one that does not name it.
        """
        async with gate:
            listings = [each for each in await signatures(endpoint, stake, 0, top) if each.slot <= top]
        if len(listings) > MAX_STEPS:
            raise TooManyReads(f"{len(listings)} transactions name the stake account {stake}")
        steps = []
        for transaction in await self._transactions(endpoint, list(reversed(listings))):
            if stake not in transaction.lamports:
                raise BadAnswer(endpoint.name, f"lists a transaction for {stake} that does not name it")
            calls = tuple(call for call in transaction.calls or () if stake in call.stakes)
            steps.append(Step(transaction.slot, *transaction.lamports[stake], calls))
        return AccountStakeHistory(stake, tuple(steps), lamports, top)

    async def _transactions(self, endpoint: Endpoint, listings: Sequence[ListedTransaction]) -> list[StakeTransaction]:
        """Read the stake parts of transactions in order, from the cache if possible.

        Raises:
            HistoryUnavailable: The node lacks one, or its inner instructions.
            BadAnswer: One is not the listed one.
        """
        if len(self._transaction_cache) > MAX_CACHED:
            self._transaction_cache.clear()
        gate = asyncio.Semaphore(MAX_PARALLEL)

        async def read(each: ListedTransaction) -> StakeTransaction:
            if each.signature not in self._transaction_cache:
                async with gate:
                    request = Request("getTransaction", (each.signature, FULL))
                    transaction = await endpoint.ask_large(request, partial(_stake_transaction, each))
                    self._transaction_cache[each.signature] = transaction
            return self._transaction_cache[each.signature]

        return list(await asyncio.gather(*map(read, listings)))


def _stake_transaction(listing: ListedTransaction, source: str, content: bytes | memoryview) -> StakeTransaction:
    """Return the stake part of a listed transaction.

    Raises:
        HistoryUnavailable: The node lacks the transaction, or its inner calls.
        BadAnswer: It is another transaction, or of another slot.
    """
    transaction = None if bytes(content) == b"null" else parse_stake_transaction(source, bytes(content))
    if transaction is None:
        raise HistoryUnavailable(source, listing.slot, "the node lists a transaction that it does not have")
    if transaction.slot != listing.slot:
        raise BadAnswer(source, f"a transaction of slot {transaction.slot} that is listed in slot {listing.slot}")
    if transaction.signature != listing.signature:
        raise BadAnswer(source, f"another transaction than the one that it lists in slot {transaction.slot}")
    if transaction.calls is None:
        raise HistoryUnavailable(source, listing.slot, NOT_KEPT)
    return transaction
