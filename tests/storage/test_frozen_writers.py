"""Writers frozen before their commit while another process takes the chain's lock and does their work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from chainfolio.blocks import Span
from chainfolio.errors import Locked
from chainfolio.storage.lake import Lake
from chainfolio.tables import BLOCKS
from tests.storage.conftest import Maker, make

Change = Callable[[Lake], object]
ROWS = 10 * 10 * 2


def merge(lake: Lake) -> object:
    return lake.merge_crowded(BLOCKS, "a", 8)


def rewind(lake: Lake) -> None:
    lake.delete_span("a", Span(50, 2**60), [BLOCKS])


def delete_middle(lake: Lake) -> None:
    lake.delete_span("a", Span(5, 14), [BLOCKS])


def renew(lake: Lake) -> object:
    return lake.replace(BLOCKS, "a", make(BLOCKS, "a", range(5)))


@pytest.mark.parametrize(
    ("woken", "meanwhile", "row_count"),
    [
        (merge, merge, ROWS),
        (merge, rewind, ROWS // 2),
        (merge, renew, 10),
        (rewind, merge, ROWS),  # its caller repeats it
        (rewind, rewind, ROWS // 2),
        (delete_middle, delete_middle, ROWS - 20),
        (renew, renew, 10),
    ],
)
def test_a_woken_writer_replaces_no_file_that_another_one_replaced(
    lake: Lake, make_rows: Maker, monkeypatch: pytest.MonkeyPatch, woken: Change, meanwhile: Change, row_count: int
) -> None:
    for batch in range(10):
        rows = make_rows(BLOCKS, "a", range(batch * 10, batch * 10 + 10))
        lake.append(BLOCKS, rows, stream="a/collect", batch=batch)
    second_lake, commit = Lake(lake.uri), lake._commit

    def frozen(*args: Any, **options: Any) -> bool:
        monkeypatch.setattr(lake, "_commit", commit)
        meanwhile(second_lake)
        return commit(*args, **options)

    monkeypatch.setattr(lake, "_commit", frozen)
    with pytest.raises(Locked, match="another process replaced its files"):
        woken(lake)
    assert second_lake.count(BLOCKS, "a") == row_count


def test_a_commit_of_another_chain_is_no_obstacle(
    lake: Lake, make_rows: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    for batch in range(10):
        lake.append(BLOCKS, make_rows(BLOCKS, "a", range(batch * 10, batch * 10 + 10)), stream="a/collect", batch=batch)
    second_lake, commit = Lake(lake.uri), lake._commit

    def frozen(*args: Any, **options: Any) -> bool:
        second_lake.append(BLOCKS, make_rows(BLOCKS, "b", range(3)), stream="b/collect", batch=1)
        return commit(*args, **options)

    monkeypatch.setattr(lake, "_commit", frozen)
    assert merge(lake)
    assert (second_lake.count(BLOCKS, "a"), second_lake.count(BLOCKS, "b")) == (ROWS, 6)
