"""Portfolios of accounts as past days began: stored snapshots, else reads of the chain.

Both give the same bytes. Many days are read together, in as few requests as one, and stored window by window: after a
crash, reading continues at the last window.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Final, cast

from chainfolio.assets import Account
from chainfolio.block_search import FORGOTTEN, first_served
from chainfolio.blocks import Block, Span
from chainfolio.contracts import Issue, Snapshot
from chainfolio.engine import reconciliations as reconciled
from chainfolio.engine.account_support import addresses_of, split_supported
from chainfolio.engine.history.day_blocks import DayBlocks, midnight_us
from chainfolio.engine.history.joint_reads import JointChain
from chainfolio.engine.history.snapshot_store import UNREADABLE, DaySnapshot, SnapshotStore, snapshot_of
from chainfolio.engine.snapshots import account_index
from chainfolio.engine.snapshots.build import unreadable
from chainfolio.engine.snapshots.replay import has_past
from chainfolio.errors import ChainfolioError, HistoryUnavailable, NotFound, SourceError
from chainfolio.messages import public
from chainfolio.portfolio.chains_joined import join_chains
from chainfolio.portfolio.compose import issue_documents, portfolio
from chainfolio.portfolio.document import Portfolio
from chainfolio.portfolio.facts import ChainFacts
from chainfolio.portfolio.valuation import Valuation, valuate

if TYPE_CHECKING:
    from chainfolio.chains import Chain
    from chainfolio.engine.snapshots.snapshotter import Snapshotter
    from chainfolio.indexer.parts import DecodedChains

log = logging.getLogger("chainfolio.engine")
INDEX_ADAPTERS: Final = (account_index.ADAPTER, reconciled.ADAPTER)  # their issues come from the index, not from a node
ABSENT, PENDING = "absent", "pending"  # the chain had not begun; the block is not final yet
NO_PAST: Final = "chains of this kind keep no past balances"
MAX_DAYS: Final = 32  # in one window
MAX_BALANCES: Final = 100_000  # in one window, about
MAX_REASON: Final = 400  # characters
EXPECTED_TOKENS: Final = 100  # of an account, in addition to those that are read for all accounts


@dataclass(slots=True)
class History:
    """Past days of accounts.

    Attributes:
        snapshotter: Returns the snapshotter of a chain.
        facts: Returns the documented facts of all chains.
        budget: Limits the time that reading a chain takes.
    """

    system: DecodedChains
    snapshotter: Callable[[Chain], Snapshotter]
    facts: Callable[[], Mapping[str, ChainFacts]]
    budget: Callable[[Chain], AbstractAsyncContextManager[None]]
    days: DayBlocks = field(default_factory=DayBlocks)

    @property
    def store(self) -> SnapshotStore | None:
        """The snapshot store; None if nothing is stored."""
        return None if self.system.keeps_nothing else SnapshotStore(self.system.lake, self.system.tail)

    # --- one day, as the API answers it ------------------------------------------------------------------------------

    async def portfolios(self, accounts: Sequence[Account], day: date) -> list[Portfolio]:
        """Return portfolios at the last block before 00:00 UTC of a day, on every chain that existed.

        A chain that fails becomes an issue, and so does an account without a chain of its kind. Portfolios read at
        final blocks are stored.

        Raises:
            NotFound: No chain of an account had begun.
            NotSupported: No account has a chain of its kind.
            SourceError: All chains failed. HistoryUnavailable if the state is gone on all of them.
        """
        chains = self.system.account_chains
        served, unserved = split_supported(accounts, {chain.kind for chain in chains}, f"the portfolio on {day}")
        results = await asyncio.gather(*(self._of_chain(chain, accounts, day) for chain in chains))
        begun_kinds = {chain.kind for chain, item in zip(chains, results, strict=True) if item is not None}
        _check_begun(served, begun_kinds, day)
        portfolios_or_errors = [item for item in results if item is not None]
        failed = [item for item in portfolios_or_errors if isinstance(item, SourceError)]
        if failed and len(failed) == len(portfolios_or_errors):
            raise next((item for item in failed if not isinstance(item, HistoryUnavailable)), failed[0])
        parts: dict[str, dict[str, Portfolio]] = {each.address: {} for each in accounts}
        for chain, item in zip(chains, results, strict=True):
            if isinstance(item, SourceError):
                unread = unreadable(chain, addresses_of(chain, accounts), item, midnight_us(day))
                item = {each: document for each, document, _ in self._documents(unread, day)}
            for address, document in (item or {}).items():
                parts[address][chain.key] = document
        coins = {chain.key: (chain.info.native.symbol, chain.info.native.decimals) for chain in chains}
        empty_valuations = {
            address: Valuation((), scope={address: ()}, unread={address: (issue,)})
            for address, issue in unserved.items()
        }
        return [
            self._document(each.address, empty_valuations[each.address], day)
            if each.address in empty_valuations
            else join_chains(parts[each.address], coins)
            for each in accounts
        ]

    async def _of_chain(
        self, chain: Chain, accounts: Sequence[Account], day: date
    ) -> dict[str, Portfolio] | SourceError | None:
        """Return the portfolios of the accounts of the chain's kind, or the error of the chain.

        None if there are no such accounts, or the chain had not begun.
        """
        addresses = addresses_of(chain, accounts)
        if not addresses:
            return None
        try:
            async with self.budget(chain):
                stored = await self._reusable(chain, addresses, [day])
                documents = {each.account: each.portfolio for each in stored.values()}
                missing = [each for each in addresses if each not in documents]
                block = await self.days.before(chain, day) if missing else None
                if missing and block is None:
                    return None
                if block is not None and not has_past(chain):
                    raise HistoryUnavailable(chain.key, block.height, NO_PAST)
                return documents | (await self._read_one(chain, missing, day, block) if block else {})
        except SourceError as error:
            return error

    async def _read_one(self, chain: Chain, addresses: Sequence[str], day: date, block: Block) -> dict[str, Portfolio]:
        """Read portfolios at a block, and store them if the block is final.

        A failure to store them is only logged.
        """
        state = self._index_state(chain, addresses, [block.height])
        snapshot = await self.snapshotter(chain).take(addresses, block, past=True)
        documents = self._documents(snapshot, day)
        if chain.is_final(block.height + 1):
            snapshots = [self._day_snapshot(chain, day, block, each, state) for each in documents]
            try:
                await self._save(chain, snapshots)
            except ChainfolioError as error:  # the portfolios are returned all the same
                log.warning("%s: the snapshots of %s are not kept: %s", chain.key, day, error.message)
        return {address: document for address, document, _ in documents}

    # --- many days ---------------------------------------------------------------------------------------------------

    async def read(
        self, chain: Chain, accounts_by_day: Mapping[date, Sequence[str]], *, retry: bool = False
    ) -> AsyncIterator[list[DaySnapshot]]:
        """Yield the snapshots of the accounts of each day: stored ones, then new ones.

        Stored ones come without documents. New ones come window by window, each stored before it is yielded. A day
        before the chain began is `absent`, one whose block may change is `pending`; both are not stored. A day whose
        state is gone is `unreadable`: it is stored, and read again the next time. Days of a chain without past
        balances, and days older than its first served block, are `unreadable` too, but not stored.

        Args:
            accounts_by_day: The accounts of each day.
            retry: Read snapshots with a failed read again.

        Raises:
            SourceError: The chain failed; snapshots that were read before are stored.
        """
        accounts = sorted({account for day_accounts in accounts_by_day.values() for account in day_accounts})
        requested = {(account, day) for day, day_accounts in accounts_by_day.items() for account in day_accounts}
        reusable = (
            await self._reusable(chain, accounts, accounts_by_day, partial=not retry, documents=False)
            if requested
            else {}
        )
        stored = {key: reusable[key] for key in sorted(reusable.keys() & requested)}
        if stored:
            yield list(stored.values())
        remaining = {
            day: [each for each in dict.fromkeys(day_accounts) if (each, day) not in stored]
            for day, day_accounts in accounts_by_day.items()
        }
        remaining = {day: day_accounts for day, day_accounts in sorted(remaining.items()) if day_accounts}
        if not remaining:
            return
        blocks = await self.days.final_before(chain, remaining)
        first = await first_served(chain) if None in blocks.values() else 0
        if without_block := [
            each
            for day, day_accounts in remaining.items()
            for each in _days_without_block(chain, day, day_accounts, blocks, first)
        ]:
            yield without_block
        readable = {day: (block, remaining[day]) for day, block in sorted(blocks.items()) if block is not None}
        if not has_past(chain):
            yield [
                _unreadable(chain, day, block, each, NO_PAST)
                for day, (block, day_accounts) in readable.items()
                for each in day_accounts
            ]
            return
        for window in self._windows(chain, readable):
            snapshots, error = await self._read_window(chain, window)
            await self._save(chain, snapshots)
            yield snapshots
            if error is not None:
                raise error

    def _windows(
        self, chain: Chain, readable: Mapping[date, tuple[Block, list[str]]]
    ) -> list[dict[date, tuple[Block, list[str]]]]:
        """Return the days in windows of at most `MAX_DAYS` days and about `MAX_BALANCES` balances.

        A window has at least one day.
        """
        tokens = self.snapshotter(chain).unindexed_token_count + EXPECTED_TOKENS
        windows: list[dict[date, tuple[Block, list[str]]]] = []
        balances = MAX_BALANCES
        for day, (block, accounts) in readable.items():
            balances += tokens * len(accounts)
            if balances > MAX_BALANCES or len(windows[-1]) >= MAX_DAYS:
                windows.append({})
                balances = tokens * len(accounts)
            windows[-1][day] = (block, accounts)
        return windows

    async def _read_window(
        self, chain: Chain, window: Mapping[date, tuple[Block, Sequence[str]]]
    ) -> tuple[list[DaySnapshot], BaseException | None]:
        """Read all days of a window together; also return the first error other than HistoryUnavailable.

        A day whose state is gone gives `unreadable` snapshots; a day that failed otherwise gives none. Nothing is
        stored.
        """
        snapshotter = self.snapshotter(chain)
        shared = JointChain(snapshotter.chain, len(window))
        reader = replace(snapshotter, chain=cast("Chain", shared))

        async def take(day: date) -> list[DaySnapshot]:
            block, accounts = window[day]
            with shared.reader():
                state = await asyncio.to_thread(self._index_state, chain, accounts, [block.height])
                snapshot = await reader.take(accounts, block, past=True)
            return [self._day_snapshot(chain, day, block, each, state) for each in self._documents(snapshot, day)]

        tasks = [asyncio.create_task(take(day)) for day in window]
        try:
            results = await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            for task in tasks:
                task.cancel()
        snapshots: list[DaySnapshot] = []
        failed: BaseException | None = None
        for (day, (block, accounts)), item in zip(window.items(), results, strict=True):
            if isinstance(item, HistoryUnavailable):
                snapshots += [_unreadable(chain, day, block, each, public(item.reason)) for each in accounts]
            elif isinstance(item, BaseException):
                failed = failed or item
            else:
                snapshots += item
        return snapshots, failed

    # --- stored days -------------------------------------------------------------------------------------------------

    async def _reusable(
        self,
        chain: Chain,
        addresses: Sequence[str],
        days: Iterable[date],
        *,
        partial: bool = False,
        documents: bool = True,
    ) -> dict[tuple[str, date], DaySnapshot]:
        """Return the valid stored snapshots by account and day; empty without a store.

        They are complete ones, and those that lack only what the index still lacks; with `partial` also those with
        a failed read. Days whose block was unreadable are never among them.
        """
        if (store := self.store) is None:
            return {}
        stored = await asyncio.to_thread(store.newest, chain.key, addresses, list(days), documents=documents)
        read = [each for each in stored.values() if each.digest and (partial or not each.retry)]
        incomplete = [each for each in read if each.unindexed]
        accounts = sorted({each.account for each in incomplete})
        state = await asyncio.to_thread(self._index_state, chain, accounts, [each.block.height for each in incomplete])
        return {
            (each.account, each.day): each
            for each in read
            if not each.unindexed or each.unindexed == state[each.account, each.block.height]
        }

    async def _save(self, chain: Chain, snapshots: Sequence[DaySnapshot]) -> None:
        if snapshots and (store := self.store) is not None:
            now = datetime.fromtimestamp(self.system.environment.clock.now_us() // 1_000_000, UTC)
            await asyncio.to_thread(store.add, chain.key, snapshots, now)

    def _index_state(self, chain: Chain, accounts: Sequence[str], heights: Sequence[int]) -> dict[tuple[str, int], str]:
        """Return a digest of gaps and known differences of the index, by account and height.

        Gaps above a height do not change its digest. Empty without accounts; `heights` are not empty otherwise.
        """
        if not accounts:
            return {}
        tail, top = self.system.tail, max(heights)
        events = self.snapshotter(chain).reader.events
        transfers = account_index.unindexed_transfers(tail, chain.key, top, accounts)
        missing_events = account_index.unindexed(tail, chain.key, top, events, accounts)
        differences = list(reconciled.issues(tail, chain.key, accounts, natives=False))
        digests = {}
        for account in accounts:
            differs = [each.reason for each in differences if each.account == account]
            spans = {"": transfers[account], **missing_events[account]}
            for height in set(heights):
                below = {name: repr(each & [Span(0, height)]) for name, each in sorted(spans.items())}
                digests[account, height] = hashlib.sha256(repr((below, differs)).encode()).hexdigest()[:16]
        return digests

    # --- documents ---------------------------------------------------------------------------------------------------

    def _documents(self, snapshot: Snapshot, day: date) -> list[tuple[str, Portfolio, tuple[Issue, ...]]]:
        """Return the document of each account, with the issues that make it partial."""
        parts = valuate([snapshot]).by_account()
        return [
            (address, self._document(address, parts[address], day), _partial(parts[address], address))
            for address in snapshot.accounts
        ]

    def _document(self, address: str, valuation: Valuation, day: date) -> Portfolio:
        """Return the portfolio of a past day, as of 00:00 UTC, the start of the day."""
        return portfolio(
            address,
            valuation,
            self.facts(),
            updated_ms=midnight_us(day) // 1000,
            protocols=self.system.registry.facts,
        )

    def _day_snapshot(
        self,
        chain: Chain,
        day: date,
        block: Block,
        account_document: tuple[str, Portfolio, tuple[Issue, ...]],
        state: Mapping[tuple[str, int], str],
    ) -> DaySnapshot:
        """Return the snapshot of an account's day on a chain, with its issues as one text of limited length.

        It is marked for a retry if a read failed, and with the digest of the index if something is not indexed.
        """
        address, document, lacks = account_document
        reasons = "; ".join(f"{each.subject}: {each.reason}" for each in issue_documents(lacks))
        reason = reasons if len(reasons) <= MAX_REASON else f"{reasons[:MAX_REASON]}…"
        failed = any(each.adapter not in INDEX_ADAPTERS for each in lacks)
        of_index = any(each.adapter in INDEX_ADAPTERS for each in lacks)
        return snapshot_of(
            chain.key,
            day,
            block,
            document,
            reason,
            retry=failed,
            unindexed=state[address, block.height] if of_index else "",
        )


def _partial(valuation: Valuation, address: str) -> tuple[Issue, ...]:
    return tuple(each for each in valuation.unread[address] if each.makes_partial)


def _days_without_block(
    chain: Chain, day: date, accounts: Sequence[str], blocks: Mapping[date, Block | None], first: int
) -> list[DaySnapshot]:
    """Return the snapshots of a day without a block, [] if it has one.

    The block is not final yet, does not exist, or is older than `first`, the first block that nodes have.
    """
    if blocks.get(day) is not None:
        return []
    if day in blocks and first:
        return [_unreadable(chain, day, Block(0, "", "", 0), each, FORGOTTEN) for each in accounts]
    kind, reason = (
        (ABSENT, f"{chain.key} had not begun")
        if day in blocks
        else (PENDING, f"the last block of {chain.key} before that day is not final yet")
    )
    return [DaySnapshot(chain.key, each, day, Block(0, "", "", 0), kind, reason) for each in accounts]


def _unreadable(chain: Chain, day: date, block: Block, account: str, reason: str) -> DaySnapshot:
    return DaySnapshot(chain.key, account, day, block, UNREADABLE, reason, retry=True)


def _check_begun(accounts: Sequence[Account], kinds: set[str], day: date) -> None:
    """Raise if no chain of an account's kind had begun by the day.

    Raises:
        NotFound: At least one account has no chain.
    """
    missing = [each.address for each in accounts if each.kind not in kinds]
    if missing:
        raise NotFound(
            f"no snapshot of {', '.join(missing)} can be built for {day}: no configured chain of such addresses had "
            "begun by then"
        )
