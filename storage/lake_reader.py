"""Read the lake: the newest version of each table, by any number of readers."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from chainfolio.blocks import Span, Spans
from chainfolio.errors import CorruptFile, StaleTable, StorageFull, StoreError, TooManyFiles
from chainfolio.storage.arrays import numbers
from chainfolio.storage.decimals import with_decimals
from chainfolio.storage.deltalog import (
    files_of,
    last_batch,
    revision_of,
    select_files,
    total_rows,
)
from chainfolio.storage.frames import frame
from chainfolio.storage.history import AccountKey, Footers, count_transactions, max_rows, read_history
from chainfolio.storage.kept_rows import KeptRows
from chainfolio.storage.lake_storage import LakeStorage, LocalStorage, ObjectStorage
from chainfolio.storage.parquet import LakeFile, compare_file, read
from chainfolio.storage.row_order import in_order
from chainfolio.storage.windows import windows
from chainfolio.table import Table, bucket

if TYPE_CHECKING:
    import polars as pl

    from chainfolio.storage.object_store import ObjectStore

_OBJECT_STORE: Final = "chainfolio.storage.object_store"  # loaded only for lakes in an object store


class LakeReader:
    """The tables at one address: a folder, or `s3://bucket/prefix`. Safe to use from several threads.

    Args:
        store: The service of an `s3://` address; None for that of the environment.
    """

    def __init__(self, uri: str, store: ObjectStore | None = None) -> None:
        """Prepare reads; nothing is read yet. `store` has the endpoint of `s3://`."""
        self.storage = storage_at(uri, store)
        self.uri = self.storage.uri
        self.is_local = "://" not in self.uri
        self._readers: dict[str, DeltaTable] = {}  # reused: a new handle takes three times as long
        self._lists: dict[str, tuple[int, int, list[LakeFile]]] = {}
        self._footers = Footers()
        self.kept = KeptRows()
        self._reading = threading.Lock()

    @property
    def footer_bytes(self) -> tuple[int, int]:
        """Estimated bytes of memory that cached footers take, and the limit."""
        return self._footers.size, self._footers.limit

    def exists(self, table: Table) -> bool:
        """Return True if the table was written before."""
        with translate_errors(table), self._reading:
            return self._open_newest(self._readers, table) is not None

    def last(self, table: Table, stream: str) -> int:
        """Return the number of the last batch of `stream` in the table; -1 if there is none."""
        with translate_errors(table), self._reading:
            handle = self._open_newest(self._readers, table)
            return -1 if handle is None else last_batch(handle, stream)

    def chains(self, table: Table) -> list[str]:
        """Return the chains that have rows in the table, sorted."""
        return sorted({file.chain for file in self._files(table)})

    def files(self, table: Table, chain: str | None = None) -> list[str]:
        """Return the addresses of the table's Parquet files in the order of their rows.

        Empty if it does not exist.
        """
        return [self.address(table, file) for file in self._files(table, chain)]

    def address(self, table: Table, file: LakeFile) -> str:
        """Return the address of one file of a table."""
        return f"{self._path(table)}/{file.path}"

    def entries(self, table: Table) -> list[LakeFile]:
        """Return the table's files with their facts in the log, in the order of their rows."""
        return self._files(table)

    def examine(self, table: Table, file: LakeFile) -> Iterator[int]:
        """Compare a file with its checksums, and yield the number of bytes of each step.

        Raises:
            CorruptFile: Some bytes do not match.
        """
        with translate_errors(table):
            yield from compare_file(self.storage.folder(table.name), file.path)

    def count(self, table: Table, chain: str | None = None) -> int:
        """Return the number of rows of one chain, or of all chains; 0 if the table does not exist.

        Only the log is read.
        """
        return total_rows(self._files(table, chain))

    def scan(self, table: Table, *, chain: str | None = None, heights: Iterable[Span] | None = None) -> pl.LazyFrame:
        """Return the present rows as a lazy frame; empty if the table does not exist.

        Each raw column has a decimal column `<name>_dec`, which costs nothing unless it is used.

        Args:
            chain: Only this chain; None for all.
            heights: Skip files and row groups without rows at these heights. The caller filters the remaining rows.

        Raises:
            StaleTable: The stored table has another revision.
            CorruptFile: A file does not match its checksums; raised when the frame is collected.
        """
        spans = None if heights is None else Spans(heights)
        # By a list of files, not by the handle: it changes to newer versions before the frame is collected.
        files = [file for file in self._files(table, chain) if spans is None or spans & [Span(file.first, file.last)]]
        return with_decimals(frame(table, lambda names: self._batches(table, files, names, spans)), table)

    def scan_file(self, table: Table, file: LakeFile, span: Span) -> pl.LazyFrame:
        """Return the rows of a file around some heights as a lazy frame; the caller filters the others."""
        return frame(table, lambda names: self._batches(table, [file], names, Spans([span])))

    def of_accounts(
        self,
        table: Table,
        chain: str,
        accounts: Sequence[str] | Sequence[int],
        columns: Sequence[str] | None = None,
        heights: Span | None = None,
    ) -> pl.LazyFrame:
        """Read the rows of accounts from a table by account, at once; return them as a lazy frame.

        This reads a few row groups of their buckets, each file once. Each raw column has a decimal column `<name>_dec`.
        The rows are in the order of buckets and files, not sorted by height. Rows of accounts that are read again are
        cached.

        Args:
            columns: Columns to read; None for all.
            heights: Skip files without rows at these heights. The caller filters the remaining rows.

        Raises:
            StaleTable: Another release wrote the table. A missing table gives no rows.
        """
        import polars as pl

        files, folder = self._files(table, chain), self.storage.folder(table.name)
        if heights is not None:
            files = [file for file in files if file.first <= heights.last and file.last >= heights.first]
        often = self.kept.often_read((table.name, chain), accounts)
        accounts_by_bucket: dict[tuple[int, bool], list[AccountKey]] = {}
        for account in accounts:
            accounts_by_bucket.setdefault((bucket(account), account in often), []).append(account)
        with translate_errors(table):
            if self.is_local:
                self._footers.prefetch(lambda: (files, folder))
            parts = [
                read_history(
                    table,
                    select_files(files, chain, number),
                    bucket_accounts,
                    columns or table.names,
                    folder,
                    self._footers,
                    self.kept if is_kept else None,
                )
                for (number, is_kept), bucket_accounts in accounts_by_bucket.items()
            ]
            none = read_history(table, [], [], columns or table.names, folder, self._footers)
        frame = pl.from_arrow(pa.concat_tables([none, *parts]))
        assert isinstance(frame, pl.DataFrame)
        return with_decimals(frame.lazy(), table, columns or ())

    def count_transactions(self, table: Table, chain: str, account: str, max_count: int) -> int:
        """Return the number of an account's transactions in a table by account.

        Counting stops after the first row group that makes the number exceed `max_count`.
        """
        with translate_errors(table):
            files = self._files(table, chain, bucket(account))
            folder = self.storage.folder(table.name)
            return count_transactions(table, files, account, max_count, folder, self._footers, self.kept)

    def max_rows(self, table: Table, chain: str, account: str) -> int:
        """Return how many rows an account has at most in a table by account. Only footers of files are read."""
        with translate_errors(table):
            files = self._files(table, chain, bucket(account))
            return max_rows(files, account, self.storage.folder(table.name), self._footers)

    def window(self, table: Table, chain: str, span: Span) -> pa.Table:
        """Return a chain's rows at some heights in the table's order; an empty table if there are none.

        Raises StaleTable if another release wrote the table.

        Polars is not used: loading it takes longer than this read.
        """
        files = [file for file in self._files(table, chain) if file.first <= span.last and file.last >= span.first]
        parts = []
        for batch in self._batches(table, files, table.names):
            heights = numbers(batch.column("height"))
            assert heights is not None, "heights are integers"
            is_in_span = (heights >= span.first) & (heights <= span.last)
            parts.append(pa.table(batch) if is_in_span.all() else pa.table(batch).filter(pa.array(is_in_span)))
        return in_order(table, pa.concat_tables(parts)) if parts else table.schema().empty_table()

    def windows(self, tables: Sequence[Table], chain: str, rows: int) -> Iterator[dict[str, pa.Table]]:
        """Yield a chain's rows of some tables by name, in consecutive spans of heights of about `rows` rows."""
        files = {table.name: (table, self._files(table, chain)) for table in tables}
        yield from windows(files, lambda table, table_files: self._batches(table, table_files, table.names), rows)

    def _batches(
        self, table: Table, files: list[LakeFile], columns: list[str], heights: Spans | None = None
    ) -> Iterator[pa.RecordBatch]:
        with translate_errors(table):
            yield from read(table, files, columns, self.storage.folder(table.name), heights)

    def _files(self, table: Table, chain: str | None = None, bucket: int | None = None) -> list[LakeFile]:
        """Return the newest files of a table, of a chain and bucket if given; empty if it does not exist.

        Raises StaleTable if another release wrote the table.
        """
        with translate_errors(table), self._reading:
            handle = self._open_newest(self._readers, table)
            if handle is None:
                return []
            listing = self._lists.get(table.name)
            if listing is None or listing[0] != handle.version():
                before = {file.path for file in listing[2]} if listing else set[str]()
                listing = self._lists[table.name] = (handle.version(), revision_of(handle), files_of(handle))
                self._footers.drop(before - {file.path for file in listing[2]})
        if listing[1] != table.revision:
            raise StaleTable(table.name, listing[1], table.revision)
        return select_files(listing[2], chain, bucket)

    def _open_newest(self, handles: dict[str, DeltaTable], table: Table) -> DeltaTable | None:
        """Return the table's handle at its newest version; None if the table does not exist."""
        if table.name in handles:
            if not self.storage.is_newest(table.name, handles[table.name].version()):
                handles[table.name].update_incremental()
        elif not self.storage.may_exist(table.name):
            return None
        else:
            try:
                handles[table.name] = DeltaTable(self._path(table), storage_options=self.storage.delta_options)
            except TableNotFoundError:
                return None
        return handles[table.name]

    def _path(self, table: Table) -> str:
        return f"{self.uri}/{table.name}"


def storage_at(uri: str, store: ObjectStore | None) -> LakeStorage:
    """Return the storage of a lake: a local folder, or an object store for an address with `://`.

    Without `store`, one is made by the environment.
    """
    address = uri.removeprefix("file://").rstrip("/")
    if "://" not in address:
        return LocalStorage(address)
    from chainfolio.storage.object_store import ObjectStore

    return ObjectStorage(address, store or ObjectStore.of())


@contextmanager
def translate_errors(table: Table | str) -> Iterator[None]:
    """Raise errors of the libraries as StoreError and its subclasses. `table` is one, or its name."""
    name = table if isinstance(table, str) else table.name
    try:
        yield
    except CorruptFile as error:
        raise error if error.table else CorruptFile(error.path, error.reason, name) from None
    except (DeltaError, OSError, pa.ArrowException) as error:
        text = str(error)
        if any(sign in text for sign in ("No space left", "os error 28", "Disk quota exceeded")):
            raise StorageFull("lake") from error
        if any(sign in text for sign in ("Too many open files", "os error 24")):
            raise TooManyFiles("lake") from error
        if _OBJECT_STORE in sys.modules:
            from chainfolio.storage.object_store import object_store_error

            if (typed := object_store_error(text, name)) is not None:
                raise typed from None  # the answer of a store may repeat what was signed
        raise StoreError("lake", f"table {name}: {text.strip().splitlines()[0][:300]}") from error
