"""A flipped bit in a file of the lake is an error for each reader, and never gives another row."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from chainfolio.blocks import Span
from chainfolio.errors import CorruptFile
from chainfolio.storage.checksums import BLOCK
from chainfolio.storage.lake import Lake
from chainfolio.storage.parquet import Folder, compare_file, read_file_footer
from chainfolio.table import Table
from chainfolio.tables import ACCOUNT_TRANSFERS, BLOCKS, TRANSFERS

Maker = Callable[..., pa.Table]
HEIGHTS = range(400)


@pytest.fixture
def file(lake: Lake, make_rows: Maker) -> Path:
    """A file of several blocks, in a lake that has nothing else."""
    lake.append(TRANSFERS, make_rows(TRANSFERS, "a", HEIGHTS), stream="s", batch=1)
    (path,) = lake.files(TRANSFERS)
    assert Path(path).stat().st_size > 4 * BLOCK
    return Path(path)


def flips(content: bytes, count: int) -> Iterator[tuple[int, bytes]]:
    """Yield copies of a file with one flipped bit: at `count` random places and at the ends of its parts."""
    chance = random.Random(7)
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    sure = [
        0,
        4,
        BLOCK - 1,
        BLOCK,
        footer - 1,
        footer,
        footer + 1,
        len(content) - 8,
        len(content) - 5,
        len(content) - 1,
    ]
    for at in (*sure, *(chance.randrange(len(content)) for _ in range(count))):
        changed = bytearray(content)
        changed[min(at, len(content) - 1)] ^= 1 << chance.randrange(8)
        yield at, bytes(changed)


def damage_end(file: Path, column: int) -> None:
    """Change the last byte of a column."""
    facts = pq.ParquetFile(file).metadata.row_group(0).column(column)
    changed = bytearray(file.read_bytes())
    start = facts.dictionary_page_offset or facts.data_page_offset
    changed[start + facts.total_compressed_size - 1] ^= 1
    file.write_bytes(changed)


READINGS: dict[str, Callable[[Lake], object]] = {
    "a window": lambda lake: lake.window(TRANSFERS, "a", Span(0, HEIGHTS[-1])),
    "a frame": lambda lake: lake.scan(TRANSFERS).collect(),
}


@pytest.mark.parametrize("reading", READINGS.values(), ids=READINGS)
def test_no_flipped_bit_gives_another_row(lake: Lake, file: Path, reading: Callable[[Lake], object]) -> None:
    content = file.read_bytes()
    for at, changed in flips(content, 150):
        file.write_bytes(changed)
        with pytest.raises(CorruptFile, match=f"transfers/.*{file.name} is damaged"):
            reading(Lake(lake.uri))
        assert at < len(content)
    file.write_bytes(content)
    reading(Lake(lake.uri))


def test_a_column_is_read_though_another_part_of_the_file_is_damaged(lake: Lake, file: Path) -> None:
    """Unread parts are not compared, so that reading an account's rows costs no more."""
    damage_end(file, len(TRANSFERS.names) - 2)  # the last one: the chain is in the path
    assert lake.scan(TRANSFERS).select("height").collect().height == 2 * len(HEIGHTS)
    with pytest.raises(CorruptFile):
        lake.scan(TRANSFERS).collect()


@pytest.mark.slow("takes seconds, and faster tests take its branches")
def test_no_flipped_bit_gives_another_row_of_an_account(lake: Lake, make_rows: Maker) -> None:
    rows = make_rows(ACCOUNT_TRANSFERS, "a", range(300))
    lake.append(ACCOUNT_TRANSFERS, rows, stream="s", batch=1)
    accounts = sorted(set(rows["account"].to_pylist()))
    good = {account: lake.of_accounts(ACCOUNT_TRANSFERS, "a", [account]).collect() for account in accounts}
    noticed = 0
    for path in map(Path, lake.files(ACCOUNT_TRANSFERS)[:3]):
        content = path.read_bytes()
        for _, changed in flips(content, 10):
            path.write_bytes(changed)
            fresh = Lake(lake.uri)
            for account in accounts:
                try:
                    assert fresh.of_accounts(ACCOUNT_TRANSFERS, "a", [account]).collect().equals(good[account])
                except CorruptFile:
                    noticed += 1
        path.write_bytes(content)
    assert noticed >= 3 * 20, "each flip is in the way of somebody"


@pytest.mark.parametrize("size", [0, 3, 11, BLOCK, -1])
def test_a_file_that_was_cut_off_is_damaged(lake: Lake, file: Path, size: int) -> None:
    file.write_bytes(file.read_bytes()[:size])
    with pytest.raises(CorruptFile):
        lake.window(TRANSFERS, "a", Span(0, 9))


def test_another_file_in_its_place_is_damaged(lake: Lake, make_rows: Maker, file: Path) -> None:
    lake.append(TRANSFERS, make_rows(TRANSFERS, "a", [1000]), stream="s", batch=2)
    (second,) = (path for path in map(Path, lake.files(TRANSFERS)) if path != file)
    file.write_bytes(second.read_bytes())
    with pytest.raises(CorruptFile, match="its footer is not the one"):
        lake.scan(TRANSFERS).collect()


def test_a_damaged_file_is_never_merged_into_a_sound_one(lake: Lake, make_rows: Maker, file: Path) -> None:
    lake.append(TRANSFERS, make_rows(TRANSFERS, "a", [1000]), stream="s", batch=2)
    content = bytearray(file.read_bytes())
    content[len(content) // 3] ^= 16
    file.write_bytes(content)
    with pytest.raises(CorruptFile):
        lake.compact(TRANSFERS, "a")
    assert file.exists()
    assert len(lake.files(TRANSFERS)) == 2


@pytest.mark.parametrize("table", [TRANSFERS, ACCOUNT_TRANSFERS, BLOCKS], ids=lambda table: table.name)
def test_every_byte_of_a_sound_file_is_compared_once(lake: Lake, make_rows: Maker, table: Table) -> None:
    lake.append(table, make_rows(table, "a", range(100)), stream="s", batch=1)
    root = Path(lake.uri, table.name)
    for path in lake.files(table):
        footer = int.from_bytes(Path(path).read_bytes()[-8:-4], "little") + 8
        assert sum(compare_file(Folder(root), str(Path(path).relative_to(root)))) == Path(path).stat().st_size - footer


def test_other_engines_find_page_checksums_too(lake: Lake, file: Path) -> None:
    damage_end(file, 5)
    with pytest.raises(OSError, match="CRC"):
        pq.ParquetFile(file, page_checksum_verification=True).read()


def test_a_file_without_a_checksum_in_its_name_is_damaged(lake: Lake, file: Path) -> None:
    renamed = file.rename(file.with_name("part-0.parquet"))
    root = Path(lake.uri, TRANSFERS.name)
    with pytest.raises(CorruptFile, match="its name has no checksum"):
        read_file_footer(Folder(root), str(renamed.relative_to(root)))
