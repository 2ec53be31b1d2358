"""Write the rows of a result to a Parquet file, or to a Delta table in one commit."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Final

from chainfolio.errors import AccessDenied, StoreError, StoreUnavailable

if TYPE_CHECKING:
    import polars as pl

    from chainfolio.storage.object_store import ObjectStore

PARQUET: Final = ".parquet"


def write_result(rows: pl.DataFrame, target: str, store: ObjectStore | None = None) -> None:
    """Replace a local Parquet file, whose folder must exist, or the rows of a Delta table, by some rows.

    A Delta table is replaced in one commit, so readers see all old or all new rows. A file is renamed when it is whole.

    Args:
        rows: The rows in the order in which they are written.
        target: A local path that ends with `.parquet`, or the folder or `s3://` address of a Delta table.
        store: The service behind an `s3://` address; None for that of the environment.

    Raises:
        StoreError: The place cannot be written.
        AccessDenied: An object store refuses the credentials.
        StoreUnavailable: An object store does not answer.
    """
    from deltalake import write_deltalake
    from deltalake.exceptions import DeltaError

    try:
        if target.endswith(PARQUET) and "://" not in target:
            partial = Path(f"{target}.{secrets.token_hex(4)}.partial")
            try:
                rows.write_parquet(partial)
                partial.replace(target)
            finally:
                partial.unlink(missing_ok=True)
        else:
            options = _options(store) if target.startswith("s3://") else None
            write_deltalake(target, rows.to_arrow(), mode="overwrite", schema_mode="overwrite", storage_options=options)
    except (DeltaError, OSError) as error:
        text = str(error).strip() or type(error).__name__
        if target.startswith("s3://"):
            raise _of_object_store(text, target) from None  # its text may repeat what was signed
        raise StoreError("results", f"{target}: {text.splitlines()[0][:300]}", remedy="check --out") from error


def _options(store: ObjectStore | None) -> dict[str, str]:
    from chainfolio.storage.object_store import ObjectStore

    return (store or ObjectStore.of()).delta_options()


def _of_object_store(text: str, target: str) -> StoreError:
    """Return AccessDenied, StoreUnavailable or else StoreError for a message of an object store, without it."""
    from chainfolio.storage.object_store import CREDENTIALS_REMEDY, object_store_error

    known = object_store_error(text, "results")
    if isinstance(known, AccessDenied):
        reason = "the object store refuses the credentials, or there are none"
        return AccessDenied("results", f"{target}: {reason}", remedy=CREDENTIALS_REMEDY)
    if isinstance(known, StoreUnavailable):
        return StoreUnavailable("results", f"{target}: the object store does not answer")
    return StoreError("results", f"{target}: the object store cannot write it", remedy="check --out and its bucket")
