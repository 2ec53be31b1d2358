"""A bit that fell in a file of the lake is an error, whoever reads it and whatever part, and never another row."""

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
def file(lake: Lake, made: Maker) -> Path:
    """A file of several blocks, in a lake that has nothing else."""
    lake.append(TRANSFERS, made(TRANSFERS, "a", HEIGHTS), stream="s", batch=1)
    (path,) = lake.files(TRANSFERS)
    assert Path(path).stat().st_size > 4 * BLOCK
    return Path(path)


def flips(whole: bytes, count: int) -> Iterator[tuple[int, bytes]]:
    """A file with one bit changed: many places by chance, the first and the last of its parts surely."""
    chance = random.Random(7)
    footer = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    sure = [0, 4, BLOCK - 1, BLOCK, footer - 1, footer, footer + 1, len(whole) - 8, len(whole) - 5, len(whole) - 1]
    for at in (*sure, *(chance.randrange(len(whole)) for _ in range(count))):
        changed = bytearray(whole)
        changed[min(at, len(whole) - 1)] ^= 1 << chance.randrange(8)
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
    whole = file.read_bytes()
    for at, changed in flips(whole, 150):
        file.write_bytes(changed)
        with pytest.raises(CorruptFile, match=f"transfers/.*{file.name} is damaged"):
            reading(Lake(lake.uri))
        assert at < len(whole)
    file.write_bytes(whole)
    reading(Lake(lake.uri))


def test_a_column_is_read_though_another_part_of_the_file_is_damaged(lake: Lake, file: Path) -> None:
    """What is not read is not compared: an account's rows cost what they did."""
    damage_end(file, len(TRANSFERS.names) - 2)  # the last one: the chain is in the path
    assert lake.scan(TRANSFERS).select("height").collect().height == 2 * len(HEIGHTS)
    with pytest.raises(CorruptFile):
        lake.scan(TRANSFERS).collect()


def test_no_flipped_bit_gives_another_row_of_an_account(lake: Lake, made: Maker) -> None:
    rows = made(ACCOUNT_TRANSFERS, "a", range(300))
    lake.append(ACCOUNT_TRANSFERS, rows, stream="s", batch=1)
    accounts = sorted(set(rows["account"].to_pylist()))
    good = {account: lake.of_accounts(ACCOUNT_TRANSFERS, "a", [account]).collect() for account in accounts}
    noticed = 0
    for path in map(Path, lake.files(ACCOUNT_TRANSFERS)[:3]):
        whole = path.read_bytes()
        for _, changed in flips(whole, 10):
            path.write_bytes(changed)
            fresh = Lake(lake.uri)
            for account in accounts:
                try:
                    assert fresh.of_accounts(ACCOUNT_TRANSFERS, "a", [account]).collect().equals(good[account])
                except CorruptFile:
                    noticed += 1
        path.write_bytes(whole)
    assert noticed >= 3 * 20, "each flip is in the way of somebody"


@pytest.mark.parametrize("left", [0, 3, 11, BLOCK, -1])
def test_a_file_that_was_cut_off_is_damaged(lake: Lake, file: Path, left: int) -> None:
    file.write_bytes(file.read_bytes()[:left])
    with pytest.raises(CorruptFile):
        lake.window(TRANSFERS, "a", Span(0, 9))


def test_another_file_in_its_place_is_damaged(lake: Lake, made: Maker, file: Path) -> None:
    lake.append(TRANSFERS, made(TRANSFERS, "a", [1000]), stream="s", batch=2)
    (other,) = (path for path in map(Path, lake.files(TRANSFERS)) if path != file)
    file.write_bytes(other.read_bytes())
    with pytest.raises(CorruptFile, match="its footer is not the one"):
        lake.scan(TRANSFERS).collect()


def test_a_damaged_file_is_never_merged_into_a_sound_one(lake: Lake, made: Maker, file: Path) -> None:
    lake.append(TRANSFERS, made(TRANSFERS, "a", [1000]), stream="s", batch=2)
    whole = bytearray(file.read_bytes())
    whole[len(whole) // 3] ^= 16
    file.write_bytes(whole)
    with pytest.raises(CorruptFile):
        lake.compact(TRANSFERS, "a")
    assert file.exists()
    assert len(lake.files(TRANSFERS)) == 2


@pytest.mark.parametrize("table", [TRANSFERS, ACCOUNT_TRANSFERS, BLOCKS], ids=lambda table: table.name)
def test_every_byte_of_a_sound_file_is_compared_once(lake: Lake, made: Maker, table: Table) -> None:
    lake.append(table, made(table, "a", range(100)), stream="s", batch=1)
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
