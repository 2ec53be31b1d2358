"""Check the histories of accounts: compare balances on chain with the sum of indexed movements.

Balances are read at checkpoints, for all accounts and assets together. A difference is narrowed down to its
first block, and that block is read again to find the cause. If nodes keep no old state, current balances are compared
(`current_balances.py`).
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from chainfolio.blocks import Block, Span, Spans
from chainfolio.engine.reconcile.balances import BalanceReader
from chainfolio.engine.reconcile.current_balances import CurrentBalances
from chainfolio.engine.reconcile.evidence import EvidenceReader, datasets_of
from chainfolio.engine.reconciliations import (
    MAX_SHOWN,
    STATUSES,
    AssetReconciliation,
    Difference,
    Reconciliation,
    UntrustedAssets,
    store_result,
)
from chainfolio.engine.rows import ChainIndex, rows_of
from chainfolio.engine.snapshots.replay import replays
from chainfolio.engine.snapshots.sent_transactions import FEE_COLUMNS, sent_transactions
from chainfolio.engine.snapshots.trust import Trust
from chainfolio.errors import BadRequest, NotIndexed, OverBudget, Reorged
from chainfolio.indexer.scopes import indexed_for
from chainfolio.portfolio.causes import MISSING_ROW, OF_DATASETS, cause_of
from chainfolio.portfolio.ledger import drop_native_duplicates
from chainfolio.portfolio.reconciliation import (
    ASSET_COLUMNS,
    MOVED,
    Answer,
    BalanceKey,
    Comparison,
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
BUDGET_HINT: Final = "start the same again with a larger budget, or with fewer checkpoints"
# A node that left out a log leaves it out again if the request is the same.
REREAD_HINT: Final = '; first add an endpoint, or set `integrity = "roots"` and `sample = 1`, if a node left them out'
UNREADABLE: Final = "unreadable", "its balance could not be read"
ProgressCallback = Callable[[str], None]
TrustReader = Callable[["Mapping[str, Collection[Asset]]", int], Awaitable[Trust]]


class Scope(NamedTuple):
    """The range that is compared, and the indexed movements of its accounts.

    Attributes:
        end: The last block of the range.
        transfers: The transfers of the accounts up to `end`.
        fees: The transactions that the accounts paid for up to `end`.
        checkpoints: The heights at which balances are read first.
        totals: The movements of each asset after the first checkpoint.
    """

    span: Span
    end: Block
    transfers: pl.DataFrame
    fees: pl.DataFrame
    checkpoints: list[int]
    totals: dict[BalanceKey, RunningTotals]


@dataclass(slots=True)
class Reconciler:
    """Reconciles accounts of one chain.

    Attributes:
        checkpoints: Maximum number of heights at which balances are read first.
        max_requests: Maximum number of requests to nodes; None for no limit.
        on_progress: Is called with a text at each step.
        trust_of: Returns which assets of accounts are trusted at a height; None trusts all.
        current: Compares current balances; None if nodes keep old state.
        reader: Reads balances at heights.
    """

    chain: Chain
    lake: Lake
    tail: Tail
    checkpoints: int = CHECKPOINTS
    max_requests: int | None = None
    on_progress: ProgressCallback = lambda text: None
    trust_of: TrustReader | None = None
    trust: Trust = field(init=False, default=Trust(lambda asset: True))
    untrusted_contracts: frozenset[str] = frozenset()
    reader: BalanceReader = field(init=False)
    _requests_before: int = 0
    current: CurrentBalances | None = field(init=False)

    def __post_init__(self) -> None:
        self.reader = BalanceReader(self.chain, self._check_budget)
        current = CurrentBalances(self.chain, self.tail, self._check_budget, self.on_progress)
        self.current = current if replays(self.chain) else None

    async def run(
        self, accounts: Sequence[str], first: int | None = None, last: int | None = None
    ) -> list[Reconciliation]:
        """Reconcile accounts over a range of blocks and store the results, one per account.

        Args:
            accounts: Addresses in the chain's own form.
            first: The first block; None for the first one that is indexed for all accounts.
            last: The last block; None for the last one that is indexed for all accounts.

        Raises:
            BadRequest: The range is empty, above the head, or incomparable.
            NotIndexed: The index has no common range of the accounts.
            OverBudget: More than `max_requests` requests are needed.
            Reorged: The last block is not the indexed one.
            SourceError: The chain could not be read.
        """
        scope = await self.prepare(accounts, first, last)
        comparisons = await self._compare(accounts, scope)
        scope = scope._replace(totals=dict.fromkeys(comparisons, RunningTotals()) | scope.totals)
        evidence_reader = EvidenceReader(
            self.chain, self.tail, accounts, scope.transfers, scope.fees, self._check_budget
        )
        changed_blocks = [
            (key, each.height)
            for key, comparison in comparisons.items()
            for each in comparison.changes
            if each.is_found
        ]
        if changed_blocks:
            self.on_progress(f"reading {len({height for _, height in changed_blocks}):,} blocks again")
        await evidence_reader.read(changed_blocks)
        results = [
            await asyncio.to_thread(self._result, account, scope, comparisons, evidence_reader) for account in accounts
        ]
        for each in results:
            await asyncio.to_thread(store_result, self.tail, each)
        return results

    async def _compare(self, accounts: Sequence[str], scope: Scope) -> dict[BalanceKey, Comparison]:
        if self.current is None:
            return await self._search(scope.totals, scope.checkpoints, is_start=scope.span.first == 0)
        balances = await self.current.balances(accounts, scope.totals, scope.end, self.untrusted_contracts)
        return await self.current.compare(balances, scope.totals, scope.end)

    async def prepare(self, accounts: Sequence[str], first: int | None, last: int | None) -> Scope:
        """Start the count of requests, read which assets are trusted, and return what is compared.

        Errors as of `run`.
        """
        self._requests_before = self.chain.requests
        span = await self._span(accounts, first, last)
        end = await self._end_block(span.last)
        opening = -1 if self.current else max(0, span.first - 1)
        heights = [span.last] if self.current else spread_heights(opening, span.last, self.checkpoints)
        transfers, fees = await asyncio.to_thread(self._rows, accounts, span.last)
        totals = await asyncio.to_thread(self._totals, accounts, transfers, fees, opening, span)
        await self._read_trust(totals, span.last)
        await self._end_block(span.last)  # checks that the block did not change meanwhile
        return Scope(span, end, transfers, fees, heights, totals)

    async def _read_trust(self, totals: Mapping[BalanceKey, RunningTotals], height: int) -> None:
        """Set the trusted assets; contracts of the others are read last, with bounded work.

        Without `trust_of`, nothing changes: all are trusted.
        """
        if self.trust_of is None:
            return
        assets_by_account: defaultdict[str, set[Asset]] = defaultdict(set)
        for key in totals:
            assets_by_account[key.account].add(key.asset.collection)
        self.trust = await self.trust_of(assets_by_account, height)
        self.untrusted_contracts = self.trust.untrusted_contracts(
            {asset for assets in assets_by_account.values() for asset in assets}
        )

    # --- what is compared --------------------------------------------------------------------------------------------

    async def _span(self, accounts: Sequence[str], first: int | None, last: int | None) -> Span:
        """Return the range to compare: the indexed one, cut or set by `first` and `last`.

        Raises:
            BadRequest: An end is above the head, or the range is empty.
            NotIndexed: Nothing is indexed and an end is not given.
        """
        head = (await self.chain.heads()).latest.height
        if last is not None and last > head:
            raise BadRequest("to", f"block {last} is above the head, which is block {head}")
        indexed = await asyncio.to_thread(self._indexed, accounts)
        spans = [*indexed]
        if not spans and None in (first, last):
            names = [each.name for each in self._default_datasets()]
            raise NotIndexed(self.chain.key, names[0] if names else "transfers", first or 0, head)
        begin = spans[0].first if first is None else first
        end = min(spans[-1].last, head) if last is None else last
        if self.current is not None:
            self.current.check_span(begin, end, spans)
        if begin > end:
            raise BadRequest("from", f"{begin} is above block {end}, the last of the range")
        return Span(begin, end)

    def _default_datasets(self) -> list[Any]:
        """Return the datasets of movements that are indexed by default."""
        datasets = {each.name: each for native in (False, True) for each in datasets_of(self.chain, native=native)}
        return [each for each in datasets.values() if each.is_default]

    def _indexed(self, accounts: Sequence[str]) -> Spans:
        """Return the heights that are indexed for all accounts, leaving out datasets without any range.

        Empty if none has a range.
        """
        ranges = [
            indexed
            for each in self._default_datasets()
            for account in accounts
            if (indexed := indexed_for(self.tail, self.chain.key, each.name, account))
        ]
        return reduce(Spans.__and__, ranges) if ranges else Spans()

    async def _end_block(self, height: int) -> Block:
        """Return the newest block up to a height, which must be the indexed one.

        Raises:
            BadRequest: There is no block up to the height.
            Reorged: The index has another block.
        """
        end = await self.reader.block_at(height)
        if end is None:
            raise BadRequest("to", f"the chain has no block up to {height}")
        indexed_blocks = {each.height: each for each in await asyncio.to_thread(self.tail.blocks, self.chain.key)}
        if indexed_blocks.get(end.height, end).hash != end.hash:
            raise Reorged(self.chain.key, end.height, indexed_blocks[end.height].hash)
        return end

    def _rows(self, accounts: Sequence[str], last: int) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return the transfers of the accounts and the fees that they paid, up to the height `last`.

        Token movements that repeat a movement of the native coin are left out.
        """
        index, span = ChainIndex(self.lake, self.tail, self.chain.key), Span(0, last)
        transfers = rows_of(index, ACCOUNT_TRANSFERS, accounts, (*MOVED, *ASSET_COLUMNS, "raw"), span=span)
        return drop_native_duplicates(transfers, self.chain.info), sent_transactions(
            *index, accounts, FEE_COLUMNS, span
        )

    def _totals(
        self, accounts: Sequence[str], transfers: pl.DataFrame, fees: pl.DataFrame, opening: int, span: Span
    ) -> dict[BalanceKey, RunningTotals]:
        """Return the totals after the opening height of each asset of the accounts.

        Assets that moved only before it have empty totals. The native coin is included, even without movements, if its
        default datasets are indexed within the range, and else left out.
        """
        import polars as pl

        info, after_opening = self.chain.info, pl.col("height") > opening
        totals = dict.fromkeys(running_totals(transfers, fees, info), RunningTotals())
        totals |= running_totals(transfers.filter(after_opening), fees.filter(after_opening), info)
        native_keys = {BalanceKey(account, info.native.asset) for account in accounts}
        # A missing movement of the other datasets becomes a difference with a cause.
        datasets = [each for each in datasets_of(self.chain, native=True) if each.is_default]
        required = [each for each in datasets if each.name not in OF_DATASETS]
        for key in native_keys:
            ranges = [indexed_for(self.tail, self.chain.key, each.name, key.account) & [span] for each in required]
            if all(ranges):
                totals.setdefault(key, RunningTotals())
            else:
                totals.pop(key, None)
        return dict(sorted(totals.items()))

    # --- search ----------------------------------------------------------------------------------------------------

    async def _search(
        self, totals: Mapping[BalanceKey, RunningTotals], steps: Sequence[int], *, is_start: bool
    ) -> dict[BalanceKey, Comparison]:
        """Return a comparison for each balance; balances are read in rounds that narrow the differing ranges."""
        plan, round_number = search(totals, steps, is_from_genesis=is_start), 0
        answers: dict[Point, Answer] | None = None
        while True:
            try:
                points = next(plan) if answers is None else plan.send(answers)
            except StopIteration as stop:
                comparisons: dict[BalanceKey, Comparison] = stop.value
                return comparisons
            round_number += 1
            heights = len({height for _, height in points})
            self.on_progress(f"round {round_number}: {len(points):,} balances at {heights:,} blocks")
            answers = await self.reader.balances(points, self.untrusted_contracts)

    def _check_budget(self) -> None:
        """Raise OverBudget if no request is left."""
        if self.max_requests is not None and self.chain.requests - self._requests_before >= self.max_requests:
            raise OverBudget("requests", self.max_requests, remedy=BUDGET_HINT)

    # --- results -------------------------------------------------------------------------------------------------

    def _result(
        self,
        account: str,
        scope: Scope,
        comparisons: Mapping[BalanceKey, Comparison],
        evidence_reader: EvidenceReader,
    ) -> Reconciliation:
        """Return the reconciliation of one account; its coin is `unindexed` if it was not compared.

        Nothing is stored.
        """
        account_comparisons = {key: comparison for key, comparison in comparisons.items() if key.account == account}
        differences, untrusted = self._split_differences(account_comparisons, scope.totals, evidence_reader)
        assets = [
            _asset_result(key, scope.totals[key], comparison, is_untrusted=key in untrusted)
            for key, comparison in account_comparisons.items()
        ]
        native = BalanceKey(account, self.chain.info.native.asset)
        if native not in account_comparisons:
            assets.append(AssetReconciliation(str(native.asset), "unindexed", None, "0", None))
        counts = Counter(each.status for each in assets)
        return Reconciliation(
            account,
            self.chain.key,
            scope.span.first,
            scope.span.last,
            scope.end.hash,
            tuple(scope.checkpoints),
            tuple(height for height in scope.checkpoints if height in self.reader.pruned_heights),
            {status: counts[status] for status in STATUSES},
            tuple(sorted(assets, key=lambda each: each.asset)),
            differences,
            tuple(
                str(key.asset)
                for key, comparison in account_comparisons.items()
                if comparison.has_more and key not in untrusted
            ),
            (*self._notes(account, scope.span, scope.checkpoints), *_hints(self.chain.key, differences)),
            tuple(_grouped(untrusted)),
        )

    def _split_differences(
        self,
        comparisons: Mapping[BalanceKey, Comparison],
        totals: Mapping[BalanceKey, RunningTotals],
        evidence_reader: EvidenceReader,
    ) -> tuple[tuple[Difference, ...], dict[BalanceKey, tuple[str, str]]]:
        """Return the differences of an account, and the causes of untrusted assets without a match.

        Rows that the index itself lacks are a difference even if the token is untrusted.
        """
        differences: list[Difference] = []
        untrusted: dict[BalanceKey, tuple[str, str]] = {}
        for key, comparison in comparisons.items():
            asset_differences = list(_differences(key, comparison, totals[key], evidence_reader))
            is_trusted = self.trust.is_trusted(key.account, key.asset.collection)
            if is_trusted or any(each.is_index_gap for each in asset_differences):
                differences += asset_differences
            elif comparison.balance is None:
                untrusted[key] = UNREADABLE
            elif asset_differences:
                untrusted[key] = asset_differences[0].cause, asset_differences[0].reason
        return tuple(differences), untrusted

    def _notes(self, account: str, span: Span, steps: Sequence[int]) -> Iterator[str]:
        """Yield what limits the comparison: pruned state, and datasets that are not indexed in the whole span."""
        if steps[0] in self.reader.pruned_heights:
            yield (
                f"the state at block {steps[0]} is gone: what was there before is taken to be nothing"
                if span.first == 0
                else "the state before the range is gone: what is compared begins at the first checkpoint that was read"
            )
        if self.reader.pruned_heights:
            yield "no endpoint serves the state of all checkpoints: an archive node shows the blocks of differences"
        if self.current is not None:
            yield from self.current.notes
        names = {each.name: each for native in (False, True) for each in datasets_of(self.chain, native=native)}
        for name in names:
            unindexed = Spans([span]) - indexed_for(self.tail, self.chain.key, name, account)
            if unindexed:
                yield f"`{name}` is not indexed at {len(unindexed):,} of the {len(span):,} blocks"


def _asset_result(
    key: BalanceKey, totals: RunningTotals, comparison: Comparison, *, is_untrusted: bool
) -> AssetReconciliation:
    status = "unreadable" if comparison.balance is None else "differs" if comparison.changes else "equal"
    status = "untrusted" if is_untrusted else status
    opening, balance = (None if raw is None else str(raw) for raw in (comparison.opening, comparison.balance))
    return AssetReconciliation(str(key.asset), status, opening, str(totals.sums[-1] if totals.sums else 0), balance)


def _hints(chain: str, differences: Sequence[Difference]) -> Iterator[str]:
    """Yield a hint how to index missing rows, if there are any."""
    heights = [each.block for each in differences if each.cause == MISSING_ROW]
    if heights:
        command = f"chainfolio index {chain} --rewind {min(heights)}"
        yield f"`{command}` reads these rows again, and all behind them{REREAD_HINT}"


def _differences(
    key: BalanceKey, comparison: Comparison, totals: RunningTotals, evidence_reader: EvidenceReader
) -> Iterator[Difference]:
    for each in comparison.changes:
        evidence = evidence_reader.of(key, each.height)
        cause, reason = cause_of(key, totals, each, comparison.changes, evidence)
        yield Difference(str(key.asset), each.height, each.after, str(each.amount), cause, reason)


def _grouped(untrusted: Mapping[BalanceKey, tuple[str, str]]) -> Iterator[UntrustedAssets]:
    """Yield the untrusted assets of an account by cause, so that a flood of them is a few lines."""
    groups: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for key, cause_and_reason in untrusted.items():
        groups[cause_and_reason].append(str(key.asset))
    for (cause, reason), assets in sorted(groups.items()):
        yield UntrustedAssets(cause, reason, len(assets), tuple(sorted(assets)[:MAX_SHOWN]))
