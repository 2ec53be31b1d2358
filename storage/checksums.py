"""Checksums of the lake's files: corrupted bytes raise an error and never become rows.

A file stores the CRC-32 of each 16 KiB of its data in its footer, and a digest of the footer in its name, which the
commit names. A reader of a part of the file compares that part and reads nothing else for it.
"""

from __future__ import annotations

import base64
import hashlib
import re
import zlib
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from chainfolio.errors import CorruptFile

BLOCK = 16 * 1024
KEY = "chainfolio.crc32"
MAGIC = b"PAR1"
FOOTER_END = 8  # the length of the footer and the magic bytes
MAX_FOOTER = 512 * 2**20
NAME = re.compile(r"-([0-9a-f]{32})\.parquet$")

ReadAt = Callable[[int, int], bytes]


def digest_in(path: str) -> str | None:
    """Return the digest in a file's name; None if there is none."""
    match = NAME.search(path)
    return match[1] if match else None


class ChecksumWriter:
    """Writes a file and computes its checksums."""

    closed = False

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._sums: list[int] = []
        self._crc = self._filled = self._size = 0
        self._footer_hash: Any = None  # set by `seal`

    def write(self, data: bytes) -> int:
        """Write bytes, add them to the checksums, and return their number.

        Until `seal`, each block of `BLOCK` bytes gets a CRC-32. Afterwards, bytes count to the digest of the footer.
        """
        self._file.write(data)
        view = memoryview(data).cast("B")
        self._size += len(view)
        if self._footer_hash is not None:
            self._footer_hash.update(view)
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
        """End the data, and return its checksums as metadata for the footer, which is written next."""
        if self._filled:
            self._end_block()
        self._footer_hash = hashlib.sha256()
        return {KEY: base64.b64encode(np.array(self._sums, "<u4").tobytes()).decode()}

    @property
    def digest(self) -> str:
        """Digest of the footer, once it is written."""
        return str(self._footer_hash.hexdigest())[:32]

    def tell(self) -> int:
        """Return the number of bytes written."""
        return self._size

    def flush(self) -> None:
        """Do nothing: the owner of the file forces it to the disk."""

    def close(self) -> None:
        """Do nothing: the owner of the file closes it."""

    def _end_block(self) -> None:
        self._sums.append(self._crc)
        self._crc = self._filled = 0


def read_footer(path: str, size: int, read_at: ReadAt) -> pq.FileMetaData:
    """Read a file's footer.

    Raises:
        CorruptFile: The footer does not match the digest in the file's name, or the name has none.
    """
    body = b""
    if size >= FOOTER_END + len(MAGIC):
        length = int.from_bytes(read_at(size - FOOTER_END, FOOTER_END)[:4], "little")
        if length <= min(size - FOOTER_END, MAX_FOOTER):
            body = read_at(size - FOOTER_END - length, length + FOOTER_END)
    digest = digest_in(path)
    if digest is None:
        raise CorruptFile(path, "its name has no checksum: Chainfolio did not write it, or it was renamed")
    if hashlib.sha256(body).hexdigest()[:32] != digest:
        raise CorruptFile(path, "its footer is not the one that was written")
    return pq.read_metadata(pa.BufferReader(MAGIC + body))


class ChecksumReader:
    """The data of a file as a file object.

    It compares each block with its checksum before it returns bytes.
    """

    closed = False
    mode = "rb"

    def __init__(self, path: str, size: int, read_at: ReadAt, metadata: pq.FileMetaData) -> None:
        """Read the sums of a file's blocks; CorruptFile if their number does not fit its size."""
        self._path, self._size, self._read_at = path, size, read_at
        self._sums = np.frombuffer(base64.b64decode(metadata.metadata[KEY.encode()]), "<u4").tolist()
        self._end = size - FOOTER_END - int.from_bytes(read_at(size - FOOTER_END, 4), "little")
        if len(self._sums) != -(-self._end // BLOCK):
            raise CorruptFile(path, "it is longer or shorter than what was written")
        self._at = 0

    def seek(self, offset: int, whence: int = 0) -> int:
        """Set the position, and return it."""
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def tell(self) -> int:
        """Return the position."""
        return self._at

    def read(self, count: int = -1) -> bytes:
        """Return `count` bytes from the position on; all that follow if `count` is negative.

        Raises:
            CorruptFile: The data does not match its checksums, or ends too early.
        """
        start = self._at
        end = self._end if count < 0 else start + count
        if end > self._end:
            raise CorruptFile(self._path, "its footer points beyond its data")
        first = start // BLOCK
        data = self._read_at(first * BLOCK, min(-(-end // BLOCK) * BLOCK, self._end) - first * BLOCK)
        self._compare(first, data, end - first * BLOCK)
        self._at = end
        return data[start - first * BLOCK : end - first * BLOCK]

    def blocks(self) -> Iterator[int]:
        """Compare all data, a few blocks at a time, and yield the number of bytes of each step.

        Raises CorruptFile at the first block that does not match.
        """
        step = 64 * BLOCK
        for start in range(0, self._end, step):
            self.seek(start)
            yield len(self.read(min(step, self._end - start)))

    def close(self) -> None:
        """Do nothing: the owner of the file closes it."""

    def _compare(self, first: int, data: bytes, min_size: int) -> None:
        """Raise CorruptFile if blocks from number `first` on do not match, or are shorter than `min_size`."""
        if len(data) < min_size:
            raise CorruptFile(self._path, "it ends too early")
        view = memoryview(data)
        for number, at in enumerate(range(0, len(data), BLOCK), first):
            if zlib.crc32(view[at : at + BLOCK]) != self._sums[number]:
                raise CorruptFile(self._path, f"its bytes from {number * BLOCK:,} on do not match their checksum")
