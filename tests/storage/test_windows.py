"""Windows: every row once, of every table the same heights, whatever the files are like."""

from __future__ import annotations

from itertools import chain, pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainfolio.storage import windows
from chainfolio.storage.lake import Lake
from chainfolio.storage.parquet import Folder, LakeFile
from chainfolio.tables import APPROVALS, BLOCKS, TRANSFERS
from tests.storage.conftest import Maker, stored

CHAIN = "a"


@given(
    files=st.lists(st.tuples(st.sampled_from(["one", "two"]), st.lists(st.integers(0, 60), min_size=1)), max_size=8),
    rows=st.integers(1, 40),
    sliced=st.integers(1, 7),
)
def test_each_row_comes_once_and_no_window_says_what_another_one_does(
    files: list[tuple[str, list[int]]], rows: int, sliced: int
) -> None:
    tables = {"one": TRANSFERS, "two": APPROVALS}
    contents = {str(at): sorted(heights) for at, (_, heights) in enumerate(files)}
    reads: list[str] = []

    def reading(_: Any, batch: list[LakeFile]) -> Any:
        reads.extend(file.path for file in batch)
        heights = contents[batch[0].path]
        for start in range(0, len(heights), sliced):
            yield pa.RecordBatch.from_pydict({"height": pa.array(heights[start : start + sliced], pa.int64())})

    files_by_table: dict[str, Any] = {name: (table, []) for name, table in tables.items()}
    for at, (name, heights) in enumerate(files):
        files_by_table[name][1].append(LakeFile(str(at), 1, len(heights), CHAIN, None, min(heights), max(heights)))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(windows, "in_order", lambda _, part: part.sort_by("height"))
        window_heights = [
            {name: part["height"].to_pylist() for name, part in window.items() if len(part)}
            for window in windows.windows(files_by_table, reading, rows)
        ]
    for name in tables:
        expected = sorted(height for at, (of, _) in enumerate(files) if of == name for height in contents[str(at)])
        assert [height for window in window_heights for height in window.get(name, [])] == expected
    spans = [(min(heights), max(heights)) for window in window_heights if (heights := list(chain(*window.values())))]
    assert all(earlier[1] < later[0] for earlier, later in pairwise(spans))
    assert sorted(reads) == sorted(contents)


def test_windows_of_the_lake_are_its_rows_and_a_file_is_opened_once(
    lake: Lake, make_rows: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.append(TRANSFERS, make_rows(TRANSFERS, CHAIN, range(200)), stream="s", batch=0)
    lake.append(BLOCKS, make_rows(BLOCKS, CHAIN, range(50)), stream="s", batch=1)
    opened: list[str] = []
    real = Folder.source

    def counted(self: Folder, path: str, *options: Any) -> Any:
        opened.append(path)
        return real(self, path, *options)

    monkeypatch.setattr(Folder, "source", counted)
    windows_read = list(lake.windows([TRANSFERS, APPROVALS, BLOCKS], CHAIN, 60))
    assert len(opened) == len(set(opened)) == 2
    assert len(windows_read) > 3
    for table in (TRANSFERS, APPROVALS, BLOCKS):
        assert pa.concat_tables([window[table.name] for window in windows_read]).equals(stored(lake, table, CHAIN))
    assert list(lake.windows([TRANSFERS], "another", 60)) == []
