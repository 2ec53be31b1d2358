"""Is a history complete on a chain whose nodes keep no old state? What accounts have now, compared with all that moved.

The index says what moved up to its end, the node what has moved since. Together they must be the balance of now, for
everything that an account met and everything that the chain says it has. Where the two part, the history of the account
is read once more, and the blocks are named of which the index lacks something.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from chainfolio.assets import asset
from chainfolio.blocks import Block, Span
from chainfolio.chains import Capability, require_capability
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
    from chainfolio.chains import Chain, SpanTables
    from chainfolio.positions import AccountState
    from chainfolio.storage.tail import Tail

Courses = Mapping[BalanceKey, RunningTotals]
Told = Callable[[str], None]


@dataclass(slots=True)
class Present:
    """Compares accounts of one chain with what the node says of now. `check` is called before something is asked."""

    chain: Chain
    tail: Tail
    check: Callable[[], None]
    told: Told = lambda text: None
    now: Block | None = None  # where the accounts were read

    async def balances(
        self, accounts: Sequence[str], known: Courses, end: Block, strangers: Set[str] = frozenset()
    ) -> dict[BalanceKey, int | None]:
        """What accounts had at the end of their rows: what they have now without what moved since. None where it cannot
        be read. Contracts in `strangers` are read with bounded work. NotIndexed where the index is far behind the
        node."""
        self.check()
        self.told(f"reading {len(accounts):,} accounts as they are now")
        states = await self._states(accounts, known, end, strangers)
        newer = await self._newer(accounts, end)
        balances = {key: raw for account, state in states.items() for key, raw in self._held(account, state)}
        unmet = {*newer, *(key for key, raw in balances.items() if raw)} - known.keys()
        keys = {*known, *(key for key in unmet if not key.asset.is_native)}  # coins are known, or not indexed at all
        return {key: _before(balances.get(key, 0), newer.get(key, RunningTotals())) for key in sorted(keys)}

    @staticmethod
    def differing(balances: Mapping[BalanceKey, int | None], known: Courses) -> set[BalanceKey]:
        """The assets whose balance is not the sum of their rows."""
        return {key for key, raw in balances.items() if raw is not None and raw != _sum(known, key)}

    async def compared(
        self, balances: Mapping[BalanceKey, int | None], known: Courses, end: Block
    ) -> dict[BalanceKey, Comparison]:
        """How each asset ended, with the blocks of its differences."""
        differing = self.differing(balances, known)
        again = await self._again(sorted({key.account for key in differing}), end) if differing else {}
        return {
            key: self._of(
                key, raw, known.get(key, RunningTotals()), again.get(key, RunningTotals()), end, key in differing
            )
            for key, raw in balances.items()
        }

    def check_span(self, first: int, last: int, indexed: Sequence[Span]) -> None:
        """BadRequest or NotIndexed where a range does not go from the first block to the end of the index: nothing else
        can be compared with what is there now."""
        end = indexed[-1].last if indexed else last
        if (first, last) == (0, end):
            return
        if indexed and first == indexed[0].first and last == end:
            raise NotIndexed(self.chain.key, balance_datasets(self.chain.datasets.values())[0], 0, first - 1)
        why = "nodes of this chain tell balances of now alone, which are the sum of all that ever moved"
        raise BadRequest("from" if first else "to", f"{why}: leave it out")

    @property
    def notes(self) -> Iterator[str]:
        """What the result rests on."""
        if self.now is not None:
            yield (
                f"nodes of this chain tell balances of now alone: what they said at block {self.now.height} was "
                "compared with all that moved up to there"
            )

    # --- now ---------------------------------------------------------------------------------------------------------

    async def _states(
        self, accounts: Sequence[str], known: Courses, end: Block, strangers: Set[str]
    ) -> dict[str, AccountState]:
        """The accounts, all at one block."""
        reader = self.chain.account_reader(InstalledProtocols()).at(end)
        wanted = {account: [key.asset for key in known if key.account == account] for account in accounts}
        plans = {
            account: reader.read(account, Interactions(), [each for each in some if not each.is_native])
            for account, some in wanted.items()
        }
        reports = await run_batched(
            plans,
            lambda reads: self.chain.answer(mark_untrusted(reads, strangers), end),
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
        self.now = next(iter(blocks), end)
        return states

    def _held(self, account: str, state: AccountState) -> Iterator[tuple[BalanceKey, Any]]:
        native = self.chain.info.native.asset
        yield BalanceKey(account, native), state.native
        for each, raw in state.balances.items():
            if each != native:
                yield BalanceKey(account, each), raw

    async def _newer(self, accounts: Sequence[str], end: Block) -> dict[BalanceKey, RunningTotals]:
        """What moved behind the index."""
        assert self.now is not None, "accounts are read first"
        if self.now.height <= end.height:
            return {}
        span = Span(end.height + 1, self.now.height)
        if len(span) > self.chain.info.blocks_in(LIVE_LAG_S):
            raise NotIndexed(self.chain.key, balance_datasets(self.chain.datasets.values())[0], span.first, span.last)
        if not self.chain.is_final(span.last):
            await self.chain.heads()
        pieces = await self._histories(accounts, span)
        last = pieces[-1].last
        if last is not None and self.now.hash and last.height == self.now.height and last.hash != self.now.hash:
            raise Reorged(self.chain.key, self.now.height, self.now.hash)
        return self._courses(pieces, accounts)

    # --- where they part ---------------------------------------------------------------------------------------------

    async def _again(self, accounts: Sequence[str], end: Block) -> dict[BalanceKey, RunningTotals]:
        """The histories of accounts, read once more; nothing where no node has them any longer."""
        self.told(f"reading the histories of {len(accounts):,} accounts again")
        try:
            return self._courses(await self._histories(accounts, Span(0, end.height)), accounts)
        except HistoryUnavailable:
            return {}

    async def _histories(self, accounts: Sequence[str], span: Span) -> list[SpanTables]:
        reader, pieces = require_capability(self.chain, Capability.ACCOUNT_HISTORY), list[Any]()
        datasets, first = balance_datasets(self.chain.datasets.values()), span.first
        while first <= span.last:
            self.check()
            pieces.append(await reader.collect_accounts(Span(first, span.last), accounts, datasets))
            first = pieces[-1].span.last + 1
        return pieces

    def _courses(self, pieces: Sequence[SpanTables], accounts: Sequence[str]) -> dict[BalanceKey, RunningTotals]:
        import polars as pl

        rows = [own_rows(each.tables, accounts, self.chain.info) for each in pieces]
        if not rows:
            return {}
        transfers, fees = (pl.concat(side) for side in zip(*rows, strict=True))
        return running_totals(transfers, fees, self.chain.info)

    def _of(
        self,
        key: BalanceKey,
        balance: int | None,
        ours: RunningTotals,
        theirs: RunningTotals,
        end: Block,
        differs: bool,
    ) -> Comparison:
        """One asset. What no block explains that was read again is a change of the whole range, or of the one block of
        which the history itself said that it cannot explain it."""
        if balance is None or not differs:
            return Comparison(0, balance)
        changes, left = [], balance - ours.at(end.height)
        for height in sorted({*ours.heights, *theirs.heights}) if theirs.heights else ():
            lacking = theirs.change_at(height) - ours.change_at(height)
            if lacking:
                changes.append(Change(height - 1, height, lacking, theirs.at(height - 1), theirs.at(height)))
                left -= lacking
        if left:
            untold = self._untold(key, end)
            after, height = (untold[0] - 1, untold[0]) if len(untold) == 1 else (-1, end.height)
            changes.append(Change(after, height, left, 0, balance))
        changes.sort(key=lambda each: each.height)
        return Comparison(0, balance, tuple(changes[:MAX_CHANGES]), has_more=len(changes) > MAX_CHANGES)

    def _untold(self, key: BalanceKey, end: Block) -> list[int]:
        """The blocks of which the history said that something moved that it cannot explain."""
        rows = self.tail.unexplained_changes(self.chain.key, key.account)
        return sorted({height for height, name, _, _ in rows if asset(name) == key.asset and height <= end.height})


def _sum(known: Courses, key: BalanceKey) -> int:
    sums = known[key].sums if key in known else ()
    return sums[-1] if sums else 0


def _before(now: Any, newer: RunningTotals) -> int | None:
    return now - (newer.sums[-1] if newer.sums else 0) if isinstance(now, int) else None
