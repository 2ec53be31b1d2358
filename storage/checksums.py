"""Checksums of the lake's files: a bit that fell on the disk is an error, and never another row.

A file keeps the CRC-32 of each 16 KiB of its data in its footer, and has a digest of its footer in its name, which the
commit names. So whoever reads a part of it compares that part, and nothing else has to be read for it.
"""

from __future__ import annotations

import base64
import hashlib
import re
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from chainfolio.errors import Damaged

BLOCK = 16 * 1024
KEY = "chainfolio.crc32"
MAGIC = b"PAR1"
TAIL = 8  # the length of the footer and the magic bytes
MAX_FOOTER = 512 * 2**20
NAME = re.compile(r"-([0-9a-f]{32})\.parquet$")

ReadAt = Callable[[int, int], bytes]


def digest_in(path: str) -> str | None:
    """The digest that a file has in its name; None where an older release wrote it."""
    found = NAME.search(path)
    return found[1] if found else None


class Summed:
    """A file that is being written, and the checksums of what was."""

    closed = False

    def __init__(self, file: Any) -> None:
        self._file = file
        self._sums: list[int] = []
        self._crc = self._filled = self._size = 0
        self._footer: Any = None

    def write(self, data: Any) -> int:
        """Write bytes on."""
        self._file.write(data)
        view = memoryview(data).cast("B")
        self._size += len(view)
        if self._footer is not None:
            self._footer.update(view)
            return len(view)
        at = 0
        while at < len(view):
            part = view[at : at + BLOCK - self._filled]
            self._crc = zlib.crc32(part, self._crc)
            self._filled += len(part)
            at += len(part)
            if self._filled == BLOCK:
                self._end_block()
        return len(view)

    def seal(self) -> dict[str, str]:
        """The checksums of all data, for the footer: what is written from now on is the footer."""
        if self._filled:
            self._end_block()
        self._footer = hashlib.sha256()
        return {KEY: base64.b64encode(np.array(self._sums, "<u4").tobytes()).decode()}

    @property
    def digest(self) -> str:
        """The digest of the footer, once that is written."""
        return str(self._footer.hexdigest())[:32]

    def tell(self) -> int:
        """How much was written."""
        return self._size

    def flush(self) -> None:
        """Nothing: whoever closes the file below forces it to the disk."""

    def close(self) -> None:
        """Nothing: the file below has an owner."""

    def _end_block(self) -> None:
        self._sums.append(self._crc)
        self._crc = self._filled = 0


def footer(path: str, size: int, read_at: ReadAt) -> pq.FileMetaData:
    """The footer of a file with a digest in its name; Damaged where it is another one."""
    body = b""
    if size >= TAIL + len(MAGIC):
        length = int.from_bytes(read_at(size - TAIL, TAIL)[:4], "little")
        if length <= min(size - TAIL, MAX_FOOTER):
            body = read_at(size - TAIL - length, length + TAIL)
    if hashlib.sha256(body).hexdigest()[:32] != digest_in(path):
        raise Damaged(path, "its footer is not the one that was written")
    return pq.read_metadata(pa.BufferReader(MAGIC + body))


class Checked:
    """The data of a file as a file, of which nothing is given that does not match its checksums."""

    closed = False
    mode = "rb"

    def __init__(self, path: str, size: int, read_at: ReadAt, known: pq.FileMetaData) -> None:
        self._path, self._size, self._read_at = path, size, read_at
        self._sums = np.frombuffer(base64.b64decode(known.metadata[KEY.encode()]), "<u4").tolist()
        self._end = size - TAIL - int.from_bytes(read_at(size - TAIL, 4), "little")
        if len(self._sums) != -(-self._end // BLOCK):
            raise Damaged(path, "it is longer or shorter than what was written")
        self._at = 0

    def seek(self, offset: int, whence: int = 0) -> int:
        """Go to a place."""
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def tell(self) -> int:
        """The place."""
        return self._at

    def read(self, count: int = -1) -> bytes:
        """The bytes from the place on."""
        start = self._at
        end = self._end if count < 0 else start + count
        if end > self._end:
            raise Damaged(self._path, "its footer points beyond its data")
        first = start // BLOCK
        data = self._read_at(first * BLOCK, min(-(-end // BLOCK) * BLOCK, self._end) - first * BLOCK)
        self._compare(first, data, end - first * BLOCK)
        self._at = end
        return data[start - first * BLOCK : end - first * BLOCK]

    def blocks(self) -> Iterator[int]:
        """Compare all data, a few blocks at a time; how many bytes each time."""
        step = 64 * BLOCK
        for start in range(0, self._end, step):
            self.seek(start)
            yield len(self.read(min(step, self._end - start)))

    def close(self) -> None:
        """Nothing: the file below has an owner."""

    def _compare(self, first: int, data: bytes, wanted: int) -> None:
        if len(data) < wanted:
            raise Damaged(self._path, "it ends too early")
        view = memoryview(data)
        for number, at in enumerate(range(0, len(data), BLOCK), first):
            if zlib.crc32(view[at : at + BLOCK]) != self._sums[number]:
                raise Damaged(self._path, f"its bytes from {number * BLOCK:,} on do not match their checksum")
