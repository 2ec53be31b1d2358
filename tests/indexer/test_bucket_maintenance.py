"""Histories, merging and deleting in a lake in an object store."""

from __future__ import annotations

from pathlib import Path

from chainfolio.indexer import materialise
from chainfolio.storage.lake import Lake
from chainfolio.storage.tail import Tail
from chainfolio.tables import ACCOUNT_TRANSFERS, TRANSFERS
from tests.indexer.test_maintenance import Chain


def test_histories_of_a_bucket_are_those_of_a_folder(bucket_lake: Lake, tmp_path: Path) -> None:
    folder, bucket = Chain(tmp_path / "a"), Chain(tmp_path / "b")
    bucket.lake = bucket_lake
    bucket.maintenance.lake = bucket_lake
    rows = []
    for chain in (folder, bucket):
        for _ in range(3):
            chain.add(4)
            materialise.materialise(chain.lake, chain.tail, "a")
        chain.lake.compact(TRANSFERS, "a", retention_hours=0)
        frame = chain.lake.scan(ACCOUNT_TRANSFERS, chain="a").select("account", "height", "raw").collect()
        rows.append(frame.sort(frame.columns).rows())
    assert rows[0] == rows[1] != []
    assert bucket.tail.place == Tail(tmp_path / "b" / "tail.db").place
