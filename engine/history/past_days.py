"""What accounts held as past days began: kept snapshots where there are some, and reads of the chain where not.

Both give the same bytes. Many days are read together, in as few requests as one, and kept window by window: whoever
begins again after a crash goes on where it ended.
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
from chainfolio.engine.answerable import answerable
from chainfolio.engine.history.day_blocks import Days, midnight_us
from chainfolio.engine.history.joint_reads import Together
from chainfolio.engine.history.snapshot_store import UNREADABLE, DaySnapshot, SnapshotStore, of_document
from chainfolio.engine.reconcile import results as reconciled
from chainfolio.engine.snapshots import account_index
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
    from chainfolio.indexer.wiring import System

log = logging.getLogger("chainfolio.engine")
OF_THE_INDEX: Final = (account_index.ADAPTER, reconciled.ADAPTER)  # what they miss was never asked of a node
ABSENT, PENDING = "absent", "pending"  # the chain had not begun; its block may still change
NO_PAST: Final = "chains of this kind keep no past balances"
MAX_DAYS: Final = 32  # in one window
MAX_BALANCES: Final = 100_000  # in one window, about
MAX_REASON: Final = 400  # characters
USUAL_TOKENS: Final = 100  # that an account holds beside those that everybody is asked for


@dataclass(slots=True)
class History:
    """The past days of accounts. `snapshotter`, `facts` and `budget` are those of the engine."""

    system: System
    snapshotter: Callable[[Chain], Snapshotter]
    facts: Callable[[], Mapping[str, ChainFacts]]
    budget: Callable[[Chain], AbstractAsyncContextManager[None]]
    days: Days = field(default_factory=Days)

    @property
    def store(self) -> SnapshotStore | None:
        """Where snapshots are kept; None where nothing is."""
        return None if self.system.keeps_nothing else SnapshotStore(self.system.lake, self.system.tail)

    # --- one day, as the API answers it ------------------------------------------------------------------------------

    async def portfolios(self, accounts: Sequence[Account], day: date) -> list[Portfolio]:
        """Portfolios at the last block before 00:00 UTC of a day, on every chain there was by then. NotFound where an
        account has none. A chain that cannot say is an issue; where none can, its error is raised, HistoryUnavailable
        if all have forgotten. An account without a chain of its kind is an issue; Unserved if all are."""
        chains = self.system.account_chains
        served, unserved = answerable(accounts, {chain.kind for chain in chains}, f"the portfolio on {day}")
        taken = await asyncio.gather(*(self._of_chain(chain, accounts, day) for chain in chains))
        begun = {chain.kind for chain, item in zip(chains, taken, strict=True) if item is not None}
        _check_begun(served, begun, day)
        lived = [item for item in taken if item is not None]
        failed = [item for item in lived if isinstance(item, SourceError)]
        if failed and len(failed) == len(lived):
            raise next((item for item in failed if not isinstance(item, HistoryUnavailable)), failed[0])
        parts: dict[str, dict[str, Portfolio]] = {each.address: {} for each in accounts}
        for chain, item in zip(chains, taken, strict=True):
            if isinstance(item, SourceError):
                unread = unreadable(chain, addresses_of(chain, accounts), item, midnight_us(day))
                item = {each: document for each, document, _ in self._documents(unread, day)}
            for address, document in (item or {}).items():
                parts[address][chain.key] = document
        coins = {chain.key: (chain.info.native.symbol, chain.info.native.decimals) for chain in chains}
        lacking = {
            address: Valuation((), scope={address: ()}, unread={address: (issue,)})
            for address, issue in unserved.items()
        }
        return [
            self._document(each.address, lacking[each.address], day)
            if each.address in lacking
            else join_chains(parts[each.address], coins)
            for each in accounts
        ]

    async def _of_chain(
        self, chain: Chain, accounts: Sequence[Account], day: date
    ) -> dict[str, Portfolio] | SourceError | None:
        """What accounts of the chain's kind held as the day began; None where there was no chain, or is no account."""
        addresses = addresses_of(chain, accounts)
        if not addresses:
            return None
        try:
            async with self.budget(chain):
                kept = await self._standing(chain, addresses, [day])
                documents = {each.account: each.portfolio for each in kept.values()}
                left = [each for each in addresses if each not in documents]
                block = await self.days.before(chain, day) if left else None
                if left and block is None:
                    return None
                if block is not None and not has_past(chain):
                    raise HistoryUnavailable(chain.key, block.height, NO_PAST)
                return documents | (await self._read_one(chain, left, day, block) if block else {})
        except SourceError as error:
            return error

    async def _read_one(self, chain: Chain, addresses: Sequence[str], day: date, block: Block) -> dict[str, Portfolio]:
        """What accounts held at a block: kept where all of it is final."""
        state = self._index_state(chain, addresses, [block.height])
        snapshot = await self.snapshotter(chain).take(addresses, block, past=True)
        found = self._documents(snapshot, day)
        if chain.is_final(block.height + 1):
            taken = [self._taken(chain, day, block, each, state) for each in found]
            try:
                await self._keep(chain, taken)
            except ChainfolioError as error:  # the answer is there all the same
                log.warning("%s: the snapshots of %s are not kept: %s", chain.key, day, error.message)
        return {address: document for address, document, _ in found}

    # --- many days ---------------------------------------------------------------------------------------------------

    async def read(
        self, chain: Chain, wanted: Mapping[date, Sequence[str]], *, again: bool = False
    ) -> AsyncIterator[list[DaySnapshot]]:
        """The snapshots of the accounts of each day, without documents where they are kept: first those that still
        stand, then the others, window by window, each kept before it is given. `again`: those too of which a read
        failed.

        A day before the chain began is `absent`, one whose block may still change `pending`; neither is kept. One that
        no node has the state of is `unreadable`: that is kept, and asked again the next time."""
        accounts = sorted({account for some in wanted.values() for account in some})
        asked = {(account, day) for day, some in wanted.items() for account in some}
        found = await self._standing(chain, accounts, wanted, partial=not again, documents=False) if asked else {}
        kept = {key: found[key] for key in sorted(found.keys() & asked)}
        if kept:
            yield list(kept.values())
        left = {day: [each for each in dict.fromkeys(some) if (each, day) not in kept] for day, some in wanted.items()}
        left = {day: some for day, some in sorted(left.items()) if some}
        if not left:
            return
        blocks = await self.days.final_before(chain, left)
        first = await first_served(chain) if None in blocks.values() else 0
        if missing := [each for day, some in left.items() for each in _without(chain, day, some, blocks, first)]:
            yield missing
        there = {day: (block, left[day]) for day, block in sorted(blocks.items()) if block is not None}
        if not has_past(chain):
            yield [
                _unreadable(chain, day, block, each, NO_PAST) for day, (block, some) in there.items() for each in some
            ]
            return
        for window in self._windows(chain, there):
            taken, error = await self._window(chain, window)
            await self._keep(chain, taken)
            yield taken
            if error is not None:
                raise error

    def _windows(
        self, chain: Chain, there: Mapping[date, tuple[Block, list[str]]]
    ) -> list[dict[date, tuple[Block, list[str]]]]:
        """The days in windows that are read together, each of about so many balances."""
        tokens = self.snapshotter(chain).unindexed_token_count + USUAL_TOKENS
        windows: list[dict[date, tuple[Block, list[str]]]] = []
        balances = MAX_BALANCES
        for day, (block, some) in there.items():
            balances += tokens * len(some)
            if balances > MAX_BALANCES or len(windows[-1]) >= MAX_DAYS:
                windows.append({})
                balances = tokens * len(some)
            windows[-1][day] = (block, some)
        return windows

    async def _window(
        self, chain: Chain, window: Mapping[date, tuple[Block, Sequence[str]]]
    ) -> tuple[list[DaySnapshot], BaseException | None]:
        """All days of a window together; the first error that is not for good, beside what could be read."""
        one = self.snapshotter(chain)
        shared = Together(one.chain, len(window))
        reader = replace(one, chain=cast("Chain", shared))

        async def take(day: date) -> list[DaySnapshot]:
            block, accounts = window[day]
            with shared.reader():
                state = await asyncio.to_thread(self._index_state, chain, accounts, [block.height])
                snapshot = await reader.take(accounts, block, past=True)
            return [self._taken(chain, day, block, each, state) for each in self._documents(snapshot, day)]

        tasks = [asyncio.create_task(take(day)) for day in window]
        try:
            found = await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            for task in tasks:
                task.cancel()
        taken: list[DaySnapshot] = []
        failed: BaseException | None = None
        for (day, (block, accounts)), item in zip(window.items(), found, strict=True):
            if isinstance(item, HistoryUnavailable):
                taken += [_unreadable(chain, day, block, each, public(item.reason)) for each in accounts]
            elif isinstance(item, BaseException):
                failed = failed or item
            else:
                taken += item
        return taken, failed

    # --- what is kept ------------------------------------------------------------------------------------------------

    async def _standing(
        self,
        chain: Chain,
        addresses: Sequence[str],
        days: Iterable[date],
        *,
        partial: bool = False,
        documents: bool = True,
    ) -> dict[tuple[str, date], DaySnapshot]:
        """The kept snapshots that are answered again: complete ones, and those that lack only what the index still
        lacks; with `partial` those too of which a read failed."""
        if (store := self.store) is None:
            return {}
        kept = await asyncio.to_thread(store.newest, chain.key, addresses, list(days), documents=documents)
        read = [each for each in kept.values() if each.digest and (partial or not each.retry)]
        lacking = [each for each in read if each.unindexed]
        accounts = sorted({each.account for each in lacking})
        state = await asyncio.to_thread(self._index_state, chain, accounts, [each.block.height for each in lacking])
        return {
            (each.account, each.day): each
            for each in read
            if not each.unindexed or each.unindexed == state[each.account, each.block.height]
        }

    async def _keep(self, chain: Chain, taken: Sequence[DaySnapshot]) -> None:
        if taken and (store := self.store) is not None:
            now = datetime.fromtimestamp(self.system.environment.clock.now_us() // 1_000_000, UTC)
            await asyncio.to_thread(store.keep, chain.key, taken, now)

    def _index_state(self, chain: Chain, accounts: Sequence[str], heights: Sequence[int]) -> dict[tuple[str, int], str]:
        """A digest, by account and height, of what the index lacks up to it and what is known to differ."""
        if not accounts:
            return {}
        tail, top = self.system.tail, max(heights)
        events = self.snapshotter(chain).reader.events
        transfers = account_index.unindexed_transfers(tail, chain.key, top, accounts)
        others = account_index.unindexed(tail, chain.key, top, events, accounts)
        told = list(reconciled.issues(tail, chain.key, accounts, natives=False))
        found = {}
        for account in accounts:
            differs = [each.reason for each in told if each.account == account]
            spans = {"": transfers[account], **others[account]}
            for height in set(heights):
                below = {name: repr(each & [Span(0, height)]) for name, each in sorted(spans.items())}
                found[account, height] = hashlib.sha256(repr((below, differs)).encode()).hexdigest()[:16]
        return found

    # --- documents ---------------------------------------------------------------------------------------------------

    def _documents(self, snapshot: Snapshot, day: date) -> list[tuple[str, Portfolio, tuple[Issue, ...]]]:
        """The document of each account of a snapshot, with what makes it partial."""
        parts = valuate([snapshot]).by_account()
        return [
            (address, self._document(address, parts[address], day), _partial(parts[address], address))
            for address in snapshot.accounts
        ]

    def _document(self, address: str, valuation: Valuation, day: date) -> Portfolio:
        return portfolio(
            address,
            valuation,
            self.facts(),
            updated_ms=midnight_us(day) // 1000,
            protocols=self.system.registry.facts,
        )

    def _taken(
        self,
        chain: Chain,
        day: date,
        block: Block,
        found: tuple[str, Portfolio, tuple[Issue, ...]],
        state: Mapping[tuple[str, int], str],
    ) -> DaySnapshot:
        address, document, lacks = found
        said = "; ".join(f"{each.subject}: {each.reason}" for each in issue_documents(lacks))
        reason = said if len(said) <= MAX_REASON else f"{said[:MAX_REASON]}…"
        failed = any(each.adapter not in OF_THE_INDEX for each in lacks)
        of_index = any(each.adapter in OF_THE_INDEX for each in lacks)
        return of_document(
            chain.key,
            day,
            block,
            document,
            reason,
            retry=failed,
            unindexed=state[address, block.height] if of_index else "",
        )


def addresses_of(chain: Chain, accounts: Sequence[Account]) -> list[str]:
    """The addresses of those accounts that are of a chain's kind."""
    return [each.address for each in accounts if each.kind == chain.kind]


def unreadable(chain: Chain, addresses: Sequence[str], error: SourceError, time_us: int) -> Snapshot:
    """A snapshot that says only why there is none."""
    log.warning("%s could not be read: %s", chain.key, error.message)
    reason = f"the chain could not be read: {error.reason}"
    issues = tuple(Issue(chain.key, address, reason, account=address) for address in addresses)
    return Snapshot(chain.key, Block(0, "", "", time_us), tuple(addresses), (), (), issues)


def _partial(valuation: Valuation, address: str) -> tuple[Issue, ...]:
    return tuple(each for each in valuation.unread[address] if each.makes_partial)


def _without(
    chain: Chain, day: date, accounts: Sequence[str], blocks: Mapping[date, Block | None], first: int
) -> list[DaySnapshot]:
    """The snapshots of a day that has no block: none is there yet, none was there, or it is below the `first` one that
    nodes have."""
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


def _check_begun(accounts: Sequence[Account], families: set[str], day: date) -> None:
    """NotFound where no chain of an account's kind had begun by the day; `families` are the kinds of those that had."""
    lacking = [each.address for each in accounts if each.kind not in families]
    if lacking:
        raise NotFound(
            f"no snapshot of {', '.join(lacking)} can be built for {day}: no configured chain of such addresses had "
            "begun by then"
        )
