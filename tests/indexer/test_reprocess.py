"""Decoding tables again is up to the datasets; rows of a chain that cannot restore stay unchanged."""

from __future__ import annotations

from chainfolio import kinds
from chainfolio.blocks import Span
from chainfolio.datasets import Dataset, restorable_tables
from chainfolio.indexer import materialise, reprocess
from chainfolio.tables import APPROVALS, BLOCKS, LOGS, TRANSFERS
from tests.chains.invented_subject import InventedSubject


def test_the_tables_decoded_again_are_those_of_the_datasets_that_restore_and_raw_logs_last() -> None:
    datasets = [
        Dataset("logs", LOGS, is_restorable=True),
        Dataset("blocks", BLOCKS),
        Dataset("native", TRANSFERS, standards=("native",)),
        Dataset("transfers", TRANSFERS, is_restorable=True),
    ]
    assert restorable_tables(datasets) == (TRANSFERS, LOGS)
    assert restorable_tables([*datasets, Dataset("approvals", APPROVALS, is_restorable=True)]) == (
        TRANSFERS,
        APPROVALS,
        LOGS,
    )
    assert restorable_tables(datasets[1:3]) == ()
    assert materialise.decoded_tables() == tuple(table.name for table in restorable_tables(kinds.datasets().values()))


async def test_rows_of_a_chain_that_cannot_restore_pass_as_they_are() -> None:
    subject = InventedSubject(3)
    chain = subject.chain()
    collected = await chain.collect(Span(0, subject.ledger.head.height), ("transfers", "native"))
    stored = {"transfers": collected.tables["transfers"]}
    assert len(stored["transfers"])
    decoded = reprocess.decoded(chain, stored)
    assert decoded.keys() == stored.keys()
    assert decoded["transfers"].equals(stored["transfers"])
    await chain.close()
