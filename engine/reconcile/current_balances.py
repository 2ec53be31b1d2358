"""Reconcile accounts with their current balances, on chains whose nodes keep no old state.

Indexed movements, and those that the node returns since the end of the index, must add up to the current balance of
each asset. If they differ, the history of the account is read again to find the blocks that the index lacks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from chainfolio.assets import asset
from chainfolio.blocks import Block, Span
from chainfolio.capabilities import Capability, require_capability
from chainfolio.engine.reconcile.evidence import own_rows
from chainfolio.engine.snapshots.day_flows import balance_datasets
from chainfolio.engine.snapshots.snapshotter import LIVE_LAG_S
from chainfolio.engine.snapshots.trust import mark_untrusted
from chainfolio.errors import BadAnswer, BadRequest, HistoryUnavailable, NotIndexed, Reorged
from chainfolio.interactions import Interactions
from chainfolio.plans import run_batched
from chainfolio.portfolio.reconciliation import (
    MAX_CHANGES,
    BalanceKey,
    Change,
    Comparison,
    RunningTotals,
    running_totals,
)
from chainfolio.positions import MAX_READS, MAX_ROUNDS
from chainfolio.protocols import InstalledProtocols

if TYPE_CHECKING:
    from chainfolio.chain_results import SpanTables
    from chainfolio.chains import Chain
    from chainfolio.positions import AccountState
    from chainfolio.storage.tail import Tail

TotalsByKey = Mapping[BalanceKey, RunningTotals]
ProgressCallback = Callable[[str], None]


@dataclass(slots=True)
class CurrentBalances:
    """Compares the histories of accounts of one chain with their current balances.

    Attributes:
        check_budget: Is called before each request.
        current_block: The block at which the accounts were read; None before.
    """

    chain: Chain
    tail: Tail
    check_budget: Callable[[], None]
    on_progress: ProgressCallback = lambda text: None
    current_block: Block | None = None

    async def balances(
        self, accounts: Sequence[str], totals: TotalsByKey, end: Block, untrusted_contracts: Set[str] = frozenset()
    ) -> dict[BalanceKey, int | None]:
        """Return the balances of accounts at block `end`, from current ones; None for unreadable ones.

        The block of the read becomes `current_block`.

        Args:
            totals: The indexed movements of each asset.
            untrusted_contracts: Contracts that are read with bounded work.

        Raises:
            OverBudget: No request is left, according to `check_budget`.
            NotIndexed: The index is too far behind the node.
            BadAnswer: An account could not be read, or the accounts were read at different blocks.
            Reorged: The current block left the chain meanwhile.
            SourceError: The chain could not be read.
        """
        self.check_budget()
        self.on_progress(f"reading {len(accounts):,} accounts as they are now")
        states = await self._states(accounts, totals, end, untrusted_contracts)
        newer = await self._read_newer(accounts, end)
        balances = {key: raw for account, state in states.items() for key, raw in self._balances_of(account, state)}
        new_keys = {*newer, *(key for key, raw in balances.items() if raw)} - totals.keys()
        keys = {
            *totals,
            *(key for key in new_keys if not key.asset.is_native),
        }  # coins are in `totals`, or not indexed at all
        return {key: _before(balances.get(key, 0), newer.get(key, RunningTotals())) for key in sorted(keys)}

    @staticmethod
    def differing(balances: Mapping[BalanceKey, int | None], totals: TotalsByKey) -> set[BalanceKey]:
        """Return the assets whose balance is not the sum of their rows; unknown balances are left out."""
        return {key for key, raw in balances.items() if raw is not None and raw != _sum(totals, key)}

    async def compare(
        self, balances: Mapping[BalanceKey, int | None], totals: TotalsByKey, end: Block
    ) -> dict[BalanceKey, Comparison]:
        """Return the balance of each asset at block `end`, with the blocks of its differences.

        The histories of accounts with differences are read again from the node, those of others are not. A balance of
        None gives a comparison without differences. Raises OverBudget, or SourceError if they could not be read.
        """
        differing = self.differing(balances, totals)
        reread_totals = await self._reread(sorted({key.account for key in differing}), end) if differing else {}
        return {
            key: self._comparison(
                key,
                raw,
                totals.get(key, RunningTotals()),
                reread_totals.get(key, RunningTotals()),
                end,
                key in differing,
            )
            for key, raw in balances.items()
        }

    def check_span(self, first: int, last: int, indexed: Sequence[Span]) -> None:
        """Raise unless the range is from the first block to the end of the index.

        Raises:
            NotIndexed: The index does not begin at the first block.
            BadRequest: The range is another one.
        """
        end = indexed[-1].last if indexed else last
        if (first, last) == (0, end):
            return
        if indexed and first == indexed[0].first and last == end:
            raise NotIndexed(self.chain.key, balance_datasets(self.chain.datasets.values())[0], 0, first - 1)
        reason = "nodes of this chain tell balances of now alone, which are the sum of all that ever moved"
        raise BadRequest("from" if first else "to", f"{reason}: leave it out")

    @property
    def notes(self) -> Iterator[str]:
        """A remark about the block at which the accounts were read; empty before."""
        if self.current_block is not None:
            yield (
                f"nodes of this chain tell balances of now alone: what they said at block {self.current_block.height} "
                "was compared with all that moved up to there"
            )

    # --- reads -------------------------------------------------------------------------------------------------------

    async def _states(
        self, accounts: Sequence[str], totals: TotalsByKey, end: Block, untrusted_contracts: Set[str]
    ) -> dict[str, AccountState]:
        """Read the accounts, all at one block, which becomes `current_block`.

        Raises:
            BadAnswer: An account could not be read, or the accounts were read at several blocks.
            SourceError: The chain could not be read.
        """
        reader = self.chain.account_reader(InstalledProtocols()).at(end)
        assets_by_account = {account: [key.asset for key in totals if key.account == account] for account in accounts}
        plans = {
            account: reader.read(account, Interactions(), [each for each in assets if not each.is_native])
            for account, assets in assets_by_account.items()
        }
        reports = await run_batched(
            plans,
            lambda reads: self.chain.answer(mark_untrusted(reads, untrusted_contracts), end),
            max_rounds=MAX_ROUNDS,
            max_reads=MAX_READS,
        )
        states: dict[str, AccountState] = {}
        for account, report in reports.items():
            if report.result is None:
                raise report.error or BadAnswer(self.chain.key, report.reason)
            states[account] = report.result
        blocks = {each.block for each in states.values() if each.block is not None}
        if len(blocks) > 1:
            raise BadAnswer(self.chain.key, "accounts of one comparison were read at several blocks")
        self.current_block = next(iter(blocks), end)
        return states

    def _balances_of(self, account: str, state: AccountState) -> Iterator[tuple[BalanceKey, Any]]:
        """Yield each asset of an account with its balance, which may be an error; first the native coin."""
        native = self.chain.info.native.asset
        yield BalanceKey(account, native), state.native
        for each, raw in state.balances.items():
            if each != native:
                yield BalanceKey(account, each), raw

    async def _read_newer(self, accounts: Sequence[str], end: Block) -> dict[BalanceKey, RunningTotals]:
        """Read the movements after the end of the index, by asset; empty if there are no newer blocks.

        Raises:
            NotIndexed: The index is more than LIVE_LAG_S behind.
            Reorged: The current block left the chain meanwhile.
        """
        assert self.current_block is not None, "accounts are read first"
        if self.current_block.height <= end.height:
            return {}
        span = Span(end.height + 1, self.current_block.height)
        if len(span) > self.chain.info.blocks_in(LIVE_LAG_S):
            raise NotIndexed(self.chain.key, balance_datasets(self.chain.datasets.values())[0], span.first, span.last)
        if not self.chain.is_final(span.last):
            await self.chain.heads()
        pieces = await self._histories(accounts, span)
        last = pieces[-1].last
        if (
            last is not None
            and self.current_block.hash
            and last.height == self.current_block.height
            and last.hash != self.current_block.hash
        ):
            raise Reorged(self.chain.key, self.current_block.height, self.current_block.hash)
        return self._totals(pieces, accounts)

    # --- differences -------------------------------------------------------------------------------------------------

    async def _reread(self, accounts: Sequence[str], end: Block) -> dict[BalanceKey, RunningTotals]:
        """Read the histories of accounts again; {} if no node has them any longer."""
        self.on_progress(f"reading the histories of {len(accounts):,} accounts again")
        try:
            return self._totals(await self._histories(accounts, Span(0, end.height)), accounts)
        except HistoryUnavailable:
            return {}

    async def _histories(self, accounts: Sequence[str], span: Span) -> list[SpanTables]:
        """Return the movements of accounts in a span, read from the node in pieces.

        The chain's reader ends a piece. Only datasets that change balances are read. `check_budget` is called before
        each piece; its error is raised if the budget is used up. Raises HistoryUnavailable if no node has a dataset.
        """
        reader, pieces = require_capability(self.chain, Capability.ACCOUNT_HISTORY), list[Any]()
        datasets, first = balance_datasets(self.chain.datasets.values()), span.first
        while first <= span.last:
            self.check_budget()
            pieces.append(await reader.collect_accounts(Span(first, span.last), accounts, datasets))
            pieces[-1].require_datasets(self.chain.key, datasets)
            first = pieces[-1].span.last + 1
        return pieces

    def _totals(self, pieces: Sequence[SpanTables], accounts: Sequence[str]) -> dict[BalanceKey, RunningTotals]:
        """Return the running totals of accounts from their histories; empty without any piece."""
        import polars as pl

        rows = [own_rows(each.tables, accounts, self.chain.info) for each in pieces]
        if not rows:
            return {}
        transfers, fees = (pl.concat(side) for side in zip(*rows, strict=True))
        return running_totals(transfers, fees, self.chain.info)

    def _comparison(
        self,
        key: BalanceKey,
        balance: int | None,
        indexed: RunningTotals,
        reread: RunningTotals,
        end: Block,
        differs: bool,
    ) -> Comparison:
        """Return the comparison of one asset, without changes if nothing differs or the balance is unknown.

        A rest that no reread block explains is a change of the whole range, or of the only block that the history marks
        as unexplained. At most MAX_CHANGES changes are returned.

        Args:
            key: The account and the asset.
            balance: The raw balance at block `end`; None if it is unknown.
            indexed: The asset's movements in the index.
            reread: The same as the node lists them now; empty if they were not read again.
            end: The block of the balance.
            differs: True if the balance is not the sum of the indexed movements.
        """
        if balance is None or not differs:
            return Comparison(0, balance)
        changes, unexplained = [], balance - indexed.at(end.height)
        for height in sorted({*indexed.heights, *reread.heights}) if reread.heights else ():
            missing = reread.change_at(height) - indexed.change_at(height)
            if missing:
                changes.append(Change(height - 1, height, missing, reread.at(height - 1), reread.at(height)))
                unexplained -= missing
        if unexplained:
            heights = self._unexplained_heights(key, end)
            after, height = (heights[0] - 1, heights[0]) if len(heights) == 1 else (-1, end.height)
            changes.append(Change(after, height, unexplained, 0, balance))
        changes.sort(key=lambda each: each.height)
        return Comparison(0, balance, tuple(changes[:MAX_CHANGES]), has_more=len(changes) > MAX_CHANGES)

    def _unexplained_heights(self, key: BalanceKey, end: Block) -> list[int]:
        """Return the heights of movements that the history marks as unexplained."""
        rows = self.tail.unexplained_changes(self.chain.key, key.account)
        return sorted({height for height, name, _, _ in rows if asset(name) == key.asset and height <= end.height})


def _sum(totals: TotalsByKey, key: BalanceKey) -> int:
    sums = totals[key].sums if key in totals else ()
    return sums[-1] if sums else 0


def _before(current: Any, newer: RunningTotals) -> int | None:
    return current - (newer.sums[-1] if newer.sums else 0) if isinstance(current, int) else None
