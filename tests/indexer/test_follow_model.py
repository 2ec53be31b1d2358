"""After any order of following, merging, deleting, rewinding and reading, the rows are those of the chain."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from bench.soak_chain import KEY, GeneratedChain, GeneratedLedger
from bench.virtual_time import InlineThreads
from chainfolio.adapters.evm.settings import EvmSettings
from chainfolio.blocks import Span
from chainfolio.engine.rows import ChainIndex, in_tail, rows_of
from chainfolio.environment import Environment
from chainfolio.indexer import follow, maintenance, materialise
from chainfolio.indexer.follow import Follower
from chainfolio.indexer.maintenance import Maintenance
from chainfolio.indexer.rewind import rewind
from chainfolio.portfolio.ledger import by_account
from chainfolio.storage.lake import Lake
from chainfolio.storage.tail import Tail
from chainfolio.tables import ACCOUNT_TRANSACTIONS, ACCOUNT_TRANSFERS, BLOCKS, TRANSACTIONS, TRANSFERS
from tests.depth import IS_DEEP
from tests.indexer.clock import ManualClock

SOURCES = (TRANSFERS, TRANSACTIONS, BLOCKS)
HISTORIES = ((ACCOUNT_TRANSFERS, TRANSFERS), (ACCOUNT_TRANSACTIONS, TRANSACTIONS))


@pytest.fixture(autouse=True, scope="module")
def small_limits() -> Any:
    """Let few blocks and rows be enough for a move, a history and a merge."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(follow, "FINALISE_BLOCKS", 5)
        patch.setattr(follow, "MOVE_BLOCKS", 7)
        patch.setattr(maintenance, "PENDING_ROWS", 20)
        patch.setattr(maintenance, "MAX_SMALL", 2)
        patch.setattr(maintenance, "MAX_SMALL_IN_BUCKET", 1)
        yield


class FollowModel(RuleBasedStateMachine):
    """One chain with a block a second, its stores, and what happens to them."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.clock = ManualClock(now_s=10.0)
        self.ledger = GeneratedLedger(7, self.clock.monotonic_s, 3, 9, 1000, 1.0, finality=6)
        self.loop = asyncio.new_event_loop()
        self.loop.set_default_executor(InlineThreads())
        self.is_current = False

    @initialize()
    def open(self) -> None:
        """Open the stores, as a new process does."""
        folder = Path(self.folder.name)
        self.lake, self.tail = Lake(str(folder / "lake")), Tail(folder / "tail.db")
        chain: Any = GeneratedChain(self.ledger, EvmSettings(adapter="evm"))
        self.follower = Follower(chain, self.lake, self.tail, Environment(clock=self.clock), tuple(chain.datasets))
        self.maintenance = Maintenance(self.lake, self.tail, KEY, 1000, 1)

    def teardown(self) -> None:
        self.tail.close()
        self.loop.close()
        self.folder.cleanup()

    def wait(self, work: Coroutine[Any, Any, Any]) -> None:
        """Run work to its end."""
        self.loop.run_until_complete(work)

    @rule(blocks=st.integers(1, 25))
    def follow(self, blocks: int) -> None:
        """New blocks come, and are followed; then each row of the chain is stored once."""
        self.clock.now_s += blocks
        self.wait(self.follower.step())
        self.is_current = True
        span = Span(0, self.top)
        rows = self.ledger.rows(span, [table.name for table in SOURCES])
        for table in SOURCES:
            fresh = in_tail(self.tail, KEY, table, span).to_arrow().cast(table.schema())
            stored = pa.concat_tables([self.lake.window(table, KEY, span), fresh])
            assert stored.equals(rows[table.name]), table.name

    @rule(depth=st.integers(1, 9))
    def reorganise(self, depth: int) -> None:
        """The newest blocks that are not final are replaced. The follower sees it at its next step."""
        self.ledger.reorganise(depth)
        self.is_current = False

    @rule()
    def maintain(self) -> None:
        """Histories and merges that are due."""
        self.maintenance.run_once()

    @rule(table=st.sampled_from([*SOURCES, ACCOUNT_TRANSFERS, ACCOUNT_TRANSACTIONS]), hours=st.sampled_from([0, 168]))
    def compact(self, table: Any, hours: int) -> None:
        """Merge all small files of a table into one; the old files are deleted at once or later."""
        self.lake.compact(table, KEY, retention_hours=hours)

    @rule(hours=st.sampled_from([0, 1]))
    def vacuum(self, hours: int) -> None:
        """Files that were replaced are deleted."""
        self.maintenance.keep_replaced_h = hours
        self.maintenance.delete_replaced()

    @rule(part=st.floats(0, 1))
    def rewind(self, part: float) -> None:
        """Delete all rows from a height on; the follower reads them again."""
        rewind(self.lake, self.tail, KEY, int(part * self.top))

    @rule()
    def restart(self) -> None:
        """The process ends and another one begins."""
        self.tail.close()
        self.open()
        materialise.recover(self.lake, self.tail, KEY)
        self.follower.recover()

    @rule(numbers=st.sets(st.integers(0, 8), min_size=1, max_size=3))
    def read(self, numbers: set[int]) -> None:
        """Accounts have the rows of the chain up to the newest indexed block, wherever those are."""
        accounts = [self.ledger.addresses[number].as_py() for number in sorted(numbers)]
        ranges = self.tail.indexed_ranges(KEY, TRANSFERS.name)
        top = max((span.last for span in ranges), default=-1)
        for history, source in HISTORIES if self.is_current and top >= 0 else ():
            rows = pl.DataFrame(self.ledger.rows(Span(0, top), [source.name])[source.name])
            names = [name for name in history.names if name not in ("chain", "bucket")]
            expected = by_account(history, rows.lazy()).filter(pl.col("account").is_in(accounts)).select(names)
            rows_read = rows_of(ChainIndex(self.lake, self.tail, KEY), history, accounts, names)
            assert rows_read.sort(names).equals(expected.collect().sort(names)), history.name

    @property
    def top(self) -> int:
        """The newest indexed height; 0 without one."""
        return max((span.last for span in self.tail.indexed_ranges(KEY, BLOCKS.name)), default=0)


TestFollowModel = FollowModel.TestCase
TestFollowModel.settings = settings(max_examples=100 if IS_DEEP else 10, stateful_step_count=15, deadline=None)
