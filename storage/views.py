"""DuckDB views over the lake's files, with a DECIMAL column for each 32-byte amount."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from chainfolio.amounts import MAX_DEC38
from chainfolio.table import BUCKETS, Table
from chainfolio.tables import TABLES

ONES = 0xFFFFFFFF
# Income of proposers on the execution chain in wei, as in `engine/validators/block_income.py`. It is known for blocks
# whose transactions are all in the lake; a block without a payload has none.
VALIDATOR_REWARDS_OF = f"""
CREATE OR REPLACE MACRO validator_rewards_of(who) AS TABLE WITH
own AS (SELECT * FROM validator_rewards WHERE bucket = who % {BUCKETS} AND validator = who),
carried AS (SELECT * FROM proposals WHERE bucket = who % {BUCKETS} AND validator = who),
signed AS (
    SELECT p.chain, p.height, b.chain AS chain_paid, b.miner, b.tx_count, t.tx_index, t.raw_dec,
        t.gas_used::HUGEINT * (t.gas_price_dec::HUGEINT - coalesce(b.base_fee_dec, 0)::HUGEINT) AS tip,
        t.sender = b.miner AND t.recipient <> b.miner AND t.raw_dec > 0 AND t.status IS DISTINCT FROM 0 AS pays
    FROM carried p JOIN blocks b ON b.height = p.execution_height AND b.hash = p.execution_hash
    LEFT JOIN transactions t ON t.chain = b.chain AND t.height = b.height),
summed AS (
    SELECT chain, height, count(tip) = any_value(tx_count) AND count(raw_dec) = any_value(tx_count) AS is_whole,
        coalesce(sum(tip), 0) AS fees, arg_max({{'pays': coalesce(pays, false), 'raw': raw_dec}}, tx_index) AS last
    FROM signed GROUP BY chain, height, chain_paid),
brought AS (
    SELECT chain, height, max(if(last.pays, 0, fees)) AS fees, max(if(last.pays, last.raw, 0)) AS paid
    FROM summed WHERE is_whole GROUP BY chain, height),
by_epoch AS (
    SELECT p.chain, p.epoch, sum(if(p.execution_hash IS NULL, 0, fees)) AS execution,
        sum(if(p.execution_hash IS NULL, 0, paid)) AS mev, count(if(p.execution_hash IS NULL, 0, fees)) AS known
    FROM carried p LEFT JOIN brought USING (chain, height) GROUP BY p.chain, p.epoch)
SELECT own.*, CASE WHEN proposed = coalesce(known, 0) THEN coalesce(execution, 0)::DECIMAL(38, 0) END AS execution,
    CASE WHEN proposed = coalesce(known, 0) THEN coalesce(mev, 0)::DECIMAL(38, 0) END AS mev
FROM own LEFT JOIN by_epoch USING (chain, epoch);"""


def views(files: Mapping[str, Sequence[str]], errors: Mapping[str, str] | None = None) -> list[str]:
    """Return one CREATE VIEW statement per table, and the macros for tables by account.

    Args:
        files: The files of each table. A table without files gets an empty view with its columns.
        errors: Tables that cannot be read, with the reason. A query of such a view raises the reason.
    """
    error_by_table = errors or {}
    statements = (_view(table, files.get(name, ()), error_by_table.get(name)) for name, table in TABLES.items())
    return [*statements, *_macros()]


def _view(table: Table, files: Sequence[str], error: str | None) -> str:
    """Return the CREATE VIEW statement of a table.

    Args:
        files: Paths of its files; without them the view is empty.
        error: A text that every query of the view raises; None for a view of the files.
    """
    columns_and_types = [pair for column in table.columns for pair in _types(column.name, column.type)]
    if error is not None:  # each column and the condition raise the error: every query raises it
        columns = ", ".join(f"refused::{kind} AS {_quote(name)}" for name, kind in columns_and_types)
        query = f"SELECT error({literal(error)})::VARCHAR AS refused"
        return f"CREATE OR REPLACE VIEW {table.name} AS SELECT {columns} FROM ({query}) WHERE refused IS NULL;"
    if not files:
        columns = ", ".join(f"NULL::{kind} AS {_quote(name)}" for name, kind in columns_and_types)
        return f"CREATE OR REPLACE VIEW {table.name} AS SELECT {columns} WHERE false;"
    names = ", ".join(map(literal, files))
    columns = ", ".join(column for each in table.columns for column in _columns(each.name, each.type))
    # Named, or DuckDB guesses from the folders' names: a chain called 1 would be a number.
    parts = {column.name: column.type for column in table.columns if column.name in table.partitions}
    types = ", ".join(f"{literal(name)}: {kind}" for part in parts.items() for name, kind in _types(*part))
    return (
        f"CREATE OR REPLACE VIEW {table.name} AS SELECT {columns} FROM read_parquet([{names}], "
        f"hive_partitioning = true, hive_types = {{{types}}}, union_by_name = true);"
    )


def sql_columns(table: Table) -> list[tuple[str, str, str]]:
    """Return name, type in DuckDB and description of each column of a table's view."""
    return [
        (name, kind, f"{column.description}, as a number" if name != column.name else column.description)
        for column in table.columns
        for name, kind in _types(column.name, column.type)
    ]


def _columns(name: str, kind: str) -> list[str]:
    column = _quote(name)
    return [column, f"{decimal_of(column)} AS {_quote(name + '_dec')}"] if kind == "raw" else [column]


def decimal_of(column: str) -> str:
    """Return SQL that converts 32 big-endian bytes to DECIMAL(38,0); null if the value is too large."""
    limit = "".join(f"\\x{byte:02X}" for byte in MAX_DEC38.to_bytes(32, "big"))
    return f"CASE WHEN {column} <= '{limit}'::BLOB THEN {column}[17:32]::BIT::HUGEINT::DECIMAL(38, 0) END"


def total_of(column: str) -> str:
    """Return SQL that sums 32-byte amounts as DECIMAL(38,0); null if the sum is too large.

    It sums limbs of 64 bits: no row overflows or is left out.
    """
    limbs = [f"sum({column}[{1 + 8 * at}:{8 + 8 * at}]::BIT::UBIGINT::HUGEINT)" for at in range(4)]
    upper, lower = divmod(MAX_DEC38, 2**64)
    # The lowest sum may exceed 64 bits: its carry is compared before the multiplication.
    high, low = f"{limbs[2]} + {limbs[3]} // {2**64}", f"{limbs[3]} % {2**64}"
    fits = f"{limbs[0]} + {limbs[1]} = 0 AND ({high} < {upper} OR {high} = {upper} AND {low} <= {lower})"
    return f"CASE WHEN {fits} THEN (least({high}, {upper}) * {2**64} + {low})::DECIMAL(38, 0) END"


def _macros() -> list[str]:
    """Return the macros: `total(raw)`, `bucket_of(account)`, and `<table>_of(account)` per table.

    `<table>_of` reads only the account's bucket, and accepts addresses in checksum notation. The macro
    `validator_rewards_of(index)` adds the two columns of the execution chain.
    """
    account = "CASE WHEN account LIKE '0x%' THEN lower(account) ELSE account END"
    shares = "list_transform(range(1, length(account) + 1), lambda i: ascii(account[i])::UBIGINT)"
    step = f"lambda crc, byte: xor(crc // 256, {_crc_table()}[(xor(crc % 256, byte) + 1)::INTEGER])"
    crc = f"xor(list_reduce(list_concat([{ONES}::UBIGINT], {shares}), {step}), {ONES}::UBIGINT)"
    return [
        f"CREATE OR REPLACE MACRO total(raw) AS {total_of('raw')};",
        f"CREATE OR REPLACE MACRO canonical(account) AS {account};",
        f"CREATE OR REPLACE MACRO bucket_of(account) AS ({crc} % {BUCKETS})::INTEGER;",
        *(
            f"CREATE OR REPLACE MACRO {table.name}_of(who) AS TABLE SELECT * FROM {table.name} "
            "WHERE bucket = bucket_of(canonical(who)) AND account = canonical(who);"
            for table in TABLES.values()
            if "account" in table.key and "bucket" in table.partitions
        ),
        VALIDATOR_REWARDS_OF.strip(),
    ]


def _crc_table() -> list[int]:
    """Return the 256 steps of CRC-32, for which DuckDB has no function."""
    table = list(range(256))
    for _ in range(8):
        table = [value >> 1 ^ 0xEDB88320 if value & 1 else value >> 1 for value in table]
    return table


def literal(text: str) -> str:
    """Return a text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def _quote(name: str) -> str:
    return f'"{name}"'


def _types(name: str, kind: str) -> list[tuple[str, str]]:
    if kind == "raw":
        return [(name, "BLOB"), (name + "_dec", "DECIMAL(38, 0)")]
    types = {"text": "VARCHAR", "int": "INTEGER", "long": "BIGINT", "bool": "BOOLEAN", "time": "TIMESTAMPTZ"}
    return [(name, types.get(kind, "BLOB"))]
