"""A lake as releases before the checksums left it."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq

from chainfolio.table import Table
from storage.lake import Lake


def as_older(lake: Lake, table: Table) -> None:
    """Give every file of a table the name and the footer that older releases gave."""
    for entry in sorted(Path(lake.uri, table.name, "_delta_log").glob("*.json")):
        text = entry.read_text()
        for path in map(Path, lake.files(table)):
            if path.name in text:
                old = path.with_name(path.name[:-41] + ".parquet")  # without the digest
                rows = pq.ParquetFile(path).read()
                pq.write_table(rows, old, compression="zstd", store_schema=False)
                text = text.replace(path.name, old.name).replace(
                    f'"size":{path.stat().st_size}', f'"size":{old.stat().st_size}'
                )
                path.unlink()
        entry.write_text(text)
    lake._readers.clear()
    lake._writers.clear()
    lake._lists.clear()
