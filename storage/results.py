"""Write the rows of a result to a Parquet file, or to a Delta table in one commit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from chainfolio.errors import StoreError

if TYPE_CHECKING:
    import polars as pl

PARQUET: Final = ".parquet"


def write_result(rows: pl.DataFrame, target: str) -> None:
    """Replace the Parquet file or the rows of the Delta table at `target` by some rows.

    A Delta table is replaced in one commit, so readers see all old or all new rows. A file is renamed when it is whole.

    Args:
        rows: The rows in the order in which they are written.
        target: A path that ends with `.parquet`, or the folder or `s3://` address of a Delta table.

    Raises:
        StoreError: The place cannot be written.
    """
    from deltalake import write_deltalake
    from deltalake.exceptions import DeltaError

    try:
        if target.endswith(PARQUET) and "://" not in target:
            partial = Path(f"{target}.partial")
            rows.write_parquet(partial)
            partial.replace(target)
        else:
            write_deltalake(target, rows.to_arrow(), mode="overwrite", schema_mode="overwrite")
    except (DeltaError, OSError) as error:
        text = str(error).strip() or type(error).__name__
        raise StoreError("results", f"{target}: {text.splitlines()[0][:300]}", remedy="check --out") from error
