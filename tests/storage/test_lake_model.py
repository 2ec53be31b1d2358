"""A lake holds the rows of a dictionary after any appends, repeats, replacements, merges and rewinds."""

from __future__ import annotations

import tempfile
from collections import Counter
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from chainfolio.blocks import Span
from chainfolio.storage.lake import Lake
from chainfolio.table import Table
from chainfolio.tables import ACCOUNT_TRANSFERS, BLOCKS
from tests.depth import IS_DEEP
from tests.storage.conftest import make, stored

chains = st.sampled_from(["a", "b"])
tables = st.sampled_from([BLOCKS, ACCOUNT_TRANSFERS])


class LakeModel(RuleBasedStateMachine):
    """Two chains in two tables, one of them in buckets."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.lake = Lake(self.folder.name)
        self.rows: dict[tuple[str, str], list[dict[str, Any]]] = {}
        self.batch: Counter[tuple[str, str]] = Counter()

    def teardown(self) -> None:
        self.folder.cleanup()

    @rule(table=tables, chain=chains, first=st.integers(0, 30), blocks=st.integers(0, 9), seed=st.integers(0, 99))
    def append(self, table: Table, chain: str, first: int, blocks: int, seed: int) -> None:
        key = (table.name, chain)
        self.batch[key] += 1
        rows = make(table, chain, range(first, first + blocks), seed=seed)
        for attempt in range(2):
            is_stored = self.lake.append(table, rows, stream=chain, batch=self.batch[key])
            assert is_stored == (attempt == 0 or not blocks)
        self.rows[key] = self.rows.get(key, []) + rows.to_pylist()

    @rule(table=tables, chain=chains, blocks=st.integers(0, 9), seed=st.integers(0, 99))
    def replace(self, table: Table, chain: str, blocks: int, seed: int) -> None:
        rows = make(table, chain, range(blocks), seed=seed)
        self.lake.replace(table, chain, rows)
        self.rows[table.name, chain] = rows.to_pylist()

    @rule(table=tables, chain=chains, hours=st.sampled_from([0, 168]))
    def compact(self, table: Table, chain: str, hours: int) -> None:
        self.lake.compact(table, chain, retention_hours=hours)

    @rule(chain=chains, height=st.integers(0, 40))
    def rewind(self, chain: str, height: int) -> None:
        self.lake.delete_span(chain, Span(height, 2**62))
        for table, of in self.rows:
            if of == chain:
                self.rows[table, of] = [row for row in self.rows[table, of] if row["height"] < height]

    @rule()
    def reopen(self) -> None:
        self.lake = Lake(self.folder.name)

    @invariant()
    def agrees(self) -> None:
        for (name, chain), rows in self.rows.items():
            table = BLOCKS if name == "blocks" else ACCOUNT_TRANSFERS
            lake_rows = stored(self.lake, table, chain)
            assert Counter(map(_row, lake_rows.to_pylist())) == Counter(map(_row, rows))
            assert self.lake.count(table, chain) == len(rows)
            if table is ACCOUNT_TRANSFERS:
                for account in {row["account"] for row in rows} | {"0x"}:
                    account_rows = (
                        self.lake.of_accounts(ACCOUNT_TRANSFERS, chain, [account]).collect().select(table.names)
                    )
                    expected = Counter(_row(row) for row in rows if row["account"] == account)
                    assert Counter(map(_row, account_rows.to_arrow().cast(table.schema()).to_pylist())) == expected


def _row(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row.values())


TestLakeModel = LakeModel.TestCase
TestLakeModel.settings = settings(max_examples=10 * 12 if IS_DEEP else 8, stateful_step_count=12)
