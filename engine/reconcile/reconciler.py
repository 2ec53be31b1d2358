"""Is the history of an account complete? Its balances on chain, compared with the sum of its movements in the index.

Balances are read at the hashes of a ladder of blocks, for all accounts and assets together; then only where the two
part, until the first block of each difference is known. That block is read again, to say why. Where nodes keep no old
state, what they say of now is compared (`reconcile_present.py`).
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from chainfolio.blocks import Block, Span, Spans
from chainfolio.chains import newest_block_in
from chainfolio.engine.reconcile.evidence import Evident, datasets_of
from chainfolio.engine.reconcile.present import Present
from chainfolio.engine.reconcile.results import (
    MAX_SHOWN,
    STATUSES,
    Difference,
    ListedApart,
    Reconciled,
    Reconciliation,
    keep,
)
from chainfolio.engine.rows import rows_of
from chainfolio.engine.snapshots.replay import replays
from chainfolio.engine.snapshots.sent_transactions import FEE_COLUMNS, sent_transactions
from chainfolio.engine.snapshots.trust import Trust, mark_untrusted
from chainfolio.errors import BadRequest, HistoryUnavailable, NotIndexed, OverBudget, Reorged, SourceError
from chainfolio.indexer.scopes import indexed_for
from chainfolio.plans import Unknown
from chainfolio.portfolio.causes import MISSING_ROW, OF_DATASETS, cause_of
from chainfolio.portfolio.ledger import drop_native_duplicates
from chainfolio.portfolio.reconciliation import (
    ASSET_COLUMNS,
    MOVED,
    Answer,
    BalanceKey,
    Comparison,
    NoContract,
    Point,
    RunningTotals,
    running_totals,
    search,
    spread_heights,
)
from chainfolio.tables import ACCOUNT_TRANSFERS

if TYPE_CHECKING:
    import polars as pl

    from chainfolio.assets import Asset
    from chainfolio.chains import Chain
    from chainfolio.storage.lake import Lake
    from chainfolio.storage.tail import Tail

CHECKPOINTS: Final = 32
AT_ONCE: Final = 4_000  # balances that are asked for together
BLOCKS_AT_ONCE: Final = 200
AGAIN: Final = "start the same again with a larger budget, or with fewer checkpoints"
# A node that leaves out a log does so again where it is asked in the same way.
AGAIN_LOST: Final = '; first add an endpoint, or set `integrity = "roots"` and `sample = 1`, if a node left them out'
UNREAD: Final = "unreadable", "its balance could not be read"
Told = Callable[[str], None]
TrustOf = Callable[["Mapping[str, Collection[Asset]]", int], Awaitable[Trust]]


@dataclass(slots=True)
class Reconciler:
    """Reconciles accounts of one chain. `max_requests` bounds what it asks of nodes: OverBudget. `trust_of` returns
    which of the assets that accounts met are trusted at a height; without it, all are."""

    chain: Chain
    lake: Lake
    tail: Tail
    checkpoints: int = CHECKPOINTS
    max_requests: int | None = None
    told: Told = lambda text: None
    trust_of: TrustOf | None = None
    trust: Trust = field(init=False, default=Trust(lambda asset: True))
    strangers: frozenset[str] = frozenset()
    _asked_before: int = 0
    _blocks: dict[int, Block | None] = field(default_factory=dict)
    _gone: set[int] = field(default_factory=set)  # heights without state
    present: Present | None = field(init=False)  # where nodes keep no old state

    def __post_init__(self) -> None:
        compares = Present(self.chain, self.tail, self._check_budget, self.told)
        self.present = compares if replays(self.chain) else None

    async def run(
        self, accounts: Sequence[str], first: int | None = None, last: int | None = None
    ) -> list[Reconciliation]:
        """Every account over a range: by default as far as all of them are indexed. The results are kept."""
        span, (end, transfers, fees), steps, known = await self.prepared(accounts, first, last)
        compared = await self._compared(accounts, span, end, steps, known)
        known = dict.fromkeys(compared, RunningTotals()) | known
        evident = Evident(self.chain, self.tail, accounts, transfers, fees, self._check_budget)
        found = [(key, each.height) for key, one in compared.items() for each in one.changes if each.is_found]
        if found:
            self.told(f"reading {len({height for _, height in found}):,} blocks again")
        await evident.gather(found)
        results = [
            await asyncio.to_thread(self._result, account, span, end, steps, known, compared, evident)
            for account in accounts
        ]
        for each in results:
            await asyncio.to_thread(keep, self.tail, each)
        return results

    async def _compared(
        self,
        accounts: Sequence[str],
        span: Span,
        end: Block,
        steps: Sequence[int],
        known: Mapping[BalanceKey, RunningTotals],
    ) -> dict[BalanceKey, Comparison]:
        if self.present is None:
            return await self._search(known, steps, is_start=span.first == 0)
        balances = await self.present.balances(accounts, known, end, self.strangers)
        return await self.present.compared(balances, known, end)

    async def prepared(
        self, accounts: Sequence[str], first: int | None, last: int | None
    ) -> tuple[Span, tuple[Block, pl.DataFrame, pl.DataFrame], list[int], dict[BalanceKey, RunningTotals]]:
        """What is compared: the range, its last block with what moved and was paid up to there, the checkpoints, and
        the courses of the assets."""
        self._asked_before = self.chain.requests
        span = await self._span(accounts, first, last)
        end = await self._end(span.last)
        opening = -1 if self.present else max(0, span.first - 1)
        steps = [span.last] if self.present else spread_heights(opening, span.last, self.checkpoints)
        transfers, fees = await asyncio.to_thread(self._rows, accounts, span.last)
        known = await asyncio.to_thread(self._courses, accounts, transfers, fees, opening, span)
        await self._judge(known, span.last)
        await self._end(span.last)  # what was read meanwhile belongs to this block
        return span, (end, transfers, fees), steps, known

    async def _judge(self, known: Mapping[BalanceKey, RunningTotals], height: int) -> None:
        """Set which assets are trusted. Contracts of the others are read after all else, with bounded work."""
        if self.trust_of is None:
            return
        met: defaultdict[str, set[Asset]] = defaultdict(set)
        for key in known:
            met[key.account].add(key.asset.collection)
        self.trust = await self.trust_of(met, height)
        self.strangers = self.trust.untrusted_contracts({asset for assets in met.values() for asset in assets})

    # --- what is compared --------------------------------------------------------------------------------------------

    async def _span(self, accounts: Sequence[str], first: int | None, last: int | None) -> Span:
        head = (await self.chain.heads()).latest.height
        if last is not None and last > head:
            raise BadRequest("to", f"block {last} is above the head, which is block {head}")
        indexed = await asyncio.to_thread(self._indexed, accounts)
        whole = [*indexed]
        if not whole and None in (first, last):
            names = [each.name for each in self._wanted()]
            raise NotIndexed(self.chain.key, names[0] if names else "transfers", first or 0, head)
        begin = whole[0].first if first is None else first
        end = min(whole[-1].last, head) if last is None else last
        if self.present is not None:
            self.present.check_span(begin, end, whole)
        if begin > end:
            raise BadRequest("from", f"{begin} is above block {end}, the last of the range")
        return Span(begin, end)

    def _wanted(self) -> list[Any]:
        """The datasets that are indexed where nobody names any, of those whose rows are movements."""
        every = {each.name: each for native in (False, True) for each in datasets_of(self.chain, native=native)}
        return [each for each in every.values() if each.is_default]

    def _indexed(self, accounts: Sequence[str]) -> Spans:
        """The heights that are indexed of all accounts, for all datasets that are indexed of them at all."""
        every = [
            found
            for each in self._wanted()
            for account in accounts
            if (found := indexed_for(self.tail, self.chain.key, each.name, account))
        ]
        return reduce(Spans.__and__, every) if every else Spans()

    async def _end(self, height: int) -> Block:
        """The last block of the range, which must be the one that is indexed."""
        end = await self._state_of(height)
        if end is None:
            raise BadRequest("to", f"the chain has no block up to {height}")
        kept = {each.height: each for each in await asyncio.to_thread(self.tail.blocks, self.chain.key)}
        if kept.get(end.height, end).hash != end.hash:
            raise Reorged(self.chain.key, end.height, kept[end.height].hash)
        return end

    def _rows(self, accounts: Sequence[str], last: int) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The transfers of the accounts, and what they paid."""
        index, span = (self.lake, self.tail, self.chain.key), Span(0, last)
        transfers = rows_of(*index, ACCOUNT_TRANSFERS, accounts, (*MOVED, *ASSET_COLUMNS, "raw"), span=span)
        return drop_native_duplicates(transfers, self.chain.info), sent_transactions(
            *index, accounts, FEE_COLUMNS, span
        )

    def _courses(
        self, accounts: Sequence[str], transfers: pl.DataFrame, fees: pl.DataFrame, opening: int, span: Span
    ) -> dict[BalanceKey, RunningTotals]:
        """The course behind the opening of everything that the accounts met, and of the native coin where it is indexed
        at all."""
        import polars as pl

        info, behind = self.chain.info, pl.col("height") > opening
        found = dict.fromkeys(running_totals(transfers, fees, info), RunningTotals())
        found |= running_totals(transfers.filter(behind), fees.filter(behind), info)
        native = {BalanceKey(account, info.native.asset) for account in accounts}
        # A movement of the others is named where it is lacking.
        every = [each for each in datasets_of(self.chain, native=True) if each.is_default]
        places = [each for each in every if each.name not in OF_DATASETS]
        for key in native:
            ranges = [indexed_for(self.tail, self.chain.key, each.name, key.account) & [span] for each in places]
            if all(ranges):
                found.setdefault(key, RunningTotals())
            else:
                found.pop(key, None)
        return dict(sorted(found.items()))

    # --- balances ----------------------------------------------------------------------------------------------------

    async def _search(
        self, known: Mapping[BalanceKey, RunningTotals], steps: Sequence[int], *, is_start: bool
    ) -> dict[BalanceKey, Comparison]:
        running, rounds = search(known, steps, is_from_genesis=is_start), 0
        answers: dict[Point, Answer] | None = None
        while True:
            try:
                asked = next(running) if answers is None else running.send(answers)
            except StopIteration as stop:
                found: dict[BalanceKey, Comparison] = stop.value
                return found
            rounds += 1
            heights = len({height for _, height in asked})
            self.told(f"round {rounds}: {len(asked):,} balances at {heights:,} blocks")
            answers = await self.balances(asked)

    async def balances(self, asked: Sequence[Point]) -> dict[Point, Answer]:
        """The balances of accounts at some heights, in as few requests as go."""
        at: dict[int, list[BalanceKey]] = {}
        for key, height in asked:
            at.setdefault(height, []).append(key)
        found: dict[Point, Answer] = {}
        for heights in _parts(at):
            self._check_budget()
            await self._know(heights)
            for height, answers in zip(heights, await self._answered([(h, at[h]) for h in heights]), strict=True):
                found |= {(key, height): answer for key, answer in zip(at[height], answers, strict=True)}
        return found

    def parts(self, asked: Sequence[Point]) -> int:
        """In how many parts so many balances are asked for."""
        at: dict[int, list[BalanceKey]] = {}
        for key, height in asked:
            at.setdefault(height, []).append(key)
        return sum(1 for _ in _parts(at))

    async def _answered(self, asked: Sequence[tuple[int, Sequence[BalanceKey]]]) -> list[list[Answer]]:
        """What the balances are at some heights. Before the first block nobody has anything."""
        blocks = [self._blocks[height] for height, _ in asked]
        plans = [self.chain.balances([(key.account, key.asset) for key in keys]) for _, keys in asked]
        wanted = [
            (block, mark_untrusted(next(plan), self.strangers))
            for block, plan in zip(blocks, plans, strict=True)
            if block is not None
        ]
        try:
            given = iter(await self.chain.answer_each(wanted))
        except HistoryUnavailable as error:  # at all of them
            given = iter([error] * len(wanted))
        answers: list[list[Answer]] = []
        for (height, keys), block, plan in zip(asked, blocks, plans, strict=True):
            results = [0] * len(keys) if block is None else next(given)
            if isinstance(results, SourceError):
                if not isinstance(results, HistoryUnavailable):
                    raise results
                self._gone.add(height)
                answers.append([None] * len(keys))
            else:
                answers.append([_answer(each) for each in (results if block is None else _end_of(plan, results))])
        return answers

    async def _state_of(self, height: int) -> Block | None:
        await self._know([height])
        return self._blocks[height]

    async def _know(self, heights: Sequence[int]) -> None:
        """Find the blocks whose state counts at some heights: the newest up to each."""
        missing = [height for height in heights if height not in self._blocks]
        if not missing:
            return
        self._blocks |= {block.height: block for block in await self.chain.blocks(missing)}
        for height in missing:
            if height not in self._blocks:
                self._blocks[height] = await newest_block_in(self.chain, Span(0, height))

    def _check_budget(self) -> None:
        """Before something is asked."""
        if self.max_requests is not None and self.chain.requests - self._asked_before >= self.max_requests:
            raise OverBudget("requests", self.max_requests, remedy=AGAIN)

    # --- what it comes to --------------------------------------------------------------------------------------------

    def _result(
        self,
        account: str,
        span: Span,
        end: Block,
        steps: Sequence[int],
        known: Mapping[BalanceKey, RunningTotals],
        compared: Mapping[BalanceKey, Comparison],
        evident: Evident,
    ) -> Reconciliation:
        own = {key: one for key, one in compared.items() if key.account == account}
        differences, apart = self._told_apart(own, known, evident)
        assets = [_asset(key, known[key], one, is_apart=key in apart) for key, one in own.items()]
        native = BalanceKey(account, self.chain.info.native.asset)
        if native not in own:
            assets.append(Reconciled(str(native.asset), "unindexed", None, "0", None))
        counts = Counter(each.status for each in assets)
        return Reconciliation(
            account,
            self.chain.key,
            span.first,
            span.last,
            end.hash,
            tuple(steps),
            tuple(height for height in steps if height in self._gone),
            {status: counts[status] for status in STATUSES},
            tuple(sorted(assets, key=lambda each: each.asset)),
            differences,
            tuple(str(key.asset) for key, one in own.items() if one.has_more and key not in apart),
            (*self._notes(account, span, steps), *_cure(self.chain.key, differences)),
            tuple(_summed(apart)),
        )

    def _told_apart(
        self, own: Mapping[BalanceKey, Comparison], known: Mapping[BalanceKey, RunningTotals], evident: Evident
    ) -> tuple[tuple[Difference, ...], dict[BalanceKey, tuple[str, str]]]:
        """Return the differences of one account, and the untrusted assets that differ or cannot be read with the cause.
        What the index itself lacks is a difference, whoever made the token."""
        differences: list[Difference] = []
        apart: dict[BalanceKey, tuple[str, str]] = {}
        for key, one in own.items():
            several = list(_differences(key, one, known[key], evident))
            is_trusted = self.trust.is_trusted(key.account, key.asset.collection)
            if is_trusted or any(each.is_lacking for each in several):
                differences += several
            elif one.balance is None:
                apart[key] = UNREAD
            elif several:
                apart[key] = several[0].cause, several[0].reason
        return tuple(differences), apart

    def _notes(self, account: str, span: Span, steps: Sequence[int]) -> Iterator[str]:
        if steps[0] in self._gone:
            yield (
                f"the state at block {steps[0]} is gone: what was there before is taken to be nothing"
                if span.first == 0
                else "the state before the range is gone: what is compared begins at the first checkpoint that was read"
            )
        if self._gone:
            yield "no endpoint serves the state of all checkpoints: an archive node shows the blocks of differences"
        if self.present is not None:
            yield from self.present.notes
        wanted = {each.name: each for native in (False, True) for each in datasets_of(self.chain, native=native)}
        for name in wanted:
            left = Spans([span]) - indexed_for(self.tail, self.chain.key, name, account)
            if left:
                yield f"`{name}` is not indexed at {len(left):,} of the {len(span):,} blocks"


def _parts(at: Mapping[int, Sequence[BalanceKey]]) -> Iterator[list[int]]:
    """Heights in order, as many as go together."""
    part: list[int] = []
    count = 0
    for height in sorted(at):
        if part and (count + len(at[height]) > AT_ONCE or len(part) == BLOCKS_AT_ONCE):
            yield part
            part, count = [], 0
        part.append(height)
        count += len(at[height])
    if part:
        yield part


def _end_of(plan: Any, results: Sequence[Any]) -> Sequence[Any]:
    """The result of a plan of one round."""
    try:
        plan.send(results)
    except StopIteration as stop:
        found: Sequence[Any] = stop.value
        return found
    raise AssertionError("balances are asked for in one round")


def _answer(result: Any) -> Answer:
    if isinstance(result, Unknown) and result.cause == "absent":
        return NoContract()
    return result if isinstance(result, int) else None


def _asset(key: BalanceKey, course: RunningTotals, one: Comparison, *, is_apart: bool) -> Reconciled:
    status = "unreadable" if one.balance is None else "differs" if one.changes else "equal"
    status = "untrusted" if is_apart else status
    opening, balance = (None if raw is None else str(raw) for raw in (one.opening, one.balance))
    return Reconciled(str(key.asset), status, opening, str(course.sums[-1] if course.sums else 0), balance)


def _cure(chain: str, differences: Sequence[Difference]) -> Iterator[str]:
    """What gives an index the rows that the chain has and it lacks."""
    lost = [each.block for each in differences if each.cause == MISSING_ROW]
    if lost:
        yield f"`chainfolio index {chain} --rewind {min(lost)}` reads these rows again, and all behind them{AGAIN_LOST}"


def _differences(key: BalanceKey, one: Comparison, course: RunningTotals, evident: Evident) -> Iterator[Difference]:
    for each in one.changes:
        evidence = evident.of(key, each.height)
        cause, reason = cause_of(key, course, each, one.changes, evidence)
        yield Difference(str(key.asset), each.height, each.after, str(each.amount), cause, reason)


def _summed(apart: Mapping[BalanceKey, tuple[str, str]]) -> Iterator[ListedApart]:
    """Yield the untrusted assets of an account by cause, so that a flood of them is a few lines."""
    groups: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for key, told in apart.items():
        groups[told].append(str(key.asset))
    for (cause, reason), assets in sorted(groups.items()):
        yield ListedApart(cause, reason, len(assets), tuple(sorted(assets)[:MAX_SHOWN]))
