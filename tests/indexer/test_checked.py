"""Tables from a package's chain are stored only if they are what was requested."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from chainfolio.blocks import Span
from chainfolio.chain_results import SpanTables
from chainfolio.errors import BadAnswer
from chainfolio.indexer.checked import read_checked
from tests.chains.index import index
from tests.chains.invented_subject import InventedSubject

ASKED = Span(0, 30)
Lie = Callable[[SpanTables], SpanTables]


def rows(lie: Callable[[pa.Table], pa.Table]) -> Lie:
    """A lie about the rows of `transfers`."""
    return lambda honest: replace(honest, tables={**honest.tables, "transfers": lie(honest.tables["transfers"])})


def column(name: str, lie: Callable[[Any], Any]) -> Lie:
    def changed(table: pa.Table) -> pa.Table:
        at = table.column_names.index(name)
        return table.set_column(at, table.schema.field(at), lie(table[name]))

    return rows(changed)


LIES: dict[str, tuple[Lie, str]] = {
    "another chain's rows": (
        column("chain", lambda chains: pa.chunked_array([pa.array(["ethereum"] * len(chains))])),
        "rows of `transfers` that belong to another chain",
    ),
    "rows of a later block": (
        column("height", lambda heights: pc.add(heights, 1000)),
        "rows of `transfers` outside of blocks 0..30",
    ),
    "rows below zero": (
        column("height", lambda heights: pc.negate(heights)),
        "rows of `transfers` outside of blocks 0..30",
    ),
    "fewer columns": (rows(lambda table: table.drop(["raw"])), "`transfers`, which is no table here or one of other"),
    "another table": (lambda honest: replace(honest, tables={"gossip": pa.table({})}), "rows of `gossip`"),
    "another span": (lambda honest: replace(honest, span=Span(0, 29)), "blocks 0..29 in the place of 0..30"),
    "more than was asked": (lambda honest: replace(honest, span=Span(0, 31)), "blocks 0..31 in the place of 0..30"),
    "a block of elsewhere": (
        lambda honest: replace(honest, last=replace(honest.blocks[-1], height=31)),
        "a block outside of 0..30",
    ),
    "blocks backwards": (lambda honest: replace(honest, blocks=honest.blocks[::-1]), "blocks out of order"),
}


@pytest.mark.parametrize("name", LIES)
async def test_what_nobody_asked_for_is_a_bad_answer_that_names_it(name: str) -> None:
    chain, (lie, fault) = InventedSubject(40).chain(), LIES[name]
    honest = await chain.collect(ASKED, chain.default_datasets)
    assert len(honest.tables["transfers"])

    async def return_tables(collected: SpanTables) -> SpanTables:
        return collected

    assert await read_checked(chain, ASKED, lambda: return_tables(honest)) is honest
    with pytest.raises(BadAnswer) as caught:
        await read_checked(chain, ASKED, lambda: return_tables(lie(honest)))
    assert fault in caught.value.reason


async def test_a_package_that_gives_rows_of_another_chain_stores_none(tmp_path: Path) -> None:
    subject = InventedSubject(40)
    async with index(subject, tmp_path) as indexed:
        chain: Any = indexed.chain
        honest = chain.collect

        async def lying(*asked: Any, **more: Any) -> SpanTables:
            return LIES["another chain's rows"][0](await honest(*asked, **more))

        chain.collect = lying
        with pytest.raises(BadAnswer, match="belong to another chain"):
            await indexed.fill(0, 30)
        assert indexed.rows("transfers") == []
